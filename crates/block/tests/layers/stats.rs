//! Stats: every count against lists of all requests, and quantiles against a sorted list.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_block::layers::{
    Errors, Fraction, Histogram, Occasion, Rule, Short, Shortfalls, Side, Stats,
};
use forebay_block::{Completion, Device, Errno, Operation, Tag, Wait};
use proptest::prelude::*;

use crate::timed::{OPERATIONS, Timed, bio, operation, wait};

#[derive(Clone, Debug)]
enum Step {
    Prepare(Operation),
    Doorbell(Wait),
    Reap,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => operation().prop_map(Step::Prepare),
        2 => wait().prop_map(Step::Doorbell),
        2 => Just(Step::Reap),
        1 => (0..3000u64).prop_map(Step::Pass),
    ]
}

type Stack = Stats<Errors<Short<Timed>>>;

fn stack(latencies: &[u64], capacity: usize, seed: u64) -> Stack {
    let shortfalls = Shortfalls {
        read: Fraction::percent(20),
        write: Fraction::percent(20),
        interrupted: Fraction::percent(10),
        would_block: Fraction::percent(10),
    };
    let mut errors = Errors::new(Short::new(
        Timed::with_latencies(latencies).with_capacity(capacity),
        shortfalls,
        seed,
    ));
    let rule = Rule { occasion: Occasion::Every(5), side: Side::After, ..Rule::always(Errno::IO) };
    errors.set_rules([rule]);
    Stats::new(errors)
}

fn timed(device: &Stack) -> &Timed {
    device.inner().inner().inner()
}

/// A request that the device took.
#[derive(Clone, Copy, Debug)]
struct Known {
    operation: Operation,
    rung: Option<u64>,
    end: Option<(u64, Completion)>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn counts_match_the_requests_that_passed(
        steps in prop::collection::vec(step(), 1..200),
        latencies in prop::collection::vec(0..2000u64, 200),
        capacity in 1..30usize,
        seed: u64,
    ) {
        let mut device = stack(&latencies, capacity, seed);
        let mut known: BTreeMap<Tag, Known> = BTreeMap::new();
        let (mut refused, mut depths) = (0, Vec::new());
        for (number, step) in steps.into_iter().enumerate() {
            let reads = timed(&device).clock_reads;
            match step {
                Step::Prepare(operation) => {
                    let tag = Tag(number as u16);
                    match device.prepare(tag, &bio(operation, 0, 8192)) {
                        Ok(()) => { known.insert(tag, Known { operation, rung: None, end: None }); }
                        Err(_) => refused += 1,
                    }
                    prop_assert_eq!(timed(&device).clock_reads, reads);
                }
                Step::Doorbell(wait) => {
                    let now = timed(&device).moment().nanoseconds();
                    known.values_mut().for_each(|known| known.rung = known.rung.or(Some(now)));
                    depths.push(known.values().filter(|known| known.end.is_none()).count() as u64);
                    device.doorbell(wait).unwrap();
                    prop_assert!(timed(&device).clock_reads <= reads + 1);
                }
                Step::Reap => {
                    let mut completions = Vec::new();
                    device.reap(&mut completions);
                    let now = timed(&device).moment().nanoseconds();
                    for completion in completions {
                        known.get_mut(&completion.tag).expect("taken").end = Some((now, completion));
                    }
                    prop_assert!(timed(&device).clock_reads <= reads + 1);
                }
                Step::Pass(span) => {
                    device.inner_mut().inner_mut().inner_mut().pass(Duration::from_nanos(span));
                }
            }
        }
        let doorbells = timed(&device).doorbells;
        let statistics = device.take();
        prop_assert_eq!((statistics.refused, statistics.doorbells), (refused, doorbells));
        prop_assert_eq!(statistics.requests(), known.len() as u64);
        prop_assert_eq!(statistics.depth.count(), depths.len() as u64);
        prop_assert_eq!(statistics.depth.range().map(|range| range.1), depths.iter().max().copied());
        for operation in OPERATIONS {
            let of = statistics.of(operation);
            let mine = || known.values().filter(move |known| known.operation == operation);
            let ends = || mine().filter_map(|known| known.end.map(|(at, end)| (at - known.rung.unwrap(), end.result)));
            prop_assert_eq!(of.requests, mine().count() as u64);
            let moved = |result: Result<u64, Errno>| if operation.moves_bytes() { result.unwrap_or(0) } else { 0 };
            prop_assert_eq!(of.bytes, ends().map(|(_, result)| moved(result)).sum::<u64>());
            prop_assert_eq!(of.errors, ends().filter(|(_, result)| *result == Err(Errno::IO)).count() as u64);
            let is_passing = |result: &Result<u64, Errno>| result.is_err_and(Errno::is_passing);
            prop_assert_eq!(of.passing, ends().filter(|(_, result)| is_passing(result)).count() as u64);
            let is_short = |result: Result<u64, Errno>| operation.moves_bytes() && result.is_ok_and(|bytes| bytes < 8192);
            prop_assert_eq!(of.short, ends().filter(|(_, result)| is_short(*result)).count() as u64);
            let mut latencies: Vec<u64> = ends().map(|(latency, _)| latency).collect();
            latencies.sort_unstable();
            check_quantiles(&of.latency, &latencies);
        }
        prop_assert_eq!(device.statistics().requests(), 0, "taking the counters resets them");
    }

    #[test]
    fn a_quantile_is_in_the_bucket_of_the_exact_one(
        mut numbers in prop::collection::vec((any::<u64>(), 0..64u32).prop_map(|(any, shift)| any >> shift), 0..200),
    ) {
        let mut histogram = Histogram::new();
        numbers.iter().for_each(|&number| histogram.add(number));
        numbers.sort_unstable();
        check_quantiles(&histogram, &numbers);
        let counted: u64 = histogram.buckets().map(|(first, last, count)| {
            let inside = numbers.iter().filter(|number| (first..=last).contains(*number)).count() as u64;
            assert_eq!(count, inside);
            count
        }).sum();
        prop_assert_eq!(counted, numbers.len() as u64);
    }
}

fn check_quantiles(histogram: &Histogram, sorted: &[u64]) {
    assert_eq!(histogram.count(), sorted.len() as u64);
    let sum: u128 = sorted.iter().map(|&number| u128::from(number)).sum();
    assert_eq!(histogram.mean(), (!sorted.is_empty()).then(|| (sum / sorted.len() as u128) as u64));
    let range = sorted.first().copied().zip(sorted.last().copied());
    assert_eq!(histogram.range(), range);
    let mut before = 0;
    for per_mille in [0, 1, 10, 250, 500, 900, 990, 999, 1000] {
        let found = histogram.quantile(Fraction::per_mille(per_mille));
        let rank = (sorted.len() * per_mille as usize).div_ceil(1000).max(1);
        let Some(&exact) = sorted.get(rank - 1) else {
            assert_eq!(found, None);
            continue;
        };
        let found = found.expect("the histogram is not empty");
        assert_eq!(
            found.leading_zeros(),
            exact.leading_zeros(),
            "{found} and {exact} are far apart"
        );
        assert!(found >= before, "a higher quantile is not lower");
        before = found;
    }
}
