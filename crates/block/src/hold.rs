//! Hold: whether the writes that a device has completed are ended now, or a fixed time after the
//! first of them, together in one run.
//!
//! A held bio is done at the device: its tag and its place there are free. Only its end is late,
//! and so the reuse of its memory. A bio that somebody waits for is never held. If somebody begins
//! to wait for a held one, the owner of the queue ends the hold. So does a failed write.
//!
//! To remove the hold, remove this file, the knob [`Holding`] and the uses of both in `queue.rs`.

use alloc::vec::Vec;
use core::time::Duration;

use crate::bio::{Class, Operation};
use crate::knobs::Holding;
use crate::request::Ended;
use crate::time::Moment;

/// Bios that the device has completed and that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// When the first of them was reaped.
    since: Option<Moment>,
    bios: Vec<Ended>,
    /// Their numbers of arrival, if an observer wants them.
    arrivals: Vec<u64>,
    /// Whether somebody waits for one of them.
    is_awaited: bool,
    /// Time of the last reap.
    now: Moment,
}

impl Hold {
    /// Returns the held bios.
    #[inline]
    pub(crate) fn bios(&self) -> &[Ended] {
        &self.bios
    }

    /// Returns whether a bio is held.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.since.is_some()
    }

    /// Returns whether bios are held, or would be.
    #[inline]
    pub(crate) fn is_in_use(&self, holding: Holding) -> bool {
        self.is_held() || matches!(holding, Holding::Delay(_))
    }

    /// Records the time of a reap.
    #[inline]
    pub(crate) fn look(&mut self, now: Moment) {
        self.now = now;
    }

    /// Takes the bios that may be held out of `reaped`.
    pub(crate) fn sort(&mut self, reaped: &mut Vec<Ended>, arrivals: &mut Vec<u64>) {
        let Self { bios, arrivals: held_arrivals, .. } = self;
        if !arrivals.is_empty() {
            let mut each = reaped.iter();
            arrivals.retain(|&arrival| {
                let is_held = each.next().is_some_and(may_hold);
                held_arrivals.extend(is_held.then_some(arrival));
                !is_held
            });
        }
        let before = bios.len();
        bios.extend(reaped.extract_if(.., |end| may_hold(end)));
        // An error is reported before any later bio of the same bytes ends.
        self.is_awaited |= bios[before..].iter().any(|end| end.result.is_err());
        if !self.bios.is_empty() {
            self.since.get_or_insert(self.now);
        }
    }

    /// Ends the hold with the next run.
    pub(crate) fn end_now(&mut self) {
        self.is_awaited = self.is_held();
    }

    /// Ends the hold: puts the bios before those of `reaped`. Returns how long the first one was
    /// held.
    pub(crate) fn end(&mut self, reaped: &mut Vec<Ended>, arrivals: &mut Vec<u64>) -> Duration {
        self.bios.append(reaped);
        self.arrivals.append(arrivals);
        core::mem::swap(&mut self.bios, reaped);
        core::mem::swap(&mut self.arrivals, arrivals);
        self.is_awaited = false;
        self.since.take().map_or(Duration::ZERO, |since| self.now - since)
    }

    /// Returns the deadline of the hold, or `None` if no bio is held.
    #[inline]
    pub(crate) fn due(&self, holding: Holding) -> Option<Moment> {
        let delay = match holding {
            Holding::Delay(delay) if !self.is_awaited => delay,
            Holding::Immediate | Holding::Throttled | Holding::Delay(_) => Duration::ZERO,
        };
        Some(self.since? + delay)
    }

    /// Returns the deadline of the hold if it was not over at the last reap.
    pub(crate) fn until(&self, holding: Holding) -> Option<Moment> {
        self.due(holding).filter(|due| *due > self.now)
    }
}

/// Returns whether a completed bio may be held: a write of pages that nobody waits for.
fn may_hold(Ended { bio, .. }: &Ended) -> bool {
    bio.class == Class::Background
        && matches!(
            bio.operation,
            Operation::Write | Operation::WriteFua | Operation::WriteBuffered
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::{Bio, Segments, Source, Target};

    const DELAY: Holding = Holding::Delay(Duration::from_millis(1));

    fn at(microseconds: u64) -> Moment {
        Moment::from_nanoseconds(microseconds * 1000)
    }

    fn write(owner: u64) -> Ended {
        let (operation, segments) = (Operation::Write, Segments::new());
        let class = Class::Background;
        let (target, source) = (Target(0), Source(0));
        let bio = Bio { operation, target, offset: 0, length: 0, segments, class, source, owner };
        Ended { bio, result: Ok(0) }
    }

    /// Reaps `ended` at `now`, and returns the owners that are not held.
    fn reap(hold: &mut Hold, now: Moment, mut ended: Vec<Ended>) -> Vec<u64> {
        hold.look(now);
        hold.sort(&mut ended, &mut Vec::new());
        ended.iter().map(|end| end.bio.owner).collect()
    }

    #[test]
    fn contract_16_a_hold_has_an_end_and_is_not_begun_anew() {
        let mut hold = Hold::default();
        assert_eq!(hold.due(DELAY), None);
        reap(&mut hold, at(7), Vec::from([write(0)]));
        reap(&mut hold, at(907), Vec::from([write(1)]));
        assert_eq!(hold.due(DELAY), Some(at(1007)));
        assert_eq!(hold.until(DELAY), Some(at(1007)));
        assert_eq!(hold.due(Holding::Immediate), Some(at(7)));
        reap(&mut hold, at(1010), Vec::from([write(2)]));
        assert_eq!(hold.until(DELAY), None, "the hold is over");
        let (mut ended, mut arrivals) = (Vec::new(), Vec::new());
        assert_eq!(hold.end(&mut ended, &mut arrivals), Duration::from_micros(1003));
        assert!(ended.iter().map(|end| end.bio.owner).eq(0..3), "in the order of completion");
        assert_eq!((hold.due(DELAY), hold.is_held()), (None, false));
    }

    #[test]
    fn only_writes_that_nobody_waits_for_are_held() {
        let mut hold = Hold::default();
        let with = |owner, operation, class| {
            let end = write(owner);
            Ended { bio: Bio { operation, class, ..end.bio }, ..end }
        };
        let ended = Vec::from([
            with(0, Operation::Write, Class::Waited),
            with(1, Operation::Read, Class::Background),
            with(2, Operation::WriteBuffered, Class::Background),
            with(3, Operation::Allocate, Class::Background),
            with(4, Operation::FlushData, Class::Waited),
        ]);
        assert_eq!(reap(&mut hold, at(1), ended), [0, 1, 3, 4]);
        assert_eq!(hold.bios().len(), 1);
    }

    #[test]
    fn a_hold_that_somebody_waits_for_is_over() {
        let mut hold = Hold::default();
        hold.end_now();
        reap(&mut hold, at(5), Vec::from([write(0)]));
        assert_eq!(hold.until(DELAY), Some(at(1005)), "nothing was held before");
        hold.end_now();
        assert_eq!((hold.due(DELAY), hold.until(DELAY)), (Some(at(5)), None));
    }
}
