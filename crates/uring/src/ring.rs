//! The ring: the device over real files. A batch of requests reaches the kernel by one
//! `io_uring_enter`, which also waits and works completions off.
//!
//! ```text
//! prepare ---> submission queue --+                              +--> completion queue ---> reap
//!         \--> synchronous list --+-- doorbell: one enter -------+--> arrived (CQ spills) --/
//! ```
//!
//! The guarantees. Memory outlives flight: buffers are named by frame, and the ring holds their
//! arena, or lent, and the ring owns them; requests still in flight when the ring is dropped leak
//! them. A completion that belongs to no request in flight ends nothing. A full completion queue
//! loses nothing: the kernel keeps the rest, and [`Ring`] fetches it.
//!
//! The rules for the owner. A ring may be made on one thread and moved to another, but from its
//! first doorbell on it belongs to the thread that rang it; dropped elsewhere it waits for nothing,
//! and lives on (with the files attached to it) until that thread ends. `doorbell` may return
//! early, with nothing to reap: look again. A request with more than 1024 pieces that do not touch
//! in memory ends short. While a [`WriteBuffered`](forebay_block::Operation::WriteBuffered) is
//! staged or in flight no other request moves bytes of that target, because the descriptor's mode
//! is switched for it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, ThreadId};
use std::time::Duration;

use forebay_block::limits::TAGS;
use forebay_block::{Bio, BufferId, Completion, Device, Errno, Moment, Refused, Tag, Target, Wait};
use io_uring::types::{Fd, Timespec};
use io_uring::{cqueue, opcode, squeue};

use crate::alive::Alive;
use crate::arena::Arena;
use crate::clock;
use crate::enter::{Booked, Enter, Enters};
use crate::file::OpenFile;
use crate::fixed::{Register, Tables};
use crate::fork::Home;
use crate::lent::Memory;
use crate::min_wait::{self, MinWait};
use crate::offer::{Feature, Offers};
use crate::setup::{Level, Setup, SetupError};
use crate::slot::{Flight, Ticket};
use crate::waker::Waker;
use ledger::Ledger;
use synchronous::Synchronous;
use wait::Sleep;

mod goodbye;
mod ledger;
mod plan;
mod synchronous;
#[cfg(test)]
mod tests;
mod wait;

/// How often a submission that the kernel has no memory for is tried again, a millisecond apart.
const TRIES: u32 = 1000;

/// Maximum of workers (kernel threads for calls that block) of a ring: one for each tag, so that
/// every request in flight has one, even if a device hangs. The kernel's own number is four to a
/// processor. That is too few for flushes: each waits for the device, and those that wait together
/// share one flush of it.
const WORKERS: u32 = TAGS as u32;

/// How much deferred work the kernel does in one call that does not wait for more. Where it had as
/// much, there may be more.
const TASK_WORK: usize = 20;

/// Target of the kernel's reads of the waker's eventfd; never looked at. One for all rings and for
/// ever, so that no read can outlive it.
static UNREAD: AtomicU64 = AtomicU64::new(0);

/// Most entries that one call stages for the waker: a cancellation, a read and a timeout.
const WAKE_ENTRIES: u32 = 3;

/// No time. The end of a timeout makes the kernel return from a wait, however many completions the
/// wait is for.
static AT_ONCE: Timespec = Timespec::new();

thread_local! {
    /// The current thread, without counting a reference at every doorbell.
    static HERE: ThreadId = thread::current().id();
}

/// A ring over real files.
pub struct Ring {
    /// Dropped by hand, because a forked child must not.
    setup: ManuallyDrop<Setup>,
    /// Whether the kernel knows the ring's descriptor; `None` before the first doorbell.
    door_registered: Option<bool>,
    home: Home,
    arena: Arc<Arena>,
    thread: Option<ThreadId>,
    ledger: Ledger,
    tables: Tables,
    /// Operations that the doorbell does itself, because the kernel cannot do them through the
    /// ring.
    synchronous: Vec<(Ticket, Synchronous)>,
    /// Completions taken off the completion queue before they were reaped, or made here.
    arrived: VecDeque<Completion>,
    waker: Waker,
    /// Reads of the waker's eventfd that the ring has.
    wakes_armed: u32,
    /// Whether the last of them ends a wait for several completions, too.
    wake_breaks: bool,
    /// Entries of the waker among those that were staged since the queue was last empty.
    wakes_staged: u32,
}

impl Ring {
    /// A ring for `entries` requests staged at once (rounded up to a power of two), with the best
    /// this kernel has. Files are registered with the kernel; [`Ring::set_registered`] changes that.
    ///
    /// # Errors
    /// Why there is none, and what to do about it.
    pub fn new(arena: Arc<Arena>, entries: u32) -> Result<Self, SetupError> {
        Self::with_level(arena, entries, Level::NoArray)
    }

    fn with_level(arena: Arc<Arena>, entries: u32, best: Level) -> Result<Self, SetupError> {
        // Before the ring, which has no owner yet that closes it after an error.
        let waker = Waker::new()?;
        // More places, for the waker.
        let setup = Setup::new(entries.saturating_add(WAKE_ENTRIES), best)?;
        // The second number is for sockets and pipes: 0 leaves it unchanged.
        let workers = setup.uring.submitter().register_iowq_max_workers(&mut [WORKERS, 0]);
        if let Err(error) = workers {
            tracing::warn!(%error, "a device that hangs may hold up others");
        }
        let mut tables = Tables::default();
        tables.register_files(&setup.uring);
        Ok(Self {
            door_registered: None,
            setup: ManuallyDrop::new(setup),
            home: Home::here(),
            arena,
            thread: None,
            ledger: Ledger::default(),
            tables,
            synchronous: Vec::new(),
            arrived: VecDeque::new(),
            waker,
            wakes_armed: 0,
            wake_breaks: false,
            wakes_staged: 0,
        })
    }

    /// One line: "io_uring: full", or what is lost and since which kernel it would be had, or why
    /// it was refused.
    #[must_use]
    pub fn describe(&self) -> String {
        self.offers().to_string()
    }

    /// Returns the features this ring asked for, and which of them it has.
    #[must_use]
    pub fn offers(&self) -> Offers {
        let mut offers = self.setup.offers();
        offers.extend(self.door_registered.map(|had| Feature::RingDescriptor.when(had)));
        offers.extend(self.tables.offers());
        if let Some(known) = min_wait::known().filter(|_| self.setup.has.min_wait) {
            offers.push(Feature::MinimalWaitEnds.when(known == MinWait::Ends));
        }
        Offers(offers)
    }

    /// Registers the files with the kernel, or no longer, while nothing is in flight, on the ring's
    /// thread. The ring works also if the kernel refuses; [`Ring::describe`] says so.
    pub fn set_registered(&mut self, files: Register) {
        assert_eq!(
            self.in_flight(),
            0,
            "what is registered does not change under requests in flight"
        );
        let uring = &self.setup.uring;
        match files {
            Register::Yes => self.tables.register_files(uring),
            Register::No => self.tables.unregister_files(uring),
        }
        for (target, file, name) in self.ledger.targets.names() {
            *name = self.tables.enter(uring, target, file);
        }
    }

    /// Has the kernel hold this end of a pipe until the ring's last request has ended, however the
    /// process does; whether it will. While nothing is in flight; once the doorbell was rung, on
    /// the ring's thread.
    pub fn set_alive(&mut self, alive: &Alive) -> bool {
        assert_eq!(
            self.in_flight(),
            0,
            "what is registered does not change under requests in flight"
        );
        let set = alive.as_fd().try_clone_to_owned();
        let set = set.and_then(|alive| self.tables.set_alive(&self.setup.uring, alive));
        if let Err(error) = &set {
            tracing::warn!(%error, "the end of the ring cannot be told to another process");
        }
        set.is_ok()
    }

    /// Returns the waker of a waiting doorbell, for any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Requests prepared and not yet reaped.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.ledger.in_flight()
    }

    /// How often the kernel was called.
    #[must_use]
    pub fn enters(&self) -> Enters {
        self.setup.door.enters()
    }

    /// Puts a file under a target's number. Numbers index a table: take small ones and use them
    /// again.
    pub fn attach(&mut self, target: Target, file: Arc<OpenFile>) {
        self.ledger.targets.assert_free(target);
        let name = self.tables.enter(&self.setup.uring, target, &file);
        self.ledger.targets.attach(target, file, name);
    }

    /// As [`Backend::renew`](crate::Backend::renew).
    pub fn renew(&mut self, target: Target) {
        let attached = self.ledger.targets.attached_mut(target);
        attached.name = self.tables.enter(&self.setup.uring, target, &attached.file);
    }

    /// Takes the file from under the number.
    pub fn detach(&mut self, target: Target) -> Arc<OpenFile> {
        let attached = self.ledger.targets.detach(target);
        self.tables.leave(&self.setup.uring, target, attached.name);
        attached.file
    }

    /// Takes memory in for the requests that will name it. It stays the ring's until it is taken
    /// back.
    pub fn lend(&mut self, memory: Memory) -> BufferId {
        self.ledger.lent.lend(memory)
    }

    /// Gives lent memory back.
    ///
    /// # Panics
    /// When a request that uses it has not been reaped, or nothing is lent under the number.
    pub fn take_back(&mut self, buffer: BufferId) -> Memory {
        self.ledger.lent.take_back(buffer)
    }

    fn push(&mut self, entry: &squeue::Entry) {
        let mut queue = self.setup.uring.submission();
        if queue.is_empty() {
            self.wakes_staged = 0;
        }
        // SAFETY: what the entry points to stays until its completion is reaped: the frames belong
        // to the arena, which is held (and leaked if need be), lent memory to the table that counts
        // its requests (and leaks what is in flight), the vectors to the slot, which is taken until
        // then, the descriptors to the file, which stays attached. The waker's read and timeout
        // point to statics and to its bell.
        let pushed = unsafe { queue.push(entry) };
        pushed.expect("prepare keeps a place free");
    }

    /// Keeps a read of the waker's eventfd in the ring. The end of a read is one completion. So
    /// that it also ends a wait for several (`breaks`), a timeout follows it.
    fn arm_wake(&mut self, breaks: bool) {
        if self.wakes_armed > 0 {
            if self.wake_breaks || !breaks {
                return;
            }
            // A read without a timeout would take the wake away from one with a timeout.
            let cancel = opcode::AsyncCancel::new(Ticket::Wake.word()).build();
            self.push_wake(&cancel.user_data(Ticket::Unknown.word()));
        }
        self.wakes_armed += 1;
        self.wake_breaks = breaks;
        let length = u32::try_from(size_of::<u64>()).expect("eight");
        let read = opcode::Read::new(Fd(self.waker.eventfd()), UNREAD.as_ptr().cast(), length);
        let read = read.build().user_data(Ticket::Wake.word());
        if !breaks {
            return self.push_wake(&read);
        }
        self.push_wake(&read.flags(squeue::Flags::IO_LINK));
        let timeout = opcode::Timeout::new(&AT_ONCE).build();
        self.push_wake(&timeout.user_data(Ticket::Unknown.word()));
    }

    fn push_wake(&mut self, entry: &squeue::Entry) {
        self.push(entry);
        self.wakes_staged += 1;
    }

    /// From the first doorbell on the ring belongs to the thread that rings it.
    fn enable_here(&mut self) -> Result<(), Errno> {
        let here = HERE.with(|here| *here);
        match self.thread {
            Some(thread) => {
                assert_eq!(thread, here, "a ring belongs to the thread of its first doorbell");
            }
            None => {
                self.setup
                    .uring
                    .submitter()
                    .register_enable_rings()
                    .map_err(|error| errno_of(&error))?;
                self.thread = Some(here);
                self.door_registered = Some(self.setup.door.register());
            }
        }
        Ok(())
    }

    /// Submits what is staged and waits as told, in one call unless the kernel was busy.
    fn enter(&mut self, sleep: Sleep) -> Result<(), Errno> {
        for _ in 0..TRIES {
            let to_submit = self.staged();
            match self.enter_once(to_submit, sleep) {
                Ok(submitted) if submitted == to_submit as usize => return Ok(()),
                // One was bad (its completion says so), or the kernel ran out of memory on the way:
                // the rest again.
                Ok(_) => {}
                // Time ran out, or a signal came. The kernel says so only where it had nothing to
                // submit.
                Err(libc::ETIME | libc::EINTR) => return Ok(()),
                // The kernel keeps completions that found no place: make some.
                Err(libc::EBUSY) => self.collect(),
                Err(libc::EAGAIN) => {
                    self.collect();
                    if !self.arrived.is_empty() {
                        // Ended requests gave memory back; staged ones go with the next doorbell.
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

    fn enter_once(&mut self, to_submit: u32, sleep: Sleep) -> Result<usize, i32> {
        // Waiting for a wake alone is idleness, not waiting for I/O.
        let idle = self.in_flight() == 0;
        let booked = if idle { self.setup.idle_wait() } else { Booked::WaitingForIo };
        let Sleep { want, within, limit } = sleep;
        self.setup.door.enter(Enter { to_submit, want, within, limit, booked })
    }

    /// Requests in the submission queue.
    fn staged(&mut self) -> u32 {
        u32::try_from(self.setup.uring.submission().len()).expect("the queue's size is 32 bits")
    }

    /// Takes all that has completed off the kernel's queue, to be reaped later.
    fn collect(&mut self) {
        let mut arrived = mem::take(&mut self.arrived);
        self.take(&mut arrived);
        self.arrived = arrived;
    }

    /// Takes over all that has completed, until the kernel holds none back: neither completions
    /// that found no place, nor work beyond its share of one call.
    fn take(&mut self, into: &mut impl Extend<Completion>) {
        loop {
            let mut came = 0;
            for entry in self.setup.uring.completion() {
                came += 1;
                let result = result_of(&entry);
                match Ticket::of(entry.user_data()) {
                    Ticket::Request { tag, generation } => {
                        into.extend(self.ledger.end(tag, generation, result));
                    }
                    Ticket::Wake => self.wakes_armed -= 1,
                    Ticket::Unknown => {}
                }
            }
            let queue = self.setup.uring.submission();
            let more = queue.cq_overflow() || came >= TASK_WORK && queue.taskrun();
            drop(queue);
            // Nothing is submitted, so this cannot be refused for being busy; and if it fails, the
            // next doorbell's enter fetches what is left.
            if !more || self.enter_once(0, Sleep::NOT).is_err() {
                return;
            }
        }
    }
}

impl Device for Ring {
    fn now(&mut self) -> Moment {
        clock::now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let queue = self.setup.uring.submission();
        if queue.len() + WAKE_ENTRIES as usize >= queue.capacity() {
            return Err(Refused);
        }
        drop(queue);
        let flight = Flight { target: request.target, operation: request.operation };
        let ticket = self.ledger.enter(tag, flight);
        match self.plan(tag, request) {
            Ok(entry) => self.push(&entry.user_data(ticket.word())),
            Err(work) => self.synchronous.push((ticket, work)),
        }
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.enable_here()?;
        self.run_synchronous();
        match self.sleep_for(wait) {
            Some(sleep) => self.sleep(sleep),
            None => self.submit(),
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.extend(self.arrived.drain(..));
        self.take(completions);
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
        self.enter(Sleep::NOT)
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setup, ledger, arrived, .. } = self;
        formatter
            .debug_struct("Ring")
            .field("describe", &self.describe())
            .field("ledger", ledger)
            .field("arrived", arrived)
            .field("enters", &setup.door.enters())
            .finish_non_exhaustive()
    }
}

fn result_of(entry: &cqueue::Entry) -> Result<u64, Errno> {
    match u32::try_from(entry.result()) {
        Ok(moved) => Ok(u64::from(moved)),
        Err(_) => Err(Errno(-entry.result())),
    }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}
