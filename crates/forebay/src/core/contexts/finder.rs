//! How many contexts bring something: found by trying, while there is more to write than the device
//! takes.
//!
//! The time is cut into windows. Now and then one context more, or one less, is tried for a window,
//! between two windows of what was before; what is tried is kept when it is better than both (one
//! more), or as good as the better of them (one less): a device that just gets faster proves
//! nothing, and a context that brings nothing is a thread too many. The window in which files are
//! on their way to their new context does not count. What was tried in vain is tried again after
//! twice as long.

/// One context more is worth this many times what was written before.
const WORTH: f64 = 1.05;

/// One less may bring this part of it.
const AS_GOOD: f64 = 0.97;

/// Windows until the next trial, at first and at most.
const FIRST_PAUSE: u32 = 4;
const LONGEST_PAUSE: u32 = 256;

/// What the next window is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// As it is; so many until the next trial.
    Rest(u32),
    /// Measured before a trial.
    Before,
    /// Files are on their way to where they are tried; what was written before.
    Going(f64),
    /// The trial.
    Trial(f64),
    /// They are on their way back; what was written before, and in the trial.
    Returning(f64, f64),
    /// Measured after it.
    After(f64, f64),
}

/// The number, as found so far.
#[derive(Debug)]
pub(crate) struct Finder {
    best: usize,
    /// Contexts there are in the trial.
    tried: usize,
    phase: Phase,
    pause: u32,
    /// The last trial was of more.
    tried_more: bool,
}

impl Finder {
    /// One, of which nothing is known.
    pub(crate) fn new() -> Self {
        Self { best: 1, tried: 1, phase: Phase::Rest(1), pause: FIRST_PAUSE, tried_more: false }
    }

    /// A window is over in which there was more to write than was written, at this rate; `most` may
    /// be there. How many there are to be in the next.
    pub(crate) fn window(&mut self, rate: f64, most: usize) -> usize {
        if self.best.max(self.tried) > most {
            self.best = self.best.min(most);
            self.tried = self.best;
            self.phase = Phase::Rest(self.pause);
        }
        self.phase = match self.phase {
            Phase::Rest(left) if left > 0 => Phase::Rest(left - 1),
            Phase::Rest(_) => self.begin(most),
            Phase::Before => Phase::Going(rate),
            Phase::Going(before) => Phase::Trial(before),
            Phase::Trial(before) => Phase::Returning(before, rate),
            Phase::Returning(before, tried) => Phase::After(before, tried),
            Phase::After(before, tried) => {
                self.judge(tried, before.max(rate));
                Phase::Rest(self.pause)
            }
        };
        match self.phase {
            Phase::Going(_) | Phase::Trial(_) => self.tried,
            _ => self.best,
        }
    }

    /// There was less to write than the device takes: what is under way proves nothing. How many
    /// there are to be.
    pub(crate) fn interrupt(&mut self) -> usize {
        if !matches!(self.phase, Phase::Rest(_)) {
            self.phase = Phase::Rest(FIRST_PAUSE);
        }
        self.best
    }

    /// More and less take turns, where both are possible.
    fn begin(&mut self, most: usize) -> Phase {
        let (can_more, can_less) = (self.best < most, self.best > 1);
        let more = can_more && !(self.tried_more && can_less);
        if !more && !can_less {
            return Phase::Rest(self.pause);
        }
        self.tried_more = more;
        self.tried = if more { self.best + 1 } else { self.best - 1 };
        Phase::Before
    }

    fn judge(&mut self, tried: f64, other: f64) {
        let is_kept = tried > other * if self.tried_more { WORTH } else { AS_GOOD };
        if is_kept {
            self.best = self.tried;
            self.pause = FIRST_PAUSE;
            // The way it pays is gone on.
            self.tried_more = !self.tried_more;
        } else {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Windows at a device of which so many contexts have the whole; how many there were in each.
    fn run(
        finder: &mut Finder,
        windows: usize,
        most: usize,
        rate: impl Fn(usize, usize) -> f64,
    ) -> Vec<usize> {
        let mut active = finder.best;
        let mut went = Vec::new();
        for window in 0..windows {
            went.push(active);
            active = finder.window(rate(active, window), most);
        }
        went
    }

    /// The device takes what `knee` contexts bring; each more costs a little.
    fn knee_at(knee: usize) -> impl Fn(usize, usize) -> f64 {
        move |active, _| active.min(knee) as f64 * 100.0 - active.saturating_sub(knee) as f64 * 5.0
    }

    #[test]
    fn it_climbs_to_the_knee_and_stays() {
        for knee in 1..=12 {
            let mut finder = Finder::new();
            run(&mut finder, 400, 16, knee_at(knee));
            assert_eq!(finder.best, knee);
            let went = run(&mut finder, 5000, 16, knee_at(knee));
            let elsewhere = went.iter().filter(|active| **active != knee).count();
            assert!(elsewhere < 100, "{elsewhere} of 5000 windows elsewhere than {knee}");
        }
    }

    #[test]
    fn where_more_bring_nothing_there_is_one() {
        let mut finder = Finder::new();
        let went = run(&mut finder, 5000, 64, |_, _| 100.0);
        assert!(went.iter().all(|active| *active <= 2), "never two steps without a reason");
        assert_eq!(finder.best, 1);
    }

    #[test]
    fn a_knee_that_moves_is_followed() {
        let mut finder = Finder::new();
        run(&mut finder, 400, 16, knee_at(8));
        assert_eq!(finder.best, 8);
        run(&mut finder, 3000, 16, knee_at(3));
        assert_eq!(finder.best, 3);
    }

    #[test]
    fn a_device_that_gets_faster_by_itself_is_no_reason() {
        let mut finder = Finder::new();
        run(&mut finder, 2000, 16, |_, window| 100.0 * 1.04_f64.powi(window as i32 % 40));
        assert!(finder.best <= 2, "{}", finder.best);
    }

    #[test]
    fn fewer_allowed_are_fewer_at_once() {
        let mut finder = Finder::new();
        run(&mut finder, 400, 16, knee_at(8));
        assert_eq!(finder.window(800.0, 2), 2);
        assert!(run(&mut finder, 400, 2, knee_at(8)).iter().skip(1).all(|active| *active <= 2));
    }

    #[test]
    fn what_is_interrupted_proves_nothing() {
        let mut finder = Finder::new();
        while finder.window(100.0, 8) == 1 {}
        assert_eq!(finder.interrupt(), 1);
        assert_eq!(finder.phase, Phase::Rest(FIRST_PAUSE));
    }

    proptest! {
        #[test]
        fn there_are_always_one_at_least_and_no_more_than_may_be(
            rates in prop::collection::vec((0.0..1e9_f64, 1..70_usize, any::<bool>()), 1..300)
        ) {
            let mut finder = Finder::new();
            for (rate, most, interrupted) in rates {
                if interrupted {
                    finder.interrupt();
                }
                let active = finder.window(rate, most);
                prop_assert!((1..=most).contains(&active));
            }
        }
    }
}
