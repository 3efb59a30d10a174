//! How long completions were held so that they end together.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The least of each range in nanoseconds, four ranges to a doubling and zero if not held, with the
/// number of completions; the shortest first. A completion counts as held as long as the first of
/// those it ended with; time inside the device is not included.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Holds(pub Vec<(u64, u64)>);

impl Holds {
    /// Returns holds as an engine counts them: from its start on.
    pub fn of(counted: impl IntoIterator<Item = (Duration, u64)>) -> Self {
        let nanos = |(least, count): (Duration, u64)| (least.as_nanos() as u64, count);
        Self(counted.into_iter().map(nanos).collect())
    }

    /// Returns those that were counted since.
    pub fn since(&self, before: &Self) -> Self {
        let before: BTreeMap<u64, u64> = before.0.iter().copied().collect();
        debug_assert!(self.count() >= before.values().sum(), "counts of an engine only grow");
        let more =
            self.0.iter().map(|(least, count)| (*least, count - before.get(least).unwrap_or(&0)));
        Self(more.filter(|(_, count)| *count > 0).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_time_are_what_was_counted_in_it() {
        let micros = |counted: &[(u64, u64)]| {
            Holds::of(counted.iter().map(|&(micros, count)| (Duration::from_micros(micros), count)))
        };
        let (before, after) = (micros(&[(0, 10), (5, 2)]), micros(&[(0, 10), (5, 3), (40, 7)]));
        assert_eq!(after.since(&before), Holds(vec![(5_000, 1), (40_000, 7)]));
        assert_eq!((after.since(&before).count(), after.since(&Holds::default()).count()), (8, 20));
        assert!(after.since(&after).is_empty() && !before.is_empty());
    }
}
