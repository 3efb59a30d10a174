//! Finds the number of contexts that raises the throughput, by trials while the writers bring more
//! than the device takes.
//!
//! Time is divided into windows. At intervals, one context more or one less is tried for a window.
//! The windows before and after the trial are measured with the previous number. One more is kept
//! if it beats both. One less is kept if it is about as good as the better of both.
//!
//! This comparison is not misled by a device that becomes faster by itself, and drops a thread that
//! gains nothing. The window does not count while files move to their new context. After a failed
//! trial the pause before the next one doubles.

/// Factor that one context more must gain in throughput.
const WORTH: f64 = 1.05;

/// Part of the throughput that one context less must still reach.
const AS_GOOD: f64 = 0.97;

/// Windows until the next trial: the first and the longest pause.
const FIRST_PAUSE: u32 = 4;
const LONGEST_PAUSE: u32 = 256;

/// Phase that the next window belongs to.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// No trial; windows left until the next trial.
    Rest(u32),
    /// Measurement before a trial.
    Before,
    /// Files move to the contexts of the trial; the rate before it.
    Going(f64),
    /// Trial; the rate before it.
    Trial(f64),
    /// Files move back; the rates before and in the trial.
    Returning(f64, f64),
    /// Measurement after the trial; the rates before and in it.
    After(f64, f64),
}

/// Search for the number of contexts.
#[derive(Debug)]
pub(crate) struct Finder {
    best: usize,
    /// Number of contexts in the trial.
    tried: usize,
    phase: Phase,
    pause: u32,
    /// Whether the last trial added a context.
    tried_more: bool,
}

impl Finder {
    /// Starts with one context.
    pub(crate) fn new() -> Self {
        Self { best: 1, tried: 1, phase: Phase::Rest(1), pause: FIRST_PAUSE, tried_more: false }
    }

    /// Ends a window that had more to write than the device took. Takes its rate and the maximum
    /// number of contexts. Returns the number for the next window.
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

    /// Ends a window that had less to write than the device takes. This makes a trial void. Returns
    /// the number for the next window.
    pub(crate) fn interrupt(&mut self) -> usize {
        if !matches!(self.phase, Phase::Rest(_)) {
            self.phase = Phase::Rest(FIRST_PAUSE);
        }
        self.best
    }

    /// Begins a trial. If both are possible, more and less alternate.
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
            // Continue in the direction that succeeded.
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

    /// Runs windows of a device with this rate by number of contexts. Returns the number used in
    /// each.
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

    /// Rate of a device that gains up to `knee` contexts and loses a little with each one beyond.
    fn knee_at(knee: usize) -> impl Fn(usize, usize) -> f64 {
        move |active, _| active.min(knee) as f64 * 100.0 - active.saturating_sub(knee) as f64 * 5.0
    }

    #[test]
    fn finder_climbs_to_the_knee_and_stays() {
        for knee in 1..=12 {
            let mut finder = Finder::new();
            run(&mut finder, 400, 16, knee_at(knee));
            assert_eq!(finder.best, knee);
            let went = run(&mut finder, 5000, 16, knee_at(knee));
            let elsewhere = went.iter().filter(|active| **active != knee).count();
            assert!(
                elsewhere < 100,
                "{elsewhere} of 5000 windows ran with another number than {knee}"
            );
        }
    }

    #[test]
    fn one_context_stays_alone_if_more_gain_nothing() {
        let mut finder = Finder::new();
        let went = run(&mut finder, 5000, 64, |_, _| 100.0);
        assert!(went.iter().all(|active| *active <= 2), "the finder went two steps without a gain");
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
    fn a_device_that_gets_faster_by_itself_adds_no_context() {
        let mut finder = Finder::new();
        run(&mut finder, 2000, 16, |_, window| 100.0 * 1.04_f64.powi(window as i32 % 40));
        assert!(finder.best <= 2, "{}", finder.best);
    }

    #[test]
    fn a_lower_maximum_applies_at_once() {
        let mut finder = Finder::new();
        run(&mut finder, 400, 16, knee_at(8));
        assert_eq!(finder.window(800.0, 2), 2);
        assert!(run(&mut finder, 400, 2, knee_at(8)).iter().skip(1).all(|active| *active <= 2));
    }

    #[test]
    fn an_interrupted_trial_is_void() {
        let mut finder = Finder::new();
        while finder.window(100.0, 8) == 1 {}
        assert_eq!(finder.interrupt(), 1);
        assert_eq!(finder.phase, Phase::Rest(FIRST_PAUSE));
    }

    proptest! {
        #[test]
        fn the_number_is_at_least_one_and_at_most_the_maximum(
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
