//! The stage that the probes of a cell share.

use std::fs::File;
use std::io;
use std::path::Path;

use forebay_block::random::Random;
use rustix::fs::{Advice, fadvise};

use super::spec::ProgramCell;
use super::store::Store;
use crate::load::error::{CellError, Context};

pub(super) struct Stage<'a> {
    pub(super) cell: &'a ProgramCell,
    pub(super) store: Store,
    /// Bytes of this process before it had an engine.
    pub(super) baseline_bytes: u64,
}

/// Drops the pages of a synced file from the page cache of the kernel.
pub(super) fn drop_from_cache(path: &Path) -> Result<(), CellError> {
    let file = File::open(path);
    let dropped = file.and_then(|file| Ok(fadvise(file, 0, None, Advice::DontNeed)?));
    dropped.context_at("cannot drop it from the page cache", path)
}

pub(super) const BLOCK: usize = 4096;

/// Bytes of one write of a file that is made beforehand.
const PIECE_BYTES: usize = 1 << 20;

/// Returns bytes that cannot be compressed.
pub(super) fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes());
    words.take(bytes).collect()
}

/// Makes a file that is on the disk and not in the page cache.
pub(super) fn fill(path: &Path, bytes: u64, seed: u64) -> Result<(), CellError> {
    assert!(bytes.is_multiple_of(PIECE_BYTES as u64), "{bytes} bytes are not whole pieces");
    let piece = content(PIECE_BYTES, seed);
    let fill = || {
        let mut file = File::create_new(path)?;
        for _ in 0..bytes / PIECE_BYTES as u64 {
            io::Write::write_all(&mut file, &piece)?;
        }
        file.sync_all()
    };
    fill().context_at("cannot fill it", path)?;
    drop_from_cache(path)
}
