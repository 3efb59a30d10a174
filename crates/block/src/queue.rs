//! A queue: the whole way of a request for one context and one device. One thread, no locks.
//!
//! The caller's loop is: submit while there is [`room`](Queue::room), [`dispatch`](Queue::dispatch),
//! [`run`](Queue::run). Every bio submitted ends exactly once, in a run; none is lost when the device refuses,
//! falls short or fails.
//!
//! Order: see [`dispatch`]. Two bios of one target whose ranges overlap, one of them changing it,
//! take effect in the order they were submitted, whatever the device does. A flush is no fence: it covers what
//! ended before it was submitted.

use alloc::vec::Vec;

use crate::bio::{Bio, Class, Errno, Operation};
use crate::device::{Completion, Device, Wait};
use crate::dispatch;
use crate::flight::Flight;
use crate::knobs::Knobs;
use crate::limits::PLUG_BIOS;
use crate::merge::merge;
use crate::plug::{Held, Plug};
use crate::request::{Ended, Request};
use crate::run;
use crate::walk::{Asked, Step, Unwatched, Walk};

/// The way of a request.
#[derive(Debug)]
pub struct Queue<W: Walk = Unwatched> {
    knobs: Knobs,
    plug: Plug,
    /// Merged, and not at the device: refused, held up, or to be asked again.
    waiting: Vec<Request>,
    flight: Flight,
    counters: Counters,
    /// Kept for their memory.
    plugged: Vec<Held>,
    completions: Vec<Completion>,
    walk: W,
}

/// What a queue has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bios submitted.
    pub bios: u64,
    /// Requests made of them.
    pub requests: u64,
    /// Bios that joined another's request.
    pub merged_bios: u64,
    /// Costly calls to the device.
    pub doorbells: u64,
    /// Completion runs that ended or resubmitted something.
    pub completion_runs: u64,
    /// Bios ended, well or not.
    pub completed_bios: u64,
    /// Requests asked again: short, interrupted, would block, or failed together.
    pub resubmitted: u64,
    /// Bytes of writes that ended well, zeroes among them.
    pub written_bytes: u64,
    /// Zeroes among the bytes written.
    pub zero_bytes: u64,
    /// Bytes of reads that ended well.
    pub read_bytes: u64,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::with_walk(Unwatched)
    }
}

impl<W: Walk> Queue<W> {
    /// An empty queue that tells each of its steps.
    #[must_use]
    pub fn with_walk(walk: W) -> Self {
        Self {
            knobs: Knobs::default(),
            plug: Plug::new(),
            waiting: Vec::new(),
            flight: Flight::new(),
            counters: Counters::default(),
            plugged: Vec::new(),
            completions: Vec::new(),
            walk,
        }
    }

    /// Who watches.
    pub fn walk(&mut self) -> &mut W {
        &mut self.walk
    }

    /// The policies, from the next dispatch or run on.
    pub fn set_knobs(&mut self, knobs: Knobs) {
        self.knobs = knobs;
    }

    /// The policies.
    #[must_use]
    pub fn knobs(&self) -> Knobs {
        self.knobs
    }

    /// Takes a bio in. It joins the plug; nothing reaches the device before the next dispatch.
    ///
    /// # Panics
    /// When there is no [`room`](Queue::room), or the bio contradicts itself.
    pub fn submit(&mut self, bio: Bio) {
        assert!(self.room() > 0, "the plug is full: dispatch and run before submitting more");
        let asked = Asked::of(0, &bio);
        let arrival = self.plug.hold(bio);
        self.counters.bios += 1;
        self.walk.step(Step::Submitted { asked: Asked { arrival, ..asked } });
        self.walk.step(Step::Plugged { arrival, bios: self.plug.len() });
    }

    /// Bios that can be submitted before the plug is full. What the device refused counts as plugged.
    #[must_use]
    pub fn room(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(Request::bios).sum();
        self.plug.room().min(PLUG_BIOS.saturating_sub(self.plug.len() + waiting))
    }

    /// Bios submitted that are not at the device.
    #[must_use]
    pub fn staged(&self) -> usize {
        self.staged_of(Class::Waited) + self.staged_of(Class::Background)
    }

    /// Bios of one class submitted that are not at the device.
    #[must_use]
    pub fn staged_of(&self, class: Class) -> usize {
        let waiting = self.waiting.iter().filter(|request| request.class() == class);
        self.plug.len_of(class) + waiting.map(Request::bios).sum::<usize>()
    }

    /// Requests at the device.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight_of(Class::Waited) + self.in_flight_of(Class::Background)
    }

    /// Requests of one class at the device.
    #[must_use]
    pub fn in_flight_of(&self, class: Class) -> usize {
        self.flight.load(class).requests
    }

    /// Bytes that the requests at the device move.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes_of(Class::Waited) + self.in_flight_bytes_of(Class::Background)
    }

    /// Bytes that the requests of one class at the device move.
    #[must_use]
    pub fn in_flight_bytes_of(&self, class: Class) -> u64 {
        self.flight.load(class).bytes
    }

    /// Merges what is plugged, hands over as much as the device takes, rings the doorbell once, and waits as
    /// told. Nothing happens when nothing is staged and there is no wait. Says how many requests were handed over.
    ///
    /// # Errors
    /// Only when the device itself is broken; what it had taken counts as in flight.
    pub fn dispatch(&mut self, device: &mut impl Device, wait: Wait) -> Result<usize, Errno> {
        if !self.plug.is_empty() {
            let (bios, before) = (self.plug.len(), self.waiting.len());
            self.plug.drain_into(&mut self.plugged);
            merge(self.knobs.merging, &mut self.plugged, &mut self.waiting);
            let requests = self.waiting.len() - before;
            self.counters.requests += requests as u64;
            self.counters.merged_bios += (bios - requests) as u64;
            if W::WATCHED {
                self.tell_merged(before);
            }
        }
        dispatch::arrange(&mut self.waiting);
        let (waiting, flight) = (&mut self.waiting, &mut self.flight);
        let dispatched = dispatch::dispatch(waiting, flight, device, wait, &mut self.walk)?;
        self.counters.doorbells += dispatched.doorbells as u64;
        Ok(dispatched.requests)
    }

    /// Reaps what has completed: appends bios that ended, in the order reaped, and keeps for the next dispatch
    /// what must be asked again. Says how many bios ended.
    pub fn run(&mut self, device: &mut impl Device, ended: &mut Vec<Ended>) -> usize {
        device.reap(&mut self.completions);
        if self.completions.is_empty() {
            return 0;
        }
        let before = ended.len();
        let again =
            run::run(&mut self.completions, &mut self.flight, &mut self.waiting, ended, &mut self.walk);
        self.walk.step(Step::Run { bios: ended.len() - before });
        self.counters.completion_runs += 1;
        self.counters.resubmitted += again as u64;
        for end in &ended[before..] {
            self.counters.add(end);
        }
        ended.len() - before
    }

    /// Tells which bios joined the requests from `first` on.
    fn tell_merged(&mut self, first: usize) {
        for request in &self.waiting[first..] {
            let into = request.arrival();
            for arrival in request.arrivals().filter(|&arrival| arrival != into) {
                self.walk.step(Step::Merged { arrival, into });
            }
        }
    }

    /// What was done since the queue was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

impl Counters {
    fn add(&mut self, ended: &Ended) {
        self.completed_bios += 1;
        let Ok(bytes) = ended.result else { return };
        match ended.bio.operation {
            Operation::Read => self.read_bytes += bytes,
            Operation::Write | Operation::WriteFua | Operation::WriteBuffered => {
                self.written_bytes += bytes;
                self.zero_bytes += ended.bio.zero_bytes();
            }
            _ => {}
        }
    }
}
