//! The groups' locks, and who waited for them: contexts on the way to the device, or workers at the
//! end of I/O.

use std::collections::VecDeque;
use std::time::Duration;

use super::cores::Actor;

/// What was asked of the locks by one side.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Tally {
    /// Times a lock was taken.
    pub(super) taken: u64,
    /// Of these, times it was another's and had to be waited for.
    pub(super) waited: u64,
    /// Time waited, of all together.
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
    /// So many, all free.
    pub(super) fn new(groups: u64) -> Self {
        let locks = (0..groups).map(|_| Lock::default()).collect();
        Self { locks, contexts: Tally::default(), workers: Tally::default() }
    }

    /// Somebody wants one. Whether it is theirs; else they wait their turn.
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

    /// Its holder is done with it. Whose it is now, who has waited.
    ///
    /// # Panics
    /// When somebody else holds it, or nobody.
    pub(super) fn give(&mut self, group: usize, actor: Actor, now: Duration) -> Option<Actor> {
        let lock = &mut self.locks[group];
        let (holder, since) = lock.holder.take().expect("a lock that is given back is held");
        assert_eq!(holder, actor, "a lock is given back by its holder");
        lock.held += now - since;
        let (next, asked) = lock.waiting.pop_front()?;
        lock.holder = Some((next, now));
        let tally = self.tally(next);
        tally.taken += 1;
        tally.waited += 1;
        tally.wait += now - asked;
        Some(next)
    }

    /// What contexts asked, and what workers did.
    pub(super) fn tallies(&self) -> (Tally, Tally) {
        (self.contexts, self.workers)
    }

    /// How long the one that was held longest was held.
    pub(super) fn longest_held(&self, now: Duration) -> Duration {
        let held =
            |lock: &Lock| lock.held + lock.holder.map_or(Duration::ZERO, |(_, since)| now - since);
        self.locks.iter().map(held).max().unwrap_or_default()
    }

    /// Whether all are free, and nobody waits.
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
    fn it_goes_to_who_waits_longest_and_the_wait_is_counted() {
        let mut locks = GroupLocks::new(2);
        let micros = Duration::from_micros;
        let (one, other, third) = (Actor::Context(0), Actor::Worker(0), Actor::Context(1));
        assert!(locks.take(0, one, micros(0)));
        assert!(!locks.take(0, other, micros(1)) && !locks.take(0, third, micros(2)));
        assert!(locks.take(1, Actor::Worker(1), micros(2)), "another group's is free");
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
    fn nobody_gives_back_what_is_anothers() {
        let mut locks = GroupLocks::new(1);
        locks.take(0, Actor::Context(0), Duration::ZERO);
        locks.give(0, Actor::Context(1), Duration::ZERO);
    }
}
