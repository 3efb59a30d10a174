//! Memory of the process after 48 MB were written in order and synced.

use crate::load::error::CellError;
use crate::programs::clock::{Measured, clocked};
use crate::programs::program::{Program, Writes};
use crate::programs::stage::{Stage, content};
use crate::programs::store::How;

const RESIDENT_BYTES: u64 = 48_000_000;

const RESIDENT_BLOCK_BYTES: u64 = 65_536;

pub(super) static PROBE: Program = Program {
    most_threads: 1,
    operations: |_| Some(RESIDENT_BYTES.div_ceil(RESIDENT_BLOCK_BYTES)),
    writes: Writes::Fixed(|_| RESIDENT_BYTES),
    ..Program::new("resident", run)
};

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let file = stage.store.open(&stage.cell.directory.join("data"), How::New)?;
    let data = content(RESIDENT_BLOCK_BYTES as usize, stage.cell.seed);
    let operation = |turn: u64| {
        let offset = turn * RESIDENT_BLOCK_BYTES;
        let length = RESIDENT_BLOCK_BYTES.min(RESIDENT_BYTES - offset);
        file.write_at(&data[..length as usize], offset)
    };
    let operation = &operation;
    let measured = clocked(stage, 0, |_| Ok(operation), || file.sync_data())?;
    file.close()?;
    Ok(Measured { bytes: RESIDENT_BYTES, ..measured })
}
