//! Threads that append records to one log, of 100 to 200 bytes unless the suite gives their sizes.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::load::error::CellError;
use crate::programs::clock::{Measured, clocked};
use crate::programs::group_sync::GroupSync;
use crate::programs::program::{Program, Sizes, Writes};
use crate::programs::spec::Form;
use crate::programs::stage::{Stage, content};
use crate::programs::store::{How, Store};
use forebay_block::random::Random;

pub(super) static PROBE: Program = Program {
    writes: Writes::ForATime,
    sizes: Sizes::Usually((100, 200)),
    forms: &[Form::OwnSync],
    ..Program::new("log", run)
};

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let file = stage.store.open(&stage.cell.directory.join("log"), How::Append)?;
    let (group, bytes) = (GroupSync::default(), AtomicU64::new(0));
    let sync = || match &stage.store {
        Store::Std if stage.load.form == Form::Usual => group.sync(|| file.sync_data()),
        _ => file.sync_data(),
    };
    let every = u64::from(stage.load.every);
    let (least, most) = stage.load.sizes();
    assert!(every > 0 && least <= most, "a sync after {every}, {least} to {most} bytes");
    let prepare = |index: u32| {
        let mut random = Random::new(stage.cell.seed ^ u64::from(index) << 32);
        let (record, file, sync, bytes) =
            (content(most as usize, random.draw()), &file, &sync, &bytes);
        Ok(move |turn: u64| {
            let length = (least + random.below(most - least + 1)) as usize;
            file.append(&record[..length])?;
            if (turn + 1).is_multiple_of(every) {
                sync()?;
            }
            bytes.fetch_add(length as u64, Ordering::Relaxed);
            Ok(())
        })
    };
    let measured = clocked(stage, 0, prepare, || file.sync_data())?;
    file.close()?;
    let appended = bytes.into_inner();
    let path = stage.cell.directory.join("log");
    let length = fs::metadata(&path).map_or(0, |data| data.len());
    if length != appended {
        let found = format!("{length} bytes, and {appended} were appended");
        return Err(CellError::Mismatch { path, offset: length, found });
    }
    Ok(Measured { bytes: appended, ..measured })
}
