//! A probe: one kind of work that arms are compared in. Each is one file of `probes`, which says
//! everything about it: its arms, the form of its work, how much a run is, how it runs, and what
//! its tables and sentences show.
//!
//! ```text
//! suite: workload = probe + shape, part = workloads x arms
//!    --check--> plan: jobs of cells, with their work --run, in a child--> figures --> one table
//! ```

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::arm::Way;
use crate::cell::Cell;
use crate::load::{CellError, CellReport};
use crate::planning::{Job, PlanError, Planner};
use crate::reader::Reader;
use crate::sentence::usual;
use crate::suite::model::{Cut, Workload};

pub use crate::cell::Work;

/// One kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its word in a suite, a cell and a result.
    pub name: &'static str,
    /// Probes of one group can be in one part of a suite.
    pub group: &'static str,
    /// Returns its arms.
    pub ways: fn() -> Vec<Way>,
    /// Refuses a shape that cannot run, with a remedy.
    pub check: fn(&Value) -> Result<(), String>,
    /// Refuses a form of a part that lacks what its cells need.
    pub needs: fn(&Cut) -> Result<(), String>,
    /// Plans the jobs of a workload.
    pub plan: fn(&mut Planner<'_>, &Workload) -> Result<Vec<Job>, PlanError>,
    /// Returns how much a cell does.
    pub work: fn(&Cell) -> Result<Work, String>,
    /// Runs a cell in this process.
    pub run: fn(&Cell) -> Result<CellReport, CellError>,
    /// Figures of its tables, in their order.
    pub figures: &'static [&'static str],
    /// Figures whose ratios stand beside that of the part.
    pub compared: &'static [&'static str],
    /// Whether each arm has a short cell before the first round.
    pub warms_up: bool,
    /// Whether an arm says how many requests are handed over together.
    pub batch: Batch,
    /// Whether the summary of several questions has a table of it, and not its sentence.
    pub has_table: bool,
    /// Returns the result of a job in one sentence.
    pub(crate) sentence: fn(Reader<'_>) -> Option<String>,
}

/// How a shape is checked, a workload planned, and a cell sized and run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub(crate) check: fn(&Value) -> Result<(), String>,
    pub(crate) plan: fn(&mut Planner<'_>, &Workload) -> Result<Vec<Job>, PlanError>,
    pub(crate) work: fn(&Cell) -> Result<Work, String>,
    pub(crate) run: fn(&Cell) -> Result<CellReport, CellError>,
}

/// Whether an arm says how many requests are handed over together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    /// There is no such number.
    No,
    OfArm,
    /// Something else says it, in words.
    Elsewhere(&'static str),
}

impl Probe {
    /// Returns a probe of a group of its own, with the usual sentence, whose arms are warmed up.
    pub(crate) const fn new(name: &'static str, ways: fn() -> Vec<Way>, steps: Steps) -> Self {
        let Steps { check, plan, work, run } = steps;
        Self {
            name,
            group: name,
            ways,
            check,
            needs: |_| Ok(()),
            plan,
            work,
            run,
            figures: &[],
            compared: &[],
            warms_up: true,
            batch: Batch::No,
            has_table: false,
            sentence: usual,
        }
    }

    /// Returns the arm of a word.
    pub fn way(&self, word: &str) -> Option<Way> {
        (self.ways)().into_iter().find(|way| way.is(word))
    }

    /// Returns the words of its arms, for a message.
    pub fn words(&self) -> Vec<&'static str> {
        (self.ways)().into_iter().flat_map(|way| [way.word, way.alias]).collect()
    }
}

/// Reads a shape in the form of a probe.
///
/// # Errors
/// The key or value that the form does not have.
pub(crate) fn read<T: DeserializeOwned>(shape: &Value) -> Result<T, String> {
    serde_json::from_value(shape.clone()).map_err(|error| error.to_string())
}

/// Returns a shape that was checked when its suite was read.
pub(crate) fn checked<T: DeserializeOwned>(workload: &Workload) -> T {
    read(&workload.shape).expect("the suite was checked")
}
