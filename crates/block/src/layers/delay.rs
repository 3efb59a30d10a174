//! A layer that delays completions, by a fixed and a random time.
//!
//! The time counts from when the layer saw the completion, at a doorbell or reap, not from when the
//! device ended it. Completions are passed on in order of their due times, and in order of arrival
//! if those are equal.
//!
//! ```text
//! request --> inner device --> seen, at m --> held --> due at m + fixed + [0, spread] --> reaped
//! ```
//!
//! A doorbell that waits asks the inner device to wait until the next due completion at most, even
//! if nothing is in flight there. So it ends in time. If the inner wait ends before its limit and
//! without a completion, the inner device was woken, and this doorbell returns.
//!
//! The price: clock reads at each doorbell that waits and each reap, and one more inner doorbell
//! for each completion that arrives before it is due.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Notes, OPERATIONS, place};
use crate::bio::{Bio, Errno, Operation};
use crate::device::{Completion, Device, Refused, Tag, Wait};
use crate::random::Random;
use crate::time::Moment;

/// Delay of completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latency {
    /// Minimum delay.
    pub fixed: Duration,
    /// Maximum of the random time added to `fixed`, uniformly distributed.
    pub spread: Duration,
}

/// Layer that delays completions.
///
/// ```
/// use forebay_block::layers::{Delay, Latency, NullLayer};
/// use forebay_block::{Bio, Class, Device, Moment, Operation, Segments, Source, Tag, Target, Wait};
/// use std::time::Duration;
///
/// let flush = Bio {
///     operation: Operation::FlushData, target: Target(0), offset: 0, length: 0,
///     segments: Segments::new(), class: Class::Waited, source: Source(0), owner: 0,
/// };
/// let latency = Latency { fixed: Duration::from_micros(80), spread: Duration::ZERO };
/// let mut device = Delay::new(NullLayer::new(), latency, 7);
/// device.prepare(Tag(0), &flush).expect("room");
/// device.doorbell(Wait::Something(None))?;
/// assert_eq!(device.now(), Moment::from_nanoseconds(80_000));
///
/// let mut completions = Vec::new();
/// device.reap(&mut completions);
/// assert_eq!(completions.len(), 1);
/// # Ok::<(), forebay_block::Errno>(())
/// ```
#[derive(Debug)]
pub struct Delay<D> {
    inner: D,
    latencies: [Latency; OPERATIONS],
    random: Random,
    flying: Notes<Operation>,
    /// By due time, then in order of arrival.
    held: BTreeMap<(Moment, u64), Completion>,
    arrivals: u64,
    /// Empty between calls; keeps its allocation.
    reaped: Vec<Completion>,
}

/// A wait of any form.
struct Goal {
    want: usize,
    within: Duration,
    limit: Option<Duration>,
}

impl<D: Device> Delay<D> {
    /// Delays all operations by `latency`, with random numbers from `seed`.
    pub fn new(inner: D, latency: Latency, seed: u64) -> Self {
        Self {
            inner,
            latencies: [latency; OPERATIONS],
            random: Random::new(seed),
            flying: Notes::new(),
            held: BTreeMap::new(),
            arrivals: 0,
            reaped: Vec::new(),
        }
    }

    /// Sets the delay of all operations, from the next completion on.
    pub fn set_latency(&mut self, latency: Latency) {
        self.latencies = [latency; OPERATIONS];
    }

    /// Sets the delay of one operation, from the next completion on.
    pub fn set_latency_of(&mut self, operation: Operation, latency: Latency) {
        self.latencies[place(operation)] = latency;
    }

    /// Returns the number of completions that are delayed now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the inner device, to change its settings.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Takes the completions of the inner device and returns their number.
    fn collect(&mut self) -> usize {
        self.inner.reap(&mut self.reaped);
        if self.reaped.is_empty() {
            return 0;
        }
        let (count, now) = (self.reaped.len(), self.inner.now());
        for completion in self.reaped.drain(..) {
            let operation = self.flying.take(completion.tag);
            let operation = operation
                .unwrap_or_else(|| panic!("{:?} completed but was not in flight", completion.tag));
            let Latency { fixed, spread } = self.latencies[place(operation)];
            let spread = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX);
            let more = Duration::from_nanos(self.random.below(spread.saturating_add(1)));
            self.held.insert((now + fixed + more, self.arrivals), completion);
            self.arrivals += 1;
        }
        count
    }

    /// Waits for the goal. Every inner wait ends with the next due completion at the latest.
    fn wait(&mut self, goal: &Goal) -> Result<(), Errno> {
        let start = self.inner.now();
        let (mut now, mut is_rung) = (start, false);
        loop {
            let due = self.held.range(..=(now, u64::MAX)).take(goal.want).count();
            let end = if due == 0 { goal.limit } else { Some(goal.within) };
            let left = end.map(|end| (start + end).since(now));
            if due >= goal.want || left == Some(Duration::ZERO) {
                return if is_rung { Ok(()) } else { self.inner.doorbell(Wait::Not) };
            }
            let next =
                self.held.range((now, u64::MAX)..).next().map(|(&(due, _), _)| due.since(now));
            let bound = [left, next].into_iter().flatten().min();
            self.inner.doorbell(Wait::Something(bound))?;
            is_rung = true;
            let came = self.collect();
            let before = now;
            now = self.inner.now();
            let is_woken = came == 0 && bound.is_none_or(|bound| now.since(before) < bound);
            if is_woken {
                return Ok(());
            }
        }
    }
}

impl<D: Device> Device for Delay<D> {
    fn now(&mut self) -> Moment {
        self.inner.now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.inner.prepare(tag, request)?;
        self.flying.put(tag, request.operation);
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        match wait {
            Wait::Not => {
                self.inner.doorbell(Wait::Not)?;
                self.collect();
                Ok(())
            }
            Wait::Something(limit) => self.wait(&Goal { want: 1, within: Duration::MAX, limit }),
            Wait::Batch { want, within, limit } => {
                self.wait(&Goal { want: want.max(1) as usize, within, limit })
            }
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.collect();
        if self.held.is_empty() {
            return;
        }
        let now = self.inner.now();
        while let Some(next) = self.held.first_entry().filter(|next| next.key().0 <= now) {
            completions.push(next.remove());
        }
    }
}
