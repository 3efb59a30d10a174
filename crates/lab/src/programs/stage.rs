//! The stage that the probes of a cell share.

use std::fs::File;
use std::path::Path;

use forebay_block::random::Random;

use super::spec::ProgramCell;
use super::store::Store;
use crate::load::data;
use crate::load::error::{CellError, Context};
use crate::scratch::Stop;

pub(super) struct Stage<'a> {
    pub(super) cell: &'a ProgramCell,
    pub(super) store: Store,
    /// Bytes of this process before it had an engine.
    pub(super) baseline_bytes: u64,
}

pub(super) const BLOCK: usize = 4096;

/// Returns bytes that cannot be compressed.
pub(super) fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes());
    words.take(bytes).collect()
}

/// Makes a file that is on the disk and not in the page cache.
pub(super) fn fill(path: &Path, bytes: u64, seed: u64) -> Result<(), CellError> {
    let filled = File::create_new(path)
        .and_then(|file| data::fill(&file, bytes, seed, &Stop::default()).map(drop));
    filled.context_at("cannot fill it", path)
}
