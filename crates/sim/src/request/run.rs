//! One seed: bios of all operations at random, knobs and layers changed in flight, and now and then
//! a check of the state after a loss of power, until all bios have ended.

use forebay_block::knobs::{ClockReads, Holding, Merging, Order, Plugging, Ringing, Tagging};
use forebay_block::limits::{PAGE, SECTOR};
use forebay_block::{
    Bio, BufferId, Class, Ended, Frame, Knobs, Operation, Queue, Segment, Segments, Source, Target,
    Wait,
};
use std::time::Duration;

use super::device::{MemoryDevice, Temper, Zeroes};
use super::model::Model;
use super::stack::Stack;
use super::witness::Witness;
use super::word::{INITIAL, Place, WORD};
use crate::marks::Marks;
use crate::random::{PerMille, Random};

/// Turns after which a queue counts as stuck.
const STUCK: u32 = 1_000_000;

const OPERATIONS: [Operation; 12] = [
    Operation::Read,
    Operation::Write,
    Operation::WriteFua,
    Operation::WriteBuffered,
    Operation::WriteZeroes,
    Operation::Discard,
    Operation::Punch,
    Operation::Allocate,
    Operation::SetLength,
    Operation::FlushData,
    Operation::FlushAll,
    Operation::FlushDirectory,
];

/// Optional features of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    /// Some devices cannot make zeroes, so the queue writes them.
    pub unsupported_zeroes: bool,
    /// Sizes of the files.
    pub files: Files,
}

/// Sizes of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Files {
    /// Some pages, so that bios conflict; in one run of a hundred, larger than a request.
    #[default]
    Mixed,
    /// Larger than a request.
    Large,
}

/// The run of one seed.
#[derive(Debug)]
pub struct Run {
    random: Random,
    queue: Queue,
    witness: Witness,
    model: Model,
    marks: Marks,
    ended: Vec<Ended>,
    /// Relative frequency of each operation.
    weights: [u64; OPERATIONS.len()],
    targets: u32,
    /// Direct writes stay below this page, and no file shrinks below it.
    floor_pages: u64,
    /// Maximum of pages of a bio, except for a few.
    most_pages: u64,
    steps: u64,
    frames: Vec<Use>,
    cursor: usize,
    /// Empty between uses; keeps its allocation.
    memory: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Free,
    Used,
}

/// Pages beyond `floor_pages` that a file may reach.
const TAIL_PAGES: u64 = 3;

impl Run {
    /// Creates the run of a seed.
    #[must_use]
    pub fn new(seed: u64, features: Features) -> Self {
        let mut random = Random::new(seed);
        let is_large = random.happens(PerMille(10)) || features.files == Files::Large;
        let (floor_pages, most_pages, frames) =
            if is_large { (640, 60, 2048) } else { (24, 4, 128) };
        let targets = random.within(1..3) as u32;
        let most = (floor_pages + TAIL_PAGES) * PAGE as u64;
        let often = PerMille(if features.files == Files::Large { 1000 } else { 500 });
        let unsupported = features.unsupported_zeroes && random.happens(often);
        let temper = Temper {
            capacity: 1 + random.below(80) as usize,
            refuse: PerMille(random.below(200) as u16),
            fail: PerMille(if random.happens(PerMille(500)) { random.below(60) as u16 } else { 0 }),
            latency: random.below(100_000),
            zeroes: if unsupported { Zeroes::Unsupported } else { Zeroes::Served },
        };
        let mut sizes = Vec::new();
        let mut files = Vec::new();
        for target in 0..targets {
            let tail = random.below(TAIL_PAGES * PAGE as u64 / WORD as u64) * WORD as u64;
            let mut bytes = vec![0; floor_pages as usize * PAGE + tail as usize];
            Place { target, word: 0 }.fill(INITIAL, &mut bytes);
            sizes.push(bytes.len() as u64);
            files.push(bytes);
        }
        let device = MemoryDevice::new(files, most as usize, frames, temper, random.fork());
        let mut weights = OPERATIONS.map(|_| random.below(10) * random.below(2));
        (weights[0], weights[1]) = (weights[0] + 5, weights[1] + 10);
        if is_large {
            // Only a bio of this operation is larger than a request.
            weights[4] += 5;
        }
        let witness = Witness::new(Stack::draw(device, &mut random));
        let mut run = Self {
            queue: Queue::new(),
            witness,
            model: Model::new(&sizes, most),
            marks: Marks::default(),
            ended: Vec::new(),
            weights,
            targets,
            floor_pages,
            most_pages,
            steps: random.within(10..64),
            frames: vec![Use::Free; frames],
            cursor: 0,
            memory: Vec::new(),
            random,
        };
        run.set_knobs();
        run
    }

    /// Runs to the end. Returns how often each rare event occurred.
    ///
    /// # Panics
    /// If a contract is violated.
    pub fn run(mut self) -> Marks {
        for _ in 0..self.steps {
            match self.random.below(100) {
                0..55 => self.submit_some(),
                55..75 => self.dispatch(),
                75..90 => self.end(),
                90..94 => self.set_knobs(),
                94..97 => self.witness.stack.disturb(&mut self.random),
                97..99 => self.look_after_a_loss_of_power(),
                _ => self.finish(),
            }
        }
        self.finish();
        self.check();
        self.marks
    }

    /// Submits some bios, each perhaps adjacent to the one before.
    fn submit_some(&mut self) {
        let follows = PerMille(*self.random.pick(&[0, 500, 900]));
        let mut bio = self.draw();
        for _ in 0..1 + self.random.below(8) {
            self.submit(bio.clone());
            let (end, floor) = (bio.end(), self.floor_pages * PAGE as u64);
            let follows = matches!(bio.operation, Operation::Read | Operation::Write)
                && end < floor
                && self.random.happens(follows);
            bio = if follows {
                let length = (1 + self.random.below(self.most_pages)) * PAGE as u64;
                Bio { offset: end, length: length.min(floor - end), ..bio }
            } else {
                self.draw()
            };
        }
    }

    fn submit(&mut self, bio: Bio) {
        let bytes = bio.bytes();
        let Some((segments, zeroes)) = self.memory_for(&bio, bytes) else { return };
        while self.queue.room() == 0 {
            self.turn();
        }
        let bio = Bio { segments, owner: u64::from(self.model.next()), ..bio };
        self.model.submit(&bio, zeroes);
        self.queue.submit(bio);
    }

    /// Returns a random bio without its memory.
    fn draw(&mut self) -> Bio {
        let operation = self.operation();
        let (page, word, random) = (PAGE as u64, WORD as u64, &mut self.random);
        let floor = self.floor_pages;
        let most = (floor + TAIL_PAGES) * page;
        let mut pages = 1 + random.below(self.most_pages);
        let first = random.below(floor);
        let is_whole = operation == Operation::WriteZeroes || operation == Operation::Discard;
        if is_whole && random.happens(PerMille(400)) {
            pages = floor;
        }
        let (offset, length) = match operation {
            Operation::Write
            | Operation::WriteFua
            | Operation::WriteZeroes
            | Operation::Discard
            | Operation::Punch
            | Operation::Allocate => (first * page, pages.min(floor - first) * page),
            Operation::Read => {
                let sector = SECTOR as u64;
                let offset = random.below(most / sector) * sector;
                let offset =
                    if random.happens(PerMille(500)) { offset / page * page } else { offset };
                (offset, (1 + random.below(pages * page / sector)) * sector)
            }
            Operation::WriteBuffered => {
                let offset = random.below(most / word) * word;
                (offset, (1 + random.below(2 * page / word)).min((most - offset) / word) * word)
            }
            Operation::SetLength => {
                (floor * page + random.below(TAIL_PAGES * page / word) * word, 0)
            }
            Operation::FlushData | Operation::FlushAll | Operation::FlushDirectory => (0, 0),
        };
        Bio {
            operation,
            target: Target(random.below(u64::from(self.targets)) as u32),
            offset,
            length,
            segments: Segments::new(),
            class: *random.pick(&[Class::Waited, Class::Background]),
            source: Source(random.below(4) as u32),
            owner: 0,
        }
    }

    fn operation(&mut self) -> Operation {
        let mut left = self.random.below(self.weights.iter().sum());
        for (&operation, &weight) in OPERATIONS.iter().zip(&self.weights) {
            if left < weight {
                return operation;
            }
            left -= weight;
        }
        Operation::Read
    }

    /// Returns filled memory for a bio, and its bytes of the file that are zeroes. Returns `None`
    /// if too little memory is free.
    fn memory_for(&mut self, bio: &Bio, bytes: u64) -> Option<(Segments, std::ops::Range<u64>)> {
        let (mut segments, mut zeroes) = (Segments::new(), bio.offset..bio.offset);
        let (mut at, end) = (bio.offset, bio.offset + bytes);
        let stamp = self.model.next();
        let may_be_zero = matches!(bio.operation, Operation::Write | Operation::WriteFua);
        while at < end {
            let pages = 1 + self.random.below(3);
            let length = (pages * PAGE as u64).min(end - at) as u32;
            if may_be_zero && zeroes.is_empty() && self.random.happens(PerMille(100)) {
                zeroes = at..at + u64::from(length);
                segments.push(Segment::Zeroes { length });
                at = zeroes.end;
                continue;
            }
            let Some(first) = self.take_frames(u64::from(length).div_ceil(PAGE as u64) as usize)
            else {
                self.give(&segments);
                return None;
            };
            let segment = match self.random.below(4) {
                0 => Segment::Lent { buffer: BufferId(first), offset: 0, length },
                _ => Segment::frames(Frame(first), length),
            };
            let memory = self.witness.stack.base().memory(segment);
            if bio.operation == Operation::Read {
                memory.fill(0xff);
            } else {
                let place = Place { target: bio.target.0, word: (at / WORD as u64) as u32 };
                place.fill(stamp, memory);
            }
            segments.push(segment);
            at += u64::from(length);
        }
        Some((segments, zeroes))
    }

    /// Takes consecutive frames, most often the ones after those taken last.
    fn take_frames(&mut self, count: usize) -> Option<u32> {
        if self.random.happens(PerMille(200)) {
            self.cursor += 1;
        }
        for _ in 0..2 {
            let mut free = 0;
            while self.cursor < self.frames.len() {
                free = if self.frames[self.cursor] == Use::Free { free + 1 } else { 0 };
                self.cursor += 1;
                if free == count {
                    let first = self.cursor - count;
                    self.frames[first..self.cursor].fill(Use::Used);
                    return Some(first as u32);
                }
            }
            self.cursor = 0;
        }
        None
    }

    fn give(&mut self, segments: &Segments) {
        for &segment in segments {
            let (first, length) = match segment {
                Segment::Frames { first, length, .. } => (first.0, length),
                Segment::Lent { buffer, length, .. } => (buffer.0, length),
                Segment::Zeroes { .. } => continue,
            };
            let first = first as usize;
            self.frames[first..first + (length as usize).div_ceil(PAGE)].fill(Use::Free);
        }
    }

    fn dispatch(&mut self) {
        let span = Duration::from_nanos(self.random.below(200_000));
        let wait = match self.random.below(4) {
            0 | 1 => Wait::Not,
            2 => Wait::Something(Some(span)),
            _ => Wait::Batch {
                want: 1 + self.random.below(8) as u32,
                within: span,
                limit: Some(2 * span),
            },
        };
        self.queue.dispatch(&mut self.witness, wait).expect("the device is not broken");
    }

    fn end(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        if self.random.happens(PerMille(50)) {
            self.queue.end_hold();
        }
        self.queue.run(&mut self.witness, &mut ended);
        for end in ended.drain(..) {
            self.memory.clear();
            if end.bio.operation == Operation::Read {
                for &segment in &end.bio.segments {
                    self.memory.extend_from_slice(self.witness.stack.base().memory(segment));
                }
            }
            self.model.end(&end, &self.memory);
            self.give(&end.bio.segments);
            if let Err(errno) = end.result {
                self.witness.account_for(&end.bio, errno);
                self.marks.hit("failed");
            }
        }
        self.ended = ended;
    }

    fn turn(&mut self) {
        self.queue
            .dispatch(&mut self.witness, Wait::Something(None))
            .expect("the device is not broken");
        self.end();
    }

    fn finish(&mut self) {
        let mut turns = 0;
        while !self.model.is_idle() {
            self.turn();
            turns += 1;
            assert!(turns < STUCK, "contract 16: a bio did not end: {:?}", self.queue);
        }
        let at_device = (self.queue.in_flight(), self.witness.in_flight());
        assert_eq!((self.queue.on_their_way(), at_device), (0, (0, 0)));
    }

    fn set_knobs(&mut self) {
        let random = &mut self.random;
        let holding = match random.below(3) {
            1 => Holding::Delay(Duration::from_nanos(random.below(300_000))),
            _ => Holding::Immediate,
        };
        self.queue.set_knobs(Knobs {
            plugging: *random.pick(&[Plugging::Never, Plugging::Always, Plugging::Adaptive]),
            merging: *random.pick(&[Merging::Off, Merging::On, Merging::On]),
            tagging: *random.pick(&[Tagging::Sweep, Tagging::Single]),
            clock: *random.pick(&[ClockReads::Batch, ClockReads::Each]),
            ringing: *random.pick(&[Ringing::Batch, Ringing::Each]),
            holding,
            order: *random.pick(&[Order::Fifo, Order::Lifo]),
        });
    }

    /// Checks the state that a loss of power now would leave, and continues.
    fn look_after_a_loss_of_power(&mut self) {
        self.marks.hit("power loss");
        for target in 0..self.targets {
            let left = self.witness.stack.base().survivor(Target(target), &mut self.random);
            self.model.check_survivor(target, &left);
        }
    }

    fn check(&mut self) {
        self.look_after_a_loss_of_power();
        self.witness.stack.check_idle();
        for target in 0..self.targets {
            let (bytes, size) = self.witness.stack.base().file(Target(target));
            self.model.check_file(target, bytes, size as u64);
        }
        let counters = self.queue.counters();
        let submitted = self.model.submitted() as u64;
        assert_eq!((counters.bios, counters.completed_bios), (submitted, submitted));
        assert_eq!(counters.doorbells, self.witness.doorbells);
        assert!(self.frames.iter().all(|frame| *frame == Use::Free));
        let seen = [
            ("merged", counters.merged_bios),
            ("asked again", counters.resubmitted),
            ("taken", self.witness.taken),
            ("refused", self.witness.refused),
            ("short", self.witness.short),
            ("interrupted", self.witness.passing),
            ("bios", counters.bios),
        ];
        for (name, count) in seen {
            self.marks.add(name, count);
        }
    }
}
