//! Limit: requests pass as buckets that fill nanosecond by nanosecond let them, and a wait after a
//! refusal ends when the request passes.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use forebay_block::layers::{Ceiling, Limit, Rate};
use forebay_block::{Device, Operation, Tag, Wait};
use proptest::prelude::*;

use crate::timed::{Timed, bio};

#[derive(Clone, Debug)]
enum Step {
    Prepare { pages: u64, is_flush: bool },
    Doorbell(Wait),
    Reap,
    Pass(u64),
    Set(Ceiling),
}

/// Rates that fill a bucket of some pages within some microseconds.
fn rate(unit: u64) -> impl Strategy<Value = Rate> {
    (1..40u64, 1..12u64).prop_map(move |(per_microsecond, burst)| Rate {
        per_second: NonZeroU64::new(per_microsecond * unit * 25_000).unwrap(),
        burst: NonZeroU64::new(burst * unit).unwrap(),
    })
}

fn ceiling() -> impl Strategy<Value = Ceiling> {
    let in_flight = prop::option::of((1..20u32).prop_map(|most| NonZeroU32::new(most).unwrap()));
    (in_flight, prop::option::of(rate(4096)), prop::option::of(rate(1)))
        .prop_map(|(in_flight, bandwidth, requests)| Ceiling { in_flight, bandwidth, requests })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..16u64, any::<bool>()).prop_map(|(pages, is_flush)| Step::Prepare { pages, is_flush }),
        3 => crate::timed::wait().prop_map(Step::Doorbell),
        2 => Just(Step::Reap),
        1 => (0..20_000u64).prop_map(Step::Pass),
        1 => ceiling().prop_map(Step::Set),
    ]
}

/// A bucket, in billionths of a unit.
#[derive(Clone, Copy)]
struct Bucket {
    rate: Rate,
    level: i128,
}

impl Bucket {
    const UNIT: i128 = 1_000_000_000;

    fn changed(before: Option<Self>, rate: Option<Rate>) -> Option<Self> {
        let rate = rate?;
        let full = i128::from(rate.burst.get()) * Self::UNIT;
        Some(Self { rate, level: before.map_or(full, |bucket| bucket.level.min(full)) })
    }

    /// Fills the bucket, one nanosecond at a time.
    fn pass(&mut self, nanoseconds: u64) {
        let full = i128::from(self.rate.burst.get()) * Self::UNIT;
        for _ in 0..nanoseconds {
            if self.level == full {
                break;
            }
            self.level = full.min(self.level + i128::from(self.rate.per_second.get()));
        }
    }

    fn lets(&self, units: u64) -> bool {
        self.level >= i128::from(units.min(self.rate.burst.get())) * Self::UNIT
    }
}

struct Model {
    now: u64,
    most: u32,
    in_flight: u32,
    bandwidth: Option<Bucket>,
    requests: Option<Bucket>,
}

impl Model {
    fn buckets(&mut self) -> impl Iterator<Item = &mut Bucket> {
        [&mut self.bandwidth, &mut self.requests].into_iter().flatten()
    }

    fn pass_to(&mut self, now: u64) {
        let span = now - self.now;
        self.buckets().for_each(|bucket| bucket.pass(span));
        self.now = now;
    }

    fn lets(&self, bytes: u64) -> bool {
        let bandwidth = self.bandwidth.is_none_or(|bucket| bucket.lets(bytes));
        bandwidth && self.requests.is_none_or(|bucket| bucket.lets(1))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn requests_pass_as_the_buckets_let_them(
        steps in prop::collection::vec(step(), 1..150),
        latencies in prop::collection::vec(0..3000u64, 150),
        first in ceiling(),
    ) {
        let mut device = Limit::new(Timed::with_latencies(&latencies), first);
        let mut model = Model { now: 0, most: 0, in_flight: 0, bandwidth: None, requests: None };
        let mut refused_bytes = None;
        for (number, step) in [Step::Set(first)].into_iter().chain(steps).enumerate() {
            model.pass_to(device.inner().moment().nanoseconds());
            match step {
                Step::Prepare { pages, is_flush } => {
                    let operation = if is_flush { Operation::FlushAll } else { Operation::Write };
                    let bio = bio(operation, 0, pages * 4096);
                    let has_room = model.in_flight < model.most;
                    let passes = has_room && model.lets(bio.bytes());
                    let taken = device.prepare(Tag(number as u16), &bio);
                    prop_assert_eq!(taken.is_ok(), passes);
                    refused_bytes = (has_room && !passes).then(|| bio.bytes());
                    if passes {
                        model.in_flight += 1;
                        if let Some(bucket) = &mut model.bandwidth {
                            bucket.level -= i128::from(bio.bytes()) * Bucket::UNIT;
                        }
                        if let Some(bucket) = &mut model.requests {
                            bucket.level -= Bucket::UNIT;
                        }
                    }
                }
                Step::Doorbell(wait) => {
                    let reaped = device.inner().unfinished();
                    device.doorbell(wait).unwrap();
                    model.pass_to(device.inner().moment().nanoseconds());
                    let is_without_limit = wait == Wait::Something(None);
                    if let (true, 0, Some(bytes)) = (is_without_limit, reaped, refused_bytes) {
                        prop_assert!(model.in_flight > 0 || model.lets(bytes), "the doorbell returned before the request passes");
                    }
                }
                Step::Reap => {
                    let mut completions = Vec::new();
                    device.reap(&mut completions);
                    model.in_flight -= completions.len() as u32;
                }
                Step::Pass(span) => {
                    // The requests of a batch count at the time of its first, so time passes only
                    // between batches.
                    device.doorbell(Wait::Not).unwrap();
                    device.inner_mut().pass(Duration::from_nanos(span));
                }
                Step::Set(ceiling) => {
                    device.set_ceiling(ceiling);
                    refused_bytes = None;
                    model.most = ceiling.in_flight.map_or(u32::MAX, NonZeroU32::get);
                    model.bandwidth = Bucket::changed(model.bandwidth, ceiling.bandwidth);
                    model.requests = Bucket::changed(model.requests, ceiling.requests);
                }
            }
            prop_assert_eq!(device.in_flight(), model.in_flight);
        }
    }

    /// Over any span, at most the burst, the rate times the span, and one request pass; and in the
    /// end all pass.
    #[test]
    fn a_caller_that_keeps_asking_gets_the_rate(
        rate in rate(4096),
        pages in prop::collection::vec(1..40u64, 1..100),
    ) {
        let ceiling = Ceiling { bandwidth: Some(rate), ..Ceiling::default() };
        let mut device = Limit::new(Timed::default(), ceiling);
        let mut passed: Vec<(u64, u64)> = Vec::new();
        for (number, &pages) in pages.iter().enumerate() {
            let bio = bio(Operation::Write, 0, pages * 4096);
            let mut turns = 0;
            while device.prepare(Tag(number as u16), &bio).is_err() {
                turns += 1;
                prop_assert!(turns <= 2, "a wait after a refusal ends when the request passes");
                device.doorbell(Wait::Something(None)).unwrap();
                device.reap(&mut Vec::new());
            }
            passed.push((device.inner().moment().nanoseconds(), bio.length));
        }
        let largest = passed.iter().map(|&(_, bytes)| bytes).max().unwrap();
        for first in 0..passed.len() {
            let mut bytes = 0;
            for &(end, more) in &passed[first..] {
                bytes += more;
                let span = u128::from(end - passed[first].0);
                let most = span * u128::from(rate.per_second.get()) / 1_000_000_000;
                let most = most + u128::from(rate.burst.get() + largest) + 1;
                prop_assert!(u128::from(bytes) <= most, "{bytes} in {span} ns");
            }
        }
    }
}
