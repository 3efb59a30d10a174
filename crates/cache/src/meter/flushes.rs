//! Flushes of a disk: how long they take, and how often they come.

use std::time::Duration;

use forebay_block::Moment;

/// Part of the time that a disk may lose to flushes (one in N), so that syncs wait less.
const LOST: u32 = 32;

/// Weight of the last time between two flushes in their mean (one in N), and the longest that
/// counts.
const FOLLOWS: u32 = 4;
const LONGEST: Duration = Duration::from_secs(1);

/// Durations of flushes: the least of the last one to two seconds that had one. The others wait
/// behind bulk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Flushes {
    start: Option<Moment>,
    now: Duration,
    before: Duration,
    /// End of the last one, and the mean time between two.
    last: Option<Moment>,
    every: Duration,
}

impl Flushes {
    pub(super) fn add(&mut self, took: Duration, now: Moment) {
        let is_over = self.start.is_none_or(|start| now.nanoseconds_since(start) > 1_000_000_000);
        if is_over {
            (self.start, self.before, self.now) = (Some(now), self.now, took);
        }
        self.now = self.now.min(took);
        if let Some(before) = self.last.replace(now) {
            let passed = now.since(before).min(LONGEST);
            self.every = self.every * (FOLLOWS - 1) / FOLLOWS + passed / FOLLOWS;
        }
    }

    /// Returns the least duration.
    pub(super) fn least(self) -> Duration {
        if self.before.is_zero() { self.now } else { self.now.min(self.before) }
    }

    /// Returns the least duration, less the time that the disk may lose to each.
    pub(super) fn beside(self) -> Duration {
        self.least().saturating_sub(self.every / LOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_a_flush_is_the_least_of_the_last_seconds() {
        let mut flushes = Flushes::default();
        let mut clock = 1;
        let mut least = |micros: &[u64]| {
            for micros in micros {
                clock += 300_000_000;
                flushes.add(Duration::from_micros(*micros), Moment::from_nanoseconds(clock));
            }
            flushes.least().as_micros() as u64
        };
        assert_eq!(least(&[1200, 1100, 5000]), 1100);
        assert_eq!(least(&[9000; 8]), 9000);
        assert_eq!(least(&[50]), 50);
    }

    #[test]
    fn flushes_that_are_rare_may_cost_more_time() {
        for (every, beside) in [(1_000, 970), (10_000, 690), (100_000, 0)] {
            let mut flushes = Flushes::default();
            for number in 1..100 {
                let now = Moment::from_nanoseconds(number * every * 1_000);
                flushes.add(Duration::from_micros(1_000), now);
            }
            let found = flushes.beside().as_micros() as u64;
            assert!(found.abs_diff(beside) < 10, "every {every} us: {found}, not {beside}");
        }
    }
}
