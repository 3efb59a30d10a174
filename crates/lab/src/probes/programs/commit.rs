//! A sync after 20 writes of 4 KiB to random pages: commits of a database, without one.

use crate::load::error::CellError;
use crate::programs::clock::{Measured, clocked};
use crate::programs::program::{Program, Writes};
use crate::programs::spec::COMMIT_FILE_BYTES;
use crate::programs::stage::{BLOCK, Stage, content, fill};
use crate::programs::store::How;
use forebay_block::random::Random;

const COMMIT_PAGES: u32 = 20;

pub(super) static PROBE: Program =
    Program { most_threads: 1, writes: Writes::ForATime, ..Program::new("commit", run) };

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let path = stage.cell.directory.join("database");
    fill(&path, COMMIT_FILE_BYTES, stage.cell.seed)?;
    let file = stage.store.open(&path, How::Write)?;
    let data = content(BLOCK, stage.cell.seed);
    let prepare = |_| {
        let (mut random, file, data) = (Random::new(stage.cell.seed), &file, &data);
        Ok(move |_| {
            for _ in 0..COMMIT_PAGES {
                let page = random.below(COMMIT_FILE_BYTES / BLOCK as u64);
                file.write_at(data, page * BLOCK as u64)?;
            }
            file.sync_data()
        })
    };
    let measured = clocked(stage, COMMIT_PAGES * BLOCK as u32, prepare, || Ok(()))?;
    file.close()?;
    Ok(measured)
}
