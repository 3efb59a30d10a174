//! How a batch becomes durable: by a write and a flush, or by one write that asks for it.
//!
//! Where the disk has FUA, one write can be half the time of both, or more than twice the time. So
//! the first batches take turns, and the faster way is used from there on. Now and then the turns
//! are repeated.

use std::time::Duration;

/// A way to make a batch durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// A write and a flush.
    Flush,
    /// One write (`RWF_DSYNC`).
    Write,
}

/// Batches of each way in a trial.
const TURNS: u32 = 16;

/// Batches until the next trial.
const TRIAL: u32 = 20_000;

/// The choice of a way.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// Batches since the trial began.
    batches: u32,
    /// Time of the batches of a trial, by way.
    times: [Duration; 2],
}

impl Choice {
    /// Returns the way of the next batch.
    pub(super) fn way(&self) -> Way {
        match self.batches {
            in_turn if in_turn < 2 * TURNS && in_turn % 2 == 0 => Way::Flush,
            in_turn if in_turn < 2 * TURNS => Way::Write,
            _ if self.times[Way::Write as usize] < self.times[Way::Flush as usize] => Way::Write,
            _ => Way::Flush,
        }
    }

    /// Notes the time that the next batch has taken.
    pub(super) fn note(&mut self, time: Duration) {
        if self.batches < 2 * TURNS {
            self.times[self.way() as usize] += time;
        }
        self.batches += 1;
        if self.batches == TRIAL {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_used_after_turns_and_tried_again_later() {
        let mut choice = Choice::default();
        let mut run = |batches: u32, flush: u64, write: u64| {
            let mut writes = 0;
            for _ in 0..batches {
                let way = choice.way();
                writes += u32::from(way == Way::Write);
                let micros = if way == Way::Write { write } else { flush };
                choice.note(Duration::from_micros(micros));
            }
            writes
        };
        assert_eq!(run(2 * TURNS, 1600, 4000), TURNS, "turns");
        assert_eq!(run(TRIAL - 2 * TURNS, 1600, 4000), 0, "the flush is faster");
        assert_eq!(run(2 * TURNS, 1600, 900), TURNS, "turns again");
        assert_eq!(run(100, 1600, 900), 100, "one write is faster");
    }
}
