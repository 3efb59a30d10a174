//! The modelled device: real time without hardware, for measuring the worth of a policy on a device
//! that is not here. It moves no data and takes as long as a device of that [`Profile`] would.
//!
//! ```text
//! doorbell --> waiting --a unit is free--> at a unit --latency--> the link --> completed
//!              (in order)                  (up to `units`)        (one after the other: bytes,
//!                                                                  and the gap of the ceiling)
//! ```
//!
//! A request holds its unit from its start until it has completed. So depth one gives one request
//! per latency, great depth the ceiling, and large requests the link's bandwidth. The model is
//! exact in nanoseconds: over a clock set by hand it replays.
//!
//! The price: a doorbell that costs, costs by spinning, and so does waiting. Sleeping would add
//! tens of microseconds of scheduler to a device of ten. There is nothing that wakes it: a doorbell
//! that waits without a limit while nothing is under way returns at once.

use std::collections::VecDeque;
use std::hint;
use std::mem;
use std::time::Duration;

use forebay_block::limits::TAGS;
use forebay_block::{Bio, Completion, Device, Errno, Moment, Refused, Tag, Wait};

use crate::clock;

mod profile;

pub use profile::Profile;

/// Clock of a modelled device: real, or controlled by a test.
pub trait Clock {
    /// The moment it is.
    fn now(&mut self) -> Moment;

    /// Returns when it is `moment`, or later.
    fn pass_until(&mut self, moment: Moment);
}

/// Clock of the machine. It waits by reading the time in a loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spinning;

impl Clock for Spinning {
    fn now(&mut self) -> Moment {
        clock::now()
    }

    fn pass_until(&mut self, moment: Moment) {
        while clock::now() < moment {
            hint::spin_loop();
        }
    }
}

/// Device that takes time as a profile says, and transfers nothing.
#[derive(Debug)]
pub struct Modelled<C = Spinning> {
    profile: Profile,
    /// The profile's, worked out once.
    gap: Duration,
    /// The profile's, worked out once.
    serves_at_once: bool,
    clock: C,
    staged: Vec<Request>,
    /// For a free unit.
    waiting: VecDeque<Request>,
    /// At a unit, by when that is done with it. All take equally long, so they keep their order.
    serving: VecDeque<(Moment, Request)>,
    /// On the link, by when they complete.
    leaving: VecDeque<(Moment, Completion)>,
    completed: Vec<Completion>,
    /// Requests that hold a unit.
    busy: u32,
    /// When the last request completes that went over the link; `None` before the first.
    link_free: Option<Moment>,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    tag: Tag,
    /// Bytes it moves.
    bytes: u64,
}

impl Modelled {
    /// Creates a device with this profile, in real time.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self::with_clock(profile, Spinning)
    }
}

impl<C: Clock> Modelled<C> {
    /// Creates a device with this profile and this clock.
    #[must_use]
    pub fn with_clock(profile: Profile, clock: C) -> Self {
        assert!(profile.units > 0, "a device without units serves nothing: {profile:?}");
        Self {
            profile,
            gap: profile.gap(),
            serves_at_once: profile.serves_at_once(),
            clock,
            staged: Vec::with_capacity(TAGS),
            waiting: VecDeque::with_capacity(TAGS),
            serving: VecDeque::with_capacity(TAGS),
            leaving: VecDeque::with_capacity(TAGS),
            completed: Vec::with_capacity(TAGS),
            busy: 0,
            link_free: None,
        }
    }

    /// Returns the number of requests that were prepared and have not been reaped.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let there = self.waiting.len() + self.serving.len() + self.leaving.len();
        self.staged.len() + there + self.completed.len()
    }

    /// Takes what was staged, which costs a doorbell.
    fn take_staged(&mut self) -> Moment {
        let now = self.clock.now();
        if self.staged.is_empty() {
            self.advance(now);
            return now;
        }
        let now = if self.profile.doorbell.is_zero() {
            now
        } else {
            let due = now + self.profile.doorbell;
            self.clock.pass_until(due);
            self.clock.now()
        };
        if self.serves_at_once {
            let ended = |Request { tag, bytes }| Completion { tag, result: Ok(bytes) };
            self.completed.extend(self.staged.drain(..).map(ended));
            return now;
        }
        // Earlier requests come first: a unit they free before now was idle since.
        self.advance(now);
        let mut staged = mem::take(&mut self.staged);
        for request in staged.drain(..) {
            if self.busy < self.profile.units {
                self.start(request, now);
            } else {
                self.waiting.push_back(request);
            }
        }
        self.staged = staged;
        self.advance(now);
        now
    }

    /// A unit takes a request.
    fn start(&mut self, request: Request, now: Moment) {
        self.busy += 1;
        let served = now + self.profile.latency;
        debug_assert!(self.serving.back().is_none_or(|(last, _)| *last <= served));
        self.serving.push_back((served, request));
    }

    /// When something happens next.
    fn next_moment(&self) -> Option<Moment> {
        let served = self.serving.front().map(|(served, _)| *served);
        let leaves = self.leaving.front().map(|(due, _)| *due);
        match (served, leaves) {
            (Some(served), Some(leaves)) => Some(served.min(leaves)),
            (one, other) => one.or(other),
        }
    }

    /// Lets happen, in order, all that is due by now.
    fn advance(&mut self, now: Moment) {
        while let Some(moment) = self.next_moment().filter(|moment| *moment <= now) {
            if self.leaving.front().is_some_and(|(due, _)| *due == moment) {
                self.complete_first();
            } else if let Some((served, request)) = self.serving.pop_front() {
                self.send_over_link(request, served);
            }
        }
    }

    /// The first on the link completes; its unit takes the next.
    fn complete_first(&mut self) {
        let (due, completion) = self.leaving.pop_front().expect("seen by the caller");
        self.completed.push(completion);
        self.busy -= 1;
        if let Some(request) = self.waiting.pop_front() {
            self.start(request, due);
        }
    }

    fn send_over_link(&mut self, request: Request, served: Moment) {
        let Request { tag, bytes } = request;
        let moving = self.profile.moving(bytes);
        let due = match self.link_free {
            Some(free) => (served.max(free) + moving).max(free + self.gap),
            None => served + moving,
        };
        self.link_free = Some(due);
        self.leaving.push_back((due, Completion { tag, result: Ok(bytes) }));
    }

    /// Lets time pass until `count` have completed, or until `limit`.
    fn wait_for(&mut self, count: usize, limit: Option<Moment>) {
        while self.completed.len() < count {
            let next = self.next_moment().filter(|next| limit.is_none_or(|limit| *next <= limit));
            let Some(until) = next.or(limit) else { return };
            self.clock.pass_until(until);
            let now = self.clock.now();
            self.advance(now);
            if limit.is_some_and(|limit| limit <= now) {
                return;
            }
        }
    }
}

impl<C: Clock> Device for Modelled<C> {
    fn now(&mut self) -> Moment {
        self.clock.now()
    }

    /// Refuses nothing: the tags bound the staged requests.
    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.staged.push(Request { tag, bytes: request.bytes() });
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        let now = self.take_staged();
        match wait {
            Wait::Not => {}
            Wait::Something(limit) => self.wait_for(1, limit.map(|limit| now + limit)),
            Wait::Batch { want, within, limit } => {
                let want = (want as usize).min(self.in_flight());
                self.wait_for(want.max(1), Some(now + within));
                let limit = limit.map(|limit| now + limit);
                self.wait_for(1, limit);
            }
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        if self.completed.is_empty() && self.next_moment().is_some() {
            let now = self.clock.now();
            self.advance(now);
        }
        completions.append(&mut self.completed);
    }
}

#[cfg(test)]
mod tests;
