//! The one file that requests go to: random data, so that nothing below can compress it or take it
//! for zeroes; every block written and synced, so that no read finds a hole and no write has to
//! allocate. It is laid out once and used by all cells of a suite.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::request::DATA_FILE;
use crate::stop::Stop;
use forebay_block::random::Random;

const PIECE_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaidOut {
    /// The file is there, of its length, and synced.
    Whole,
    /// The user wanted it to end.
    Stopped,
}

/// Makes the file in `directory`, unless one of that length is there. A shorter or longer one is
/// written anew. Blocks until it is synced; nothing is there under its name before.
pub fn lay_out(directory: &Path, bytes: u64, seed: u64, stop: &Stop) -> io::Result<LaidOut> {
    if is_laid_out(directory, bytes) {
        return Ok(LaidOut::Whole);
    }
    let path = directory.join(DATA_FILE);
    let unfinished = directory.join(format!("{DATA_FILE}.unfinished"));
    let file = File::create(&unfinished)?;
    let written = fill(&file, bytes, seed, stop);
    if matches!(written, Ok(LaidOut::Whole)) {
        return fs::rename(&unfinished, &path).map(|()| LaidOut::Whole);
    }
    // The failure is reported; a remaining file is harmless.
    let _ = fs::remove_file(&unfinished);
    written
}

/// Whether the file is there in that length, so that nothing is written for it.
pub fn is_laid_out(directory: &Path, bytes: u64) -> bool {
    fs::metadata(directory.join(DATA_FILE)).is_ok_and(|there| there.len() == bytes)
}

/// Fills a new file with random data, syncs it, and drops it from the page cache.
pub(crate) fn fill(file: &File, bytes: u64, seed: u64, stop: &Stop) -> io::Result<LaidOut> {
    let mut random = Random::stream(seed, 4);
    let written = write(file, 0..bytes, stop, |_, piece| {
        for word in piece.chunks_mut(8) {
            word.copy_from_slice(&random.draw().to_le_bytes()[..word.len()]);
        }
    })?;
    // Direct reads do not use cached pages.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(written)
}

/// Writes a range of a file with what `make` puts into each piece for its offset, and syncs it.
pub(crate) fn write(
    file: &File,
    range: Range<u64>,
    stop: &Stop,
    mut make: impl FnMut(u64, &mut [u8]),
) -> io::Result<LaidOut> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = range.start;
    while offset < range.end {
        if stop.is_set() {
            return Ok(LaidOut::Stopped);
        }
        let length = (range.end - offset).min(PIECE_BYTES as u64);
        let part = &mut piece[..length as usize];
        make(offset, part);
        file.write_all_at(part, offset)?;
        offset += length;
    }
    file.sync_all()?;
    Ok(LaidOut::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(DATA_FILE);
        let lay = |bytes, stop: &Stop| lay_out(directory.path(), bytes, 7, stop).unwrap();
        let stopped = Stop::default();
        stopped.set();
        assert_eq!(lay(3 << 20, &stopped), LaidOut::Stopped);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(lay((2 << 20) + 4096, &Stop::default()), LaidOut::Whole);
        let data = fs::read(&path).unwrap();
        assert_eq!(data.len(), (2 << 20) + 4096);
        assert!(data.chunks(4096).all(|block| block.iter().any(|byte| *byte != block[0])));
        assert_ne!(data[..4096], data[1 << 20..(1 << 20) + 4096]);
        fs::write(&path, vec![1; data.len()]).unwrap();
        assert_eq!(
            lay(data.len() as u64, &stopped),
            LaidOut::Whole,
            "one of that length is used as it is"
        );
        assert_eq!(fs::read(&path).unwrap()[0], 1);
        assert_eq!(lay(4096, &Stop::default()), LaidOut::Whole);
        assert_eq!(fs::metadata(&path).unwrap().len(), 4096);
    }
}
