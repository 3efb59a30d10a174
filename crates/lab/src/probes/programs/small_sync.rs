//! A write of 4 KiB and its sync every 10 ms, alone or beside another writer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::load::error::CellError;
use crate::programs::beside;
use crate::programs::clock::{Measured, paced};
use crate::programs::program::{Program, Writes};
use crate::programs::spec::Beside;
use crate::programs::stage::{BLOCK, Stage, content, fill};
use crate::programs::store::How;

/// Bytes of the file that small syncs go to.
const SMALL_FILE_BYTES: u64 = 1 << 20;

const SMALL_SYNC_EVERY: Duration = Duration::from_millis(10);

pub(super) static PROBE: Program = Program {
    most_threads: 1,
    beside: &[Beside::Bulk, Beside::Dd],
    writes: Writes::ForATime,
    ..Program::new("small-sync", run)
};

fn run(stage: &Stage<'_>) -> Result<Measured, CellError> {
    let path = stage.cell.directory.join("small");
    fill(&path, SMALL_FILE_BYTES, stage.cell.seed)?;
    let large = stage.cell.directory.join("large");
    let load = &stage.load;
    let writer = beside::Writer::default();
    let dd = match load.beside {
        Beside::Dd => Some(beside::Dd::start(&large, load.file_bytes())?),
        Beside::Bulk | Beside::Nothing => None,
    };
    let file = stage.store.open(&path, How::Write)?;
    let data = content(BLOCK, stage.cell.seed);
    let before = AtomicU64::new(0);
    let operation = |turn: u64| {
        file.write_at(&data, turn * BLOCK as u64 % SMALL_FILE_BYTES)?;
        file.sync_data()
    };
    let operation = &operation;
    let small = || {
        if let Some(dd) = &dd {
            dd.wait_for_file();
        }
        if load.beside != Beside::Nothing {
            // The other writer has filled its share of memory, and the disk is busy.
            thread::sleep(Duration::from_secs_f64(stage.cell.seconds.min(2.0) / 4.0));
        }
        before.store(writer.bytes(), Ordering::Relaxed);
        paced(stage, BLOCK as u32, SMALL_SYNC_EVERY, |_| Ok(operation), || Ok(()))
    };
    let measured = match load.beside {
        Beside::Bulk => thread::scope(|scope| {
            let bulk = scope.spawn(|| writer.run(&stage.store, &large, load.file_bytes()));
            let measured = small();
            let written = writer.bytes() - before.load(Ordering::Relaxed);
            writer.stop();
            bulk.join().expect("the bulk writer does not panic")?;
            Ok(Measured { bytes: written, ..measured? })
        }),
        Beside::Dd | Beside::Nothing => small(),
    }?;
    file.close()?;
    Ok(measured)
}
