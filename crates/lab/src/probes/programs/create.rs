//! New files of 4 KiB, closed and not synced.

use crate::load::error::CellError;
use crate::programs::clock::{Measured, clocked};
use crate::programs::program::{Program, Writes};
use crate::programs::stage::{BLOCK, Stage, content};
use crate::programs::store::How;

pub(super) static PROBE: Program = Program {
    keeps_files: true,
    writes: Writes::Fixed(|load| load.operations.unwrap_or(0) * BLOCK as u64),
    ..Program::new("create", run)
};

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let data = content(BLOCK, stage.cell.seed);
    let operation = |index: u32, turn: u64| {
        let path = stage.cell.directory.join(format!("{index:04}-{turn:07}"));
        let file = stage.store.open(&path, How::New)?;
        file.write_at(&data, 0)?;
        // Nobody waits for the data, or for its errors, as in the standard library.
        drop(file);
        Ok(())
    };
    let operation = &operation;
    clocked(stage, BLOCK as u32, |index| Ok(move |turn| operation(index, turn)), || Ok(()))
}
