//! One small program. Each is one file of `probes/programs`, which says everything about it: its
//! word in a suite, what a suite may say of it, how it runs, and its own metrics.

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
pub struct Program {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Stage<'_>) -> Result<Measured, CellError>,
    pub(crate) most_threads: u32,
    pub(crate) sizes: Sizes,
    /// Forms besides the usual one.
    pub(crate) forms: &'static [Form],
    /// Whether it reads a large file that all its cells share.
    pub(crate) reads_file: bool,
    /// Whether it makes many files. They stay until the end of the comparison: ext4 slows down for
    /// minutes after thousands of unlinks.
    pub(crate) keeps_files: bool,
    /// Writers that can run beside it.
    pub(crate) beside: &'static [Beside],
    pub(crate) suits: fn(ProgramWay) -> bool,
    /// Operations of all threads. Without a number it runs for the time of its cell.
    pub(crate) operations: fn(&ProgramLoad) -> Option<u64>,
    /// Whether it ends by itself, and not with the time of its cell.
    pub(crate) ends_itself: bool,
    pub(crate) writes: Writes,
    /// Counters besides that of its system calls, with their names in notes.
    pub(crate) counters: &'static [(&'static str, Counter)],
    /// Adds its figures by name.
    pub(crate) figures: fn(&Measured, Put<'_>),
    pub(crate) metrics: &'static [Metric],
}

pub(crate) struct Measured {
    pub(crate) operations: u64,
    /// Of each operation by itself, if they end one by one.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) elapsed: Duration,
    /// Bytes written, by the bulk writer if there is one.
    pub(crate) bytes: u64,
    /// Bytes written by a bulk writer in another process, if there is one.
    pub(crate) beside_bytes: Option<u64>,
    pub(crate) usage: Usage,
    /// System calls, commits of the journal, and flushes of the disk, if they are counted.
    pub(crate) counted: [Option<u64>; 3],
    /// Bytes of the process above its baseline, before and after the last sync: the larger.
    pub(crate) resident_bytes: u64,
}

/// Takes a figure by the name of its metric.
pub(crate) type Put<'a> = &'a mut dyn FnMut(&str, f64);

/// How a suite gives the sizes of its new files or records.
#[derive(Clone, Copy)]
pub(crate) enum Sizes {
    /// Nothing.
    Fixed,
    /// The smallest and the largest size, if not these.
    Usually((u64, u64)),
    /// The smallest and the largest size, and the number.
    Given,
}

#[derive(Clone, Copy)]
pub(crate) enum Writes {
    Nothing,
    /// This many, of a load.
    Fixed(fn(&ProgramLoad) -> u64),
    /// As many as it can in a time.
    ForATime,
}

impl Program {
    /// Returns a probe of threads that each end one operation after the other, on the arms of most
    /// probes.
    pub(crate) const fn new(
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

/// Returns whether it is the standard library, or Forebay with or without a keeper or a log.
pub(crate) fn on_most_arms(way: ProgramWay) -> bool {
    use ProgramWay::{Forebay, ForebayLog, ForebaySurvive, Std};
    matches!(way, Std | Forebay | ForebaySurvive | ForebayLog)
}

/// Adds the figures of operations that end one by one.
fn one_by_one(measured: &Measured, put: Put<'_>) {
    put("operations_per_s", measured.operations as f64 / measured.elapsed.as_secs_f64());
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let micros = measured.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        put(&format!("latency_{name}_us"), micros);
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}
