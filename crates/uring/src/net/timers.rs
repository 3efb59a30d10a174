//! Who is to be looked at when: a table of moments, asked with the time as an argument.
//!
//! A timer is not moved when its connection moves a byte; it is looked at when it is due, and set again for what is
//! left. So a byte costs nothing here, and a connection one entry for each time it may be idle.

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
    /// Look at a connection then. One that is set several times is looked at several times.
    pub(super) fn set(&mut self, at: Moment, key: Key) {
        self.due.push(Reverse((at, key)));
    }

    /// The next moment somebody is to be looked at.
    pub(super) fn next(&self) -> Option<Moment> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next one that is due.
    pub(super) fn take(&mut self, now: Moment) -> Option<Key> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop().map(|Reverse((_, key))| key)
    }
}
