//! Trial: whether a batch goes as a whole or in small steps, found out by trying.
//!
//! What came together need not go together. A whole batch costs one doorbell; but the first of its
//! requests waits until the last is prepared and, in the kernel, until all of them have been
//! through its own plug (which it begins above two). On a device that is waited for, small steps
//! keep it busy earlier, and processor time is there to be had; where the processor is the limit
//! each doorbell is a loss. Which it is depends on device, depth and load, and no single figure
//! tells. So now and then a window of bios goes the other way, and is compared with the window
//! before it: adjacent in time, so that a drift of the machine falls out.
//!
//! What is compared is the mean time from submission to end, by J. D. C. Little's law (Operations
//! Research, 1961) from the bios on their way over time, so that no bio needs a stamp. In a closed
//! loop the lower one is also the higher rate.
//!
//! The price: one window of many goes the worse way. Where it is clearly worse the next trial is
//! put off twice as far.

use crate::limits::BATCH_REQUESTS;
use crate::time::Moment;

/// Bios of a window, at least.
const WINDOW: u64 = 256;

/// Nanoseconds of a window, at least: what interrupts a shorter one decides it.
const WINDOW_NANOSECONDS: u64 = 200_000;

/// Of them, those at the beginning that were on their way before it and do not count.
const SETTLING: u64 = 64;

/// Windows between two trials, at first and at most.
const FIRST_PAUSE: u32 = 2;
const USUAL_PAUSE: u32 = 16;
const LONGEST_PAUSE: u32 = 1024;

/// What a trial has to gain to speak for a change of way.
const WORTH: f64 = 1.03;

/// So many more trials have to speak for it than, counted twice, against: one that was interrupted
/// proves nothing.
const WINS: u32 = 4;

/// Below this a trial was clearly a loss.
const LOSS: f64 = 0.85;

/// How a batch goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// With one doorbell.
    Whole,
    /// In steps that the kernel does not hold back.
    Steps,
}

impl Way {
    /// Requests that go with one doorbell.
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

/// What goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// So many windows until the next trial.
    Pause(u32),
    /// The window before a trial.
    Before,
    /// A window the other way.
    Other,
}

/// Bios on their way over time.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    ended: u64,
    /// Nanoseconds, summed over the bios on their way; after the settling.
    area: u64,
    /// Nanoseconds since it began.
    took: u64,
    /// Requests of the largest batch.
    largest: usize,
}

impl Window {
    /// Mean nanoseconds from submission to end.
    fn mean(self) -> f64 {
        self.area as f64 / (self.ended - SETTLING) as f64
    }
}

/// Tries, and remembers.
#[derive(Debug)]
pub(crate) struct Trial {
    way: Way,
    phase: Phase,
    pause: u32,
    last: Option<Moment>,
    window: Window,
    before: Window,
    /// Trials that spoke for the other way, less those against it.
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
    /// How the next batch goes.
    #[inline]
    pub(crate) fn way(&self) -> Way {
        if self.phase == Phase::Other { self.way.other() } else { self.way }
    }

    /// A batch of so many requests is about to go.
    #[inline]
    pub(crate) fn goes(&mut self, requests: usize) {
        self.window.largest = self.window.largest.max(requests);
    }

    /// So many bios have ended by now, of those that were on their way since the last look.
    #[inline]
    pub(crate) fn ended(&mut self, ended: usize, on_their_way: usize, now: Moment) {
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

    /// Nothing is on its way: what passes until the next bio comes is nobody's time.
    pub(crate) fn rests(&mut self) {
        self.last = None;
    }

    fn next(&mut self) {
        let window = core::mem::take(&mut self.window);
        self.phase = match self.phase {
            Phase::Pause(0 | 1) => Phase::Before,
            Phase::Pause(left) => Phase::Pause(left - 1),
            // Small batches go the same either way.
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
        self.wins = if gain > WORTH { self.wins + 1 } else { self.wins.saturating_sub(2) };
        if self.wins >= WINS {
            self.way = self.way.other();
            self.wins = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs so many bios, eight at a time of 32 on their way, where a bio takes so many nanoseconds
    /// by each way; says how many went in steps.
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
    fn what_is_faster_is_found() {
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
    fn a_clear_loss_is_seldom_tried_again() {
        let mut trial = Trial::default();
        run(&mut trial, 1_000_000, 2000, 10_000);
        let in_steps = run(&mut trial, 10_000_000, 2000, 10_000);
        assert!(in_steps <= 10_000_000 / 100, "{in_steps}");
    }

    #[test]
    fn what_makes_no_difference_changes_nothing() {
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
