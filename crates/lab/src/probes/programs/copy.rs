//! Copy of one large file, with its sync.

use std::fs;
use std::io;

use forebay::Cursor;

use crate::load::error::{CellError, Context};
use crate::programs::clock::{Measured, clocked};
use crate::programs::program::{Program, Writes, on_most_arms};
use crate::programs::spec::{ProgramLoad, ProgramWay};
use crate::programs::stage::Stage;
use crate::programs::store::{Handle, How};
use crate::request::DATA_FILE;

const COPY_BYTES: usize = 1 << 20;

pub(super) static PROBE: Program = Program {
    most_threads: 1,
    reads_file: true,
    suits: |way| on_most_arms(way) || way == ProgramWay::ForebayIoCopy,
    operations: |_| Some(1),
    ends_itself: true,
    writes: Writes::Fixed(ProgramLoad::file_bytes),
    ..Program::new("copy", run)
};

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let (from, to) = (stage.cell.source.join(DATA_FILE), stage.cell.directory.join("copy"));
    let cursors = stage.way == ProgramWay::ForebayIoCopy;
    let operation = |_| {
        let (from, to) = (stage.store.open(&from, How::Read)?, stage.store.open(&to, How::New)?);
        match (&from, &to) {
            (Handle::Forebay(from), Handle::Forebay(to)) if cursors => {
                let (mut from, mut to) = (Cursor::new(from), Cursor::new(to));
                io::copy(&mut from, &mut to).context("cannot copy")?;
            }
            _ => copy_by_hand(&from, &to)?,
        }
        to.sync_data()?;
        to.close()?;
        from.close()
    };
    let operation = &operation;
    let measured = clocked(stage, 0, |_| Ok(operation), || Ok(()))?;
    let length = fs::metadata(&to).map_or(0, |data| data.len());
    if length != stage.load.file_bytes() {
        let found = format!("{length} bytes");
        return Err(CellError::Mismatch { path: to, offset: length, found });
    }
    Ok(Measured { bytes: length, ..measured })
}

fn copy_by_hand(from: &Handle, to: &Handle) -> Result<(), CellError> {
    let (mut buffer, mut offset) = (vec![0; COPY_BYTES], 0);
    loop {
        let read = from.read_at(&mut buffer, offset)?;
        if read == 0 {
            return Ok(());
        }
        to.write_at(&buffer[..read], offset)?;
        offset += read as u64;
    }
}
