//! Progress of a comparison, on standard error: standard output is for results.
//!
//! | | brief | verbose |
//! |---|---|---|
//! | terminal | one line in place, with the time left | the same, and what the warm-up showed |
//! | pipe | one line for each question | one line for each run besides |
//!
//! Nothing here uses `eprintln!`, which panics if the reader has closed the pipe.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::plan::Plan;
use crate::terminal;
use crate::text::{counted, folded_to, spoken};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verbosity {
    /// One line for each question.
    #[default]
    Brief,
    /// The plan of each question and a line for each run besides.
    Verbose,
}

/// The line in place, or the lines.
#[derive(Debug)]
pub struct Progress {
    /// The line in place, hidden unless standard error is a terminal.
    bar: ProgressBar,
    /// Whether anything is written at all.
    is_shown: bool,
    verbosity: Verbosity,
    rounds: u32,
    /// Set when the first counted cell starts: the warm-up is no measure for the others.
    began: Option<Instant>,
    cell: String,
}

/// Returns the line of one question: its number and title, and the rounds, runs and time it takes.
pub fn heading(plan: &Plan, (number, all): (usize, usize)) -> String {
    let runs = counted(plan.cells(), "run");
    let rounds = counted(plan.rounds.into(), "round");
    let time = spoken(plan.expected(None));
    format!("[{number}/{all}] {}: {rounds}, {runs}, {time}", plan.title)
}

impl Progress {
    /// Starts the progress of one plan of several: a line in place if standard error is a
    /// terminal, else the question's line.
    pub fn new(plan: &Plan, place: (usize, usize), verbosity: Verbosity) -> Self {
        let mut progress = Self::hidden(plan);
        (progress.is_shown, progress.verbosity) = (true, verbosity);
        if io::stderr().is_terminal() {
            let (number, all) = place;
            let template = format!("[{number}/{all}] [{{bar:20}}] {{pos}}/{{len}} {{wide_msg}}");
            let style = ProgressStyle::with_template(&template).expect("the template is sound");
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(plan.cells()), target);
            bar.set_style(style.progress_chars("=> "));
            bar.enable_steady_tick(Duration::from_millis(120));
            progress.bar = bar;
        } else {
            to_stderr(&heading(plan, place));
        }
        progress
    }

    /// Returns a progress that nobody sees.
    pub fn hidden(plan: &Plan) -> Self {
        let bar = ProgressBar::with_draw_target(Some(plan.cells()), ProgressDrawTarget::hidden());
        let (verbosity, rounds) = (Verbosity::Brief, plan.rounds);
        Self { bar, is_shown: false, verbosity, rounds, began: None, cell: String::new() }
    }

    /// Prints a line that stays on the screen.
    pub fn say(&self, line: &str) {
        if self.is_shown {
            self.bar.suspend(|| to_stderr(line));
        }
    }

    /// Shows that the runs before the first round have started.
    pub fn warm_up(&mut self) {
        self.bar.set_message("warm-up");
    }

    /// Reports the speed of the warm-up and the time that the rest takes at this speed.
    pub fn expect(&self, whole: Duration, bytes_per_s: Option<f64>) {
        if let (Some(speed), Verbosity::Verbose) = (bytes_per_s, self.verbosity) {
            let (speed, whole) = (speed / 1e6, spoken(whole));
            self.say(&format!("Warm-up: {speed:.0} MB/s; about {whole} left."));
        }
    }

    /// Shows the cell that runs.
    pub fn cell(&mut self, round: u32, job: &str, arm: &str) {
        self.began.get_or_insert_with(Instant::now);
        self.cell = format!("round {}/{}  {job}{arm:<24}", round + 1, self.rounds);
        self.bar.set_message(format!("{} {}", self.cell, self.left()));
    }

    /// Counts the cell that has ended, with its speed in words.
    pub fn done(&mut self, speed: &str) {
        self.bar.inc(1);
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        debug_assert!(done <= all, "more runs than are planned");
        if self.bar.is_hidden() && self.verbosity == Verbosity::Verbose {
            let line = format!("[{done:>3}/{all}] {} {speed}  {}", self.cell, self.left());
            self.say(line.trim_end());
        }
    }

    /// Lowers the rounds in all and the cells that will still run: an arm is left out, or rounds do
    /// not fit in the time.
    pub fn shorten(&mut self, rounds: u32, cells: u64) {
        self.rounds = rounds;
        self.bar.set_length(self.bar.position() + cells);
    }

    /// Returns the time that the cells left take, if it is known.
    fn left(&self) -> String {
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        match self.began {
            Some(began) if done > 0 && all > done => {
                let left = began.elapsed().mul_f64((all - done) as f64 / done as f64);
                format!("{} left", spoken(left))
            }
            _ => String::new(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Writes a message to standard error, in lines no wider than the terminal or 80 columns.
pub fn to_stderr(message: &str) {
    let width = terminal::columns(io::stderr()).unwrap_or(terminal::WIDTH);
    let lines = folded_to(width, message).join("\n");
    let _ = writeln!(io::stderr(), "{lines}");
}
