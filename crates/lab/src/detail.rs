//! How a cell went, beyond its figures: every latency by its length, and the throughput over time.
//! A table has room for a percentile; curves and other programs need all values.

mod bins;
mod course;
mod holds;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use bins::Bins;
pub use course::{Course, MOST_SLOTS};
pub use holds::Holds;

/// How a cell went.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Detail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Flow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Flow>,
    pub usage: ProcessUse,
    /// How many requests went with each call that handed some over: the least number of a range (1,
    /// 2, 4, 8 ...), and how many such calls there were. Empty where nobody counts that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<(u64, u64)>,
    /// How long completions were held. Empty where nobody holds any.
    #[serde(default, skip_serializing_if = "Holds::is_empty")]
    pub holds: Holds,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Flow {
    /// How many ended.
    pub operations: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// From the start until all of it was done, its final sync included, in nanoseconds.
    pub runtime_ns: u64,
    /// How long they took.
    pub latency: Latency,
    /// Throughput over time; empty if it was not kept.
    #[serde(default, skip_serializing_if = "Course::is_empty")]
    pub course: Course,
}

/// How long operations took, in nanoseconds, from before they were handed over until their end was
/// seen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    pub least_ns: u64,
    pub most_ns: u64,
    pub mean_ns: f64,
    pub stddev_ns: f64,
    pub bins: Bins,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Time in the program itself, in microseconds.
    pub user_us: u64,
    /// Time in the kernel for it, in microseconds.
    pub system_us: u64,
    /// Context switches, voluntary and not.
    pub context_switches: u64,
    /// Page faults that waited for a device.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
}

impl Detail {
    /// Both directions that there are, each with its name.
    pub fn flows(&self) -> impl Iterator<Item = (&'static str, &Flow)> {
        let named = [("read", self.read.as_ref()), ("write", self.write.as_ref())];
        named.into_iter().filter_map(|(name, flow)| Some((name, flow?)))
    }
}

impl Latency {
    /// Of a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            least_ns: histogram.min(),
            most_ns: histogram.max(),
            mean_ns: histogram.mean(),
            stddev_ns: histogram.stdev(),
            bins: Bins::of(histogram),
        }
    }
}
