//! Counts of the places that a run came by: a simulation that never throttles proves nothing about
//! throttling.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use crate::world;

/// Counts by name, of one run or of many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    counts: BTreeMap<&'static str, u64>,
}

impl Marks {
    /// Returns the count of a place.
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

/// Counts a place for the run of this world.
pub(crate) fn hit(name: &'static str) {
    add(name, 1);
}

/// Counts a place several times.
pub(crate) fn add(name: &'static str, count: u64) {
    if count > 0 {
        let marks = world::extension(RefCell::<Marks>::default);
        marks.borrow_mut().add(name, count);
    }
}

/// Returns the counts of the run of this world, and starts anew.
#[cfg(not(test))]
pub(crate) fn take() -> Marks {
    world::extension(RefCell::<Marks>::default).take()
}
