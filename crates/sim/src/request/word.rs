//! Words of eight bytes that identify their writer and their place. A byte in the wrong place, or
//! from the wrong time, is found by looking at it alone, so no copy of the written data is kept.

/// Bytes of a word.
pub const WORD: usize = 8;

/// Number of the bio that wrote a word: bios in the order of submission, from 2 on.
pub type Stamp = u32;

/// Stamp of the initial content, which no bio wrote.
pub const INITIAL: Stamp = 1;

/// Place of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its target.
    pub target: u32,
    /// Its index in the target.
    pub word: u32,
}

const PLACE_BITS: u32 = 28;

impl Place {
    /// Returns the word that a bio with this stamp writes here. Never zero.
    #[must_use]
    pub fn written_by(self, stamp: Stamp) -> u64 {
        debug_assert!(self.target < 16 && self.word < 1 << PLACE_BITS);
        u64::from(stamp) << 32 | u64::from(self.target) << PLACE_BITS | u64::from(self.word)
    }

    /// Returns the writer of `content`, or `None` if it does not belong here.
    #[must_use]
    pub fn writer(self, content: u64) -> Option<Stamp> {
        (content as u32 == self.written_by(0) as u32).then_some((content >> 32) as Stamp)
    }

    /// Fills memory with the words that a bio with this stamp writes from here on.
    pub fn fill(self, stamp: Stamp, memory: &mut [u8]) {
        let first = self.written_by(stamp);
        for (number, bytes) in memory.chunks_exact_mut(WORD).enumerate() {
            bytes.copy_from_slice(&(first + number as u64).to_le_bytes());
        }
    }
}

/// Returns the words of some bytes. An incomplete last word is left out.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(WORD).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_a_writer_only_in_its_own_place() {
        let place = Place { target: 2, word: 77 };
        let content = place.written_by(9);
        assert_eq!(place.writer(content), Some(9));
        assert_eq!(Place { word: 78, ..place }.writer(content), None);
        assert_eq!(Place { target: 1, ..place }.writer(content), None);
        let mut memory = [0; 3 * WORD];
        place.fill(9, &mut memory);
        let expected = [77, 78, 79].map(|word| Place { target: 2, word }.written_by(9));
        assert_eq!(words(&memory).collect::<Vec<_>>(), expected);
    }
}
