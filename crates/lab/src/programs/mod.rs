//! Program cells: the I/O of small programs, and its costs.
//!
//! ```text
//! source, group --> engine --> files --> threads ready  [ operations ... last sync ]  --> close
//! ```
//!
//! Each probe is a file of `probes`, most with a closure for one operation. `clock` runs it on its
//! threads and measures what is in brackets. The standard library's arm uses the form that suits
//! the program best: a group commit for the log, a thread for each task, writeback behind a bulk
//! writer.
//!
//! A cell changes its process: it joins a control group and counts system calls. So it runs in a
//! process of its own. The page cache and the kernel's own threads are in no figure of a process.

mod beside;
mod clock;
mod group_sync;
mod probe;
mod probes;
pub mod spec;
mod stage;
mod store;

use std::collections::BTreeMap;

use crate::batching::{self, Counter};
use crate::cell::CellResult;
use crate::load::data;
use crate::load::error::{CellError, Context};
use crate::load::kernel::drop_cached;
use crate::load::memory::resident_bytes;
use crate::memory_group::MemoryGroup;
use crate::metric;
use crate::request::DATA_FILE;
use crate::scratch::Stop;
use clock::Measured;
use spec::{Beside, CountCalls, ProgramCell, ProgramWay};
use stage::Stage;
use store::Store;

/// Runs one cell in this process.
pub fn run(cell: &ProgramCell) -> Result<CellResult, CellError> {
    let load = &cell.load;
    load.check().map_err(CellError::invalid)?;
    if !(cell.seconds.is_finite() && cell.seconds > 0.0) {
        return Err(CellError::invalid(format!("seconds={}: not a time", cell.seconds)));
    }
    if load.shares_source() {
        lay_out(cell)?;
    }
    let mut notes = Vec::new();
    let limit = load.memory_bytes().filter(|_| cell.way == ProgramWay::Std);
    let group = match limit.map(MemoryGroup::join) {
        Some(Err(reason)) => {
            notes.push(format!("the page cache has no limit: {reason}"));
            None
        }
        joined => joined.and_then(Result::ok),
    };
    let mut counted = load.probe.counters.to_vec();
    if cell.count_calls == CountCalls::On {
        counted.push(("system calls", Counter::SystemCalls));
    }
    for (what, counter) in counted {
        if let Err(reason) = batching::begin_alone(counter, &cell.directory) {
            notes.push(format!("{what} are {reason}"));
        }
    }
    let baseline_bytes = resident_bytes();
    let stage = Stage { cell, store: Store::new(cell)?, baseline_bytes };
    let measured = (load.probe.run)(&stage)?;
    notes.extend(stage.store.shutdown()?);
    drop(group);
    Ok(CellResult { metrics: figures(cell, &measured), notes, detail: None })
}

/// Makes the file that the cell reads, if no cell before has, and drops it from the page cache.
fn lay_out(cell: &ProgramCell) -> Result<(), CellError> {
    let path = cell.source.join(DATA_FILE);
    data::lay_out(&cell.source, cell.load.file_bytes(), cell.seed, &Stop::default())
        .context_at("cannot write the file to read", &path)?;
    drop_cached(&path)
}

fn figures(cell: &ProgramCell, measured: &Measured) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    let mut put = |name: &str, value: f64| metric::put(&mut metrics, name, value);
    let (seconds, operations) = (measured.elapsed.as_secs_f64(), measured.operations as f64);
    let [calls, ..] = measured.counted;
    put("elapsed_s", seconds);
    (cell.load.probe.figures)(measured, &mut put);
    if let Some(bytes) = measured.beside_bytes {
        put("beside_bytes_per_s", bytes as f64 / seconds);
    }
    if measured.bytes > 0 {
        put("write_bytes_per_s", measured.bytes as f64 / seconds);
    }
    put("resident_bytes", measured.resident_bytes as f64);
    // A bulk writer in the same process costs far more than the small syncs.
    if cell.load.beside != Beside::Bulk {
        put("cpu_us_per_operation", measured.usage.process.cpu_us() as f64 / operations);
        if let Some(calls) = calls {
            put("system_calls_per_operation", calls as f64 / operations);
        }
    }
    metrics
}
