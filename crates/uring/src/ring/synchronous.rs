//! Operations that the ring cannot carry: the doorbell does them itself, by a system call that may
//! block.
//!
//! Why not on a thread of its own: these are rare (kernels before 6.9 and 6.12, a directory that
//! cannot be read), and the order of a target's requests stays as its owner sees it.

use forebay_block::{Completion, Errno, Target};

use super::ledger::Ledger;
use super::{Ring, errno_of};
use crate::slot::Ticket;

/// A request the ring cannot carry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Synchronous {
    SetLength { target: Target, length: u64 },
    SyncFileSystem(Target),
    Discard { target: Target, offset: u64, length: u64 },
    Ended(Result<u64, Errno>),
}

impl Ring {
    /// Does what was prepared.
    pub(super) fn run_synchronous(&mut self) {
        for (ticket, work) in self.synchronous.drain(..) {
            let result = work.run(&self.ledger);
            self.arrived.extend(ended(&mut self.ledger, ticket, result));
        }
    }
}

fn ended(ledger: &mut Ledger, ticket: Ticket, result: Result<u64, Errno>) -> Option<Completion> {
    let Ticket::Request { tag, generation } = ticket else {
        unreachable!("only requests are prepared")
    };
    ledger.end(tag, generation, result)
}

impl Synchronous {
    fn run(self, ledger: &Ledger) -> Result<u64, Errno> {
        let file = |target| &ledger.targets.attached(target).file;
        let done = match self {
            Synchronous::Ended(result) => return result,
            Synchronous::SetLength { target, length } => file(target).truncate(length),
            Synchronous::SyncFileSystem(target) => {
                rustix::fs::syncfs(&**file(target)).map_err(Into::into)
            }
            Synchronous::Discard { target, offset, length } => file(target).discard(offset, length),
        };
        done.map(|()| 0).map_err(|error| errno_of(&error))
    }
}
