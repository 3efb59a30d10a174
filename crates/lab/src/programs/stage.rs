//! The stage of a program: its cell, and where its files are open.

use std::fs::File;
use std::path::Path;

use forebay_block::random::Random;

use super::spec::{ProgramLoad, ProgramWay};
use super::store::Store;
use crate::cell::Cell;
use crate::load::data;
use crate::load::error::{CellError, Context};
use crate::scratch::Stop;

pub(crate) struct Stage<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) load: ProgramLoad,
    /// Through what it does its I/O.
    pub(crate) way: ProgramWay,
    pub(crate) store: Store,
    /// Bytes of this process before it had an engine.
    pub(crate) baseline_bytes: u64,
}

pub(crate) const BLOCK: usize = 4096;

/// Returns bytes that cannot be compressed.
pub(crate) fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes());
    words.take(bytes).collect()
}

/// Makes a file that is on the disk and not in the page cache.
pub(crate) fn fill(path: &Path, bytes: u64, seed: u64) -> Result<(), CellError> {
    let filled = File::create_new(path)
        .and_then(|file| data::fill(&file, bytes, seed, &Stop::default()).map(drop));
    filled.context_at("cannot fill it", path)
}
