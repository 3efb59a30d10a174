//! The loop against a modelled device that stalls, and against one that writes down what it is
//! asked.

use std::ops::Range;

use forebay_uring::AlignedMemory;

use super::*;
use crate::job::{Access, Amount, Devices, Direction, Job, Order, Pace, Rate, Workload, YesNo};
use crate::load::lane::{Wait, buffer, sleep_until};
use crate::load::layout;

const BLOCK: u32 = 4096;

fn buffers(count: usize) -> Vec<AlignedMemory> {
    (0..count).map(|slot| buffer(slot, BLOCK as usize)).collect()
}

fn plan(job: Job) -> JobPlan {
    let directory = tempfile::tempdir().unwrap();
    let job = Job {
        name: "job".into(),
        files: vec!["data".into()],
        size: Some(Amount::Bytes(1 << 20)),
        ..job
    };
    let workload = Workload { jobs: vec![job], devices: Devices::Refuse };
    layout::resolve(&workload, directory.path(), 1).unwrap().remove(0)
}

/// A device that takes 20 us for an operation, and does nothing for a while.
struct Stalling {
    buffers: Vec<AlignedMemory>,
    began: Moment,
    stall: Range<Duration>,
    flights: Vec<(Moment, usize)>,
}

impl Stalling {
    fn new(began: Moment, stall: Range<Duration>) -> Self {
        Self { buffers: buffers(4), began, stall, flights: Vec::new() }
    }

    fn take_ended(&mut self, ended: &mut Vec<usize>) {
        let now = clock::now();
        ended.extend(self.flights.extract_if(.., |(ends, _)| *ends <= now).map(|(_, slot)| slot));
    }

    fn wait_for_first(&self, until: Option<Moment>) {
        let first = self.flights.iter().map(|(ends, _)| *ends).chain(until).min();
        let first = first.expect("something is in flight, or there is an end to the wait");
        sleep_until(first);
    }
}

impl Lane for Stalling {
    fn slots(&self) -> usize {
        self.buffers.len()
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        &mut self.buffers[slot]
    }

    fn start(&mut self, slot: usize, _operation: Operation) -> Result<(), CellError> {
        let ends = clock::now() + Duration::from_micros(20);
        let stalled = self.stall.contains(&(ends - self.began));
        self.flights.push((if stalled { self.began + self.stall.end } else { ends }, slot));
        Ok(())
    }

    fn reap(&mut self, wait: Wait, ended: &mut Vec<usize>) -> Result<(), CellError> {
        if let Wait::Until(until) = wait {
            self.wait_for_first(Some(until));
            self.take_ended(ended);
            return Ok(());
        }
        let wanted = ended.len() + wait.least();
        self.take_ended(ended);
        while ended.len() < wanted {
            self.wait_for_first(None);
            self.take_ended(ended);
        }
        Ok(())
    }
}

/// Two thousand reads a second for 300 ms from a device that stalls from 50 ms on until then.
fn with_a_stall_until(end_millis: u64) -> JobOutcome {
    let rate = Rate { operations_per_s: 2000, bytes_per_s: 0 };
    let job = Job {
        access: Access { direction: Direction::Read, order: Order::Random },
        runtime_us: Some(300_000),
        time_based: YesNo::Yes,
        pace: Pace { read: rate, ..Pace::default() },
        ..Job::default()
    };
    let plan = plan(job);
    let began = clock::now();
    let stall = Duration::from_millis(50)..Duration::from_millis(end_millis);
    drive(&plan, &mut Stalling::new(began, stall), began, &AtomicBool::new(false)).unwrap()
}

/// In an open loop everything that should have started in a stall waits until its end: these bounds
/// hold however busy the machine is, for nothing that was due in it can have ended before.
#[test]
fn a_stall_shows_for_all_that_should_have_started_in_it() {
    let outcome = with_a_stall_until(150);
    let latencies = &outcome.tallies[0].latencies;
    let kept = outcome.kept.unwrap();
    assert_eq!(latencies.len(), 600, "one every half millisecond");
    assert_eq!(latencies.len(), outcome.tallies[0].operations + kept.never_started);
    let longer_than =
        |millis: u64| latencies.len() - latencies.count_between(0, millis * 1_000_000);
    // Of the 200 that were due in it half had to wait for at least the half of it.
    assert!(longer_than(49) >= 100, "{}", longer_than(49));
    assert!(longer_than(89) >= 20, "{}", longer_than(89));
    assert!(
        latencies.value_at_quantile(0.99) >= 96_000_000,
        "{}",
        latencies.value_at_quantile(0.99)
    );
    // Four were in flight. A clock that begins at the start would have shown the stall for those
    // alone.
    assert!(kept.backlog_peak >= 190, "{}", kept.backlog_peak);
    assert!(kept.late.value_at_quantile(0.99) >= 90_000_000);
}

#[test]
fn what_a_stall_never_lets_start_is_not_forgotten() {
    let outcome = with_a_stall_until(350);
    let (latencies, kept) = (&outcome.tallies[0].latencies, outcome.kept.as_ref().unwrap());
    assert_eq!(latencies.len(), 600);
    assert_eq!(outcome.tallies[0].operations + kept.never_started, 600);
    assert!(kept.never_started >= 490, "{}", kept.never_started);
    assert!(
        latencies.value_at_quantile(0.99) >= 240_000_000,
        "{}",
        latencies.value_at_quantile(0.99)
    );
    assert!(
        outcome.issued <= 110,
        "what was never started is not looked for in the file: {}",
        outcome.issued
    );
}

/// Writes down what it is asked.
struct Recording {
    buffers: Vec<AlignedMemory>,
    together: usize,
    ended: Vec<usize>,
    asked: Vec<&'static str>,
}

impl Lane for Recording {
    fn slots(&self) -> usize {
        self.buffers.len()
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.asked.push("fill");
        &mut self.buffers[slot]
    }

    fn start(&mut self, slot: usize, _operation: Operation) -> Result<(), CellError> {
        self.asked.push("start");
        self.ended.push(slot);
        Ok(())
    }

    fn together(&self) -> usize {
        self.together
    }

    fn reap(&mut self, _wait: Wait, ended: &mut Vec<usize>) -> Result<(), CellError> {
        self.asked.push("reap");
        ended.append(&mut self.ended);
        Ok(())
    }
}

#[test]
fn no_operation_waits_for_the_filling_of_others() {
    let access = Access { direction: Direction::Write, order: Order::Sequential };
    let plan = plan(Job { access, operations: Some(6), ..Job::default() });
    let asked = |together| {
        let mut lane =
            Recording { buffers: buffers(3), together, ended: Vec::new(), asked: Vec::new() };
        let outcome = drive(&plan, &mut lane, clock::now(), &AtomicBool::new(false)).unwrap();
        assert_eq!(
            (outcome.tallies[1].operations, outcome.issued, outcome.kept.is_none()),
            (6, 6, true)
        );
        lane.asked[..7].join(" ")
    };
    assert_eq!(asked(3), "fill fill fill start start start reap");
    assert_eq!(asked(2), "fill fill start start reap fill fill");
    assert_eq!(asked(1), "fill start reap fill start reap fill");
}
