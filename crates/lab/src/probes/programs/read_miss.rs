//! Random reads of 4 KiB from a file larger than the cache.

use rustix::fs::{Advice, fadvise};

use crate::load::error::{CellError, Context};
use crate::programs::clock::{Measured, clocked};
use crate::programs::program::Program;
use crate::programs::stage::{BLOCK, Stage};
use crate::programs::store::{Handle, How};
use crate::request::DATA_FILE;
use forebay_block::random::Random;

pub(super) static PROBE: Program = Program { reads_file: true, ..Program::new("read-miss", run) };

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let path = stage.cell.source.join(DATA_FILE);
    let file = stage.store.open(&path, How::Read)?;
    if let Handle::Std { file, .. } = &file {
        // Without readahead, which these reads do not use.
        fadvise(file, 0, None, Advice::Random).context_at("cannot advise", &path)?;
    }
    let blocks = stage.load.file_bytes() / BLOCK as u64;
    let prepare = |index: u32| {
        let mut random = Random::new(stage.cell.seed ^ u64::from(index) << 32);
        let (mut buffer, file) = (vec![0; BLOCK], &file);
        Ok(move |_| {
            let offset = random.below(blocks) * BLOCK as u64;
            match file.read_at(&mut buffer, offset)? {
                BLOCK => Ok(()),
                read => Err(CellError::Process { what: format!("read {read} of {BLOCK} bytes") }),
            }
        })
    };
    let measured = clocked(stage, 0, prepare, || Ok(()))?;
    file.close()?;
    Ok(measured)
}
