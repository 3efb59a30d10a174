//! A layer that makes reads and writes end short, interrupted, or with "would block". All of these
//! are ordinary results; a program that does not continue where it stopped loses data.
//!
//! A short request is really short: the device gets only its first part. The part is one that a
//! real device could have ended with:
//!
//! | operation | the device gets | the caller gets |
//! |---|---|---|
//! | read | up to the end of a sector, at least some bytes | what the device reports |
//! | direct write, durable or not | whole pages | any number of these bytes except 0: a torn page |
//! | buffered write | any number of bytes except 0 | what the device reports |
//!
//! A request without such a part passes whole, and so does an operation that transfers no bytes;
//! these can still be interrupted.

use alloc::vec::Vec;

use super::{Fraction, Notes, Own};
use crate::bio::{Bio, Errno, Operation, Segment, Segments};
use crate::device::{Completion, Device, Refused, Tag, Wait};
use crate::limits::{PAGE, SECTOR};
use crate::random::Random;
use crate::time::Moment;

/// Probabilities of [`Short`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shortfalls {
    /// Probability that a read ends short.
    pub read: Fraction,
    /// Probability that a write ends short.
    pub write: Fraction,
    /// Probability that a request ends with `EINTR` and does not reach the device.
    pub interrupted: Fraction,
    /// Probability that a request ends with `EAGAIN` and does not reach the device.
    pub would_block: Fraction,
}

/// Layer that makes requests end short, interrupted, or with "would block".
///
/// ```
/// use forebay_block::layers::{Fraction, NullLayer, Short, Shortfalls};
/// use forebay_block::{Bio, Class, Device, Frame, Operation, Segment, Source, Tag, Target, Wait};
///
/// let read = Bio {
///     operation: Operation::Read, target: Target(0), offset: 0, length: 8192,
///     segments: [Segment::frames(Frame(0), 8192)].into_iter().collect(),
///     class: Class::Waited, source: Source(0), owner: 0,
/// };
/// let always = Shortfalls { read: Fraction::ALL, ..Shortfalls::default() };
/// let mut device = Short::new(NullLayer::new(), always, 7);
/// device.prepare(Tag(0), &read).expect("room");
/// device.doorbell(Wait::Not)?;
///
/// let mut completions = Vec::new();
/// device.reap(&mut completions);
/// let bytes = completions[0].result?;
/// assert!(0 < bytes && bytes < 8192 && bytes % 512 == 0);
/// # Ok::<(), forebay_block::Errno>(())
/// ```
#[derive(Debug)]
pub struct Short<D> {
    inner: D,
    shortfalls: Shortfalls,
    random: Random,
    /// Most bytes to report, per request in flight.
    reported: Notes<u64>,
    own: Own,
}

/// How a request ends.
enum Fate {
    Whole,
    Fails(Errno),
    Short(Part),
}

/// The first part of a request.
struct Part {
    /// Bytes for the device.
    asked: u64,
    /// Most bytes to report to the caller.
    reported: u64,
}

impl<D: Device> Short<D> {
    /// Wraps a device, with random numbers from `seed`.
    pub fn new(inner: D, shortfalls: Shortfalls, seed: u64) -> Self {
        Self {
            inner,
            shortfalls,
            random: Random::new(seed),
            reported: Notes::new(),
            own: Own::default(),
        }
    }

    /// Sets the probabilities, from the next request on.
    pub fn set_shortfalls(&mut self, shortfalls: Shortfalls) {
        self.shortfalls = shortfalls;
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the inner device, to change its settings.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn fate(&self, bio: &Bio, random: &mut Random) -> Fate {
        if random.happens(self.shortfalls.interrupted) {
            return Fate::Fails(Errno::INTERRUPTED);
        }
        if random.happens(self.shortfalls.would_block) {
            return Fate::Fails(Errno::WOULD_BLOCK);
        }
        if !bio.operation.moves_bytes() || bio.length < 2 {
            return Fate::Whole;
        }
        let is_read = bio.operation == Operation::Read;
        let rate = if is_read { self.shortfalls.read } else { self.shortfalls.write };
        if !random.happens(rate) {
            return Fate::Whole;
        }
        part(bio, random).map_or(Fate::Whole, Fate::Short)
    }
}

/// Returns a first part of a request, or `None` if it has none that a device could end with.
fn part(bio: &Bio, random: &mut Random) -> Option<Part> {
    let (sector, page) = (SECTOR as u64, PAGE as u64);
    let part = match bio.operation {
        Operation::Read => {
            // Ends of sectors inside the range. The first may be less than a sector away.
            let first = sector - bio.offset % sector;
            let ends = bio.length.saturating_sub(first).div_ceil(sector);
            let asked = (ends > 0).then(|| first + sector * random.below(ends))?;
            Part { asked, reported: asked }
        }
        Operation::Write | Operation::WriteFua => {
            let asked = page * (1 + random.below(bio.length / page));
            let asked = asked.min(bio.length);
            Part { asked, reported: 1 + random.below(asked.min(bio.length - 1)) }
        }
        _ => {
            let asked = 1 + random.below(bio.length - 1);
            Part { asked, reported: asked }
        }
    };
    debug_assert!(
        0 < part.reported && part.reported <= part.asked && part.asked <= bio.length,
        "a part of {} bytes, {} of them reported, of {bio:?}",
        part.asked,
        part.reported
    );
    (part.reported < bio.length).then_some(part)
}

/// Returns the first `bytes` bytes of a request.
fn head(bio: &Bio, bytes: u64) -> Bio {
    let mut left = bytes;
    let mut segments = Segments::new();
    for &segment in &bio.segments {
        if left == 0 {
            break;
        }
        let count = left.min(u64::from(segment.length()));
        left -= count;
        let length = count as u32;
        segments.push(match segment {
            Segment::Frames { first, offset, .. } => Segment::Frames { first, offset, length },
            Segment::Lent { buffer, offset, .. } => Segment::Lent { buffer, offset, length },
            Segment::Zeroes { .. } => Segment::Zeroes { length },
        });
    }
    assert!(left == 0, "the first {bytes} bytes are not in the segments: {bio:?}");
    Bio { length: bytes, segments, ..*bio }
}

impl<D: Device> Device for Short<D> {
    fn now(&mut self) -> Moment {
        self.inner.now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let mut random = self.random.clone();
        match self.fate(request, &mut random) {
            Fate::Whole => self.inner.prepare(tag, request)?,
            Fate::Fails(errno) => self.own.stage(tag, errno),
            Fate::Short(Part { asked, reported }) if asked == request.length => {
                self.inner.prepare(tag, request)?;
                self.reported.put(tag, reported);
            }
            Fate::Short(Part { asked, reported }) => {
                self.inner.prepare(tag, &head(request, asked))?;
                self.reported.put(tag, reported);
            }
        }
        // Only a request that was taken uses up random numbers, so that a refusal changes nothing.
        self.random = random;
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        let wait = self.own.ring(wait);
        self.inner.doorbell(wait)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.own.reap(completions);
        let before = completions.len();
        self.inner.reap(completions);
        for completion in &mut completions[before..] {
            let reported = self.reported.take(completion.tag);
            if let (Some(reported), Ok(bytes)) = (reported, &mut completion.result) {
                *bytes = reported.min(*bytes);
            }
        }
    }
}
