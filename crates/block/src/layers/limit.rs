//! A layer that limits the requests in flight, the bytes per second and the requests per second.
//! Requests above a limit are refused, not queued.
//!
//! Both rates are token buckets: a bucket fills at its rate up to its burst, and a request takes
//! its cost out. A request that costs more than the burst passes when the bucket is full, and
//! leaves it below empty. So nothing is refused forever, and in any time span no more passes than
//! the burst, the rate times the span, and one request.
//!
//! A caller that was refused because of a rate may have nothing in flight to wait for. So a
//! doorbell that waits after such a refusal ends, at the latest, when the refused request would
//! pass.
//!
//! The clock is read once per batch, and once more for each refusal.

use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use crate::bio::{Bio, Errno};
use crate::device::{Completion, Device, Refused, Tag, Wait};
use crate::time::Moment;

/// Rate limit with a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Units per second, on average.
    pub per_second: NonZeroU64,
    /// Units that may pass at once after a pause.
    pub burst: NonZeroU64,
}

/// Limits of [`Limit`]; `None` means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ceiling {
    /// Requests at the device, including staged ones.
    pub in_flight: Option<NonZeroU32>,
    /// Bytes transferred.
    pub bandwidth: Option<Rate>,
    /// Requests of any operation.
    pub requests: Option<Rate>,
}

/// Token bucket. One unit is as many tokens as a second has nanoseconds, so that filling is exact.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: Rate,
    tokens: i128,
}

const UNIT: i128 = 1_000_000_000;

impl Bucket {
    fn full(rate: Rate) -> Self {
        Self { rate, tokens: i128::from(rate.burst.get()) * UNIT }
    }

    fn fill(&mut self, span: Duration) {
        let more = i128::try_from(span.as_nanos()).unwrap_or(i128::MAX);
        let more = more.saturating_mul(i128::from(self.rate.per_second.get()));
        self.tokens = self.tokens.saturating_add(more).min(Self::full(self.rate).tokens);
    }

    /// Returns how long it takes until `units` units pass, or zero if they pass now.
    fn until(&self, units: u64) -> Duration {
        let needed = i128::from(units.min(self.rate.burst.get())) * UNIT - self.tokens;
        let nanoseconds =
            needed.max(0).unsigned_abs().div_ceil(u128::from(self.rate.per_second.get()));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    fn take(&mut self, units: u64) {
        self.tokens -= i128::from(units) * UNIT;
    }
}

/// Layer that limits depth, bandwidth and request rate.
///
/// ```
/// use std::num::NonZeroU32;
/// use forebay_block::layers::{Ceiling, Limit, NullLayer};
/// use forebay_block::{Bio, Class, Device, Operation, Refused, Segments};
/// use forebay_block::{Source, Tag, Target, Wait};
///
/// let flush = Bio {
///     operation: Operation::FlushData, target: Target(0), offset: 0, length: 0,
///     segments: Segments::new(), class: Class::Waited, source: Source(0), owner: 0,
/// };
/// let ceiling = Ceiling { in_flight: NonZeroU32::new(1), ..Ceiling::default() };
/// let mut device = Limit::new(NullLayer::new(), ceiling);
/// assert_eq!(device.prepare(Tag(0), &flush), Ok(()));
/// assert_eq!(device.prepare(Tag(1), &flush), Err(Refused));
/// device.doorbell(Wait::Not)?;
/// device.reap(&mut Vec::new());
/// assert_eq!(device.prepare(Tag(1), &flush), Ok(()));
/// # Ok::<(), forebay_block::Errno>(())
/// ```
#[derive(Debug)]
pub struct Limit<D> {
    inner: D,
    in_flight_most: u32,
    in_flight: u32,
    bandwidth: Option<Bucket>,
    requests: Option<Bucket>,
    /// Time up to which the buckets are filled.
    filled: Moment,
    /// Whether `filled` is recent enough for the present batch.
    is_fresh: bool,
    /// When the request that a rate refused last would pass.
    passes: Option<Moment>,
}

impl<D: Device> Limit<D> {
    /// Wraps a device, and allows a full burst at first.
    pub fn new(mut inner: D, ceiling: Ceiling) -> Self {
        let filled = inner.now();
        let mut limit = Self {
            inner,
            in_flight_most: 0,
            in_flight: 0,
            bandwidth: None,
            requests: None,
            filled,
            is_fresh: false,
            passes: None,
        };
        limit.set_ceiling(ceiling);
        limit
    }

    /// Sets the limits, from the next request on. Requests in flight are not affected.
    pub fn set_ceiling(&mut self, ceiling: Ceiling) {
        self.fill();
        self.in_flight_most = ceiling.in_flight.map_or(u32::MAX, NonZeroU32::get);
        self.bandwidth = ceiling.bandwidth.map(|rate| changed(self.bandwidth, rate));
        self.requests = ceiling.requests.map(|rate| changed(self.requests, rate));
        self.passes = None;
    }

    /// Returns the number of requests at the device.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the inner device, to change its settings.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn fill(&mut self) {
        let now = self.inner.now();
        let span = now.since(self.filled);
        for bucket in [&mut self.bandwidth, &mut self.requests].into_iter().flatten() {
            bucket.fill(span);
        }
        self.filled = self.filled.max(now);
        self.is_fresh = true;
    }

    /// Returns how long it takes until a request passes both buckets.
    fn until(&self, bytes: u64) -> Duration {
        let bandwidth = self.bandwidth.map_or(Duration::ZERO, |bucket| bucket.until(bytes));
        self.requests.map_or(Duration::ZERO, |bucket| bucket.until(1)).max(bandwidth)
    }
}

fn changed(bucket: Option<Bucket>, rate: Rate) -> Bucket {
    let full = Bucket::full(rate);
    bucket.map_or(full, |bucket| Bucket { rate, tokens: bucket.tokens.min(full.tokens) })
}

/// Returns a wait that ends after `most` at the latest.
fn shortened(wait: Wait, most: Duration) -> Wait {
    let shorter = |limit: Option<Duration>| Some(limit.map_or(most, |limit| limit.min(most)));
    match wait {
        Wait::Not => Wait::Not,
        Wait::Something(limit) => Wait::Something(shorter(limit)),
        Wait::Batch { want, within, limit } => {
            Wait::Batch { want, within: within.min(most), limit: shorter(limit) }
        }
    }
}

impl<D: Device> Device for Limit<D> {
    fn now(&mut self) -> Moment {
        self.inner.now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.passes = None;
        if self.in_flight >= self.in_flight_most {
            return Err(Refused);
        }
        let is_rated = self.bandwidth.is_some() || self.requests.is_some();
        if is_rated && !self.is_fresh {
            self.fill();
        }
        let until = self.until(request.bytes());
        if until > Duration::ZERO {
            self.passes = Some(self.filled + until);
            self.is_fresh = false;
            return Err(Refused);
        }
        self.inner.prepare(tag, request)?;
        self.in_flight += 1;
        if let Some(bucket) = &mut self.bandwidth {
            bucket.take(request.bytes());
        }
        if let Some(bucket) = &mut self.requests {
            bucket.take(1);
        }
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.is_fresh = false;
        let wait = match self.passes {
            Some(passes) if wait != Wait::Not => shortened(wait, passes.since(self.inner.now())),
            _ => wait,
        };
        self.inner.doorbell(wait)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.inner.reap(completions);
        let count = (completions.len() - before) as u32;
        assert!(count <= self.in_flight, "more requests completed than were in flight");
        self.in_flight -= count;
    }
}
