//! Locks of the groups, with the waits for them: of contexts on the way to the device, and of
//! workers at the end of I/O.

use std::collections::VecDeque;
use std::time::Duration;

use super::cores::Actor;

/// Use of the locks by one kind of actor.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Tally {
    /// Times a lock was taken.
    pub(super) taken: u64,
    /// Times that the actor had to wait for the lock.
    pub(super) waited: u64,
    /// Sum of the waits.
    pub(super) wait: Duration,
}

/// A lock.
#[derive(Default, Debug)]
struct Lock {
    holder: Option<(Actor, Duration)>,
    waiting: VecDeque<(Actor, Duration)>,
    held: Duration,
}

/// A lock for each group.
#[derive(Debug)]
pub(super) struct GroupLocks {
    locks: Vec<Lock>,
    contexts: Tally,
    workers: Tally,
}

impl GroupLocks {
    /// Creates free locks.
    pub(super) fn new(groups: u64) -> Self {
        let locks = (0..groups).map(|_| Lock::default()).collect();
        Self { locks, contexts: Tally::default(), workers: Tally::default() }
    }

    /// Takes the lock of a group. Returns false if it is held; the actor then waits in line.
    pub(super) fn take(&mut self, group: usize, actor: Actor, now: Duration) -> bool {
        let lock = &mut self.locks[group];
        if lock.holder.is_some() {
            lock.waiting.push_back((actor, now));
            return false;
        }
        lock.holder = Some((actor, now));
        self.tally(actor).taken += 1;
        true
    }

    /// Gives back the lock. Returns its new holder, the actor that has waited longest.
    ///
    /// # Panics
    /// If `actor` does not hold the lock.
    pub(super) fn give(&mut self, group: usize, actor: Actor, now: Duration) -> Option<Actor> {
        let lock = &mut self.locks[group];
        let (holder, since) = lock.holder.take().expect("a lock that is given back must be held");
        assert_eq!(holder, actor, "a lock must be given back by its holder");
        lock.held += now - since;
        let (next, asked) = lock.waiting.pop_front()?;
        lock.holder = Some((next, now));
        let tally = self.tally(next);
        tally.taken += 1;
        tally.waited += 1;
        tally.wait += now - asked;
        Some(next)
    }

    /// Returns the use by contexts and the use by workers.
    pub(super) fn tallies(&self) -> (Tally, Tally) {
        (self.contexts, self.workers)
    }

    /// Returns how long the most used lock was held.
    pub(super) fn longest_held(&self, now: Duration) -> Duration {
        let held =
            |lock: &Lock| lock.held + lock.holder.map_or(Duration::ZERO, |(_, since)| now - since);
        self.locks.iter().map(held).max().unwrap_or_default()
    }

    /// Returns whether all locks are free and no actor waits.
    pub(super) fn are_free(&self) -> bool {
        self.locks.iter().all(|lock| lock.holder.is_none() && lock.waiting.is_empty())
    }

    fn tally(&mut self, actor: Actor) -> &mut Tally {
        match actor {
            Actor::Context(_) => &mut self.contexts,
            Actor::Worker(_) => &mut self.workers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_goes_to_the_longest_waiter_and_the_wait_is_counted() {
        let mut locks = GroupLocks::new(2);
        let micros = Duration::from_micros;
        let (one, other, third) = (Actor::Context(0), Actor::Worker(0), Actor::Context(1));
        assert!(locks.take(0, one, micros(0)));
        assert!(!locks.take(0, other, micros(1)) && !locks.take(0, third, micros(2)));
        assert!(locks.take(1, Actor::Worker(1), micros(2)), "the lock of another group is free");
        assert_eq!(locks.give(0, one, micros(5)), Some(other));
        assert_eq!(locks.give(0, other, micros(7)), Some(third));
        assert!(!locks.are_free());
        assert_eq!(locks.longest_held(micros(8)), micros(8));
        assert_eq!(
            (locks.give(0, third, micros(9)), locks.give(1, Actor::Worker(1), micros(9))),
            (None, None)
        );
        let (contexts, workers) = locks.tallies();
        assert_eq!(contexts, Tally { taken: 2, waited: 1, wait: micros(5) });
        assert_eq!(workers, Tally { taken: 2, waited: 1, wait: micros(4) });
        assert!(locks.are_free());
    }

    #[test]
    #[should_panic(expected = "given back by its holder")]
    fn only_the_holder_gives_a_lock_back() {
        let mut locks = GroupLocks::new(1);
        locks.take(0, Actor::Context(0), Duration::ZERO);
        locks.give(0, Actor::Context(1), Duration::ZERO);
    }
}
