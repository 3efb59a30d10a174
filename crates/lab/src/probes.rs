//! The probes, one file each. A new probe is a new file and its name in the two lists here.

mod copies;
mod job_file;
mod jobs;
mod new_files;
mod programs;
mod requests;
mod workload;
mod writers;

use std::sync::LazyLock;

use serde_json::Value;

use crate::cell::{Cell, Work};
use crate::load::error::CellError;
use crate::load::figures::CellReport;
use crate::metric::{self, Metric};
use crate::probe::Probe;
use crate::programs::spec::Program;

pub use job_file::{JobFile, MEMORY_BYTES};
pub use requests::cell as request_cell;
pub use workload::{JOB_FILE, cell as job_cell};

static PROBES: LazyLock<Vec<Probe>> = LazyLock::new(|| {
    let own = [
        new_files::PROBE,
        jobs::PROBE,
        writers::PROBE,
        requests::PROBE,
        copies::PROBE,
        job_file::PROBE,
    ];
    own.into_iter().chain(Program::all().map(programs::probe)).collect()
});

/// Returns every probe.
pub fn all() -> &'static [Probe] {
    &PROBES
}

/// Returns the probe of a name.
pub fn by_name(name: &str) -> Option<&'static Probe> {
    all().iter().find(|probe| probe.name == name)
}

/// Runs a cell in this process. `before` gets how much it does.
///
/// # Errors
/// There is no such probe or arm, the shape is of another probe, or the cell fails.
pub fn run(cell: &Cell, before: impl FnOnce(&Work)) -> Result<CellReport, CellError> {
    let probe = by_name(&cell.probe)
        .ok_or_else(|| CellError::invalid(format!("{}: no such probe", cell.probe)))?;
    before(&(probe.work)(cell).map_err(CellError::invalid)?);
    let report = (probe.run)(cell)?;
    let unknown = report.total.metrics.keys().find(|name| metric(name).is_none());
    debug_assert!(unknown.is_none(), "{}: {unknown:?} is no metric", cell.probe);
    Ok(report)
}

/// Returns the shape of a workload, with its keys. Programs share one form, which names them.
pub(crate) fn shape(probe: &Probe, mut keys: Value) -> Value {
    if let (Some(keys), true) = (keys.as_object_mut(), Program::by_name(probe.name).is_some()) {
        keys.insert("probe".to_owned(), probe.name.into());
    }
    keys
}

/// Returns every metric, those that one probe has to itself included.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    metric::shared().chain(Program::metrics())
}

/// Returns the metric of a name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    metrics().find(|metric| metric.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_every_figure_is_a_metric() {
        let names: BTreeSet<&str> = all().iter().map(|probe| probe.name).collect();
        assert_eq!(names.len(), all().len(), "{names:?}");
        for probe in all() {
            let figures = probe.figures.iter().chain(probe.compared);
            for name in figures {
                assert!(metric(name).is_some(), "{}: {name}", probe.name);
            }
            let ways = (probe.ways)();
            assert!(!ways.is_empty(), "{} has no arm", probe.name);
            let words: BTreeSet<&str> = ways.iter().map(|way| way.word).collect();
            assert_eq!(words.len(), ways.len(), "{}: {words:?}", probe.name);
        }
        let metrics: BTreeSet<&str> = metrics().map(|metric| metric.name).collect();
        assert_eq!(metrics.len(), super::metrics().count());
    }
}
