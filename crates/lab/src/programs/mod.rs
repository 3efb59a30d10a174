//! Program cells: the I/O of small programs, and its costs.
//!
//! ```text
//! source, group --> engine --> files --> threads ready  [ operations ... last sync ]  --> close
//! ```
//!
//! Each program is a file of `probes/programs`, most with a closure for one operation. `clock` runs
//! it on its threads and measures what is in brackets. The standard library's arm uses the form
//! that suits the program best: a group commit for the log, a thread for each task, writeback
//! behind a bulk writer.
//!
//! A cell changes its process: it joins a control group and counts system calls. So it runs in a
//! process of its own. The page cache and the kernel's own threads are in no figure of a process.

pub(crate) mod beside;
pub(crate) mod clock;
pub(crate) mod group_sync;
pub(crate) mod program;
pub mod spec;
pub(crate) mod stage;
pub(crate) mod store;

use std::collections::BTreeMap;

use crate::batching::{self, Counter};
use crate::cell::{Cell, CellResult, Verify};
use crate::load::data;
use crate::load::error::{CellError, Context};
use crate::load::kernel::drop_cached;
use crate::load::memory::resident_bytes;
use crate::memory_group::MemoryGroup;
use crate::metric;
use crate::request::DATA_FILE;
use crate::scratch::Stop;
use clock::Measured;
use spec::{Beside, ProgramLoad, ProgramWay};
use stage::Stage;
use store::Store;

/// Runs one cell in this process.
pub fn run(cell: &Cell) -> Result<CellResult, CellError> {
    let load: ProgramLoad = cell.shape().map_err(CellError::invalid)?;
    let way = ProgramWay::by_name(&cell.arm)
        .ok_or_else(|| CellError::invalid(format!("{}: no arm of programs", cell.arm)))?;
    load.check().map_err(CellError::invalid)?;
    if !(cell.seconds.is_finite() && cell.seconds > 0.0) {
        return Err(CellError::invalid(format!("seconds={}: not a time", cell.seconds)));
    }
    if load.shares_source() {
        lay_out(cell, &load)?;
    }
    let mut notes = Vec::new();
    let limit = load.memory_bytes().filter(|_| way == ProgramWay::Std);
    let group = match limit.map(MemoryGroup::join) {
        Some(Err(reason)) => {
            notes.push(format!("the page cache has no limit: {reason}"));
            None
        }
        joined => joined.and_then(Result::ok),
    };
    let mut counted = load.probe.counters.to_vec();
    // In one round: they hardly differ from one to the next.
    if cell.verify == Verify::After {
        counted.push(("system calls", Counter::SystemCalls));
    }
    for (what, counter) in counted {
        if let Err(reason) = batching::begin_alone(counter, &cell.directory) {
            notes.push(format!("{what} are {reason}"));
        }
    }
    let baseline_bytes = resident_bytes();
    let store = Store::new(cell, &load, way)?;
    let stage = Stage { cell, load, way, store, baseline_bytes };
    let measured = (load.probe.run)(&stage)?;
    notes.extend(stage.store.shutdown()?);
    drop(group);
    Ok(CellResult { metrics: figures(&load, &measured), notes, detail: None })
}

/// Makes the file that the cell reads, if no cell before has, and drops it from the page cache.
fn lay_out(cell: &Cell, load: &ProgramLoad) -> Result<(), CellError> {
    let path = cell.source.join(DATA_FILE);
    data::lay_out(&cell.source, load.file_bytes(), cell.seed, &Stop::default())
        .context_at("cannot write the file to read", &path)?;
    drop_cached(&path)
}

fn figures(load: &ProgramLoad, measured: &Measured) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    let mut put = |name: &str, value: f64| metric::put(&mut metrics, name, value);
    let (seconds, operations) = (measured.elapsed.as_secs_f64(), measured.operations as f64);
    let [calls, ..] = measured.counted;
    debug_assert!(seconds > 0.0 && operations > 0.0, "{operations} operations in {seconds} s");
    put("elapsed_s", seconds);
    (load.probe.figures)(measured, &mut put);
    if let Some(bytes) = measured.beside_bytes {
        put("beside_bytes_per_s", bytes as f64 / seconds);
    }
    // A bulk writer that was held up for the whole run wrote nothing: that is a figure, too.
    if measured.bytes > 0 || load.beside == Beside::Bulk {
        put("write_bytes_per_s", measured.bytes as f64 / seconds);
    }
    put("resident_bytes", measured.resident_bytes as f64);
    // A bulk writer in the same process costs far more than the small syncs.
    if load.beside != Beside::Bulk {
        put("cpu_us_per_operation", measured.usage.process.cpu_us() as f64 / operations);
        if let Some(calls) = calls {
            put("system_calls_per_operation", calls as f64 / operations);
        }
    }
    metrics
}
