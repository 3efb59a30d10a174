//! How a cell went, beyond its figures: every latency by its length, and the time of its process.
//! A table has room for a percentile; curves and other programs need all values.

mod bins;
mod holds;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use bins::Bins;
pub use holds::Holds;

/// How a cell went.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Detail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Flow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Flow>,
    pub usage: ProcessUse,
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
    /// Returns the directions that were used, each with its name.
    pub fn flows(&self) -> impl Iterator<Item = (&'static str, &Flow)> {
        let named = [("read", self.read.as_ref()), ("write", self.write.as_ref())];
        named.into_iter().filter_map(|(name, flow)| Some((name, flow?)))
    }
}

impl Latency {
    /// Returns the counts of a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        debug_assert!(histogram.min() <= histogram.max(), "the least is above the most");
        Self {
            least_ns: histogram.min(),
            most_ns: histogram.max(),
            mean_ns: histogram.mean(),
            stddev_ns: histogram.stdev(),
            bins: Bins::of(histogram),
        }
    }
}
