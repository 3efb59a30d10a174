//! Order of service, conflicts in flight, and the order of ends.

mod common;

use common::{CALM, Erratic};
use forebay_block::knobs::{Knobs, Plugging};
use forebay_block::limits::{PAGE, PLUG_HOLD, REQUEST_SEGMENTS, TAGS};
use forebay_block::{Bio, Class, Device, Frame, Operation, Queue, Segment, Source, Target, Wait};

use Class::{Background, Waited};
use Operation::{FlushData, Read, Write};

fn bio(operation: Operation, target: u32, page: u64, class: Class, owner: u64) -> Bio {
    let length = if operation.moves_bytes() { PAGE as u64 } else { 0 };
    let segments = match length {
        0 => Vec::new(),
        _ => vec![Segment::frames(Frame(owner as u32), PAGE as u32)],
    };
    let (target, source, segments) = (Target(target), Source(0), segments.into());
    Bio { operation, target, offset: page * PAGE as u64, length, segments, class, source, owner }
}

fn device() -> Erratic {
    Erratic::new(CALM, 1, vec![vec![0; 4096 * PAGE]; 3], 4 * TAGS)
}

fn owners(bios: &[Bio]) -> Vec<u64> {
    bios.iter().map(|bio| bio.owner).collect()
}

fn finish(queue: &mut Queue, device: &mut Erratic) -> Vec<u64> {
    let mut ended = Vec::new();
    while queue.staged() + queue.in_flight() > 0 {
        queue.dispatch(device, Wait::Something(None)).unwrap();
        queue.run(device, &mut ended);
    }
    ended.iter().map(|end| end.bio.owner).collect()
}

#[test]
fn contract_15_waited_bios_go_first() {
    let (mut queue, mut device) = (Queue::new(), device());
    queue.submit(bio(Write, 0, 0, Background, 0));
    queue.submit(bio(Write, 0, 9, Background, 1));
    queue.submit(bio(Read, 1, 4, Waited, 2));
    queue.submit(bio(FlushData, 0, 0, Waited, 3));
    assert_eq!((queue.staged_of(Waited), queue.staged_of(Background)), (2, 2));
    assert_eq!(queue.dispatch(&mut device, Wait::Not), Ok(4));
    assert_eq!(owners(&device.taken), [2, 3, 0, 1]);
    assert_eq!(finish(&mut queue, &mut device), [2, 3, 0, 1]);
}

#[test]
fn contract_15_a_bio_that_a_waited_one_conflicts_with_goes_with_it() {
    let (mut queue, mut device) = (Queue::new(), device());
    queue.submit(bio(Write, 0, 0, Background, 0));
    queue.submit(bio(Write, 0, 5, Background, 1));
    queue.submit(bio(Read, 0, 5, Waited, 2));
    assert_eq!(finish(&mut queue, &mut device).len(), 3);
    assert_eq!(owners(&device.taken), [1, 0, 2], "the write it would overtake goes first");
}

#[test]
fn contract_15_bios_end_in_the_order_they_were_reaped() {
    let (mut queue, mut device) = (Queue::new(), device());
    for owner in 0..40 {
        queue.submit(bio(Write, (owner % 3) as u32, 2 * owner, Background, owner));
    }
    assert_eq!(finish(&mut queue, &mut device), (0..40).collect::<Vec<_>>());
}

#[test]
fn contract_15_the_refused_go_first_next_time_in_order() {
    let (mut queue, mut device) = (Queue::new(), device());
    device.set_capacity(2);
    for owner in 0..5 {
        queue.submit(bio(Write, 0, 2 * owner, Background, owner));
    }
    assert_eq!(queue.dispatch(&mut device, Wait::Not), Ok(2));
    assert_eq!((queue.staged(), queue.in_flight()), (3, 2));
    queue.submit(bio(Write, 0, 90, Background, 5));
    finish(&mut queue, &mut device);
    assert_eq!(owners(&device.taken), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn contract_15_no_bio_overtakes_one_that_it_conflicts_with() {
    let (mut queue, mut device) = (Queue::new(), device());
    for (owner, (target, page)) in [(0, 0), (0, 0), (0, 8), (1, 0), (0, 0)].into_iter().enumerate()
    {
        queue.submit(bio(Write, target, page, Background, owner as u64));
    }
    assert_eq!(queue.dispatch(&mut device, Wait::Not), Ok(3));
    assert_eq!(
        owners(&device.taken),
        [0, 2, 3],
        "the second write waits, and the last one behind it"
    );
    finish(&mut queue, &mut device);
    assert_eq!(owners(&device.taken), [0, 2, 3, 1, 4]);
}

#[test]
fn contract_16_no_tag_no_flight() {
    let (mut queue, mut device) = (Queue::new(), device());
    let mut submitted = 0;
    while queue.room() > 0 && submitted < 4 * TAGS as u64 {
        queue.submit(bio(Read, 0, 2 * submitted, Waited, submitted));
        submitted += 1;
        if queue.room() == 0 {
            queue.dispatch(&mut device, Wait::Not).unwrap();
        }
    }
    assert_eq!(queue.in_flight(), TAGS);
    assert_eq!(queue.in_flight_bytes_of(Waited), (TAGS * PAGE) as u64);
    assert_eq!(finish(&mut queue, &mut device).len() as u64, submitted);
}

#[test]
fn one_doorbell_per_batch_and_none_for_nothing() {
    let (mut queue, mut device) = (Queue::new(), device());
    assert_eq!(queue.dispatch(&mut device, Wait::Not), Ok(0));
    assert_eq!(device.doorbells, 0);
    assert_eq!(queue.dispatch(&mut device, Wait::Something(None)), Ok(0));
    assert_eq!(device.doorbells, 1, "a wait goes to the device even without a request");
    for owner in 0..32 {
        queue.submit(bio(Write, 0, owner, Background, owner));
    }
    assert_eq!(queue.dispatch(&mut device, Wait::Not), Ok(1), "neighbours merge");
    assert_eq!(device.taken[0].segments[..], [Segment::frames(Frame(0), 32 * PAGE as u32)]);
    finish(&mut queue, &mut device);
    let counters = queue.counters();
    assert_eq!((counters.requests, counters.merged_bios), (1, 31));
    assert_eq!((counters.written_bytes, counters.completed_bios), (32 * PAGE as u64, 32));
}

#[test]
fn a_request_has_no_more_segments_than_one_may_have() {
    let (mut queue, mut device) = (Queue::new(), device());
    let count = REQUEST_SEGMENTS / 2 + 1;
    for owner in 0..2 {
        let segments = vec![Segment::frames(Frame(owner), 1); count].into();
        let (length, offset) = (count as u64, u64::from(owner) * count as u64);
        queue.submit(Bio { length, offset, segments, ..bio(Read, 0, 0, Waited, u64::from(owner)) });
    }
    assert_eq!(queue.dispatch(&mut device, Wait::Not), Ok(2));
}

#[test]
fn contract_15_background_bios_end_beside_a_stream_of_waited_ones() {
    let (mut queue, mut device) = (Queue::new(), device());
    let mut owner = 1;
    let mut ended = Vec::new();
    queue.submit(bio(Write, 0, 0, Background, 0));
    for _ in 0..64 {
        while queue.room() > 0 && queue.staged() < 100 {
            queue.submit(bio(Read, 1, 2 * (owner % 1000), Waited, owner));
            owner += 1;
        }
        queue.dispatch(&mut device, Wait::Something(None)).unwrap();
        queue.run(&mut device, &mut ended);
        if ended.iter().any(|end| end.bio.owner == 0) {
            return;
        }
    }
    panic!("{owner} waited bios went before the background one");
}

#[test]
fn contract_16_a_hold_has_a_deadline_that_due_returns() {
    let (mut queue, mut device) = (Queue::new(), device());
    queue.set_knobs(Knobs { plugging: Plugging::Always, ..Knobs::default() });
    queue.submit(bio(Write, 0, 0, Background, 0));
    assert_eq!(queue.dispatch(&mut device, Wait::Not), Ok(0));
    let due = queue.due(device.now()).expect("a bio is held");
    assert!(due <= PLUG_HOLD);
    // The device's clock advances by a microsecond with each look.
    let looks = (0..100).take_while(|_| queue.dispatch(&mut device, Wait::Not) == Ok(0)).count();
    assert!((1..60).contains(&looks), "{looks}");
    assert_eq!(queue.in_flight(), 1);
    finish(&mut queue, &mut device);
    assert_eq!(queue.due(device.now()), None);
    assert_eq!(queue.latency(Background).count(), 1);
    assert_eq!(queue.counters().plug_holds, 1 + looks as u64);
}
