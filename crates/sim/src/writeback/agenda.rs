//! Agenda: events in the order of their times. Events of one time are in order of addition.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Events to come.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, E)>>,
    put: u64,
}

impl<E: Ord> Agenda<E> {
    /// Creates an empty agenda.
    pub(super) fn new() -> Self {
        Self { now: Duration::ZERO, events: BinaryHeap::new(), put: 0 }
    }

    /// Returns the time since the beginning.
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Adds an event at a time that has not passed.
    pub(super) fn put(&mut self, at: Duration, event: E) {
        assert!(at >= self.now, "an event cannot be in the past");
        self.events.push(Reverse((at, self.put, event)));
        self.put += 1;
    }

    /// Removes the next event and advances to its time.
    pub(super) fn next(&mut self) -> Option<E> {
        let Reverse((at, _, event)) = self.events.pop()?;
        self.now = at;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_and_then_by_turn() {
        let mut agenda = Agenda::new();
        let micros = Duration::from_micros;
        for (at, event) in [(3, 'd'), (1, 'z'), (1, 'a'), (2, 'c')] {
            agenda.put(micros(at), event);
        }
        assert_eq!((agenda.next(), agenda.now()), (Some('z'), micros(1)));
        agenda.put(micros(1), 'b');
        let rest: String = std::iter::from_fn(|| agenda.next()).collect();
        assert_eq!((rest.as_str(), agenda.now()), ("abcd", micros(3)));
    }
}
