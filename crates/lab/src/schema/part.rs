//! How a document is shown: its tables, and which rows belong to which of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::compare::state::CellState;
use crate::suite::model::{Form, Published};

/// One part of a suite: one table, or one for each job.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    /// Question of the suite, in the first part of a suite with other questions besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Over its table.
    pub title: String,
    /// Metric of the ratio.
    pub metric: String,
    /// The arm that runs twice.
    pub again: String,
    /// Rounds that count.
    pub rounds: u32,
    /// Seconds from the first warm-up to the end of the last round.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Bytes a cell writes, if fixed.
    pub cell_bytes: Option<u64>,
    /// How much of it was run: full, quick, bare or published.
    #[serde(default)]
    pub form: Option<Form>,
    /// The share of the form's sizes and times.
    #[serde(default)]
    pub scale: Option<f64>,
    /// Bytes of the laid-out file.
    #[serde(default)]
    pub data_bytes: Option<u64>,
    /// The order of the arms in each round.
    pub orders: Vec<Vec<String>>,
    /// Its jobs, in the order of the tables.
    pub jobs: Vec<PartJob>,
    /// Figures that others have published, if it was run as theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// In what surroundings its cells ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellState>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PartJob {
    /// Its name, as rows have it.
    pub name: String,
    pub title: String,
    pub workload: String,
    /// Name of its probe; empty in older results.
    #[serde(default)]
    pub probe: String,
    /// Where requests went.
    pub device: Option<String>,
    /// Bios in flight.
    pub depth: Option<u32>,
    /// Base of the arms; none if it did not run.
    pub base: Option<String>,
    /// By metric, where the base is the best of several and that was chosen in this metric by
    /// itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub best: BTreeMap<String, String>,
}

impl PartJob {
    /// Returns the base of the arms in a metric.
    pub fn base_in(&self, metric: &str) -> Option<&str> {
        self.best.get(metric).or(self.base.as_ref()).map(String::as_str)
    }
}
