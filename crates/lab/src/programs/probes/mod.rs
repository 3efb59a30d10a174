//! The probes, one file each.

mod commit;
mod copy;
mod create;
mod files;
mod log;
mod put;
mod read_miss;
mod resident;
mod small_sync;
mod tasks;

use std::fs::File;
use std::io;
use std::path::Path;

use super::drop_from_cache;
use super::probe::Probe;
use crate::load::error::{CellError, Context};
use forebay_block::random::Random;

/// Every probe.
pub(super) static PROBES: &[&Probe] = &[
    &put::PROBE,
    &log::PROBE,
    &tasks::PROBE,
    &small_sync::PROBE,
    &copy::PROBE,
    &create::PROBE,
    &resident::PROBE,
    &commit::PROBE,
    &read_miss::PROBE,
    &files::PROBE,
];

const BLOCK: usize = 4096;

/// Bytes of one write of a file that is made beforehand.
const PIECE_BYTES: usize = 1 << 20;

/// Returns bytes that cannot be compressed.
pub(super) fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes());
    words.take(bytes).collect()
}

/// Makes a file that is on the disk and not in the page cache.
fn fill(path: &Path, bytes: u64, seed: u64) -> Result<(), CellError> {
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
