//! Timers of connections: a table of moments, with the time as an argument.
//!
//! A timer is not moved when its connection moves a byte. When it is due, it is set again for the
//! rest, so a byte costs nothing here. A timer stays when its connection is closed; the caller
//! decides which timers still count.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_block::Moment;

use crate::table::Key;

/// The timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BinaryHeap<Reverse<(Moment, Key)>>,
}

impl Timers {
    /// Adds a timer.
    pub(crate) fn set(&mut self, at: Moment, key: Key) {
        self.due.push(Reverse((at, key)));
    }

    /// Returns the moment of the next timer.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and returns the next timer that is due.
    pub(crate) fn take(&mut self, now: Moment) -> Option<(Moment, Key)> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop().map(|Reverse(timer)| timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    /// Drops all timers that do not count.
    pub(crate) fn retain(&mut self, mut counts: impl FnMut(Moment, Key) -> bool) {
        self.due.retain(|Reverse((at, key))| counts(*at, *key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_when_they_are_due_and_not_before() {
        let at = Moment::from_nanoseconds;
        let key = |place| Key { place, generation: 1 };
        let mut timers = Timers::default();
        for (moment, place) in [(30, 3), (10, 1), (20, 2), (10, 4)] {
            timers.set(at(moment), key(place));
        }
        assert_eq!((timers.next(), timers.take(at(9))), (Some(at(10)), None));
        let due: Vec<_> = std::iter::from_fn(|| timers.take(at(20))).collect();
        assert_eq!(due, [(at(10), key(1)), (at(10), key(4)), (at(20), key(2))]);
        timers.set(at(40), key(5));
        timers.retain(|_, of| of == key(5));
        assert_eq!((timers.len(), timers.next()), (1, Some(at(40))));
    }
}
