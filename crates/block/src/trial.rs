//! Trial: whether a batch is submitted as a whole or in small steps, decided by trying both.
//!
//! Bios that arrived together need not be submitted together. A whole batch costs one doorbell
//! call. But its first request waits until the last is prepared and, in the kernel, until all of
//! them have passed the kernel's own plug, which starts above two requests. If callers wait for the
//! device, small steps keep it busy earlier, and CPU time is available. If the CPU is the limit,
//! each further doorbell is a loss.
//!
//! The better way depends on device, depth and load, and no single figure shows it. So now and then
//! one window of bios goes the other way and is compared with the window before it. The two are
//! adjacent in time, so that a drift of the machine cancels out.
//!
//! The measure is the mean time from submission to end. J. D. C. Little's law (Operations Research,
//! 1961) gives it from the number of bios on their way over time, so no bio needs a time stamp. In
//! a closed loop the lower time is also the higher rate.
//!
//! The price: one window of many goes the worse way. If it is clearly worse, the pause before the
//! next trial doubles.

use crate::limits::BATCH_REQUESTS;
use crate::time::Moment;

/// Minimum of bios in a window.
const WINDOW: u64 = 256;

/// Minimum length of a window in nanoseconds: a shorter one is decided by a single interruption.
const WINDOW_NANOSECONDS: u64 = 200_000;

/// Bios at the beginning of a window that do not count, because they were on their way before it.
const SETTLING: u64 = 64;

/// Windows between two trials: at first, usually, and at most.
const FIRST_PAUSE: u32 = 2;
const USUAL_PAUSE: u32 = 16;
const LONGEST_PAUSE: u32 = 1024;

/// Gains above which a trial counts for the other way, and above which it counts twice.
const WORTH: f64 = 1.03;
const CLEARLY_WORTH: f64 = 1.1;

/// Balance of trials that changes the way: a trial for it counts one or two, a trial without a gain
/// counts minus two. One interrupted trial proves nothing.
const WINS: u32 = 4;

/// Gain below which a trial was clearly a loss.
const LOSS: f64 = 0.85;

const _: () = assert!(SETTLING < WINDOW, "some bios of a window must count");
const _: () = assert!(FIRST_PAUSE <= USUAL_PAUSE && USUAL_PAUSE <= LONGEST_PAUSE);

/// How a batch is submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// With one doorbell.
    Whole,
    /// In steps so small that the kernel does not hold them back.
    Steps,
}

impl Way {
    /// Returns the maximum of requests per doorbell.
    #[inline]
    pub(crate) fn step(self) -> usize {
        match self {
            Way::Whole => BATCH_REQUESTS,
            Way::Steps => 2,
        }
    }

    fn other(self) -> Self {
        match self {
            Way::Whole => Way::Steps,
            Way::Steps => Way::Whole,
        }
    }
}

/// Phase of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Number of windows until the next trial.
    Pause(u32),
    /// The window before a trial.
    Before,
    /// A window that goes the other way.
    Other,
}

/// Number of bios on their way over time.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    ended: u64,
    /// Sum over all bios of their nanoseconds on the way, after the settling.
    area: u64,
    /// Nanoseconds since the window began.
    took: u64,
    /// Requests of the largest batch.
    largest: usize,
}

impl Window {
    /// Returns the mean time from submission to end, in nanoseconds.
    fn mean(self) -> f64 {
        debug_assert!(self.ended > SETTLING, "the window has ended before it settled");
        self.area as f64 / (self.ended - SETTLING) as f64
    }
}

/// Way in use, and the state of the trials.
#[derive(Debug)]
pub(crate) struct Trial {
    way: Way,
    phase: Phase,
    pause: u32,
    last: Option<Moment>,
    window: Window,
    before: Window,
    /// Balance of the trials for the other way; see [`WINS`].
    wins: u32,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            way: Way::Whole,
            phase: Phase::Pause(FIRST_PAUSE),
            pause: FIRST_PAUSE,
            last: None,
            window: Window::default(),
            before: Window::default(),
            wins: 0,
        }
    }
}

impl Trial {
    /// Returns the way of the next batch.
    #[inline]
    pub(crate) fn way(&self) -> Way {
        if self.phase == Phase::Other { self.way.other() } else { self.way }
    }

    /// Records that a batch of `requests` requests is about to be submitted.
    #[inline]
    pub(crate) fn goes(&mut self, requests: usize) {
        self.window.largest = self.window.largest.max(requests);
    }

    /// Records that `ended` bios have ended, of `on_their_way` that were on their way since the
    /// last call.
    #[inline]
    pub(crate) fn ended(&mut self, ended: usize, on_their_way: usize, now: Moment) {
        debug_assert!(ended <= on_their_way, "{ended} bios ended of {on_their_way}");
        let since = self.last.replace(now).map_or(0, |last| now.nanoseconds_since(last));
        if self.window.ended >= SETTLING {
            let area = since.saturating_mul(on_their_way as u64);
            self.window.area = self.window.area.saturating_add(area);
        }
        self.window.ended += ended as u64;
        self.window.took = self.window.took.saturating_add(since);
        if self.window.ended >= WINDOW && self.window.took >= WINDOW_NANOSECONDS {
            self.next();
        }
    }

    /// Records that no bio is on its way, so that the time until the next one does not count.
    pub(crate) fn rests(&mut self) {
        self.last = None;
    }

    fn next(&mut self) {
        let window = core::mem::take(&mut self.window);
        self.phase = match self.phase {
            Phase::Pause(0 | 1) => Phase::Before,
            Phase::Pause(left) => Phase::Pause(left - 1),
            // A small batch goes the same way with either setting.
            Phase::Before if window.largest <= Way::Steps.step() => Phase::Pause(self.pause),
            Phase::Before => {
                self.before = window;
                Phase::Other
            }
            Phase::Other => {
                self.judge(self.before.mean() / window.mean().max(1.0));
                Phase::Pause(self.pause)
            }
        };
    }

    fn judge(&mut self, gain: f64) {
        if gain < LOSS {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        } else if self.pause != USUAL_PAUSE {
            self.pause =
                if self.pause < USUAL_PAUSE { self.pause + FIRST_PAUSE } else { USUAL_PAUSE };
        }
        self.wins = match gain {
            _ if gain > CLEARLY_WORTH => self.wins + 2,
            _ if gain > WORTH => self.wins + 1,
            _ => self.wins.saturating_sub(2),
        };
        if self.wins >= WINS {
            self.way = self.way.other();
            self.wins = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `bios` bios in batches of eight, with 32 on their way. A bio takes `whole` or `steps`
    /// nanoseconds, depending on the way. Returns how many bios went in steps.
    fn run(trial: &mut Trial, bios: usize, whole: u64, steps: u64) -> usize {
        let (mut now, mut in_steps) = (1_000_000u64, 0);
        for _ in 0..bios / 8 {
            let way = trial.way();
            trial.goes(8);
            now += 8 * if way == Way::Whole { whole } else { steps } / 32;
            trial.ended(8, 32, Moment::from_nanoseconds(now));
            in_steps += if way == Way::Steps { 8 } else { 0 };
        }
        in_steps
    }

    #[test]
    fn the_faster_way_is_found() {
        let mut trial = Trial::default();
        run(&mut trial, 100_000, 400_000, 350_000);
        let bios = 100_000;
        let in_steps = run(&mut trial, bios, 400_000, 350_000);
        assert!(in_steps > bios * 9 / 10, "{in_steps} of {bios}");
        // The load has changed.
        run(&mut trial, 10_000_000, 2000, 4000);
        let in_steps = run(&mut trial, bios, 2000, 4000);
        assert!(in_steps < bios / 50, "{in_steps} of {bios}");
    }

    #[test]
    fn a_clear_gain_is_taken_after_two_trials() {
        let mut trial = Trial::default();
        let windows = 2 * (FIRST_PAUSE as usize + 2) + FIRST_PAUSE as usize;
        run(&mut trial, windows * WINDOW as usize, 480_000, 400_000);
        assert_eq!(trial.way, Way::Steps);
    }

    #[test]
    fn a_clear_loss_is_seldom_tried_again() {
        let mut trial = Trial::default();
        run(&mut trial, 1_000_000, 2000, 10_000);
        let in_steps = run(&mut trial, 10_000_000, 2000, 10_000);
        assert!(in_steps <= 10_000_000 / 100, "{in_steps}");
    }

    #[test]
    fn equal_ways_change_nothing() {
        let mut trial = Trial::default();
        let in_steps = run(&mut trial, 1_000_000, 5000, 5000);
        assert_eq!(trial.way, Way::Whole);
        assert!(in_steps < 1_000_000 / 10, "{in_steps}");
    }

    #[test]
    fn single_bios_are_not_tried_with() {
        let mut trial = Trial::default();
        for turn in 0..100_000 {
            trial.goes(1);
            trial.ended(1, 1, Moment::from_nanoseconds(turn * 80_000));
            assert_eq!(trial.way(), Way::Whole);
        }
    }
}
