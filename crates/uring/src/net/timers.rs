//! Who is to be looked at when: a table of moments, asked with the time as an argument.
//!
//! A timer is not moved when its connection moves a byte; it is looked at when it is due, and set
//! again for what is left. So a byte costs nothing here. Nor is one taken out when its connection
//! goes: who asks says which still count.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_block::Moment;

use super::table::Key;

/// The timers.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BinaryHeap<Reverse<(Moment, Key)>>,
}

impl Timers {
    /// Look at a connection then.
    pub(super) fn set(&mut self, at: Moment, key: Key) {
        self.due.push(Reverse((at, key)));
    }

    /// The next moment somebody is to be looked at.
    pub(super) fn next(&self) -> Option<Moment> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next one that is due.
    pub(super) fn take(&mut self, now: Moment) -> Option<(Moment, Key)> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop().map(|Reverse(timer)| timer)
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    /// Throws away those that do not count.
    pub(super) fn retain(&mut self, mut counts: impl FnMut(Moment, Key) -> bool) {
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
