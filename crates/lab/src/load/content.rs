//! The written data, and its check when it is read back.
//!
//! Each eight bytes depend on the seed, the file and their own offset, so a block that landed
//! elsewhere, in another file, or not at all is recognized without a checksum and without memory.
//! The words of a block are an arithmetic progression: one addition each, which the compiler does
//! several at a time, so that filling a page costs a fraction of copying it. Writing a range twice
//! writes the same: an overwrite that was lost is not noticed, one that went astray is.

use forebay_block::random::{STEP, fold, mix};

const WORD: u64 = 8;

/// The content of one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    key: u64,
}

impl Content {
    /// Returns the content of the file of this name under this seed.
    pub(crate) fn new(seed: u64, file: &std::path::Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let name = file.as_os_str().as_bytes();
        Self { key: name.iter().fold(mix(seed), |key, &byte| fold(key, u64::from(byte))) }
    }

    /// Returns the content of the file before any write: as random, but different.
    pub(crate) fn before(self) -> Self {
        Self { key: mix(!self.key) }
    }

    /// Fills `buffer` with what belongs at `offset`.
    pub(crate) fn fill(self, offset: u64, buffer: &mut [u8]) {
        let head = buffer.len().min((offset.next_multiple_of(WORD) - offset) as usize);
        let (unaligned, aligned) = buffer.split_at_mut(head);
        for (at, byte) in (offset..).zip(unaligned) {
            *byte = self.word(at / WORD).to_le_bytes()[(at % WORD) as usize];
        }
        let offset = offset + head as u64;
        let mut value = self.word(offset / WORD);
        debug_assert!(aligned.is_empty() || offset.is_multiple_of(WORD), "words begin at {offset}");
        let (words, tail) = aligned.as_chunks_mut();
        for word in words {
            *word = value.to_le_bytes();
            value = value.wrapping_add(STEP);
        }
        let from: [u8; WORD as usize] = value.to_le_bytes();
        tail.copy_from_slice(&from[..tail.len()]);
    }

    /// Marks the first word of each sector of `buffer` with the content for `offset`: no two blocks
    /// are alike, at a hundredth of the cost. It is not verified later.
    pub(crate) fn mark(self, offset: u64, buffer: &mut [u8]) {
        const SECTOR: usize = 512;
        for (at, sector) in buffer.chunks_mut(SECTOR).enumerate() {
            if let Some(first) = sector.first_chunk_mut::<8>() {
                *first = self.word((offset + (at * SECTOR) as u64) / WORD).to_le_bytes();
            }
        }
    }

    /// Returns the first place where `buffer` is not what belongs at `offset`.
    pub(crate) fn check(self, offset: u64, buffer: &[u8]) -> Result<(), Mismatch> {
        let mut expected = [0; 4096];
        for (start, part) in (offset..).step_by(expected.len()).zip(buffer.chunks(4096)) {
            let expected = &mut expected[..part.len()];
            self.fill(start, expected);
            if part != expected {
                let differs = part.iter().zip(&*expected).position(|(is, should)| is != should);
                let at = differs.unwrap_or(0);
                // The word it is part of says where it came from; a single byte may agree by
                // chance.
                let at = at.saturating_sub(((start + at as u64) % WORD) as usize);
                let found = self.name(&part[at..]);
                return Err(Mismatch { offset: start + at as u64, found });
            }
        }
        Ok(())
    }

    fn word(self, index: u64) -> u64 {
        self.key.wrapping_add(index.wrapping_mul(STEP))
    }

    /// Names other content. The step is odd, so undoing the multiplication finds the place in this
    /// file that the content came from.
    fn name(self, found: &[u8]) -> String {
        let word = found.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
        let place = |word: u64| word.wrapping_sub(self.key).wrapping_mul(inverse(STEP));
        match (word, word.map(place)) {
            (Some(0), _) => "zeroes".into(),
            (_, Some(index)) if index < 1 << 50 => {
                format!("what belongs at byte {}", index * WORD)
            }
            _ => "other data".into(),
        }
    }
}

/// A place where a file does not hold what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mismatch {
    /// The first word of it.
    pub(crate) offset: u64,
    pub(crate) found: String,
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the
/// bits that are right.
fn inverse(odd: u64) -> u64 {
    assert!(odd % 2 == 1, "{odd} has no inverse");
    (0..6).fold(odd, |guess, _| guess.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(guess))))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn any_cut_of_a_file_reads_the_same() {
        let content = Content::new(7, Path::new("a/b"));
        let mut whole = vec![0; 20_000];
        content.fill(4096, &mut whole);
        for (from, length) in
            [(0, 1), (1, 7), (3, 16), (5, 4096), (8, 8), (9, 5000), (12_001, 7999)]
        {
            let mut cut = vec![0; length];
            content.fill(4096 + from as u64, &mut cut);
            assert_eq!(cut, whole[from..from + length], "{length} bytes from {from}");
            assert_eq!(content.check(4096 + from as u64, &cut), Ok(()));
        }
    }

    #[test]
    fn a_block_astray_is_named() {
        let content = Content::new(7, Path::new("a"));
        let mut block = vec![0; 8192];
        content.fill(0, &mut block);
        let moved = block[4096..].to_vec();
        block[..4096].copy_from_slice(&moved);
        let mismatch = content.check(0, &block).unwrap_err();
        assert_eq!(mismatch, Mismatch { offset: 0, found: "what belongs at byte 4096".into() });
        block[..4096].fill(0);
        assert_eq!(content.check(0, &block).unwrap_err().found, "zeroes");
    }

    #[test]
    fn a_mark_is_the_first_word_of_each_sector() {
        let content = Content::new(7, Path::new("a"));
        let (mut marked, mut whole) = (vec![9; 1500], vec![0; 1500]);
        content.mark(4096, &mut marked);
        content.fill(4096, &mut whole);
        for (at, byte) in marked.iter().enumerate() {
            assert_eq!(*byte, if at % 512 < 8 { whole[at] } else { 9 }, "byte {at}");
        }
    }

    #[test]
    fn files_and_seeds_differ() {
        let mut block = vec![0; 64];
        Content::new(7, Path::new("a")).fill(0, &mut block);
        assert!(Content::new(7, Path::new("b")).check(0, &block).is_err());
        assert!(Content::new(8, Path::new("a")).check(0, &block).is_err());
    }
}
