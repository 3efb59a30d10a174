//! Threads that each write 4 KiB to a random page of a file of their own, and sync it. The suite
//! gives the size of the files.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::load::error::{CellError, Context};
use crate::programs::clock::{Measured, paced};
use crate::programs::group_sync::GroupSync;
use crate::programs::program::{Program, Sizes, Writes, on_most_arms};
use crate::programs::spec::ProgramWay;
use crate::programs::stage::{BLOCK, Stage, content, fill};
use crate::programs::store::How;
use forebay_block::random::Random;
use forebay_uring::AlignedMemory;

const FILE_BYTES: u64 = 2 << 20;

/// Bytes of the log of [`ProgramWay::LogAlone`], and of its largest batch.
const LOG_BYTES: u64 = 64 << 20;
const BATCH_BYTES: usize = 4 << 20;

pub(super) static PROBE: Program = Program {
    writes: Writes::ForATime,
    sizes: Sizes::Usually((FILE_BYTES, FILE_BYTES)),
    suits: |way| on_most_arms(way) || way == ProgramWay::LogAlone,
    ..Program::new("rewrite", run)
};

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let (data, bytes) = (&content(BLOCK, stage.cell.seed), stage.load.sizes().1);
    let pace = stage.load.pace();
    if stage.way == ProgramWay::LogAlone {
        let log = LogAlone::new(&stage.cell.directory.join("log"), stage.cell.seed)?;
        let prepare = |_| Ok(|_| log.write(data));
        return paced(stage, BLOCK as u32, pace, prepare, || Ok(()));
    }
    let prepare = |index: u32| {
        let path = stage.cell.directory.join(format!("{index:04}"));
        fill(&path, bytes, stage.cell.seed)?;
        let file = stage.store.open(&path, How::Write)?;
        let mut random = Random::new(stage.cell.seed ^ u64::from(index) << 32);
        Ok(move |_| {
            let page = random.below(bytes / BLOCK as u64);
            file.write_at(data, page * BLOCK as u64)?;
            file.sync_data()
        })
    };
    paced(stage, BLOCK as u32, pace, prepare, || Ok(()))
}

/// A log that was written once, and is written again past the page cache.
struct LogAlone {
    file: File,
    group: GroupSync,
    /// Blocks that wait for the next batch.
    waiting: Mutex<Vec<u8>>,
    batch: Mutex<(AlignedMemory, u64)>,
}

impl LogAlone {
    fn new(path: &Path, seed: u64) -> Result<Self, CellError> {
        fill(path, LOG_BYTES, seed)?;
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_DIRECT);
        let file = options.open(path).context_at("cannot open it", path)?;
        Ok(Self {
            file,
            group: GroupSync::default(),
            waiting: Mutex::default(),
            batch: Mutex::new((AlignedMemory::new(BATCH_BYTES), 0)),
        })
    }

    fn write(&self, data: &[u8]) -> Result<(), CellError> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(data);
        self.group.sync(|| {
            let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
            let (memory, offset) = &mut *batch;
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let length = waiting.len();
            memory[..length].copy_from_slice(&waiting);
            waiting.clear();
            drop(waiting);
            if *offset + length as u64 > LOG_BYTES {
                *offset = 0;
            }
            let written = self.file.write_all_at(&memory[..length], *offset);
            *offset += length as u64;
            written.and_then(|()| self.file.sync_data()).context("cannot write the log")
        })
    }
}
