//! Whether the kernel can do what the ring's form needs: found out by trying, once in a process.
//!
//! Rings of provided buffers and multishot accepts came with Linux 5.19, multishot receives with
//! 6.0; the kernel's probe of operations tells of none of them, for they are flags of older
//! operations. So two sockets that are connected receive a byte, the way it will be done.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::super::pool::Pool;
use super::super::provided::{GROUP, Provided};
use crate::enter::{Booked, Door, Enter};
use crate::offer::{Feature, Offer};
use crate::setup::{Level, SetupError};

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ability {
    pub(crate) provided_buffers: bool,
    pub(crate) multishot_accept: bool,
    pub(crate) multishot_receive: bool,
}

static ABILITY: OnceLock<Ability> = OnceLock::new();

/// What this kernel can do. A few calls the first time in a process.
pub(crate) fn ability(level: Level) -> Ability {
    *ABILITY.get_or_init(|| {
        let ability = observe(level).unwrap_or_else(|error| {
            tracing::debug!(%error, "could not try what the ring can do with sockets");
            Ability { provided_buffers: false, multishot_accept: false, multishot_receive: false }
        });
        tracing::debug!(?ability, "what the ring can do with sockets was tried");
        ability
    })
}

/// Refuses a kernel that lacks something.
pub(super) fn check(ability: Ability) -> Result<(), SetupError> {
    match ability {
        Ability { provided_buffers: false, .. } => {
            Err(SetupError::TooOld("a ring of buffers (5.19)"))
        }
        Ability { multishot_accept: false, .. } => {
            Err(SetupError::TooOld("multishot accept (5.19)"))
        }
        Ability { multishot_receive: false, .. } => {
            Err(SetupError::TooOld("multishot receive (6.0)"))
        }
        _ => Ok(()),
    }
}

impl Ability {
    pub(crate) fn offers(self) -> [Offer; 3] {
        [
            Feature::ProvidedBuffers.when(self.provided_buffers),
            Feature::MultishotAccept.when(self.multishot_accept),
            Feature::MultishotReceive.when(self.multishot_receive),
        ]
    }
}

fn observe(level: Level) -> io::Result<Ability> {
    let mut uring = level.build(4)?;
    let pool = Pool::new(1, 64)?;
    let provided = Provided::register(&uring, pool);
    uring.submitter().register_enable_rings()?;
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::send(&theirs, b"?", SendFlags::NOSIGNAL)?;
    let receive = opcode::RecvMulti::new(Fd(ours.as_raw_fd()), GROUP).build();
    let multishot_receive = provided.is_ok() && goes_on(&mut uring, &receive)?;
    // Closed sockets end what is under way, so that nothing uses the buffers when they go.
    drop(theirs);
    if multishot_receive {
        wait(&mut uring, 0)?;
        uring.completion().for_each(drop);
    }
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Bound to no name, the kernel finds one.
    rustix::net::bind(&listener, &SocketAddrUnix::new_unnamed())?;
    rustix::net::listen(&listener, 1)?;
    let accept = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).build();
    let multishot_accept = !is_refused(&mut uring, &accept)?;
    Ok(Ability { provided_buffers: provided.is_ok(), multishot_accept, multishot_receive })
}

/// Whether a request completes once and goes on.
fn goes_on(uring: &mut IoUring, entry: &squeue::Entry) -> io::Result<bool> {
    submit(uring, entry, 1)?;
    let completion = uring.completion().next();
    Ok(completion
        .is_some_and(|completion| completion.result() == 1 && cqueue::more(completion.flags())))
}

/// Whether a request is refused at once.
fn is_refused(uring: &mut IoUring, entry: &squeue::Entry) -> io::Result<bool> {
    submit(uring, entry, 0)?;
    Ok(uring.completion().any(|completion| completion.result() == -libc::EINVAL))
}

fn submit(uring: &mut IoUring, entry: &squeue::Entry, want: u32) -> io::Result<()> {
    // SAFETY: the entries used here point to nothing.
    unsafe { uring.submission().push(entry) }.map_err(io::Error::other)?;
    wait(uring, want)
}

fn wait(uring: &mut IoUring, want: u32) -> io::Result<()> {
    let to_submit = u32::try_from(uring.submission().len()).expect("four at most");
    let (within, limit) = (std::time::Duration::ZERO, Some(std::time::Duration::from_secs(1)));
    let call = Enter { to_submit, want, within, limit, booked: Booked::WaitingForIo };
    Door::of(uring).enter(call).map(drop).map_err(io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_agrees_with_the_kernels_version() {
        let version = crate::probe::kernel_version();
        for offer in ability(Level::NoArray).offers() {
            let had = offer.state == crate::offer::State::Had;
            assert_eq!(had, version >= offer.feature.since(), "{offer} on {version}");
        }
    }

    #[test]
    fn contract_17_a_kernel_that_lacks_something_is_too_old() {
        let all =
            Ability { provided_buffers: true, multishot_accept: true, multishot_receive: true };
        check(all).unwrap();
        for (lacks, since) in [
            (Ability { provided_buffers: false, ..all }, "5.19"),
            (Ability { multishot_accept: false, ..all }, "5.19"),
            (Ability { multishot_receive: false, ..all }, "6.0"),
        ] {
            let refused = check(lacks).unwrap_err();
            assert!(refused.to_string().contains(since), "{refused}");
            assert!(crate::backend::is_absent(&refused), "epoll stands in");
        }
    }

    /// The setups differ in who works completions off; the answer must not.
    #[test]
    fn every_setup_gives_the_same_answer() {
        let expected = ability(Level::NoArray);
        for level in Level::ALL {
            assert_eq!(observe(level).unwrap(), expected, "{level:?}");
        }
    }
}
