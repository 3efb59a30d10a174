//! Limit of the writes in flight to one device: the work that keeps it busy for a set time.
//!
//! A fixed depth is always wrong for some device. Thirty-two large requests are 10 ms of work for a
//! fast device, and a read beside them waits for all of it. Four small requests leave it idle. A
//! time is right for all. The device's rate is learned from completions, and the work in flight is
//! limited to that rate times the set time:
//!
//! ```text
//! room = rate x time x stretch    rate: bytes and a fixed cost per request, per second of full flight
//! ```
//!
//! By J. D. C. Little's law (Operations Research, 1961), a request in such a flight takes the set
//! time. If requests take less by themselves, the flight grows until they queue for the rest of it,
//! and the device never runs dry. If they take more by themselves, the flight would shrink for
//! ever. So it never falls below two requests: one is at the device while the end of the other is
//! handled. And the time is stretched if that pays. Now and then a few windows run with half as
//! much again in flight, and the stretch is kept if the device did more than in the windows before
//! and after. A stretch that is no longer needed is found in the same way. (Neal Cardwell and
//! others probe for the bandwidth of a path like this: BBR, ACM Queue 14, 2016. From there, too:
//! only windows limited by the flight measure the rate.)
//!
//! Where callers sync few pages, their requests queue behind the flight. It has half of the set
//! time then. But a disk that flushes may take nothing else meanwhile, and the rate has these times
//! in it. So the flight has the work of a flush beside that, less what the device may lose.
//!
//! There is one limit per device, so that a slow one keeps nothing from a fast one but slots. Of
//! these [`Pace::has_room`] leaves some to the others by dynamic thresholds (Choudhury and Hahne,
//! IEEE/ACM Transactions on Networking 6, 1998): a device may hold a multiple of the free slots.

mod bound;
mod phase;
mod window;

use std::time::Duration;

pub use bound::Bound;
use forebay_block::limits::{PAGE, REQUEST_COST_BYTES};
use forebay_block::{Class, Moment};
use phase::{AS_GOOD, FIRST_PAUSE, FIRST_STEP, FIRST_WORTH, LONGEST_PAUSE, MOST_STRETCH};
use phase::{Phase, STEP, WORTH};
use window::{Load, Window};

use crate::meter::Work;

/// Minimum of requests in flight, so that the device never waits between two requests.
pub const LEAST_REQUESTS: usize = 2;

/// Bytes in flight while the rate is unknown: a dozen small requests.
const FIRST_ROOM: u64 = 256 << 10;
/// Most requests in this room.
const FIRST_REQUESTS: u64 = FIRST_ROOM / (PAGE as u64 + REQUEST_COST_BYTES) + 1;

/// A device may hold this many times the free slots.
const TIMES_FREE: usize = 4;

/// A window closes when this many requests have ended, a flight's worth of them, and the set time
/// has passed.
const WINDOW_REQUESTS: u64 = 8;

/// A comparison measures this many flights' worth of requests, because requests sent together may
/// end together. Before it, requests do not count while the flight settles to the tried size.
const COMPARED_FLIGHTS: u64 = 8;
const SETTLING_FLIGHTS: u64 = 2;

/// The same while a far device is new: a wrong step is taken back by a later trial.
const FIRST_COMPARED_FLIGHTS: u64 = 4;

/// Limit of the flight to one device, with the measured rate.
#[derive(Debug)]
pub struct Pace {
    bound: Bound,
    load: [Load; 2],
    /// Cost of the last request sent, as an estimate for the next one.
    last: u64,
    /// Up to when completions have been counted.
    looked: Moment,
    /// More was to be sent since then, and had no room.
    is_full: bool,
    /// Requests that have ended since then.
    ended: Window,
    /// Work that had ended at the last look, and was not taken.
    work: Work,
    window: Window,
    /// Cost per nanosecond, a moving average over about two windows; zero while it is unknown.
    rate: f64,
    /// Bytes written per nanosecond, in the same way.
    write_rate: f64,
    stretch: f64,
    phase: Phase,
    /// The rate when the trial began.
    anchor: f64,
    /// Requests ended in this phase, and the part of them that is compared.
    phase_requests: u64,
    compared: Window,
    pause: u32,
    /// Time that the flight is longer by for a flush, while callers sync.
    flush: Option<Duration>,
    /// The next trial has less in flight, if there is a stretch to take back.
    tries_less: bool,
}

impl Pace {
    /// Creates the limit for a device with an unknown rate.
    #[must_use]
    pub fn new(bound: Bound) -> Self {
        Self {
            bound,
            load: [Load::default(); 2],
            last: 0,
            looked: Moment::default(),
            is_full: false,
            ended: Window::default(),
            work: Work::default(),
            window: Window::default(),
            rate: 0.0,
            write_rate: 0.0,
            stretch: 1.0,
            phase: Phase::Rest(0),
            anchor: 0.0,
            phase_requests: 0,
            compared: Window::default(),
            pause: 0,
            flush: None,
            tries_less: false,
        }
    }

    /// Sets whether callers sync few pages now, and how much longer the flight is for a flush.
    pub fn set_syncs(&mut self, flush: Option<Duration>) {
        if std::mem::replace(&mut self.flush, flush).is_some() != flush.is_some() {
            // A trial compares flights of two sizes, not of three.
            self.phase = Phase::Rest(self.pause);
            self.compared = Window::default();
            self.phase_requests = 0;
        }
    }

    /// Sets the bound.
    pub fn set_bound(&mut self, bound: Bound) {
        self.bound = bound;
    }

    /// Returns whether one more request of a class may be sent, if `free_slots` slots are free on
    /// all devices together. Background requests leave room for waited ones, except for the
    /// minimum. Notes that there is more to send than room.
    pub fn has_room(&mut self, class: Class, free_slots: usize) -> bool {
        let has_room = self.would_have_room(class, free_slots);
        self.is_full |= !has_room;
        has_room
    }

    /// As [`Pace::has_room`], if nothing may be there to send.
    #[must_use]
    pub fn would_have_room(&self, class: Class, free_slots: usize) -> bool {
        let own = self.load[class as usize];
        let cost = if class == Class::Waited { own.cost } else { self.cost() };
        own.requests < free_slots.saturating_mul(TIMES_FREE)
            && match self.present() {
                Bound::Depth(depth) => own.requests < depth,
                // Half of the next one, so that the flight is neither more nor less than its room
                // on average.
                Bound::Time(time) => {
                    own.requests < LEAST_REQUESTS || cost + self.last / 2 < self.room(time)
                }
            }
    }

    /// Records that a request was sent. The clock is read only if nothing was in flight.
    pub fn sent(&mut self, class: Class, bytes: u64, now: impl FnOnce() -> Moment) {
        if self.requests() == 0 {
            // Time without anything in flight says nothing about the device.
            self.looked = now();
            self.ended = Window::default();
        }
        self.last = bytes + REQUEST_COST_BYTES;
        let load = &mut self.load[class as usize];
        load.requests += 1;
        load.cost += self.last;
    }

    /// Records that a request has ended: its class and bytes as sent, and the bytes written. Call
    /// [`look`](Pace::look) at the end of the completion run.
    ///
    /// # Panics
    /// If no request of this class is in flight.
    pub fn ended(&mut self, class: Class, bytes: u64, written: u64) {
        let cost = bytes + REQUEST_COST_BYTES;
        let load = &mut self.load[class as usize];
        assert!(load.requests > 0 && load.cost >= cost, "a request ends once");
        load.requests -= 1;
        load.cost -= cost;
        self.ended.requests += 1;
        self.ended.cost += cost;
        self.ended.written += written;
    }

    /// Updates the measured rate after a completion run. Returns whether it changed.
    pub fn look(&mut self, now: Moment) -> bool {
        if self.ended.requests == 0 {
            return false;
        }
        let nanoseconds = now.nanoseconds_since(std::mem::replace(&mut self.looked, now));
        let ended = Window { nanoseconds, ..std::mem::take(&mut self.ended) };
        let is_full = std::mem::take(&mut self.is_full);
        self.work.requests += ended.requests;
        self.work.bytes += ended.cost - ended.requests * REQUEST_COST_BYTES;
        self.work.full += if is_full { nanoseconds } else { 0 };
        if !is_full {
            return false; // The device might have done more.
        }
        self.window.add(ended);
        self.try_on(ended);
        // Longer beside syncs, so that one flush more or less in it changes the rate little.
        let times = if self.flush.is_some() { 2 } else { 1 };
        let least = match self.present() {
            Bound::Time(time) => time.as_nanos() as u64 * times,
            Bound::Depth(_) => 1_000_000,
        };
        let requests = WINDOW_REQUESTS.max(self.requests() as u64);
        if self.window.requests < requests || self.window.nanoseconds < least.max(1) {
            return false;
        }
        self.learn();
        true
    }

    /// Takes the work that had ended at the last [`look`](Pace::look).
    pub fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.work)
    }

    /// Returns the pages that the device writes per second, if known.
    #[must_use]
    pub fn pages_per_second(&self) -> Option<u64> {
        (self.write_rate > 0.0).then(|| (self.write_rate * 1e9 / PAGE as f64).ceil() as u64)
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.load[0].requests + self.load[1].requests
    }

    /// Returns the number of requests of a class in flight.
    #[must_use]
    pub fn requests_of(&self, class: Class) -> usize {
        self.load[class as usize].requests
    }

    /// Returns the bound as it is now.
    fn present(&self) -> Bound {
        self.flush.map_or(self.bound, |flush| self.bound.beside(flush))
    }

    fn cost(&self) -> u64 {
        self.load[0].cost + self.load[1].cost
    }

    /// Returns the cost that may be in flight.
    fn room(&self, time: Duration) -> u64 {
        if self.rate == 0.0 {
            return FIRST_ROOM;
        }
        let step = if let Phase::Trial { step, .. } = self.phase { step } else { 1.0 };
        // The phases of a trial must differ by the step alone, so the rate at its beginning holds
        // for all of it.
        let rate = match self.phase {
            Phase::Rest(_) | Phase::First { .. } => self.rate,
            _ => self.anchor,
        };
        let room = rate * time.as_nanos() as f64;
        // The least is stretched as well, where the rate that it allows would keep it there.
        let least = LEAST_REQUESTS as f64 * self.last as f64;
        let stretched = if self.flush.is_some() { 1.0 } else { self.stretch * step };
        ((room * stretched).max(least * stretched.max(1.0))) as u64
    }

    fn learn(&mut self) {
        let window = std::mem::take(&mut self.window);
        let write_rate = window.written as f64 / window.nanoseconds as f64;
        if self.rate == 0.0 {
            (self.rate, self.write_rate) = (window.rate(), write_rate);
            self.double_if_far();
        } else {
            self.rate += (window.rate() - self.rate) / 2.0;
            self.write_rate += (write_rate - self.write_rate) / 2.0;
        }
        self.phase = match self.phase {
            Phase::Rest(left) => Phase::Rest(left.saturating_sub(1)),
            Phase::First { before } => Phase::First { before },
            // The device has changed so much that the trial proves nothing, and its room is wrong.
            _ if !(0.5..2.0).contains(&(self.rate / self.anchor)) => Phase::Rest(self.pause),
            phase => phase,
        };
    }

    /// Goes on with the trial that is under way, or begins one.
    fn try_on(&mut self, ended: Window) {
        if self.phase == Phase::Rest(0) && self.flush.is_none() {
            self.begin_trial();
        }
        if let Phase::Rest(_) = self.phase {
            return;
        }
        let depth = self.requests().max(LEAST_REQUESTS) as u64;
        let (settling, compared) = match self.phase {
            // The requests of the first flight end first.
            Phase::First { before: 0.0 } => (FIRST_REQUESTS, FIRST_COMPARED_FLIGHTS),
            Phase::First { .. } => (SETTLING_FLIGHTS * depth, FIRST_COMPARED_FLIGHTS),
            _ => (SETTLING_FLIGHTS * depth, COMPARED_FLIGHTS),
        };
        self.phase_requests += ended.requests;
        if self.phase_requests <= settling {
            return;
        }
        self.compared.add(ended);
        if self.compared.requests < compared * depth {
            return;
        }
        let rate = std::mem::take(&mut self.compared).rate();
        self.phase_requests = 0;
        self.phase = match self.phase {
            Phase::First { before } => self.double(before, rate),
            Phase::Before(step) => Phase::Trial { step, before: rate },
            Phase::Trial { step, before } => Phase::After { step, before, tried: rate },
            Phase::After { step, before, tried } => {
                self.judge(step, tried, before, rate);
                Phase::Rest(self.pause)
            }
            Phase::Rest(_) => unreachable!("no trial is under way"),
        };
    }

    /// Begins to double the flight if requests took longer than the set time in the first flight,
    /// which is small.
    fn double_if_far(&mut self) {
        let Bound::Time(time) = self.bound else { return };
        if self.flush.is_some() {
            // A sync would wait for each step.
            return;
        }
        let first = FIRST_ROOM.max(LEAST_REQUESTS as u64 * self.last);
        if self.rate * time.as_nanos() as f64 <= first as f64 {
            self.phase = Phase::First { before: 0.0 };
            self.phase_requests = 0;
            self.compared = Window::default();
        }
    }

    fn double(&mut self, before: f64, rate: f64) -> Phase {
        if rate < before * FIRST_WORTH {
            self.stretch = (self.stretch / FIRST_STEP).max(1.0);
        } else if self.stretch * FIRST_STEP <= MOST_STRETCH {
            self.stretch *= FIRST_STEP;
            return Phase::First { before: rate };
        }
        self.pause = FIRST_PAUSE;
        Phase::Rest(self.pause)
    }

    fn begin_trial(&mut self) {
        if self.rate == 0.0 || matches!(self.bound, Bound::Depth(_)) {
            return;
        }
        let can_more = self.stretch * STEP <= MOST_STRETCH;
        self.tries_less = self.stretch > 1.0 && (self.tries_less || !can_more);
        self.phase = Phase::Before(if self.tries_less { 1.0 / STEP } else { STEP });
        self.anchor = self.rate;
        self.phase_requests = 0;
        self.compared = Window::default();
    }

    /// More in flight has to be better than both before and after, so that a device that is just
    /// getting faster is no reason; and less as good as both.
    fn judge(&mut self, step: f64, tried: f64, before: f64, after: f64) {
        let best = before.max(after);
        let is_kept = if step > 1.0 { tried > best * WORTH } else { tried > best * AS_GOOD };
        if is_kept {
            self.stretch = (self.stretch * step).max(1.0);
            // The way it pays is gone on.
            self.pause = 0;
        } else {
            self.tries_less = step > 1.0;
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        }
    }
}
