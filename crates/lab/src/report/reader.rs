//! A job of a part, and everything that a table or a sentence says of it.

use crate::detail::Flow;
use crate::schema::{Against, CellRecord, Comparison, Document, Part, PartJob, Row};

use super::Block;
use super::column::Column;
use super::figures::percent;
use super::table::{Table, absent, marked};

/// Looks up the figures of one job.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) document: &'a Document,
    pub(super) part: &'a Part,
    pub(super) job: &'a PartJob,
}

impl<'a> Reader<'a> {
    /// Every job of a part, in the order of its tables.
    pub(super) fn all(document: &'a Document, part: &'a Part) -> impl Iterator<Item = Self> {
        part.jobs.iter().map(move |job| Self { document, part, job })
    }

    /// Jobs of a part with results of at least one arm.
    pub(super) fn ran(document: &'a Document, part: &'a Part) -> impl Iterator<Item = Self> {
        Self::all(document, part).filter(|reader| !reader.arms().is_empty())
    }

    /// Arms of the job in the order of their first rows.
    pub(super) fn arms(self) -> Vec<&'a str> {
        self.document.arms_of(&self.job.name)
    }

    /// The arms with their places among all arms of the result. Pictures choose colours by them:
    /// an arm has one colour on a page.
    pub(super) fn placed_arms(self) -> Vec<(usize, &'a str)> {
        let mut all: Vec<&str> = Vec::new();
        for row in &self.document.rows {
            if !all.contains(&row.arm.as_str()) {
                all.push(&row.arm);
            }
        }
        let place = |arm: &str| all.iter().position(|one| *one == arm).unwrap_or(all.len());
        self.arms().into_iter().map(|arm| (place(arm), arm)).collect()
    }

    /// How the cells of an arm went, in the order of the rounds.
    pub(super) fn cells(self, arm: &str) -> impl Iterator<Item = &'a CellRecord> {
        self.document.cells_of(&self.job.name, arm)
    }

    /// Reads or writes of the cells of an arm.
    pub(super) fn flows(self, arm: &str, direction: &str) -> impl Iterator<Item = &'a Flow> {
        let flows = self.cells(arm).flat_map(|cell| cell.detail.flows());
        flows.filter(move |(which, _)| *which == direction).map(|(_, flow)| flow)
    }

    pub(super) fn row(self, arm: &str, metric: &str) -> Option<&'a Row> {
        self.document.row_of(&self.job.name, arm, metric)
    }

    /// The row of a latency of all operations, of an arm that has it of one direction alone. Job
    /// files measure reads and writes apart; a job with both has no such figure.
    pub(super) fn in_one_direction(self, arm: &str, metric: &str) -> Option<&'a Row> {
        let name = metric.strip_prefix("latency_")?;
        let of = |direction| self.row(arm, &format!("{direction}_latency_{name}"));
        match (of("read"), of("write")) {
            (Some(_), Some(_)) => None,
            (read, write) => read.or(write),
        }
    }

    /// An arm's mean of a metric.
    pub(super) fn mean(self, arm: &str, metric: &str) -> Option<f64> {
        self.row(arm, metric).map(|row| row.mean)
    }

    pub(super) fn compared(self, metric: &str, pair: Against<'_>) -> Option<&'a Comparison> {
        self.document.compared(&self.job.name, metric, pair)
    }

    /// An arm against the base of the job, in the metric of the part.
    pub(super) fn against_base(self, arm: &str) -> Option<&'a Comparison> {
        self.compared(&self.part.metric, Against { arm, base: self.job.base.as_deref()? })
    }

    /// The same in words.
    pub(super) fn to_base(self, arm: &str) -> String {
        match self.job.base.as_deref() {
            Some(base) if base == arm => "1 (base)".to_owned(),
            Some(_) => marked(self.against_base(arm)),
            None => absent(),
        }
    }

    /// The noise floor of a metric.
    pub(super) fn floor(self, metric: &str) -> Option<f64> {
        self.document.floor(&self.job.name, &self.part.again, metric)
    }

    /// The line below a table with ratios.
    pub(super) fn noise(self) -> String {
        let floor = match self.floor(&self.part.metric) {
            Some(floor) => format!("noise floor {}.", percent(floor)),
            None => "noise floor unknown, so no difference is shown.".to_owned(),
        };
        format!("{floor}  ~ = not shown")
    }

    /// A table with a line for each arm, and the noise floor.
    pub(super) fn of_arms(self, columns: &[Column]) -> [Block; 2] {
        let table = Table::of_arms(columns, self, &self.arms());
        [Block::Table(table), Block::Text(self.noise())]
    }

    /// The same below the title of the job.
    pub(super) fn titled(self, columns: &[Column]) -> [Block; 4] {
        let [table, noise] = self.of_arms(columns);
        [Block::Gap, Block::Text(format!("{}:", self.job.title)), table, noise]
    }
}
