//! Delay: no completion is early or withheld, all are in order, and no doorbell waits too long.

use std::time::Duration;

use forebay_block::layers::{Delay, Latency};
use forebay_block::{Completion, Device, Moment, Operation, Tag, Wait};
use proptest::prelude::*;

use crate::timed::{OPERATIONS, Timed, bio, operation, wait};

#[derive(Clone, Debug)]
enum Step {
    Prepare(Operation),
    Doorbell(Wait),
    Reap,
    Pass(u64),
    SetLatency(Operation, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => operation().prop_map(Step::Prepare),
        3 => wait().prop_map(Step::Doorbell),
        2 => Just(Step::Reap),
        1 => (0..300u64).prop_map(Step::Pass),
        1 => (operation(), 0..300u64).prop_map(|(operation, fixed)| Step::SetLatency(operation, fixed)),
    ]
}

/// The latency of each operation, and the due times that follow from it.
struct Model {
    latency_of: Vec<(Operation, u64)>,
    operation_of: Vec<Operation>,
    /// Completions that the layer has seen: due time, number in the order seen, completion.
    held: Vec<(Moment, usize, Completion)>,
    seen: usize,
}

impl Model {
    fn new(fixed: u64) -> Self {
        let latency_of = OPERATIONS.iter().map(|&operation| (operation, fixed)).collect();
        Self { latency_of, operation_of: Vec::new(), held: Vec::new(), seen: 0 }
    }

    fn set(&mut self, operation: Operation, fixed: u64) {
        self.latency_of.iter_mut().filter(|(of, _)| *of == operation).for_each(|of| of.1 = fixed);
    }

    /// Adds the completions that the layer has reaped from the inner device since the last call.
    fn see(&mut self, device: &Timed) {
        for &(seen, completion) in &device.reaped[self.seen..] {
            let operation = self.operation_of[usize::from(completion.tag.0)];
            let fixed =
                self.latency_of.iter().find(|(of, _)| *of == operation).expect("in the table").1;
            self.held.push((seen + Duration::from_nanos(fixed), self.seen, completion));
            self.seen += 1;
        }
        self.held.sort_by_key(|&(due, number, _)| (due, number));
    }

    fn take_due(&mut self, now: Moment) -> Vec<Completion> {
        let due = self.held.iter().take_while(|(due, _, _)| *due <= now).count();
        self.held.drain(..due).map(|(_, _, completion)| completion).collect()
    }

    fn due(&self, now: Moment) -> usize {
        self.held.iter().filter(|(due, _, _)| *due <= now).count()
    }
}

/// Checks that a doorbell ended when its contract says.
fn check_wait(model: &Model, device: &Timed, wait: Wait, start: Moment) {
    let now = device.moment();
    let (want, within, limit) = match wait {
        Wait::Not => {
            assert_eq!(now, start, "the doorbell must not wait");
            return;
        }
        Wait::Something(limit) => (1, Duration::MAX, limit),
        Wait::Batch { want, within, limit } => (want as usize, within, limit),
    };
    let (waited, due) = (now.since(start), model.due(now));
    let is_idle = device.unfinished() == 0 && model.held.is_empty();
    // Completions due before the last moment: those due at the moment when the wait ended do not
    // count.
    let earlier = model.held.iter().filter(|(due, _, _)| *due < now).count();
    if due >= want {
        assert!(
            earlier < want || waited.is_zero(),
            "{want} completions were due before the wait ended"
        );
    } else if due > 0 {
        let first = model.held[0].0.max(start);
        assert!(waited >= within, "{due} of {want} after {waited:?}");
        assert_eq!(now, (start + within).max(first), "a completion was due and the time was over");
    } else {
        assert!(is_idle || limit == Some(waited), "nothing is due after {waited:?} of {wait:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn completions_are_passed_on_when_due_and_in_order(
        steps in prop::collection::vec(step(), 1..120),
        latencies in prop::collection::vec(0..300u64, 120),
        fixed in 0..300u64,
    ) {
        let latency = |nanoseconds| Latency { fixed: Duration::from_nanos(nanoseconds), spread: Duration::ZERO };
        let mut device = Delay::new(Timed::with_latencies(&latencies), latency(fixed), 1);
        let mut model = Model::new(fixed);
        let mut ended = 0;
        for step in steps.into_iter().chain([Step::Doorbell(Wait::Not)]) {
            match step {
                Step::Prepare(operation) => {
                    let tag = Tag(model.operation_of.len() as u16);
                    prop_assert!(device.prepare(tag, &bio(operation, 0, 4096)).is_ok());
                    model.operation_of.push(operation);
                }
                Step::Doorbell(wait) => {
                    let start = device.inner().moment();
                    device.doorbell(wait).unwrap();
                    model.see(device.inner());
                    check_wait(&model, device.inner(), wait, start);
                }
                Step::Reap => {
                    let mut reaped = Vec::new();
                    device.reap(&mut reaped);
                    model.see(device.inner());
                    prop_assert_eq!(&reaped, &model.take_due(device.inner().moment()));
                    ended += reaped.len();
                }
                Step::Pass(span) => device.inner_mut().pass(Duration::from_nanos(span)),
                Step::SetLatency(operation, fixed) => {
                    device.set_latency_of(operation, latency(fixed));
                    model.set(operation, fixed);
                }
            }
            prop_assert_eq!(device.held(), model.held.len());
        }
        let mut turns = 0;
        let mut reaped = Vec::new();
        while ended + reaped.len() < model.operation_of.len() {
            device.doorbell(Wait::Something(None)).unwrap();
            device.reap(&mut reaped);
            turns += 1;
            prop_assert!(turns <= model.operation_of.len(), "each wait without a limit ends a request");
        }
    }

    #[test]
    fn the_spread_is_kept_to_and_replays(
        fixed in 0..1000u64, spread in 0..1000u64, seed: u64,
    ) {
        let run = || {
            let latency = Latency { fixed: Duration::from_nanos(fixed), spread: Duration::from_nanos(spread) };
            let mut device = Delay::new(Timed::default(), latency, seed);
            for tag in 0..32 {
                device.prepare(Tag(tag), &bio(Operation::Read, 0, 4096)).expect("no limit");
            }
            let mut ends = Vec::new();
            while ends.len() < 32 {
                device.doorbell(Wait::Something(None)).unwrap();
                let mut reaped = Vec::new();
                device.reap(&mut reaped);
                let now = device.inner().moment().nanoseconds();
                ends.extend(reaped.iter().map(|completion| (now, completion.tag)));
            }
            ends
        };
        let ends = run();
        prop_assert!(ends.iter().all(|&(end, _)| (fixed..=fixed + spread).contains(&end)));
        prop_assert!(ends.is_sorted_by_key(|&(end, _)| end));
        prop_assert_eq!(ends, run());
    }
}

#[test]
fn an_idle_device_waits_for_held_completions() {
    let latency = Latency { fixed: Duration::from_nanos(500), spread: Duration::ZERO };
    let mut device = Delay::new(Timed::default(), latency, 1);
    device.prepare(Tag(0), &bio(Operation::Write, 0, 4096)).expect("no limit");
    device.doorbell(Wait::Not).unwrap();
    assert_eq!((device.held(), device.inner().unfinished()), (1, 0));
    device.doorbell(Wait::Something(Some(Duration::from_nanos(499)))).unwrap();
    let mut reaped = Vec::new();
    device.reap(&mut reaped);
    assert_eq!((reaped.len(), device.inner().moment()), (0, Moment::from_nanoseconds(499)));
    device.doorbell(Wait::Something(None)).unwrap();
    device.reap(&mut reaped);
    assert_eq!((reaped.len(), device.inner().moment()), (1, Moment::from_nanoseconds(500)));
}
