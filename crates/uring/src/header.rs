//! The header of a frame: which page of which file is in it, so that another process can finish the writing if
//! this one dies.
//!
//! A header is four words, 32 bytes, native byte order, at `header_offset + 32 * frame` in the arena's memory:
//!
//! ```text
//! word 0   bits 0..32 file, bits 32..48 valid bytes of the page (0..=4096), bits 48..64 zero
//! word 1   page number in the file (offset / 4096)
//! word 2   sequence: of two frames of one page, the one with the larger sequence is younger
//! word 3   check: a mix of the other three and the frame's number, never zero; zero: nothing is published
//! ```
//!
//! The check is stored last, with Release, so at whichever instruction the writer dies a reader finds either a
//! whole header (and, since the data was copied before it, whole data) or none. A header that is torn, of another
//! frame, or of another layout does not check out. The mix is no defence against an adversary: who can write the
//! arena is trusted.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use forebay_block::Frame;
use forebay_block::limits::PAGE;

/// What a published frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The file, by the number its owner gave it.
    pub file: u32,
    /// The page of the file.
    pub page: u64,
    /// Of two frames of one page, the one with the larger sequence is younger.
    pub sequence: u64,
    /// Valid bytes, from the start of the frame: 0..=4096.
    pub length: u16,
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
const _: () = assert!(PAGE <= u16::MAX as usize, "the length of a page must fit its field");

impl HeaderWords {
    pub(crate) fn publish(&self, frame: Frame, header: Header) {
        assert!(
            usize::from(header.length) <= PAGE,
            "a frame holds at most {PAGE} bytes, not {}",
            header.length
        );
        let place = u64::from(header.file) | u64::from(header.length) << 32;
        self.retire();
        // Orders the retiring before the words below: a reader that sees a new word cannot see the old check.
        fence(Ordering::Release);
        self.place.store(place, Ordering::Relaxed);
        self.page.store(header.page, Ordering::Relaxed);
        self.sequence.store(header.sequence, Ordering::Relaxed);
        self.check.store(mix(frame, [place, header.page, header.sequence]), Ordering::Release);
    }

    pub(crate) fn retire(&self) {
        self.check.store(0, Ordering::Release);
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
        let length = u16::try_from(place >> 32).ok().filter(|&length| usize::from(length) <= PAGE)?;
        let file = u32::try_from(place & u64::from(u32::MAX)).expect("masked to 32 bits");
        Some(Header { file, page, sequence, length })
    }
}

/// Mixes the words and the frame's number so that any one changed bit changes about half of the result.
fn mix(frame: Frame, words: [u64; 3]) -> u64 {
    let mut sum = 0x9e37_79b9_7f4a_7c15 ^ u64::from(frame.0);
    for word in words {
        sum = finish(sum ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    finish(sum).max(1)
}

/// The finishing step of the SplitMix64 generator.
fn finish(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
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

    const HEADER: Header = Header { file: u32::MAX, page: 1 << 50, sequence: 7, length: 4096 };

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
    fn a_header_of_another_frame_is_noticed() {
        let words = empty();
        words.publish(Frame(3), HEADER);
        assert_eq!(words.read(Frame(4)), None);
    }
}
