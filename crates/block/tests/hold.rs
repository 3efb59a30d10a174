//! When completions are ended: at once, or together after a delay.

mod common;

use std::time::Duration;

use common::{CALM, Erratic};
use forebay_block::knobs::{Holding, Knobs};
use forebay_block::limits::{PAGE, TAGS};
use forebay_block::{Bio, Class, Completion, Device, Errno, Frame, Moment, Operation, Queue};
use forebay_block::{Refused, Segment, Source, Tag, Target, Wait};

/// Ends one request per reap, a microsecond apart, as long as there are any.
struct Steady {
    now: Moment,
    taken: Vec<Tag>,
}

impl Device for Steady {
    fn now(&mut self) -> Moment {
        self.now
    }

    fn prepare(&mut self, tag: Tag, _: &Bio) -> Result<(), Refused> {
        self.taken.push(tag);
        Ok(())
    }

    fn doorbell(&mut self, _: Wait) -> Result<(), Errno> {
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.now = self.now + Duration::from_micros(1);
        if !self.taken.is_empty() {
            completions.push(Completion { tag: self.taken.remove(0), result: Ok(PAGE as u64) });
        }
    }
}

fn write(page: u64) -> Bio {
    Bio {
        operation: Operation::Write,
        target: Target(0),
        offset: 2 * page * PAGE as u64,
        length: PAGE as u64,
        segments: vec![Segment::frames(Frame(page as u32), PAGE as u32)].into(),
        class: Class::Background,
        source: Source(0),
        owner: page,
    }
}

/// Ends `bios` background writes with a hundred on their way at a time. Returns the numbers of
/// completion runs and of bios ended.
fn runs(queue: &mut Queue, device: &mut Steady, bios: u64) -> (u64, u64) {
    let before = queue.counters();
    let (mut next, mut ended) = (before.bios, Vec::new());
    while queue.counters().completed_bios < before.completed_bios + bios {
        while queue.in_flight() + queue.staged() < 100 && queue.room() > 0 {
            queue.submit(write(next));
            next += 1;
        }
        queue.dispatch(device, Wait::Not).unwrap();
        queue.run(device, &mut ended);
    }
    let after = queue.counters();
    (after.completion_runs - before.completion_runs, after.completed_bios - before.completed_bios)
}

#[test]
fn contract_15_nothing_is_held_unless_asked_for() {
    let mut queue = Queue::new();
    let mut device = Steady { now: Moment::default(), taken: Vec::new() };
    let (runs, bios) = runs(&mut queue, &mut device, 1000);
    assert_eq!(runs, bios, "each ends at once");
    assert_eq!((queue.held(), queue.counters().completion_holds), (Duration::ZERO, 0));
}

/// The delay also holds completions that a caller waits for: it is there to be compared.
#[test]
fn a_fixed_delay_is_kept() {
    let mut queue = Queue::new();
    let delay = Duration::from_micros(20);
    queue.set_knobs(Knobs { holding: Holding::Delay(delay), ..Knobs::default() });
    let mut device = Steady { now: Moment::default(), taken: Vec::new() };
    let (held, bios) = runs(&mut queue, &mut device, 1000);
    assert!(held * 15 < bios && held * 30 > bios, "{held} runs of {bios} bios");
    assert!(queue.held() >= delay);
    let counters = queue.counters();
    assert_eq!(counters.completion_holds, held, "a hold is counted once");
    assert!(counters.completion_held_nanoseconds >= held * 20_000, "{counters:?}");
}

#[test]
fn contract_16_all_that_is_in_flight_is_ended_at_once() {
    let mut queue = Queue::new();
    let mut device = Erratic::new(CALM, 1, vec![vec![0; 4096 * PAGE]], 4 * TAGS);
    let mut ended = Vec::new();
    for page in 0..8 {
        queue.submit(write(page));
        queue.dispatch(&mut device, Wait::Something(None)).unwrap();
        queue.run(&mut device, &mut ended);
        assert_eq!(ended.len() as u64, page + 1);
    }
}
