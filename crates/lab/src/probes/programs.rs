//! Small programs: each file of this module is a probe, with the arms that suit it.

mod commit;
mod copy;
mod create;
mod files;
mod log;
mod put;
mod read_miss;
mod resident;
mod rewrite;
mod small_sync;
mod tasks;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::arm::Way;
use crate::cell::{Cell, Ground, Work};
use crate::load::{CellError, CellReport};
use crate::metric::Metric;
use crate::planning::{Job, PlanError, Planner};
use crate::probe::{Probe, Steps, checked, read};
use crate::programs;
use crate::programs::spec::{Program, ProgramLoad, ProgramWay};
use crate::suite::model::Workload;

/// Every program.
static PROGRAMS: &[&Program] = &[
    &put::PROBE,
    &log::PROBE,
    &tasks::PROBE,
    &small_sync::PROBE,
    &copy::PROBE,
    &create::PROBE,
    &resident::PROBE,
    &commit::PROBE,
    &rewrite::PROBE,
    &read_miss::PROBE,
    &files::PROBE,
];

impl Program {
    /// Returns the program of a name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        PROGRAMS.iter().copied().find(|probe| probe.name == name)
    }

    /// Returns every program.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        PROGRAMS.iter().copied()
    }

    /// Returns metrics that only one probe has.
    pub(crate) fn metrics() -> impl Iterator<Item = &'static Metric> {
        PROGRAMS.iter().flat_map(|probe| probe.metrics)
    }
}

/// A program by its name, in a suite and in a cell.
impl Serialize for Program {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for &'static Program {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Program::by_name(&name).ok_or_else(|| {
            let known: Vec<&str> = PROGRAMS.iter().map(|probe| probe.name).collect();
            serde::de::Error::custom(format!(
                "{name}: no such probe (there are: {})",
                known.join(", ")
            ))
        })
    }
}

/// Returns the probe of a program.
pub(super) fn probe(program: &'static Program) -> Probe {
    Probe {
        group: "programs",
        figures: &[
            "files_per_s",
            "operations_per_s",
            "elapsed_s",
            "latency_p50_us",
            "latency_p99_us",
            "latency_p999_us",
            "cpu_us_per_operation",
            "system_calls_per_operation",
            "resident_bytes",
            "write_bytes_per_s",
            "commits_per_1000_files",
            "flushes_per_1000_files",
            "beside_bytes_per_s",
        ],
        compared: &[
            "latency_p99_us",
            "cpu_us_per_operation",
            "operations_per_s",
            "beside_bytes_per_s",
        ],
        // Their cells share only the file that they read, and there are many parts.
        warms_up: false,
        ..Probe::new(program.name(), ways, Steps { check, plan, work, run })
    }
}

/// Returns the arms of all programs.
fn ways() -> Vec<Way> {
    let way = |way: ProgramWay| {
        let name = way.name();
        let own = if way.is_forebay() { Way::engine(name) } else { Way::plain(name) };
        match way {
            ProgramWay::Std => own.or("std"),
            ProgramWay::FilesForebayBatch => own.or("forebay-batch"),
            _ => own,
        }
    };
    ProgramWay::ALL.into_iter().map(way).collect()
}

fn check(shape: &Value) -> Result<(), String> {
    read::<ProgramLoad>(shape)?.check()
}

fn plan(planner: &mut Planner<'_>, workload: &Workload) -> Result<Vec<Job>, PlanError> {
    let load = checked::<ProgramLoad>(workload).scaled(planner.scale());
    if planner.ground.is_none() {
        planner.ground = Some("on small files".to_owned());
    }
    planner.has_room(load.space_bytes())?;
    let seconds = planner.seconds();
    Ok(vec![planner.job(workload, |own| {
        let way = ProgramWay::by_name(own.way.word)?;
        let cell = |seconds, load: ProgramLoad| Cell {
            seconds,
            ..Cell::new(workload.probe, own.way.word, &load)
        };
        let cells = [cell(seconds, load), cell(seconds / 10.0, load.scaled(0.01))];
        way.suits(load.probe).then_some(cells)
    })])
}

fn work(cell: &Cell) -> Result<Work, String> {
    let load: ProgramLoad = read(&cell.shape)?;
    let way = ProgramWay::by_name(&cell.arm);
    Ok(Work {
        written_bytes: load.written_bytes(),
        writes_for_a_time: load.writes_for_a_time(),
        seconds: (!load.probe.ends_itself).then_some(cell.seconds),
        budget_bytes: load.memory_bytes(),
        ground: if load.probe.keeps_files { Ground::Kept } else { Ground::Own },
        shares_source: load.shares_source(),
        on_disk: true,
        uses_ring: way.is_some_and(ProgramWay::is_forebay) || cell.arm == "files-ring-of-fsyncs",
        is_bounded: way == Some(ProgramWay::Std),
        ..Work::default()
    })
}

fn run(cell: &Cell) -> Result<CellReport, CellError> {
    let total = programs::run(cell)?;
    Ok(CellReport { total, jobs: Vec::new() })
}
