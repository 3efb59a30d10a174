//! Thread pool: the device over real files if io_uring is missing or forbidden. It behaves like
//! [`Ring`](crate::Ring), with ordinary system calls on threads of its own.
//!
//! ```text
//! prepare --> staged --doorbell--> jobs ==> a thread: one system call ==> ended (fifo) --> reap
//!                                  (waited before background)               \--> bell --> who waits in the doorbell
//! ```
//!
//! Why a fixed number of threads for a device and not one per request: a batch is what reaches a
//! device together anyway, and a thread that waits costs a stack. No device has more than
//! [`WORKERS`] threads at a time; while one has all there are, as one that hangs does, more are
//! started for the others. The threads sleep while there is nothing to do; a doorbell that waits
//! sleeps too.
//!
//! The guarantees. Completions come in the order the calls returned. Memory outlives flight: each
//! thread holds the arena, and the file and the vectors of its call, so nothing is freed under a
//! call that does not return. A dropped pool waits a second for its requests; after that those not
//! begun are dropped, and a thread inside a call keeps all it holds.
//!
//! The price against the ring: a wake, two switches and a system call for each request, and no more
//! requests at a device than it may have threads ([`WORKERS`]).
//!
//! The rules for the owner are the ring's, but for the thread: any one at a time may ring.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_block::limits::{BATCH_REQUESTS, TAGS};
use forebay_block::{
    Bio, BufferId, Completion, Device, Errno, Moment, Operation, Refused, Tag, Target, Wait,
};
use forebay_lists::{Pop, fifo};

use crate::alive::Alive;
use crate::arena::Arena;
use crate::clock;
use crate::file::OpenFile;
use crate::fork::Home;
use crate::job::{Ended, Job};
use crate::lent::{Lent, Memory};
use crate::setup::SetupError;
use crate::targets::Targets;
use crate::vectors::Shape;
use crate::waker::Waker;

mod bell;
mod masked;
mod pool;

use bell::Rung;
use pool::Pool;

/// Number of threads of a pool, and the most that the requests of one device have, so that a whole
/// batch can be at the device.
pub const WORKERS: usize = BATCH_REQUESTS;

const _: () =
    assert!(WORKERS >= 8, "four large writes in flight must leave threads for syncs and reads");
const _: () = assert!(WORKERS <= TAGS, "a thread without a tag has nothing to do");

/// How long a dropped pool waits for requests in flight.
const GOODBYE: Duration = Duration::from_secs(1);

/// Device over real files that makes blocking system calls on a pool of threads.
#[derive(Debug)]
pub struct Threads {
    pool: Arc<Pool>,
    workers: Vec<JoinHandle<()>>,
    home: Home,
    /// Why there is no ring.
    why: String,
    targets: Targets<()>,
    slots: Vec<Slot>,
    staged: Vec<Job>,
    /// Frees what is not in flight when it goes, and leaks the rest.
    lent: Lent,
    entries: usize,
    /// Returns the number of requests that were prepared and have not been reaped.
    in_flight: u32,
    ended: fifo::Receiver<Ended>,
    /// Ends that were seen and not reaped.
    arrived: VecDeque<Completion>,
    waker: Waker,
}

/// A tag's place.
#[derive(Debug, Default)]
struct Slot {
    /// Request in flight under the tag.
    flight: Option<(Target, Operation)>,
    /// Where its bytes are; away with the job while it is done.
    shape: Shape,
}

/// Whether everything that has ended was seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    All,
    /// One is being pushed at this moment.
    NotYet,
}

impl Threads {
    /// Creates a pool that takes up to `entries` requests before each doorbell.
    ///
    /// # Errors
    /// The error of the system if it grants no thread or descriptor.
    pub fn new(arena: Arc<Arena>, entries: u32) -> io::Result<Self> {
        Self::because(arena, entries, "asked for".into())
    }

    /// Creates a pool in place of a ring that could not be set up.
    ///
    /// # Errors
    /// As [`Threads::new`].
    pub fn instead_of_ring(
        arena: Arc<Arena>,
        entries: u32,
        refused: &SetupError,
    ) -> io::Result<Self> {
        Self::because(arena, entries, refused.to_string())
    }

    fn because(arena: Arc<Arena>, entries: u32, why: String) -> io::Result<Self> {
        let (push, ended) = fifo();
        let pool = Arc::new(Pool::new(arena, push)?);
        let waker = Waker::new()?;
        let workers = pool::start(&pool, 0..WORKERS).inspect_err(|_| {
            // None stays where one cannot be started.
            pool.stop();
        })?;
        Ok(Self {
            pool,
            workers,
            home: Home::here(),
            why,
            targets: Targets::default(),
            slots: Vec::new(),
            staged: Vec::new(),
            lent: Lent::new(),
            entries: entries.max(1) as usize,
            in_flight: 0,
            ended,
            arrived: VecDeque::new(),
            waker,
        })
    }

    /// Returns one line: "thread pool: " and the reason why there is no ring.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("thread pool: {}", self.why)
    }

    /// Returns a waker that ends a waiting doorbell from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns the number of requests that were prepared and have not been reaped.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Makes the threads hold one end of a pipe, so that another process learns when the last one
    /// is gone. Returns whether that is possible. Call it at most once.
    pub fn set_alive(&mut self, alive: &Alive) -> bool {
        let set = alive.as_fd().try_clone_to_owned();
        if let Err(error) = &set {
            tracing::warn!(%error, "the end of the threads cannot be told to another process");
        }
        set.is_ok_and(|alive| self.pool.alive.set(alive).is_ok())
    }

    /// Attaches a file under the number of a target. Numbers index a table: use small ones, and
    /// reuse them.
    pub fn attach(&mut self, target: Target, file: Arc<OpenFile>) {
        self.targets.attach(target, file, ());
    }

    /// Detaches and returns the file of a target.
    pub fn detach(&mut self, target: Target) -> Arc<OpenFile> {
        self.targets.detach(target).file
    }

    /// Lends memory to requests and returns its number, which is valid until it is taken back.
    pub fn lend(&mut self, memory: Memory) -> BufferId {
        self.lent.lend(memory)
    }

    /// Ends a loan and returns the memory.
    ///
    /// # Panics
    /// If the number is not lent, or a request in flight uses it.
    pub fn take_back(&mut self, buffer: BufferId) -> Memory {
        self.lent.take_back(buffer)
    }

    /// Takes over what has ended.
    fn collect(&mut self) -> Seen {
        loop {
            match self.ended.pop() {
                Pop::Node(ended) => self.end(ended),
                Pop::Empty => return Seen::All,
                Pop::Busy => return Seen::NotYet,
            }
        }
    }

    fn end(&mut self, Ended { tag, result, mut shape }: Ended) {
        shape.arrive(&mut self.lent);
        let slot = &mut self.slots[usize::from(tag.0)];
        let (target, operation) =
            slot.flight.take().expect("a job ends once, and was begun under its tag");
        slot.shape = shape;
        self.targets.end(target, operation);
        self.in_flight -= 1;
        self.arrived.push_back(Completion { tag, result });
    }

    /// Waits until `plan` has what it wants, until its time is over, or until somebody wakes.
    fn wait_for(&mut self, mut plan: Plan) {
        loop {
            let seen = self.collect();
            let here = self.arrived.len();
            // No wait for completions that cannot come.
            let all_here = here > 0 && self.in_flight == 0;
            if here >= plan.want || all_here {
                return;
            }
            if seen == Seen::NotYet {
                thread::yield_now();
                continue;
            }
            let now = Instant::now();
            let over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
            if over(plan.more) {
                plan.want = 1;
            }
            if here >= plan.want || (here == 0 && over(plan.first)) {
                return;
            }
            let deadline = match (here, plan.want) {
                (0, 1) => plan.first,
                (0, _) => plan.first.into_iter().chain(plan.more).min(),
                _ => plan.more,
            };
            // No more than can come: the last of a batch that is not full rings too.
            let missing = (plan.want - here).min(self.flying()).max(1);
            if self.sleep(missing, deadline) == Rung::BySomebody {
                return;
            }
        }
    }

    /// Sleeps until `missing` more have ended, until the deadline, or until somebody wakes it;
    /// perhaps shorter.
    fn sleep(&mut self, missing: usize, deadline: Option<Instant>) -> Rung {
        self.pool.bell.expect(missing);
        let before = self.arrived.len();
        // Requests that ended before they were counted ring no bell.
        let seen = self.collect();
        let rung = if self.arrived.len() > before || seen == Seen::NotYet {
            Rung::ByTheWay
        } else if self.waker.fall_asleep() {
            let rung = self.pool.bell.wait(&self.waker, deadline);
            self.waker.awake();
            rung
        } else {
            // Somebody rang since the last look: the caller looks again.
            self.waker.awake();
            Rung::BySomebody
        };
        self.pool.bell.expect(0);
        rung
    }

    /// Requests that threads have, or will have.
    fn flying(&self) -> usize {
        self.in_flight as usize - self.staged.len()
    }
}

/// The wait of a doorbell.
struct Plan {
    /// So many ends.
    want: usize,
    /// When nothing has ended by then, it is over.
    first: Option<Instant>,
    /// When something has ended by then, it is over; before that, one is not enough.
    more: Option<Instant>,
}

impl Plan {
    fn of(wait: Wait) -> Option<Self> {
        let after = |span: Duration| Instant::now().checked_add(span);
        match wait {
            Wait::Not | Wait::Something(Some(Duration::ZERO)) => None,
            Wait::Something(limit) => {
                Some(Self { want: 1, first: limit.and_then(after), more: None })
            }
            Wait::Batch { want, within, limit } => Some(Self {
                want: want.max(1) as usize,
                first: limit.and_then(after),
                more: after(within),
            }),
        }
    }
}

impl Device for Threads {
    fn now(&mut self) -> Moment {
        clock::now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        if self.staged.len() >= self.entries {
            return Err(Refused);
        }
        let &Bio { operation, target, .. } = request;
        let file = Arc::clone(self.targets.begin(target, operation));
        let index = usize::from(tag.0);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = &mut self.slots[index];
        assert!(slot.flight.is_none(), "{tag:?} is in flight already, as {:?}", slot.flight);
        slot.flight = Some((target, operation));
        let shape = mem::take(&mut slot.shape);
        self.in_flight += 1;
        let memory = (&*self.pool.arena, &mut self.lent);
        self.staged.push(Job::new(tag, request, file, shape, memory));
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        if !self.staged.is_empty() {
            self.pool.give(&mut self.staged);
        }
        if let Some(plan) = Plan::of(wait) {
            self.wait_for(plan);
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.collect();
        completions.extend(self.arrived.drain(..));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let workers = mem::take(&mut self.workers);
        if !self.home.is_here() {
            // A forked child has none of the threads; requests in flight are its parent's.
            mem::forget(workers);
            return;
        }
        let deadline = Instant::now() + GOODBYE;
        while self.flying() > 0 && Instant::now() < deadline {
            self.sleep(self.flying(), Some(deadline));
            self.collect();
        }
        let more = self.pool.stop();
        if self.flying() > 0 {
            tracing::warn!(
                requests = self.flying(),
                "requests are still in flight: their memory stays until they end"
            );
            return;
        }
        for worker in workers.into_iter().chain(more) {
            // A panic has been reported where it happened.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests;
