//! A probe: one small program. Each is one file of `probes`, which says everything about it: its
//! word in a suite, what a suite may say of it, how it runs, its metrics and its table.
//!
//! A new probe is a new file there, with its name in the list of `probes/mod.rs`.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::spec::{Beside, Form, ProgramLoad, ProgramWay};
use super::stage::Stage;
use crate::batching::Counter;
use crate::load::error::CellError;
use crate::load::usage::Usage;
use crate::metric::Metric;

/// Most threads of a cell, or tasks of an asynchronous one.
const MOST_THREADS: u32 = 1024;

/// One small program.
pub struct Probe {
    pub(super) name: &'static str,
    pub(super) run: fn(&Stage<'_>) -> Result<Measured, CellError>,
    pub(super) most_threads: u32,
    pub(super) sizes: Sizes,
    /// Forms besides the usual one.
    pub(super) forms: &'static [Form],
    /// Whether it reads a large file that all its cells share.
    pub(super) reads_file: bool,
    /// Whether it makes many files. They stay until the end of the comparison: ext4 slows down for
    /// minutes after thousands of unlinks.
    pub(super) keeps_files: bool,
    /// Writers that can run beside it.
    pub(super) beside: &'static [Beside],
    /// Whether an arm can run it.
    pub(super) suits: fn(ProgramWay) -> bool,
    /// Operations of all threads. Without a number it runs for the time of its cell.
    pub(super) operations: fn(&ProgramLoad) -> Option<u64>,
    /// Whether it ends by itself, and not with the time of its cell.
    pub(super) ends_itself: bool,
    pub(super) writes: Writes,
    /// Counters besides that of its system calls, with their names in notes.
    pub(super) counters: &'static [(&'static str, Counter)],
    /// Adds its figures by name.
    pub(super) figures: fn(&Measured, Put<'_>),
    /// Metrics that no other probe has.
    pub(super) metrics: &'static [Metric],
}

/// Measurements of a run.
pub(super) struct Measured {
    pub(super) operations: u64,
    /// Of each operation by itself, if they end one by one.
    pub(super) latencies: Histogram<u64>,
    pub(super) elapsed: Duration,
    /// Bytes written, by the bulk writer if there is one.
    pub(super) bytes: u64,
    /// Bytes written by a bulk writer in another process, if there is one.
    pub(super) beside_bytes: Option<u64>,
    pub(super) usage: Usage,
    /// System calls, commits of the journal, and flushes of the disk, if they are counted.
    pub(super) counted: [Option<u64>; 3],
    /// Bytes of the process above its baseline, before and after the last sync: the larger.
    pub(super) resident_bytes: u64,
}

/// Takes a figure by the name of its metric.
pub(super) type Put<'a> = &'a mut dyn FnMut(&str, f64);

/// How a suite gives the sizes of its new files or records.
#[derive(Clone, Copy)]
pub(super) enum Sizes {
    /// Nothing.
    Fixed,
    /// The smallest and the largest size, if not these.
    Usually((u64, u64)),
    /// The smallest and the largest size, and the number.
    Given,
}

#[derive(Clone, Copy)]
pub(super) enum Writes {
    Nothing,
    /// This many, of a load.
    Fixed(fn(&ProgramLoad) -> u64),
    /// As many as it can in a time.
    ForATime,
}

impl Probe {
    /// Returns a probe of threads that each end one operation after the other, on the arms of most
    /// probes.
    pub(super) const fn new(
        name: &'static str,
        run: fn(&Stage<'_>) -> Result<Measured, CellError>,
    ) -> Self {
        Self {
            name,
            run,
            most_threads: MOST_THREADS,
            sizes: Sizes::Fixed,
            forms: &[],
            reads_file: false,
            keeps_files: false,
            beside: &[],
            suits: on_most_arms,
            operations: |load| load.operations,
            ends_itself: false,
            writes: Writes::Nothing,
            counters: &[],
            figures: one_by_one,
            metrics: &[],
        }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// Returns whether it is the standard library, or Forebay with or without a keeper.
pub(super) fn on_most_arms(way: ProgramWay) -> bool {
    matches!(way, ProgramWay::Std | ProgramWay::Forebay | ProgramWay::ForebaySurvive)
}

/// Adds the figures of operations that end one by one.
fn one_by_one(measured: &Measured, put: Put<'_>) {
    put("operations_per_s", measured.operations as f64 / measured.elapsed.as_secs_f64());
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let micros = measured.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        put(&format!("latency_{name}_us"), micros);
    }
}

impl PartialEq for Probe {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}
