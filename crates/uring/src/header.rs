//! The header of a frame: which page of which file is in it, so that another process can finish the
//! writing if this one dies.
//!
//! A header is four words, 32 bytes, native byte order, at `header_offset + 32 * frame` in the
//! arena's memory:
//!
//! ```text
//! word 0   bits 0..32 file, bits 32..45 valid bytes of the page (0..=4096), bits 45..48 state (1 dirty, 2 clean,
//!          3 partial), bits 48..64 generation of the file's record
//! word 1   page number in the file (offset / 4096)
//! word 2   sequence: of two frames of one page, the one with the larger sequence is younger
//! word 3   check: a mix of the other three and the frame's number, never zero; zero: nothing is published
//! ```
//!
//! The check is stored last, with Release, so at whichever instruction the writer dies a reader
//! finds either a whole header (and, since the data was copied before it, whole data) or none. A
//! header that is torn, of another frame, or of another layout does not check out. The mix is no
//! defence against an adversary: processes that can write the arena are trusted.
//!
//! Numbers of files are used again; the generation tells their users apart.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use forebay_block::Frame;
use forebay_block::limits::PAGE;
use forebay_block::random;

/// State of a published frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameState {
    /// The page must be written.
    Dirty = 1,
    /// The page is equal to the file.
    Clean = 2,
    /// The bytes in the mask of the frame must be written.
    Partial = 3,
}

/// Description of a published frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Number of the file.
    pub file: u32,
    /// Generation of the record of the file, or 0 without records.
    pub generation: u16,
    /// Number of the page in the file.
    pub page: u64,
    /// Sequence number. Of two frames of one page, the one with the larger number is newer.
    pub sequence: u64,
    /// Number of valid bytes from the start of the frame, at most 4096.
    pub length: u16,
    /// State of the frame.
    pub state: FrameState,
}

/// The four words in shared memory.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct HeaderWords {
    place: AtomicU64,
    page: AtomicU64,
    sequence: AtomicU64,
    check: AtomicU64,
}

pub(crate) const HEADER_BYTES: usize = 32;
const _: () = assert!(size_of::<HeaderWords>() == HEADER_BYTES);
const _: () =
    assert!(PAGE < 1 << (STATE_SHIFT - LENGTH_SHIFT), "the length of a page must fit its field");

/// The fields of the first word.
const LENGTH_SHIFT: u32 = 32;
const STATE_SHIFT: u32 = 45;
const GENERATION_SHIFT: u32 = 48;

impl FrameState {
    fn of(place: u64) -> Option<Self> {
        match field(place, STATE_SHIFT, GENERATION_SHIFT) {
            1 => Some(Self::Dirty),
            2 => Some(Self::Clean),
            3 => Some(Self::Partial),
            _ => None,
        }
    }
}

/// The bits from one on to before another.
fn field(word: u64, from: u32, to: u32) -> u64 {
    word >> from & ((1 << (to - from)) - 1)
}

impl HeaderWords {
    pub(crate) fn publish(&self, frame: Frame, header: Header) {
        assert!(
            usize::from(header.length) <= PAGE,
            "a frame holds at most {PAGE} bytes, not {}",
            header.length
        );
        let place = u64::from(header.file)
            | u64::from(header.length) << LENGTH_SHIFT
            | (header.state as u64) << STATE_SHIFT
            | u64::from(header.generation) << GENERATION_SHIFT;
        self.retire();
        // Orders the retiring before the words below: a reader that sees a new word cannot see the
        // old check.
        fence(Ordering::Release);
        self.place.store(place, Ordering::Relaxed);
        self.page.store(header.page, Ordering::Relaxed);
        self.sequence.store(header.sequence, Ordering::Relaxed);
        self.check.store(mix(frame, [place, header.page, header.sequence]), Ordering::Release);
    }

    pub(crate) fn retire(&self) {
        self.check.store(0, Ordering::Release);
    }

    /// Retires what is published as clean. The state stays in its word when the check is gone, so
    /// this may retire what is retired already; no harm is in that.
    pub(crate) fn retire_clean(&self) {
        if FrameState::of(self.place.load(Ordering::Relaxed)) == Some(FrameState::Clean) {
            self.retire();
        }
    }

    /// State of the published header, for its publisher.
    pub(crate) fn published(&self) -> Option<FrameState> {
        let is_published = self.check.load(Ordering::Relaxed) != 0;
        is_published.then(|| FrameState::of(self.place.load(Ordering::Relaxed))).flatten()
    }

    /// Pairs with the Release in `publish`: what checks out was whole.
    pub(crate) fn read(&self, frame: Frame) -> Option<Header> {
        let check = self.check.load(Ordering::Acquire);
        let place = self.place.load(Ordering::Relaxed);
        let page = self.page.load(Ordering::Relaxed);
        let sequence = self.sequence.load(Ordering::Relaxed);
        if check == 0 || check != mix(frame, [place, page, sequence]) {
            return None;
        }
        let file = u32::try_from(field(place, 0, LENGTH_SHIFT)).expect("a field of 32 bits");
        let length =
            u16::try_from(field(place, LENGTH_SHIFT, STATE_SHIFT)).expect("a field of 13 bits");
        let generation = u16::try_from(place >> GENERATION_SHIFT).expect("a field of 16 bits");
        let state = FrameState::of(place).filter(|_| usize::from(length) <= PAGE)?;
        Some(Header { file, generation, page, sequence, length, state })
    }
}

fn mix(frame: Frame, words: [u64; 3]) -> u64 {
    check_of(frame.0, words)
}

/// Mixes the words and a number so that any one changed bit changes about half of the result. Never
/// zero.
pub(crate) fn check_of(number: u32, words: impl IntoIterator<Item = u64>) -> u64 {
    let mut sum = random::STEP ^ u64::from(number);
    for word in words {
        sum = random::mix(sum ^ word).wrapping_add(random::STEP);
    }
    random::mix(sum).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> HeaderWords {
        HeaderWords {
            place: AtomicU64::new(0),
            page: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            check: AtomicU64::new(0),
        }
    }

    const HEADER: Header = Header {
        file: u32::MAX,
        generation: 513,
        page: 1 << 50,
        sequence: 7,
        length: 4096,
        state: FrameState::Partial,
    };

    #[test]
    fn what_is_published_is_read_until_retired() {
        let words = empty();
        assert_eq!(words.read(Frame(3)), None);
        words.publish(Frame(3), HEADER);
        assert_eq!(words.read(Frame(3)), Some(HEADER));
        words.retire();
        assert_eq!(words.read(Frame(3)), None);
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let words = empty();
        words.publish(Frame(3), HEADER);
        for word in [&words.place, &words.page, &words.sequence, &words.check] {
            for bit in 0..64 {
                word.fetch_xor(1 << bit, Ordering::Relaxed);
                assert_eq!(words.read(Frame(3)), None, "bit {bit}");
                word.fetch_xor(1 << bit, Ordering::Relaxed);
            }
        }
        assert_eq!(words.read(Frame(3)), Some(HEADER));
    }

    #[test]
    fn clean_ones_alone_are_retired_as_clean() {
        let words = empty();
        words.retire_clean();
        for state in [FrameState::Dirty, FrameState::Partial, FrameState::Clean] {
            words.publish(Frame(3), Header { state, ..HEADER });
            words.retire_clean();
            assert_eq!(words.read(Frame(3)).is_none(), state == FrameState::Clean, "{state:?}");
        }
    }

    #[test]
    fn states_and_lengths_that_are_none_are_noticed() {
        let words = empty();
        words.publish(Frame(3), HEADER);
        let place = words.place.load(Ordering::Relaxed);
        let state = |state: u64| place & !(7 << STATE_SHIFT) | state << STATE_SHIFT;
        let length = place & !(0x1fff << LENGTH_SHIFT) | 4097 << LENGTH_SHIFT;
        for place in [state(0), state(4), state(7), length] {
            words.place.store(place, Ordering::Relaxed);
            words
                .check
                .store(mix(Frame(3), [place, HEADER.page, HEADER.sequence]), Ordering::Relaxed);
            assert_eq!(words.read(Frame(3)), None);
        }
    }

    #[test]
    fn who_reads_while_it_changes_sees_what_was_published_or_nothing() {
        let words = empty();
        let of = |number: u64| Header { page: number, sequence: !number, ..HEADER };
        std::thread::scope(|scope| {
            let writer =
                scope.spawn(|| (0..200_000).for_each(|number| words.publish(Frame(3), of(number))));
            let mut seen = 0;
            while !writer.is_finished() {
                if let Some(header) = words.read(Frame(3)) {
                    assert_eq!(header, of(header.page));
                    assert!(header.page >= seen, "what was replaced does not come back");
                    seen = header.page;
                }
            }
        });
        assert_eq!(words.read(Frame(3)), Some(of(199_999)));
    }

    #[test]
    fn a_header_of_another_frame_is_noticed() {
        let words = empty();
        words.publish(Frame(3), HEADER);
        assert_eq!(words.read(Frame(4)), None);
    }
}
