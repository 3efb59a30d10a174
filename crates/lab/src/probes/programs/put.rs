//! Durable puts of 16 KiB: temporary file, write, sync, close, rename, sync of the directory.

use std::fs::{self, File};

use crate::load::error::{CellError, Context};
use crate::programs::clock::{Measured, clocked};
use crate::programs::program::{Program, Writes};
use crate::programs::spec::Form;
use crate::programs::stage::{Stage, content};
use crate::programs::store::How;

const PUT_BYTES: usize = 16_384;

pub(super) static PROBE: Program = Program {
    keeps_files: true,
    forms: &[Form::AnyFile],
    writes: Writes::Fixed(|load| load.operations.unwrap_or(0) * PUT_BYTES as u64),
    ..Program::new("put", run)
};

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let path = &stage.cell.directory;
    let directory = File::open(path).context_at("cannot open it", path)?;
    let data = content(PUT_BYTES, stage.cell.seed);
    let how = match stage.load.form {
        Form::AnyFile => How::New,
        _ => How::Temporary,
    };
    let operation = |index: u32, turn: u64| {
        let name = path.join(format!("{index:04}-{turn:07}"));
        let temporary = name.with_extension("tmp");
        let file = stage.store.open(&temporary, how)?;
        file.write_at(&data, 0)?;
        file.sync_data()?;
        file.close()?;
        fs::rename(&temporary, &name)
            .and_then(|()| directory.sync_all())
            .context_at("cannot put it", &name)
    };
    let operation = &operation;
    let prepare = |index| Ok(move |turn| operation(index, turn));
    clocked(stage, PUT_BYTES as u32, prepare, || Ok(()))
}
