//! Callers that wait for a record, or for an emptying.

use std::task::Waker;

use super::{Awaited, Logging, Outcome, Parts};

impl Logging {
    /// Returns the end of a wait, or registers the caller. The second value is a waker to drop
    /// without the lock.
    pub(crate) fn poll(&mut self, awaited: Awaited, waker: Waker) -> (Option<Outcome>, Waker) {
        let parts = self.parts();
        if let Some(outcome) = parts.outcome(awaited) {
            return (Some(outcome), waker);
        }
        let same = |(other, before): &&mut (Awaited, Waker)| {
            *other == awaited && (is_own(awaited) || before.will_wake(&waker))
        };
        if let Some((_, before)) = parts.waiters.iter_mut().find(|waiter| same(waiter)) {
            return (None, std::mem::replace(before, waker));
        }
        parts.waiters.push((awaited, waker));
        (None, Waker::noop().clone())
    }

    /// Moves the wakers of callers whose wait has ended to `wakers`.
    pub(crate) fn take_ended(&mut self, wakers: &mut Vec<Waker>) {
        let Some(parts) = &mut self.0 else { return };
        let waiters = std::mem::take(&mut parts.waiters);
        for (awaited, waker) in waiters {
            match parts.outcome(awaited) {
                Some(_) => wakers.push(waker),
                None => parts.waiters.push((awaited, waker)),
            }
        }
    }

    /// Returns the wakers of all callers, because their waits will not end.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waker> {
        let waiters = self.0.as_mut().map(|parts| std::mem::take(&mut parts.waiters));
        waiters.into_iter().flatten().map(|(_, waker)| waker).collect()
    }
}

/// Returns whether one caller alone waits for this.
fn is_own(awaited: Awaited) -> bool {
    matches!(awaited, Awaited::Record(_))
}

impl Parts {
    fn outcome(&self, awaited: Awaited) -> Option<Outcome> {
        match awaited {
            Awaited::Record(number) if number <= self.logged => Some(Outcome::Logged),
            Awaited::Record(number) if number <= self.refused => Some(Outcome::Refused),
            Awaited::Emptying(number) if number <= self.ended => {
                Some(self.failure.map_or(Outcome::Emptied, Outcome::NotEmptied))
            }
            _ => None,
        }
    }
}
