//! The ring beside the ordinary one whose completions are polled for (`IORING_SETUP_IOPOLL`).
//!
//! It carries reads and writes of files with [`OpenFile::poll`](crate::OpenFile::poll), and nothing
//! else: the kernel refuses flushes and the waker's read there. Such requests send no interrupt, so
//! they end only while the thread of the ring looks. It looks as long as one of them is in flight,
//! and between two looks it checks the waker and the ordinary ring.
//!
//! A request that the kernel would have to split is not polled for: one that is larger than the
//! device's bound, or has gaps between its pages. Kernels that split one end its parts by
//! interrupts at best; Linux 6.1 submits it again for ever.
//!
//! Requests name their files by descriptor. Each tag has a place in both queues, so the submission
//! queue is never full and the completion queue never overflows.

use std::mem;
use std::thread;
use std::time::Duration;

use forebay_block::limits::{PAGE, TAGS};
use forebay_block::{Bio, Errno, Operation, Segment};
use io_uring::{cqueue, squeue};

use super::wait::Sleep;
use super::{Ring, TRIES, errno_of};
use crate::enter::{Booked, Enter, Enters};
use crate::fixed::{Register, Tables};
use crate::lent::Lent;
use crate::setup::{Setup, SetupError};

/// Looks of one doorbell. The bound is for the timers of the ring's owner.
const LOOKS: u32 = 64;

/// A ring that is polled.
pub(crate) struct Polled {
    setup: Setup,
    is_enabled: bool,
    /// Registered memory only: the same as in the ordinary ring.
    pub(super) tables: Tables,
    /// Requests staged or in the kernel.
    in_flight: u32,
    /// Submissions in a row that the kernel had no memory for.
    tries: u32,
}

impl Polled {
    /// # Errors
    /// As [`Setup::best`].
    pub(crate) fn new() -> Result<Self, SetupError> {
        let setup = Setup::polled(TAGS as u32)?;
        let tables = Tables::default();
        Ok(Self { setup, is_enabled: false, tables, in_flight: 0, tries: 0 })
    }

    /// Stages a read or write.
    ///
    /// # Safety
    /// Its memory and descriptor stay until its completion was taken.
    pub(crate) unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller promises it.
        let pushed = unsafe { self.setup.uring.submission().push(entry) };
        pushed.expect("each tag has a place");
        self.in_flight += 1;
    }

    /// Submits what is staged, and looks once whether requests have ended.
    pub(crate) fn poll(&mut self) -> Result<(), Errno> {
        let staged = self.staged();
        self.enter(staged)
    }

    /// Looks once whether requests have ended.
    pub(super) fn look(&mut self) -> Result<(), Errno> {
        self.enter(0)
    }

    fn enter(&mut self, to_submit: u32) -> Result<(), Errno> {
        if !mem::replace(&mut self.is_enabled, true) {
            let enabled = self.setup.uring.submitter().register_enable_rings();
            enabled.map_err(|error| errno_of(&error))?;
        }
        let (within, booked) = (Duration::ZERO, Booked::WaitingForIo);
        let call = Enter { to_submit, want: 0, within, limit: None, booked };
        match self.setup.door.enter(call) {
            Ok(_) => self.tries = 0,
            // The next look submits what is left.
            Err(libc::EINTR | libc::EBUSY) => {}
            Err(libc::EAGAIN) if self.tries < TRIES => {
                self.tries += 1;
                thread::sleep(Duration::from_millis(1));
            }
            Err(libc::EEXIST) => panic!("a ring belongs to the thread of its first doorbell"),
            Err(code) => return Err(Errno(code)),
        }
        Ok(())
    }

    /// Takes one request that has ended.
    pub(crate) fn next(&mut self) -> Option<cqueue::Entry> {
        let entry = self.setup.uring.completion().next()?;
        assert!(self.in_flight > 0, "the kernel completes a request once");
        self.in_flight -= 1;
        Some(entry)
    }

    pub(super) fn enters(&self) -> Enters {
        self.setup.door.enters()
    }

    fn has_ended(&mut self) -> bool {
        !self.setup.uring.completion().is_empty()
    }

    pub(super) fn staged(&mut self) -> u32 {
        u32::try_from(self.setup.uring.submission().len()).expect("the queue's size is 32 bits")
    }

    /// Requests staged or in the kernel.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

impl Ring {
    /// Returns whether a request goes over the polled ring, which this makes for the first one. If
    /// the kernel has no memory for it, the file goes without.
    pub(super) fn goes_polled(&mut self, request: &Bio) -> bool {
        let file = &self.ledger.targets.attached(request.target).file;
        let moves = matches!(request.operation, Operation::Read | Operation::Write);
        if !moves || request.length > file.most_polled() {
            return false;
        }
        let lent = &mut self.ledger.lent;
        if request.segments.len() > 1 && !request.segments.iter().all(|one| is_pages(one, lent)) {
            return false;
        }
        if self.polled.is_none() {
            match self.make_polled() {
                Ok(polled) => *self.polled = Some(Box::new(polled)),
                Err(error) => file.stop_polling(&error.to_string()),
            }
        }
        self.polled.is_some()
    }

    fn make_polled(&self) -> Result<Polled, SetupError> {
        let mut polled = Polled::new()?;
        let uring = &polled.setup.uring;
        // Refused, its requests go by address.
        match &self.pool {
            Some(pool) => polled.tables.register_memory(uring, pool.registrable()),
            None if self.fixed.buffers == Register::Yes => {
                polled.tables.register_memory(uring, self.arena.registrable());
            }
            None => {}
        }
        if let Some(alive) = self.tables.alive() {
            polled.tables.set_alive(uring, alive?)?;
        }
        Ok(polled)
    }

    /// Returns whether the doorbell has to poll.
    pub(super) fn polls(&self) -> bool {
        self.polled.as_ref().is_some_and(|polled| polled.in_flight() > 0)
    }

    /// Submits to both rings, and polls: once, or if the caller would wait, until a request of
    /// either ring has ended, another thread wakes this one, or [`LOOKS`] are over.
    pub(super) fn poll(&mut self, sleep: Option<Sleep>) -> Result<(), Errno> {
        self.submit()?;
        for _ in 0..sleep.map_or(1, |_| LOOKS) {
            let Some(polled) = &mut *self.polled else { break };
            polled.poll()?;
            if polled.has_ended() || self.waker.is_rung() || self.has_news() {
                break;
            }
        }
        self.waker.awake();
        // Completions of the ordinary ring may need a call to arrive.
        self.submit()
    }

    /// Returns whether the ordinary ring has completions, or work that makes some.
    fn has_news(&mut self) -> bool {
        let queue = self.setup.uring.submission();
        let news = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        news || !self.setup.uring.completion().is_empty()
    }
}

/// Returns whether a segment is whole pages of memory.
fn is_pages(segment: &Segment, lent: &mut Lent) -> bool {
    let (start, length) = match *segment {
        Segment::Frames { offset, length, .. } => (offset as usize, length),
        Segment::Lent { buffer, offset, length } => (lent.address(buffer, offset), length),
        Segment::Zeroes { .. } => return false,
    };
    start.is_multiple_of(PAGE) && (length as usize).is_multiple_of(PAGE)
}
