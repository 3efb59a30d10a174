//! The whole path of a request against byte arrays. Every bio is applied to the arrays when it is
//! submitted. The device shortens, refuses, interrupts, fails and reorders requests, and still each
//! bio must end once, as if it had been alone.

mod common;

use std::time::Duration;

use common::{Erratic, Temper};
use forebay_block::knobs::{Holding, Knobs, Merging};
use forebay_block::layers::Fraction;
use forebay_block::limits::PAGE;
use forebay_block::random::Random;
use forebay_block::{
    Bio, Class, Ended, Errno, Frame, Operation, Queue, Segment, Source, Target, Wait,
};
use proptest::prelude::*;

/// Writes stay below this page. The end of the file is above it, inside a page.
const WRITTEN_PAGES: u64 = 24;
const SIZE: u64 = WRITTEN_PAGES * PAGE as u64 + 700;
const LARGEST_SIZE: u64 = SIZE + 3 * PAGE as u64;
const TARGETS: u64 = 2;
const FRAMES: usize = 2048;

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit { kind: u8, target: u64, place: u64, length: u64, class: Class },
    Dispatch,
    Run,
    EndHold,
}

fn step() -> impl Strategy<Value = Step> {
    let class = prop_oneof![Just(Class::Waited), Just(Class::Background)];
    let submit = (0..40u8, 0..TARGETS, 0..WRITTEN_PAGES, 1..4u64, class);
    prop_oneof![
        8 => submit.prop_map(|(kind, target, place, length, class)| Step::Submit {
            kind, target, place, length, class
        }),
        1 => Just(Step::Dispatch),
        1 => Just(Step::Run),
        1 => Just(Step::EndHold),
    ]
}

fn holding() -> impl Strategy<Value = Holding> {
    prop_oneof![
        Just(Holding::Immediate),
        (0..200u64).prop_map(|micros| Holding::Delay(Duration::from_micros(micros))),
    ]
}

fn temper() -> impl Strategy<Value = Temper> {
    (1..40usize, 0..30u32, 0..80u32, 0..30u32).prop_map(
        |(capacity, refuses, shortens, interrupts)| Temper {
            capacity,
            refuses,
            shortens,
            interrupts,
        },
    )
}

/// Expected end of a bio.
struct Expected {
    bio: Bio,
    result: Result<u64, Errno>,
    /// Bytes that a read must find; `None` if a failed write may have changed the byte.
    bytes: Vec<Option<u8>>,
}

struct World {
    queue: Queue,
    device: Erratic,
    files: Vec<Vec<Option<u8>>>,
    random: Random,
    next_frame: u32,
    expected: Vec<Expected>,
    ended: Vec<Ended>,
}

impl World {
    fn new(temper: Temper, seed: u64, bad_page: Option<u64>) -> Self {
        let mut device =
            Erratic::new(temper, seed, vec![vec![7; SIZE as usize]; TARGETS as usize], FRAMES);
        device.bad_pages[0] = bad_page;
        Self {
            queue: Queue::new(),
            device,
            files: vec![vec![Some(7); SIZE as usize]; TARGETS as usize],
            random: Random::new(seed ^ 0x5eed),
            next_frame: 0,
            expected: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn submit(&mut self, kind: u8, target: u64, page: u64, pages: u64, class: Class) {
        while self.queue.room() == 0 {
            self.turn(Wait::Something(None));
        }
        let bio = self.bio(kind, target, page, pages, class);
        self.expect(&bio);
        self.queue.submit(bio);
    }

    fn bio(&mut self, kind: u8, target: u64, page: u64, pages: u64, class: Class) -> Bio {
        let offset = page * PAGE as u64;
        let length = pages.min(WRITTEN_PAGES - page) * PAGE as u64;
        let any = self.random.below(length);
        let (operation, offset, length) = match kind {
            0..20 => (Operation::Write, offset, length),
            20..30 => (Operation::Read, offset, length + 2 * PAGE as u64),
            30..33 => (Operation::Read, offset + any, length),
            33 => (Operation::WriteBuffered, offset + any, length - any),
            34 => (Operation::SetLength, SIZE + self.random.below(LARGEST_SIZE - SIZE), 0),
            35 => (Operation::Punch, offset, length),
            36 => (Operation::Allocate, offset, length),
            37 => (Operation::FlushDirectory, 0, 0),
            38 => (Operation::FlushAll, 0, 0),
            _ => (Operation::FlushData, 0, 0),
        };
        let segments =
            if operation.moves_bytes() { self.segments(operation, length) } else { Vec::new() };
        let owner = self.expected.len() as u64;
        let (target, source) = (Target(target as u32), Source((owner % 3) as u32));
        Bio { operation, target, offset, length, segments: segments.into(), class, source, owner }
    }

    /// Returns frames, consecutive or not, filled with random bytes, and for a write some zeroes.
    fn segments(&mut self, operation: Operation, length: u64) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut left = length as u32;
        while left > 0 {
            let count = left.min((1 + self.random.below(2) as u32) * PAGE as u32);
            left -= count;
            if operation == Operation::Write && self.random.happens(Fraction::percent(20)) {
                segments.push(Segment::Zeroes { length: count });
                continue;
            }
            self.next_frame += u32::from(self.random.happens(Fraction::percent(30)));
            let first = Frame(self.next_frame);
            self.next_frame += count.div_ceil(PAGE as u32);
            let place = first.0 as usize * PAGE;
            for byte in &mut self.device.arena[place..place + count as usize] {
                *byte = self.random.below(256) as u8;
            }
            segments.push(Segment::frames(first, count));
        }
        segments
    }

    /// Applies the bio to the byte arrays and records its expected end.
    fn expect(&mut self, bio: &Bio) {
        let target = bio.target.0 as usize;
        let file = &mut self.files[target];
        let (start, end) = (bio.offset as usize, bio.end() as usize);
        let is_bad = self.device.bad_pages[target].is_some_and(|page| {
            let (bad_start, bad_end) = (page * PAGE as u64, (page + 1) * PAGE as u64);
            bio.operation.moves_bytes() && bio.offset < bad_end && bad_start < bio.end()
        });
        let mut bytes = Vec::new();
        let mut result = Ok(bio.bytes());
        match bio.operation {
            _ if is_bad => {
                result = Err(Errno::IO);
                if bio.operation != Operation::Read {
                    file[start..end].fill(None);
                }
            }
            Operation::Read => {
                bytes = file[start.min(file.len())..end.min(file.len())].to_vec();
                result = Ok(bytes.len() as u64);
            }
            Operation::Write | Operation::WriteBuffered => {
                let memory = bytes_of(&self.device.arena, bio);
                for (byte, new) in file[start..end].iter_mut().zip(memory) {
                    *byte = Some(new);
                }
            }
            Operation::Punch => file[start..end].fill(Some(0)),
            Operation::SetLength => file.resize(start, Some(0)),
            _ => {}
        }
        self.expected.push(Expected { bio: bio.clone(), result, bytes });
    }

    fn turn(&mut self, wait: Wait) {
        self.queue.dispatch(&mut self.device, wait).unwrap();
        self.run();
    }

    fn run(&mut self) {
        let is_waited = |end: &Ended| end.bio.class == Class::Waited;
        let waited = self.queue.reap(&mut self.device).iter().filter(|end| is_waited(end)).count();
        let (ended, held) = (self.ended.len(), self.queue.held_bios().len());
        self.queue.end(&mut self.ended);
        let new = &self.ended[ended..];
        assert!(
            new.iter().filter(|end| is_waited(end)).count() == waited,
            "nobody is kept waiting"
        );
        let is_over = self.queue.held_bios().is_empty();
        assert!(is_over || self.queue.held_bios().len() >= held, "a hold ends as a whole");
        assert!(!self.queue.held_bios().iter().any(is_waited));
        let unended = self.expected.len() - self.ended.len();
        assert_eq!(self.queue.on_their_way(), unended);
    }

    fn finish(&mut self) {
        let mut turns = 0;
        while self.queue.on_their_way() > 0 {
            self.turn(Wait::Something(None));
            turns += 1;
            assert!(turns < 100_000, "no progress: {:?}", self.queue);
        }
    }

    fn check(&self) {
        let mut seen = vec![0; self.expected.len()];
        for Ended { bio, result } in &self.ended {
            let expected = &self.expected[bio.owner as usize];
            seen[bio.owner as usize] += 1;
            assert_eq!(*bio, expected.bio);
            assert_eq!(*result, expected.result, "{bio:?}");
            let found = bytes_of(&self.device.arena, bio);
            for (found, expected) in found.iter().zip(&expected.bytes) {
                assert!(
                    expected.is_none_or(|expected| *found == expected),
                    "{bio:?} read a wrong byte"
                );
            }
        }
        assert!(seen.iter().all(|&count| count == 1), "every bio ends exactly once: {seen:?}");
        for (file, model) in self.device.files.iter().zip(&self.files) {
            assert_eq!(file.len(), model.len());
            let is_same =
                |(byte, model): (&u8, &Option<u8>)| model.is_none_or(|model| *byte == model);
            assert!(file.iter().zip(model).all(is_same), "a wrong byte in the file");
        }
        self.check_counters();
    }

    fn check_counters(&self) {
        let counters = self.queue.counters();
        assert_eq!(counters.bios, self.expected.len() as u64);
        assert_eq!(counters.completed_bios, counters.bios);
        assert_eq!(counters.requests + counters.merged_bios, counters.bios);
        assert_eq!(counters.doorbells, self.device.doorbells);
        let moved = |is_counted: fn(Operation) -> bool| -> u64 {
            let ended = self.ended.iter().filter(|end| is_counted(end.bio.operation));
            ended.filter_map(|end| end.result.ok()).sum()
        };
        assert_eq!(counters.read_bytes, moved(|operation| operation == Operation::Read));
        assert_eq!(
            counters.written_bytes,
            moved(|operation| operation.moves_bytes() && operation != Operation::Read)
        );
        assert_eq!((self.queue.in_flight_bytes(), self.queue.in_flight()), (0, 0));
    }
}

fn bytes_of(arena: &[u8], bio: &Bio) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &segment in &bio.segments {
        match segment {
            Segment::Frames { first, offset, length } => {
                let place = first.0 as usize * PAGE + offset as usize;
                bytes.extend_from_slice(&arena[place..place + length as usize]);
            }
            Segment::Lent { .. } => unreachable!("nothing is lent here"),
            Segment::Zeroes { length } => bytes.resize(bytes.len() + length as usize, 0),
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn contract_13_and_16_every_bio_ends_once_and_as_if_alone(
        steps in prop::collection::vec(step(), 1..180),
        temper in temper(),
        seed: u64,
        bad_page in prop::option::of(0..WRITTEN_PAGES),
        merges: bool,
        holding in holding(),
    ) {
        let mut world = World::new(temper, seed, bad_page);
        let merging = if merges { Merging::On } else { Merging::Off };
        world.queue.set_knobs(Knobs { merging, holding, ..Knobs::default() });
        for step in steps {
            match step {
                Step::Submit { kind, target, place, length, class } => {
                    world.submit(kind, target, place, length, class);
                }
                Step::Dispatch => { world.queue.dispatch(&mut world.device, Wait::Not).unwrap(); }
                Step::Run => world.run(),
                Step::EndHold => world.queue.end_hold(),
            }
        }
        world.finish();
        world.check();
    }
}
