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
use crate::suite::model::{Cut, Workload};

pub use crate::cell::Work;

/// One kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its word in a suite, a cell and a result.
    pub name: &'static str,
    /// Probes of one group can be in one part of a suite.
    pub group: &'static str,
    /// Its arms.
    pub ways: &'static [Way],
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
    /// How the summary of several questions shows it.
    pub summary: Summary,
    /// Returns the result of a job in one sentence.
    pub(crate) sentence: fn(Reader<'_>) -> Option<String>,
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

/// How the summary of several questions shows a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Summary {
    /// By its sentence.
    Sentence,
    /// By a table of speed, memory and small syncs.
    Table,
}

impl Probe {
    /// Returns the arm of a word.
    pub fn way(&self, word: &str) -> Option<Way> {
        self.ways.iter().copied().find(|way| way.is(word))
    }

    /// Returns the words of its arms, for a message.
    pub fn words(&self) -> Vec<&'static str> {
        self.ways.iter().flat_map(|way| [way.word, way.alias]).collect()
    }
}

/// Reads a shape in the form of a probe.
///
/// # Errors
/// The key or value that the form does not have.
pub(crate) fn read<T: DeserializeOwned>(shape: &Value) -> Result<T, String> {
    serde_json::from_value(shape.clone()).map_err(|error| error.to_string())
}

/// Accepts every form: a part needs nothing but arms and workloads.
pub(crate) fn needs_nothing(_: &Cut) -> Result<(), String> {
    Ok(())
}

/// Returns a shape that was checked when its suite was read.
pub(crate) fn checked<T: DeserializeOwned>(workload: &Workload) -> T {
    read(&workload.shape).expect("the suite was checked")
}
