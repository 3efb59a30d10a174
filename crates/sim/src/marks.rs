//! Counts of the rare events in a run: a simulation that never throttles proves nothing about
//! throttling.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by name, of one run or of several.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    counts: BTreeMap<&'static str, u64>,
}

impl Marks {
    /// Returns how often an event occurred.
    #[must_use]
    pub fn count(&self, name: &'static str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Marks) {
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_insert(0) += count;
        }
    }

    pub(crate) fn hit(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    pub(crate) fn add(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_insert(0) += count;
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.counts {
            writeln!(formatter, "{count:>10} {name}")?;
        }
        Ok(())
    }
}
