//! Eight bytes that say who wrote them, and where: so a byte in a wrong place, or of a wrong time,
//! is found by looking at it alone, and nobody keeps a copy of what was written.

/// Bytes of a word.
pub const WORD: usize = 8;

/// Who wrote a word: bios in the order they were submitted, from 2 on.
pub type Stamp = u32;

/// What was there before anybody wrote.
pub const INITIAL: Stamp = 1;

/// What memory holds that nobody filled: no bio is stamped so.
pub const POISON: u64 = u64::MAX;

/// Where a word belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Of which target.
    pub target: u32,
    /// Which word of it.
    pub word: u32,
}

const PLACE_BITS: u32 = 28;

impl Place {
    /// What a bio of this stamp writes here. Never zero.
    #[must_use]
    pub fn written_by(self, stamp: Stamp) -> u64 {
        debug_assert!(self.target < 16 && self.word < 1 << PLACE_BITS);
        u64::from(stamp) << 32 | u64::from(self.target) << PLACE_BITS | u64::from(self.word)
    }

    /// Who wrote what is here; `None` where it does not belong here.
    #[must_use]
    pub fn writer(self, content: u64) -> Option<Stamp> {
        (content as u32 == self.written_by(0) as u32).then_some((content >> 32) as Stamp)
    }

    /// Fills memory with what a bio of this stamp writes from here on.
    pub fn fill(self, stamp: Stamp, memory: &mut [u8]) {
        let first = self.written_by(stamp);
        for (number, bytes) in memory.chunks_exact_mut(WORD).enumerate() {
            bytes.copy_from_slice(&(first + number as u64).to_le_bytes());
        }
    }
}

/// The words of some bytes; what is left of the last one is left out.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(WORD).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_its_writer_in_its_own_place_alone() {
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
