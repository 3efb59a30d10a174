//! A device that records its requests, bios that are identified by their frames, and random knobs.

use std::time::Duration;

use forebay_block::knobs::{ClockReads, Holding, Merging, Order, Plugging, Ringing, Tagging};
use forebay_block::limits::{PAGE, TAGS};
use forebay_block::{
    Bio, Class, Completion, Device, Ended, Errno, Frame, Knobs, Moment, Operation, Queue, Refused,
    Segment, Segments, Source, Tag, Target, Wait,
};
use proptest::prelude::*;

/// Any values of all knobs.
pub(crate) fn knobs() -> impl Strategy<Value = Knobs> {
    let plugging = prop_oneof![
        Just(Plugging::Never),
        Just(Plugging::Always),
        Just(Plugging::AboveTwo),
        Just(Plugging::Adaptive)
    ];
    let merging = prop_oneof![Just(Merging::Off), Just(Merging::On)];
    let tagging = prop_oneof![Just(Tagging::Sweep), Just(Tagging::Single)];
    let clock = prop_oneof![Just(ClockReads::Batch), Just(ClockReads::Each)];
    let ringing = prop_oneof![Just(Ringing::Batch), Just(Ringing::Each)];
    let holding = prop_oneof![
        Just(Holding::Immediate),
        (0..200u64).prop_map(|micros| Holding::Delay(Duration::from_micros(micros))),
    ];
    let order = prop_oneof![Just(Order::Fifo), Just(Order::Lifo)];
    (plugging, merging, tagging, clock, ringing, holding, order).prop_map(
        |(plugging, merging, tagging, clock, ringing, holding, order)| Knobs {
            plugging,
            merging,
            tagging,
            clock,
            ringing,
            holding,
            order,
        },
    )
}

/// Any class.
pub(crate) fn class() -> impl Strategy<Value = Class> {
    prop_oneof![Just(Class::Waited), Just(Class::Background)]
}

/// Returns a bio of whole pages, without its number and its memory: [`World::submit`] adds both.
pub(crate) fn bio(operation: Operation, target: u32, page: u64, pages: u64) -> Bio {
    let page_bytes = PAGE as u64;
    let (offset, length) = match operation {
        Operation::FlushData | Operation::FlushAll | Operation::FlushDirectory => (0, 0),
        Operation::SetLength => (page * page_bytes, 0),
        _ => (page * page_bytes, pages * page_bytes),
    };
    Bio {
        operation,
        target: Target(target),
        offset,
        length,
        segments: Segments::new(),
        class: Class::Background,
        source: Source(0),
        owner: 0,
    }
}

/// Returns whether two bios must take effect in order.
pub(crate) fn is_bound(one: &Bio, other: &Bio) -> bool {
    let range = |bio: &Bio| match bio.operation {
        Operation::WriteBuffered | Operation::SetLength => 0..u64::MAX,
        _ => bio.offset..bio.end(),
    };
    let touches = |bio: &Bio| {
        !matches!(
            bio.operation,
            Operation::FlushData | Operation::FlushAll | Operation::FlushDirectory
        )
    };
    let (mine, its) = (range(one), range(other));
    let overlaps = mine.start < its.end && its.start < mine.end;
    let both_read = one.operation == Operation::Read && other.operation == Operation::Read;
    one.target == other.target && touches(one) && touches(other) && overlaps && !both_read
}

/// One request offered to the device.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) bio: Bio,
    pub(crate) is_taken: bool,
    /// Requests at the device at that moment.
    pub(crate) beside: Vec<Bio>,
}

/// Device that takes up to `capacity` requests and completes the `completes` oldest with each
/// doorbell.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) offers: Vec<Offer>,
    /// Requests in the order they completed.
    pub(crate) completed: Vec<Bio>,
    pub(crate) capacity: usize,
    /// Requests that a doorbell completes; a doorbell that waits completes at least one.
    pub(crate) completes: usize,
    /// Number of uses of each tag.
    pub(crate) tags: Vec<u32>,
    now: Moment,
    active: Vec<(Tag, Bio)>,
    staged: usize,
    ends: Vec<Completion>,
}

impl Recorder {
    pub(crate) fn new(capacity: usize, completes: usize) -> Self {
        Self {
            offers: Vec::new(),
            completed: Vec::new(),
            capacity,
            completes,
            tags: vec![0; TAGS],
            now: Moment::default(),
            active: Vec::new(),
            staged: 0,
            ends: Vec::new(),
        }
    }

    /// Returns the number of requests taken that have not completed.
    pub(crate) fn active(&self) -> usize {
        self.active.len()
    }

    /// Returns the requests taken, in order.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &Offer> {
        self.offers.iter().filter(|offer| offer.is_taken)
    }
}

impl Device for Recorder {
    fn now(&mut self) -> Moment {
        self.now = self.now + Duration::from_micros(1);
        self.now
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        assert!(usize::from(tag.0) < TAGS, "{tag:?} is outside the set");
        // A completion that was not reaped still holds its tag.
        let is_free = self.active.iter().all(|(other, _)| *other != tag)
            && self.ends.iter().all(|other| other.tag != tag);
        assert!(is_free, "{tag:?} is in two places");
        let is_taken = self.active.len() < self.capacity;
        let beside = self.active.iter().map(|(_, bio)| bio.clone()).collect();
        self.offers.push(Offer { bio: request.clone(), is_taken, beside });
        if !is_taken {
            return Err(Refused);
        }
        self.tags[usize::from(tag.0)] += 1;
        self.active.push((tag, request.clone()));
        self.staged += 1;
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.staged = 0;
        let least = usize::from(wait != Wait::Not && self.ends.is_empty());
        let count = self.completes.max(least).min(self.active.len());
        for (tag, bio) in self.active.drain(..count) {
            self.ends.push(Completion { tag, result: Ok(bio.bytes()) });
            self.completed.push(bio);
        }
        if let (0, Wait::Something(Some(limit)) | Wait::Batch { limit: Some(limit), .. }) =
            (count, wait)
        {
            self.now = self.now + limit;
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        assert_eq!(self.staged, 0, "requests were staged without a doorbell");
        completions.append(&mut self.ends);
    }
}

/// A queue over a recorder, all bios submitted, and all that ended.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) queue: Queue,
    pub(crate) device: Recorder,
    /// All bios, by number.
    pub(crate) bios: Vec<Bio>,
    pub(crate) ended: Vec<Ended>,
    /// The bio that a frame belongs to, and the page of the bio.
    frames: Vec<Option<(usize, u64)>>,
}

impl World {
    pub(crate) fn new(capacity: usize, completes: usize) -> Self {
        Self {
            queue: Queue::new(),
            device: Recorder::new(capacity, completes),
            bios: Vec::new(),
            ended: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Submits a bio under the next number. Its frames follow those of the bio before, after a gap
    /// of `gap` frames.
    pub(crate) fn submit(&mut self, mut bio: Bio, gap: usize) {
        self.make_room();
        let number = self.bios.len();
        bio.owner = number as u64;
        if bio.operation.moves_bytes() && bio.segments.is_empty() {
            self.frames.resize(self.frames.len() + gap, None);
            let first = Frame(self.frames.len() as u32);
            bio.segments = [Segment::frames(first, bio.length as u32)].into_iter().collect();
            self.frames
                .extend((0..bio.length.div_ceil(PAGE as u64)).map(|page| Some((number, page))));
        }
        self.bios.push(bio.clone());
        self.queue.submit(bio);
    }

    pub(crate) fn make_room(&mut self) {
        let mut turns = 0;
        while self.queue.room() == 0 {
            self.turn();
            turns += 1;
            assert!(turns < 100_000, "no progress: {:?}", self.queue);
        }
    }

    /// Dispatches with a wait, then ends completed requests.
    pub(crate) fn turn(&mut self) {
        self.queue
            .dispatch(&mut self.device, Wait::Something(Some(Duration::from_millis(1))))
            .unwrap();
        self.queue.run(&mut self.device, &mut self.ended);
    }

    pub(crate) fn finish(&mut self) {
        let mut turns = 0;
        while self.ended.len() < self.bios.len() {
            self.turn();
            turns += 1;
            assert!(turns < 100_000, "no progress: {:?}", self.queue);
        }
        assert_eq!((self.queue.staged(), self.queue.in_flight(), self.device.active()), (0, 0, 0));
    }

    /// Returns the numbers of the bios in a request, in order of offset. Panics if their bytes are
    /// not at their offsets.
    pub(crate) fn members(&self, request: &Bio) -> Vec<usize> {
        if !request.operation.moves_bytes() {
            return vec![request.owner as usize];
        }
        let mut members: Vec<usize> = Vec::new();
        let mut at = request.offset;
        for &segment in &request.segments {
            let Segment::Frames { first, length, .. } = segment else {
                panic!("{segment:?} was never submitted")
            };
            for page in 0..u64::from(length) / PAGE as u64 {
                let frame = first.0 as usize + page as usize;
                let (number, page) = self.frames[frame].expect("a frame of some bio");
                assert_eq!(
                    self.bios[number].offset + page * PAGE as u64,
                    at,
                    "the bytes are at another offset"
                );
                if members.last() != Some(&number) {
                    members.push(number);
                }
                at += PAGE as u64;
            }
        }
        assert_eq!(at, request.end());
        members
    }
}
