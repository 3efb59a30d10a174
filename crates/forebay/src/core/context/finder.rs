//! Finds the number of contexts by trials, while writers bring more than the contexts write.
//!
//! Time is divided into windows. A context more is tried at once if the thread of a context used a
//! processor for most of a window. A thread that sleeps waits for the device or for a lock of the
//! file system, such as that of an allocation group. Another one may wait for the same, so it is
//! tried seldom, and has to bring more.
//!
//! ```text
//! window -> files move -> trial -- clear gain, thread was busy -----> kept, next trial
//! (before)                     |-- gain -> back -> after: gain? ----> kept, or back
//!                              \-- no gain -> back, and a pause that doubles
//! ```
//!
//! The step doubles while it pays, and is halved when it does not: 1, 2, 4, 8 contexts take three
//! trials. A small gain has to hold against the windows before and after the trial, so that a
//! device that becomes faster by itself adds no thread. The first windows after a change of the
//! number do not count.
//!
//! A context fewer is tried if the others have the processor time for its work. It is kept if the
//! rate stays. Nothing here reads a clock.

/// Part of a window that a thread uses a processor for if it is the bound. The rest is for the
/// times at which it looks for completions and finds none.
const BUSY: f64 = 0.7;

/// Factor of the rate that is kept at once if a thread was busy: more than a steady device changes
/// by itself within a few windows. If all threads slept, a trial must reach it to be kept.
const CLEAR: f64 = 1.2;

/// Factor of the rate that a trial must reach to be kept if a thread was busy.
const WORTH: f64 = 1.05;

/// Part of the rate that fewer contexts must still reach.
const AS_GOOD: f64 = 0.97;

/// Windows after a change of the number that do not count: files move, and a context begins with
/// the pages left to it.
const MOVING: u32 = 4;

/// Windows whose mean is compared.
const LOOKS: u32 = 4;

/// Windows until each context has published the processor time it used before the search.
const SETTLING: u32 = 2;

/// Windows without a trial after one that failed: at first and at most.
const FIRST_PAUSE: u32 = 16;
const LONGEST_PAUSE: u32 = 512;

/// A window that had more to write than the contexts wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Bytes written per nanosecond.
    pub(crate) rate: f64,
    /// Part of the window that the busiest context used a processor for.
    pub(crate) busiest: f64,
    /// The sum of these parts of all contexts.
    pub(crate) busy: f64,
}

/// Phase that the next window belongs to.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// No trial.
    Rest,
    /// Files move to the contexts of the trial.
    Going,
    Trial,
    /// Files move back.
    Returning,
    /// Measurement after the trial.
    After,
}

/// Search for the number of contexts.
#[derive(Debug)]
pub(crate) struct Finder {
    best: usize,
    /// Number of contexts in the trial.
    tried: usize,
    /// Contexts that the next trial adds.
    step: usize,
    phase: Phase,
    /// Windows left of the phase.
    left: u32,
    /// Sum of the rates measured in it.
    sum: f64,
    /// Rates before the trial and in it.
    before: f64,
    trial: f64,
    pause: u32,
    /// Windows since the last trial, if all threads slept.
    asleep: u32,
    /// Whether a thread was busy before the trial.
    was_busy: bool,
    /// Whether the next trial has fewer contexts if both are possible.
    tries_less: bool,
}

impl Finder {
    /// Starts with one context.
    pub(crate) fn new() -> Self {
        Self {
            best: 1,
            tried: 1,
            step: 1,
            phase: Phase::Rest,
            left: SETTLING,
            sum: 0.0,
            before: 0.0,
            trial: 0.0,
            pause: FIRST_PAUSE,
            asleep: 0,
            was_busy: false,
            tries_less: false,
        }
    }

    /// Ends a window. Takes the maximum number of contexts. Returns the number for the next window.
    pub(crate) fn window(&mut self, window: Window, most: usize) -> usize {
        if self.best.max(self.tried) > most {
            self.best = self.best.min(most);
            self.tried = self.best;
            self.enter(Phase::Rest, self.pause);
        }
        if self.phase == Phase::Rest && self.left == 0 {
            self.begin(window, most);
        } else {
            assert!(self.left > 0, "a phase ends at its last window");
            self.left -= 1;
            self.sum += window.rate;
            self.judge(window.rate);
        }
        match self.phase {
            Phase::Going | Phase::Trial => self.tried,
            _ => self.best,
        }
    }

    /// Ends a window that had less to write than the contexts write. A trial in progress is void.
    /// Returns the number for the next window.
    pub(crate) fn interrupt(&mut self) -> usize {
        if self.phase != Phase::Rest {
            self.enter(Phase::Rest, MOVING);
        }
        self.best
    }

    fn enter(&mut self, phase: Phase, windows: u32) {
        (self.phase, self.left, self.sum) = (phase, windows, 0.0);
    }

    /// Ends the phase, if its last window had this rate or decides the trial.
    fn judge(&mut self, rate: f64) {
        let is_over = self.left == 0;
        match self.phase {
            Phase::Going if is_over => self.enter(Phase::Trial, LOOKS),
            Phase::Trial if self.is_clear(rate / self.before) => self.keep(0),
            Phase::Trial if rate < self.before * self.worth() => self.fail(),
            Phase::Trial if is_over => {
                self.trial = self.sum / f64::from(LOOKS);
                self.enter(Phase::Returning, MOVING);
            }
            Phase::Returning if is_over => self.enter(Phase::After, LOOKS),
            Phase::After if is_over => {
                let after = self.sum / f64::from(LOOKS);
                if self.trial < self.before.max(after) * self.worth() {
                    self.fail();
                } else {
                    self.keep(MOVING);
                }
            }
            _ => {}
        }
    }

    /// Begins a trial if one can pay.
    fn begin(&mut self, window: Window, most: usize) {
        self.was_busy = window.busiest >= BUSY;
        self.asleep = if self.was_busy { 0 } else { self.asleep.saturating_add(1) };
        let has_reason = self.was_busy || self.asleep > self.pause;
        let can_more = has_reason && self.best < most;
        let can_less = self.best > 1 && window.busy <= (self.best - 1) as f64;
        self.tried = match (can_more, can_less) {
            (false, false) => return,
            (true, true) if self.tries_less => self.best - 1,
            (true, _) => (self.best + self.step).min(most),
            (false, true) => self.best - 1,
        };
        debug_assert!((1..=most).contains(&self.tried), "{} contexts of {most}", self.tried);
        self.before = window.rate;
        self.enter(Phase::Going, MOVING);
    }

    /// Returns whether the trial has more contexts.
    fn adds(&self) -> bool {
        self.tried > self.best
    }

    /// Returns whether a gain needs no second look.
    fn is_clear(&self, gain: f64) -> bool {
        self.adds() && self.was_busy && gain > CLEAR
    }

    fn worth(&self) -> f64 {
        match (self.adds(), self.was_busy) {
            (true, true) => WORTH,
            (true, false) => CLEAR,
            (false, _) => AS_GOOD,
        }
    }

    /// Keeps the number of the trial. Rests for `windows` before the next one.
    fn keep(&mut self, windows: u32) {
        self.step = if self.adds() { self.step * 2 } else { 1 };
        self.tries_less = !self.adds();
        self.best = self.tried;
        self.pause = FIRST_PAUSE;
        // The next one follows at once.
        self.asleep = FIRST_PAUSE;
        self.enter(Phase::Rest, windows);
    }

    fn fail(&mut self) {
        let added = self.adds();
        (self.asleep, self.tried) = (0, self.best);
        if added && self.step > 1 {
            self.step /= 2;
            self.enter(Phase::Rest, MOVING);
            return;
        }
        self.tries_less = added;
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        self.enter(Phase::Rest, pause);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs windows of a device that takes `rate` by number of contexts. All contexts are busy as
    /// long as each of them writes less than 100. Returns the number used in each window.
    fn run(
        finder: &mut Finder,
        windows: usize,
        most: usize,
        rate: impl Fn(usize, usize) -> f64,
    ) -> Vec<usize> {
        let mut active = finder.best;
        let mut went = Vec::new();
        for at in 0..windows {
            went.push(active);
            let rate = rate(active, at);
            let busy = rate / 100.0;
            let window = Window { rate, busiest: (busy / active as f64).min(1.0), busy };
            active = finder.window(window, most);
        }
        went
    }

    /// Rate of a device that takes the work of `knee` contexts.
    fn knee_at(knee: usize) -> impl Fn(usize, usize) -> f64 {
        move |active, _| active.min(knee) as f64 * 95.0
    }

    #[test]
    fn finder_climbs_to_the_knee_and_stays() {
        for knee in 1..=8 {
            let mut finder = Finder::new();
            let went = run(&mut finder, 200, 8, knee_at(knee));
            assert_eq!(finder.best, knee, "after 200 windows: {went:?}");
            let went = run(&mut finder, 5000, 8, knee_at(knee));
            let elsewhere = went.iter().filter(|active| **active != knee).count();
            assert!(elsewhere < 100, "{elsewhere} of 5000 windows ran without {knee} contexts");
        }
    }

    /// Runs windows while all contexts sleep most of the time. Returns how many ran with more
    /// than one context.
    fn run_asleep(finder: &mut Finder, windows: u64, mut rate: impl FnMut(usize) -> f64) -> u64 {
        let (mut active, mut with_more) = (finder.best, 0);
        for _ in 0..windows {
            with_more += u64::from(active > 1);
            let busy = 0.3 * active as f64;
            active = finder.window(Window { rate: rate(active), busiest: 0.3, busy }, 8);
        }
        with_more
    }

    #[test]
    fn contexts_that_wait_for_the_device_are_left_alone() {
        let mut finder = Finder::new();
        let with_more = run_asleep(&mut finder, 5000, |_| 60.0);
        assert_eq!(finder.best, 1);
        assert!(with_more < 60, "{with_more} of 5000 windows ran with more");
    }

    #[test]
    fn a_device_whose_rate_varies_seldom_adds_a_context() {
        let (mut finder, mut state) = (Finder::new(), 1_u64);
        let with_more = run_asleep(&mut finder, 5000, |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            60.0 + (state >> 33) as f64 / (1_u64 << 31) as f64 * 24.0
        });
        assert!(with_more < 500, "{with_more} of 5000 windows ran with more");
    }

    #[test]
    fn contexts_that_wait_for_locks_become_more() {
        let mut finder = Finder::new();
        run_asleep(&mut finder, 150, |active| 60.0 * active as f64);
        assert_eq!(finder.best, 8);
    }

    #[test]
    fn windows_after_a_move_with_a_higher_rate_decide_nothing() {
        let (mut finder, mut last, mut since) = (Finder::new(), 1, 0);
        run_asleep(&mut finder, 150, |active| {
            since = if active == last { since + 1 } else { 0 };
            last = active;
            let backlog = if active == 2 && since < 3 { 1.8 } else { 1.0 };
            60.0 * active as f64 * backlog
        });
        assert_eq!(finder.best, 8);
    }

    #[test]
    fn a_context_more_that_brings_nothing_is_given_up_and_seldom_tried_again() {
        let mut finder = Finder::new();
        let went = run(&mut finder, 5000, 8, |_, _| 95.0);
        assert!(went.iter().all(|active| *active <= 2));
        assert!(went.iter().filter(|active| **active == 2).count() < 80, "it is quiet");
        assert_eq!(finder.best, 1);
    }

    #[test]
    fn a_knee_that_moves_is_followed() {
        let mut finder = Finder::new();
        run(&mut finder, 200, 8, knee_at(8));
        assert_eq!(finder.best, 8);
        run(&mut finder, 500, 8, |active, _| active.min(3) as f64 * 60.0);
        assert!((2..=3).contains(&finder.best), "{}", finder.best);
        run(&mut finder, 500, 8, knee_at(6));
        assert_eq!(finder.best, 6);
    }

    #[test]
    fn a_device_that_gets_faster_by_itself_adds_no_context() {
        let mut finder = Finder::new();
        let rate = |_: usize, window: usize| 70.0 * 1.02_f64.powi(window as i32 % 15);
        run(&mut finder, 2000, 8, rate);
        assert!(finder.best <= 2, "{}", finder.best);
    }

    #[test]
    fn a_lower_maximum_applies_at_once() {
        let mut finder = Finder::new();
        run(&mut finder, 200, 8, knee_at(8));
        assert!(run(&mut finder, 400, 2, knee_at(8)).iter().skip(1).all(|active| *active <= 2));
    }

    #[test]
    fn an_interrupted_trial_is_void_and_files_move_back_before_the_next() {
        let mut finder = Finder::new();
        let window = Window { rate: 100.0, busiest: 1.0, busy: 1.0 };
        (0..SETTLING).for_each(|_| assert_eq!(finder.window(window, 8), 1));
        assert_eq!(finder.window(window, 8), 2);
        assert_eq!(finder.interrupt(), 1);
        assert_eq!(finder.interrupt(), 1, "again, without a trial");
        (0..MOVING).for_each(|_| assert_eq!(finder.window(window, 8), 1));
        assert_eq!(finder.window(window, 8), 2);
    }

    proptest! {
        #[test]
        fn contract_18_the_number_is_at_least_one_and_at_most_the_maximum(
            windows in prop::collection::vec((0.0..1e9_f64, 1..9_usize, 0.0..1.0, 0..4_u8), 1..300)
        ) {
            let mut finder = Finder::new();
            for (rate, most, busiest, kind) in windows {
                if kind == 0 {
                    finder.interrupt();
                }
                let busy = busiest * finder.best as f64 / f64::from(kind + 1);
                let active = finder.window(Window { rate, busiest, busy }, most);
                prop_assert!((1..=most).contains(&active));
            }
        }
    }
}
