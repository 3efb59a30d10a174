//! The ring: the device over real files. A batch of requests reaches the kernel by one `io_uring_enter`, which also
//! waits and works completions off.
//!
//! ```text
//! prepare ---> submission queue --+                              +--> completion queue ---> reap
//!         \--> synchronous list --+-- doorbell: one enter -------+--> arrived (CQ spills) --/
//! ```
//!
//! The guarantees. Memory outlives flight: buffers are named by frame, and the ring holds their arena, or lent, and the
//! ring owns them; what is still in flight when the ring is dropped leaks them. A completion that belongs to no request in flight ends nothing. A
//! full completion queue loses nothing: the kernel keeps the rest, and [`Ring`] fetches it.
//!
//! The rules for the owner. A ring may be made on one thread and moved to another, but from its first doorbell on it
//! belongs to the thread that rang it. `doorbell` may return early, with nothing to reap: look again. A request with
//! more than 1024 pieces that do not touch in memory ends short. While a [`Operation::WriteBuffered`] is staged or in
//! flight no other request moves bytes of that target, because the descriptor's mode is switched for it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use forebay_block::{Bio, Buffer, Completion, Device, Errno, Moment, Operation, Refused, Tag, Target, Wait};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{cqueue, opcode, squeue};

use crate::arena::Arena;
use crate::clock;
use crate::enter::{self, Booked, Enter};
use crate::file::{File, Mode};
use crate::fork::Home;
use crate::lent::{Lent, Memory};
use crate::open::Directory;
use crate::setup::{Level, Setup, SetupError};
use crate::slot::{Flight, Slot, Ticket};
use crate::waker::Waker;

/// How long a dropped ring waits for what is in flight before it leaks the memory.
const GOODBYE: Duration = Duration::from_secs(1);

/// How often a submission that the kernel has no memory for is tried again, a millisecond apart.
const TRIES: u32 = 1000;

/// What the kernel reads from the waker's eventfd goes here and is never looked at. One for all rings and for ever,
/// so that no read can outlive it.
static UNREAD: AtomicU64 = AtomicU64::new(0);

/// A ring over real files.
pub struct Ring {
    /// Dropped by hand, because a forked child must not.
    setup: ManuallyDrop<Setup>,
    home: Home,
    arena: Arc<Arena>,
    lent: Lent,
    thread: Option<ThreadId>,
    targets: Vec<Option<Attached>>,
    slots: Vec<Slot>,
    /// Requests prepared and not yet reaped.
    in_flight: u32,
    /// What the doorbell does itself, because the kernel cannot do it through the ring.
    synchronous: Vec<(Ticket, Synchronous)>,
    /// Completions taken off the completion queue before they were reaped, or made here.
    arrived: VecDeque<Completion>,
    /// Empty between calls; kept for its memory.
    drained: Vec<cqueue::Entry>,
    waker: Waker,
    wake_armed: bool,
}

/// A file under its target's number.
#[derive(Debug)]
struct Attached {
    file: Arc<File>,
    /// Requests in flight.
    in_flight: u32,
    /// Of them those that move bytes.
    moving: u32,
    /// Whether one of those is buffered; then it is the only one.
    buffered: bool,
}

/// A request the ring cannot carry.
#[derive(Clone, Copy, Debug)]
enum Synchronous {
    SetLength(Target, u64),
    SyncFileSystem(Target),
    Ended(Result<u64, Errno>),
}

impl Ring {
    /// A ring for so many requests staged at once (rounded up to a power of two), with the best this kernel has.
    ///
    /// # Errors
    /// Why there is none, and what to do about it.
    pub fn new(arena: Arc<Arena>, entries: u32) -> Result<Self, SetupError> {
        Self::with_level(arena, entries, Level::NoArray)
    }

    fn with_level(arena: Arc<Arena>, entries: u32, best: Level) -> Result<Self, SetupError> {
        // One place more, for the waker's read.
        let setup = Setup::new(entries.saturating_add(1), best)?;
        Ok(Self {
            setup: ManuallyDrop::new(setup),
            home: Home::here(),
            arena,
            lent: Lent::new(),
            thread: None,
            targets: Vec::new(),
            slots: Vec::new(),
            in_flight: 0,
            synchronous: Vec::new(),
            arrived: VecDeque::new(),
            drained: Vec::new(),
            waker: Waker::new()?,
            wake_armed: false,
        })
    }

    /// One line: "io_uring: full", or what is lost and since which kernel it would be had.
    #[must_use]
    pub fn describe(&self) -> String {
        self.setup.describe()
    }

    /// What wakes a doorbell that waits, from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Requests prepared and not yet reaped.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Puts a file under a target's number. Numbers index a table: take small ones and use them again.
    pub fn attach(&mut self, target: Target, file: Arc<File>) {
        let index = target.0 as usize;
        if self.targets.len() <= index {
            self.targets.resize_with(index + 1, || None);
        }
        assert!(self.targets[index].is_none(), "{target:?} is taken");
        self.targets[index] = Some(Attached { file, in_flight: 0, moving: 0, buffered: false });
    }

    /// Takes the file from under the number.
    pub fn detach(&mut self, target: Target) -> Arc<File> {
        let attached = self.targets[target.0 as usize].take().expect("the target is attached");
        assert_eq!(attached.in_flight, 0, "{target:?} has requests in flight");
        attached.file
    }

    /// Takes memory in for the requests that will name it. It stays the ring's until it is taken back.
    pub fn lend(&mut self, memory: Memory) -> Buffer {
        self.lent.lend(memory)
    }

    /// Gives lent memory back.
    ///
    /// # Panics
    /// When a request that uses it has not been reaped, or nothing is lent under the number.
    pub fn take_back(&mut self, buffer: Buffer) -> Memory {
        self.lent.take_back(buffer)
    }

    fn attached(&mut self, target: Target) -> &mut Attached {
        let slot = self.targets.get_mut(target.0 as usize).and_then(Option::as_mut);
        slot.unwrap_or_else(|| panic!("{target:?} is not attached"))
    }

    /// What the ring is to carry, or what the doorbell must do itself.
    fn plan(&mut self, tag: Tag, request: &Bio) -> Result<squeue::Entry, Synchronous> {
        let set_length = self.setup.set_length;
        let attached = self.targets[request.target.0 as usize].as_ref().expect("checked by the caller");
        let file = Fd(attached.file.as_fd().as_raw_fd());
        let (offset, length) = (request.offset, request.length);
        let fallocate = |mode| opcode::Fallocate::new(file, length).offset(offset).mode(mode).build();
        match request.operation {
            Operation::Read | Operation::Write | Operation::WriteFua => Ok(self.transfer(tag, file, request)),
            Operation::WriteBuffered => match attached.file.set_direct(Mode::Buffered) {
                Ok(()) => Ok(self.transfer(tag, file, request)),
                Err(error) => Err(Synchronous::Ended(Err(errno_of(&error)))),
            },
            Operation::FlushData => Ok(opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build()),
            Operation::FlushAll => Ok(opcode::Fsync::new(file).build()),
            Operation::FlushDirectory => match attached.file.directory() {
                Directory::Kept(directory) => Ok(opcode::Fsync::new(Fd(directory.as_raw_fd())).build()),
                Directory::Unreadable => Err(Synchronous::SyncFileSystem(request.target)),
                Directory::NotNeeded => Err(Synchronous::Ended(Ok(0))),
            },
            Operation::Allocate => Ok(fallocate(libc::FALLOC_FL_KEEP_SIZE)),
            Operation::Punch => Ok(fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)),
            Operation::WriteZeroes | Operation::Discard => Err(Synchronous::Ended(Err(Errno::UNSUPPORTED))),
            Operation::SetLength if set_length => Ok(opcode::Ftruncate::new(file, offset).build()),
            Operation::SetLength => Err(Synchronous::SetLength(request.target, offset)),
        }
    }

    /// A read or write, of one piece or of several.
    fn transfer(&mut self, tag: Tag, file: Fd, request: &Bio) -> squeue::Entry {
        let Bio { operation, offset, ref segments, .. } = *request;
        let sum: u64 = segments.iter().map(|segment| u64::from(segment.length())).sum();
        assert_eq!(sum, request.length, "the segments are the request's length");
        let vectors =
            self.slots[usize::from(tag.0)].describe((&self.arena, &mut self.lent), operation, segments);
        let count = u32::try_from(vectors.len()).expect("at most 1024");
        match (operation, vectors) {
            (Operation::Read, [one]) => {
                opcode::Read::new(file, one.start(), one.length()).offset(offset).build()
            }
            (_, [one]) => opcode::Write::new(file, one.start(), one.length()).offset(offset).build(),
            (Operation::Read, several) => {
                opcode::Readv::new(file, several.as_ptr().cast(), count).offset(offset).build()
            }
            (_, several) => opcode::Writev::new(file, several.as_ptr().cast(), count).offset(offset).build(),
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to stays until its completion is reaped: the frames belong to the arena,
        // which is held (and leaked if need be), lent memory to the table that counts its requests, the vectors to the slot, which is taken until then, the
        // descriptors to the file, which stays attached. The waker's read points to a static and to its bell.
        let pushed = unsafe { self.setup.uring.submission().push(entry) };
        pushed.expect("prepare keeps a place free");
    }

    /// Keeps a read of the waker's eventfd in the ring.
    fn arm_wake(&mut self) {
        if mem::replace(&mut self.wake_armed, true) {
            return;
        }
        let length = u32::try_from(size_of::<u64>()).expect("eight");
        let read = opcode::Read::new(Fd(self.waker.eventfd()), UNREAD.as_ptr().cast(), length);
        self.push(&read.build().user_data(Ticket::Wake.word()));
    }

    /// From the first doorbell on the ring belongs to the thread that rings it.
    fn enable_here(&mut self) -> Result<(), Errno> {
        let here = thread::current().id();
        match self.thread {
            Some(thread) => assert_eq!(thread, here, "a ring belongs to the thread of its first doorbell"),
            None => {
                self.setup.uring.submitter().register_enable_rings().map_err(|error| errno_of(&error))?;
                self.thread = Some(here);
            }
        }
        Ok(())
    }

    /// Submits what is staged and waits for `want` completions, in one call unless the kernel was busy.
    fn enter(&mut self, want: u32, limit: Option<Duration>) -> Result<(), Errno> {
        for _ in 0..TRIES {
            let to_submit =
                u32::try_from(self.setup.uring.submission().len()).expect("the queue's size is 32 bits");
            match self.enter_once(to_submit, want, limit) {
                Ok(submitted) if submitted == to_submit as usize => return Ok(()),
                // One was bad (its completion says so), or the kernel ran out of memory on the way: the rest again.
                Ok(_) => {}
                // Time ran out, or a signal came. The kernel says so only where it had nothing to submit.
                Err(libc::ETIME | libc::EINTR) => return Ok(()),
                // The kernel keeps completions that found no place: make some.
                Err(libc::EBUSY) => self.collect(),
                Err(libc::EAGAIN) => {
                    self.collect();
                    if !self.arrived.is_empty() {
                        // What has ended gave memory back; what is staged goes with the next doorbell.
                        return Ok(());
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                Err(libc::EEXIST) => panic!("a ring belongs to the thread of its first doorbell"),
                Err(code) => return Err(Errno(code)),
            }
        }
        Err(Errno(libc::EAGAIN))
    }

    fn enter_once(&self, to_submit: u32, want: u32, limit: Option<Duration>) -> Result<usize, i32> {
        // Waiting for a wake alone is idleness, not waiting for I/O.
        let idle = self.setup.no_iowait && self.in_flight == 0;
        let booked = if idle { Booked::Idle } else { Booked::WaitingForIo };
        enter::once(&self.setup.uring, Enter { to_submit, want, limit, booked })
    }

    /// Does what the ring cannot carry.
    fn run_synchronous(&mut self) {
        for (ticket, work) in mem::take(&mut self.synchronous) {
            let result = match work {
                Synchronous::Ended(result) => result,
                Synchronous::SetLength(target, length) => {
                    self.attached(target).file.truncate(length).map(|()| 0).map_err(|error| errno_of(&error))
                }
                Synchronous::SyncFileSystem(target) => rustix::fs::syncfs(&self.attached(target).file)
                    .map(|()| 0)
                    .map_err(|error| Errno(error.raw_os_error())),
            };
            self.end(ticket, result);
        }
    }

    /// Takes the completion queue's completions over, until the kernel holds none back.
    fn collect(&mut self) {
        loop {
            let mut drained = mem::take(&mut self.drained);
            drained.extend(self.setup.uring.completion());
            for entry in drained.drain(..) {
                let result = entry.result();
                let result =
                    if result < 0 { Err(Errno(-result)) } else { Ok(u64::from(result.unsigned_abs())) };
                self.end(Ticket::of(entry.user_data()), result);
            }
            self.drained = drained;
            if !self.setup.uring.submission().cq_overflow() {
                return;
            }
            // Nothing is submitted, so this cannot be refused for being busy; and if it fails, the next doorbell's
            // enter fetches what is left.
            if self.enter_once(0, 0, None).is_err() {
                return;
            }
        }
    }

    /// Ends the request the ticket names, if there is one.
    fn end(&mut self, ticket: Ticket, result: Result<u64, Errno>) {
        let Ticket::Request { tag, generation } = ticket else {
            if ticket == Ticket::Wake {
                self.wake_armed = false;
            }
            return;
        };
        let slot = self.slots.get_mut(usize::from(tag.0));
        let Some(flight) = slot.and_then(|slot| slot.end(generation, &mut self.lent)) else {
            tracing::error!(tag = tag.0, generation, ?result, "a completion that belongs to no request");
            return;
        };
        self.in_flight -= 1;
        let attached = self.attached(flight.target);
        attached.in_flight -= 1;
        if flight.operation.moves_bytes() {
            attached.moving -= 1;
        }
        if flight.operation == Operation::WriteBuffered {
            attached.buffered = false;
            // Left buffered, later requests would be slower, not wrong.
            attached.file.set_direct(Mode::Direct).unwrap_or_else(|error| {
                tracing::error!(%error, "could not switch the file back to direct");
            });
        }
        self.arrived.push_back(Completion { tag, result });
    }
}

impl Device for Ring {
    fn now(&mut self) -> Moment {
        clock::now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let queue = self.setup.uring.submission();
        if queue.len() + 1 >= queue.capacity() {
            return Err(Refused);
        }
        drop(queue);
        let operation = request.operation;
        let attached = self.attached(request.target);
        if operation.moves_bytes() {
            let alone = operation != Operation::WriteBuffered || attached.moving == 0;
            assert!(
                alone && !attached.buffered,
                "a buffered write shares {:?} with another request",
                request.target
            );
            attached.moving += 1;
            attached.buffered = operation == Operation::WriteBuffered;
        }
        attached.in_flight += 1;
        let index = usize::from(tag.0);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let ticket = self.slots[index].take(tag, Flight { target: request.target, operation });
        self.in_flight += 1;
        match self.plan(tag, request) {
            Ok(entry) => self.push(&entry.user_data(ticket.word())),
            Err(work) => self.synchronous.push((ticket, work)),
        }
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.enable_here()?;
        self.run_synchronous();
        let ready = !self.arrived.is_empty() || !self.setup.uring.completion().is_empty();
        let limit = match wait {
            Wait::Something(limit) | Wait::Batch { limit, .. } if !ready && limit != Some(Duration::ZERO) => {
                limit
            }
            _ => return self.submit(),
        };
        if self.waker.fall_asleep() {
            self.arm_wake();
            let entered = self.enter(1, limit);
            self.waker.awake();
            entered
        } else {
            // Somebody rang since the last look: the caller looks again.
            self.waker.awake();
            self.submit()
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.collect();
        completions.extend(self.arrived.drain(..));
    }
}

impl Ring {
    /// Submits without waiting; no call where there is nothing to submit and nothing to fetch.
    fn submit(&mut self) -> Result<(), Errno> {
        let queue = self.setup.uring.submission();
        if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
            return Ok(());
        }
        drop(queue);
        self.enter(0, None)
    }

    /// Requests the kernel has. One too many where requests were staged behind a waker's read and never submitted.
    fn flying(&mut self) -> u32 {
        let staged = u32::try_from(self.setup.uring.submission().len()).expect("the queue's size is 32 bits");
        let synchronous = u32::try_from(self.synchronous.len()).expect("at most one for each tag");
        self.in_flight - synchronous - staged.saturating_sub(u32::from(self.wake_armed))
    }

    /// Waits for what the kernel has, to a deadline; what was staged and never submitted stays unsubmitted.
    fn wait_out(&mut self) {
        let deadline = Instant::now() + GOODBYE;
        while self.flying() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = if left.is_zero() { Err(libc::ETIME) } else { self.enter_once(0, 1, Some(left)) };
            self.collect();
            if !matches!(waited, Ok(_) | Err(libc::EINTR)) {
                return;
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // A forked child did not inherit the queues; what is in flight is its parent's.
            return;
        }
        self.wait_out();
        if self.flying() > 0 {
            Arc::clone(&self.arena).leak();
            mem::forget(mem::take(&mut self.slots));
            mem::forget(mem::take(&mut self.targets));
        }
        // SAFETY: nothing uses the ring after its drop.
        unsafe { ManuallyDrop::drop(&mut self.setup) };
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { targets, in_flight, arrived, .. } = self;
        formatter
            .debug_struct("Ring")
            .field("describe", &self.describe())
            .field("targets", targets)
            .field("in_flight", in_flight)
            .field("arrived", arrived)
            .finish_non_exhaustive()
    }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use forebay_block::{Class, Frame, Segment, Segments, Source};

    use super::*;
    use crate::{Access, Create, How, Truncate};

    /// On one kernel all that older kernels have can be tried, for each is asked for by name.
    #[test]
    fn every_level_does_the_same() {
        let directory = tempfile::tempdir().unwrap();
        for level in Level::ALL {
            let path = directory.path().join(format!("{level:?}"));
            let how =
                How { access: Access::ReadWrite, create: Create::New, truncate: Truncate::Keep, mode: 0o600 };
            let file = Arc::new(File::open(&path, &how).unwrap().file);
            let arena = Arc::new(Arena::new(4).unwrap());
            let mut ring = Ring::with_level(Arc::clone(&arena), 4, level).unwrap();
            ring.setup.set_length = level < Level::SubmitAll;
            println!("{level:?}: {}", ring.describe());
            ring.attach(Target(0), Arc::clone(&file));
            let segments = [Segment::frames(Frame(2), 4096)].into();
            let mut request = Bio {
                operation: Operation::Write,
                target: Target(0),
                offset: 4096,
                length: 4096,
                segments,
                class: Class::Waited,
                source: Source(0),
                owner: 0,
            };
            // SAFETY: nothing is in flight, and this thread alone knows the arena.
            unsafe { arena.copy_in(Frame(2), 0, &[7; 4096]) };
            assert_eq!(ask(&mut ring, &request), Ok(4096));
            request = Bio {
                operation: Operation::SetLength,
                offset: 10_000,
                length: 0,
                segments: Segments::new(),
                ..request
            };
            assert_eq!(ask(&mut ring, &request), Ok(0));
            let mut expected = vec![0; 10_000];
            expected[4096..8192].fill(7);
            assert!(fs::read(&path).unwrap() == expected);
            let start = Instant::now();
            let waker = ring.waker();
            let other = thread::spawn(move || waker.wake());
            ring.doorbell(Wait::Something(Some(Duration::from_secs(20)))).unwrap();
            assert!(start.elapsed() < Duration::from_secs(10));
            other.join().unwrap();
        }
    }

    fn ask(ring: &mut Ring, request: &Bio) -> Result<u64, Errno> {
        ring.prepare(Tag(3), request).unwrap();
        let mut done = Vec::new();
        while done.is_empty() {
            ring.doorbell(Wait::Something(None)).unwrap();
            ring.reap(&mut done);
        }
        assert_eq!(done.len(), 1);
        done[0].result
    }

    #[test]
    fn contract_13_a_completion_nobody_waits_for_is_dropped() {
        let mut ring = Ring::new(Arc::new(Arena::new(1).unwrap()), 4).unwrap();
        for ticket in [Ticket::Request { tag: Tag(900), generation: 1 }, Ticket::Unknown] {
            ring.push(&opcode::Nop::new().build().user_data(ticket.word()));
        }
        ring.doorbell(Wait::Something(None)).unwrap();
        let mut done = Vec::new();
        ring.reap(&mut done);
        assert_eq!(done, []);
        assert_eq!(ring.in_flight(), 0);
    }
}
