//! When completed writes are ended: at once, or together after a delay.

mod common;

use std::time::Duration;

use common::{CALM, Erratic};
use forebay_block::knobs::{Holding, Knobs};
use forebay_block::limits::{PAGE, TAGS};
use forebay_block::{
    Bio, Class, Completion, Device, Ended, Errno, Frame, Moment, Operation, Queue, Refused,
    Segment, Source, Tag, Target, Wait,
};

const DELAY: Duration = Duration::from_micros(20);

/// Ends one request per reap, a microsecond apart, as long as there are any.
#[derive(Default)]
struct Steady {
    now: Moment,
    taken: Vec<Tag>,
    /// How the last doorbell waited.
    wait: Option<Wait>,
    /// Owners of the bios to fail.
    fails: Vec<u64>,
    failing: Vec<Tag>,
}

impl Device for Steady {
    fn now(&mut self) -> Moment {
        self.now
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        assert!(!self.taken.contains(&tag), "{tag:?} is in two places");
        self.taken.push(tag);
        if self.fails.contains(&request.owner) {
            self.failing.push(tag);
        }
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.wait = Some(wait);
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.now = self.now + Duration::from_micros(1);
        if !self.taken.is_empty() {
            let tag = self.taken.remove(0);
            let fails = self.failing.iter().position(|failing| *failing == tag);
            let result = match fails.map(|at| self.failing.remove(at)) {
                Some(_) => Err(Errno::IO),
                None => Ok(PAGE as u64),
            };
            completions.push(Completion { tag, result });
        }
    }
}

fn delaying(delay: Duration) -> Queue {
    let mut queue = Queue::new();
    queue.set_knobs(Knobs { holding: Holding::Delay(delay), ..Knobs::default() });
    queue
}

fn owners(ended: &[Ended]) -> Vec<u64> {
    ended.iter().map(|end| end.bio.owner).collect()
}

fn read(page: u64) -> Bio {
    Bio { operation: Operation::Read, class: Class::Waited, ..write(page) }
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
    let mut device = Steady::default();
    let (runs, bios) = runs(&mut queue, &mut device, 1000);
    assert_eq!(runs, bios, "each ends at once");
    assert_eq!((queue.held(), queue.counters().completion_holds), (Duration::ZERO, 0));
}

#[test]
fn a_fixed_delay_is_kept() {
    let mut queue = delaying(DELAY);
    let mut device = Steady::default();
    let (held, bios) = runs(&mut queue, &mut device, 1000);
    assert!(held * 15 < bios && held * 30 > bios, "{held} runs of {bios} bios");
    assert!(queue.held() >= DELAY);
    let counters = queue.counters();
    assert_eq!(counters.completion_holds, held, "a hold is counted once");
    assert!(counters.completion_held_nanoseconds >= held * 20_000, "{counters:?}");
}

/// The hold does not end early when the device is idle.
#[test]
fn contract_16_held_bios_leave_tags_and_room_to_others() {
    let mut queue = delaying(Duration::from_millis(10));
    let (mut device, mut ended) = (Steady::default(), Vec::new());
    let bios = 3 * TAGS as u64;
    for page in 0..bios {
        queue.submit(write(page));
        queue.dispatch(&mut device, Wait::Not).unwrap();
        queue.run(&mut device, &mut ended);
    }
    assert_eq!((queue.in_flight(), queue.in_flight_bytes(), queue.staged()), (0, 0, 0));
    assert_eq!((ended.len(), queue.held_bios().len()), (0, 3 * TAGS));
    assert_eq!(queue.on_their_way(), 3 * TAGS);
    device.now = device.now + Duration::from_millis(10);
    queue.run(&mut device, &mut ended);
    assert!(owners(&ended).into_iter().eq(0..bios), "in the order of completion");
    assert_eq!((queue.on_their_way(), queue.held_bios().len()), (0, 0));
    assert_eq!(queue.counters().completion_runs, 1);
}

#[test]
fn contract_16_a_bio_that_somebody_waits_for_is_not_held() {
    let mut queue = delaying(DELAY);
    let (mut device, mut ended) = (Steady::default(), Vec::new());
    [write(0), read(1), write(2)].into_iter().for_each(|bio| queue.submit(bio));
    queue.dispatch(&mut device, Wait::Not).unwrap();
    for _ in 0..3 {
        queue.run(&mut device, &mut ended);
    }
    assert_eq!(owners(&ended), [1]);
    assert_eq!(owners(queue.held_bios()), [0, 2]);
    // Somebody begins to wait for one of them.
    queue.end_hold();
    queue.dispatch(&mut device, Wait::Something(None)).unwrap();
    assert_eq!(device.wait, Some(Wait::Something(Some(Duration::ZERO))), "no sleep is begun");
    queue.run(&mut device, &mut ended);
    assert_eq!(owners(&ended), [1, 0, 2]);
    assert!(queue.held() < DELAY);
}

#[test]
fn contract_16_an_error_ends_the_hold_and_is_reported_once() {
    let mut queue = delaying(DELAY);
    let (mut device, mut ended) = (Steady::default(), Vec::new());
    device.fails = vec![1];
    (0..3).for_each(|page| queue.submit(write(page)));
    queue.dispatch(&mut device, Wait::Not).unwrap();
    queue.run(&mut device, &mut ended);
    assert_eq!((ended.len(), queue.held_bios().len()), (0, 1));
    queue.run(&mut device, &mut ended);
    let results: Vec<_> = ended.iter().map(|end| (end.bio.owner, end.result)).collect();
    assert_eq!(results, [(0, Ok(PAGE as u64)), (1, Err(Errno::IO))]);
    queue.run(&mut device, &mut ended);
    assert_eq!((ended.len(), queue.held_bios().len()), (2, 1), "another hold has begun");
}

/// A completed write wakes nobody while others are held, unless half of the flight is gone.
#[test]
fn a_hold_is_slept_through() {
    let mut queue = delaying(DELAY);
    let (mut device, mut ended) = (Steady::default(), Vec::new());
    let mut wait = |queue: &mut Queue, device: &mut Steady| {
        queue.dispatch(device, Wait::Something(None)).unwrap();
        queue.run(device, &mut ended);
        device.wait.unwrap()
    };
    (0..8).for_each(|page| queue.submit(write(page)));
    assert_eq!(wait(&mut queue, &mut device), Wait::Something(None), "for the first one");
    let left = DELAY;
    let batch = Wait::Batch { want: 4, within: left, limit: Some(left) };
    assert_eq!(wait(&mut queue, &mut device), batch);
    queue.submit(read(8));
    let waited = wait(&mut queue, &mut device);
    assert!(matches!(waited, Wait::Something(Some(left)) if left < DELAY), "{waited:?}");
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
