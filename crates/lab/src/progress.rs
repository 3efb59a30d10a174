//! Progress of a comparison, on standard error: standard output is for results.
//!
//! | | brief | verbose |
//! |---|---|---|
//! | terminal | one line in place, with the time left | the same, and what the warm-up showed |
//! | pipe | one line for each question | one line for each run besides |
//!
//! Nothing here uses `eprintln!`, which panics if the reader has closed the pipe.

use std::fmt;
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
    show: Show,
    verbosity: Verbosity,
    rounds: u32,
    cells: u64,
    cells_done: u64,
    /// Set when the first counted cell starts: the warm-up is no measure for the others.
    began: Option<Instant>,
    cell: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Rounds, those done included.
    pub rounds_in_all: u32,
    /// Cells that will still run.
    pub cells: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Speed {
    Bytes(f64),
    Operations(f64),
}

impl fmt::Display for Speed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Speed::Bytes(speed) => write!(formatter, "{:6.0} MB/s", speed / 1e6),
            Speed::Operations(speed) => write!(formatter, "{:6.0} k/s", speed / 1e3),
        }
    }
}

#[derive(Debug)]
enum Show {
    Bar(ProgressBar),
    Lines,
    Nothing,
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
        let show = if io::stderr().is_terminal() {
            let bar =
                ProgressBar::with_draw_target(Some(plan.cells()), ProgressDrawTarget::stderr());
            let (number, all) = place;
            let template = format!("[{number}/{all}] [{{bar:20}}] {{pos}}/{{len}} {{wide_msg}}");
            let style = ProgressStyle::with_template(&template);
            bar.set_style(style.expect("the template is sound").progress_chars("=> "));
            bar.enable_steady_tick(Duration::from_millis(120));
            Show::Bar(bar)
        } else {
            to_stderr(&heading(plan, place));
            Show::Lines
        };
        Self::with(plan, show, verbosity)
    }

    pub fn hidden(plan: &Plan) -> Self {
        Self::with(plan, Show::Nothing, Verbosity::Brief)
    }

    fn with(plan: &Plan, show: Show, verbosity: Verbosity) -> Self {
        let (rounds, cells) = (plan.rounds, plan.cells());
        Self { show, verbosity, rounds, cells, cells_done: 0, began: None, cell: String::new() }
    }

    /// Prints a line that stays on the screen.
    pub fn say(&self, line: &str) {
        match &self.show {
            Show::Bar(bar) => bar.suspend(|| to_stderr(line)),
            Show::Lines => to_stderr(line),
            Show::Nothing => {}
        }
    }

    /// Shows that the runs before the first round have started.
    pub fn warm_up(&mut self) {
        if let Show::Bar(bar) = &self.show {
            bar.set_message("warm-up");
        }
    }

    /// Reports the speed of the warm-up and the time that the rest takes at this speed.
    pub fn expect(&self, whole: Duration, bytes_per_s: Option<f64>) {
        if let (Some(speed), Verbosity::Verbose) = (bytes_per_s, self.verbosity) {
            let (speed, whole) = (speed / 1e6, spoken(whole));
            self.say(&format!("Warm-up: {speed:.0} MB/s; about {whole} left."));
        }
    }

    pub fn cell(&mut self, round: u32, job: &str, arm: &str) {
        self.began.get_or_insert_with(Instant::now);
        self.cell = format!("round {}/{}  {job}{arm:<24}", round + 1, self.rounds);
        if let Show::Bar(bar) = &self.show {
            bar.set_message(format!("{} {}", self.cell, self.left()));
        }
    }

    pub fn done(&mut self, speed: Option<Speed>) {
        self.cells_done += 1;
        debug_assert!(self.cells_done <= self.cells, "more runs than are planned");
        match &self.show {
            Show::Bar(bar) => bar.set_position(self.cells_done),
            Show::Lines if self.verbosity == Verbosity::Verbose => {
                let speed = speed.map(|speed| speed.to_string()).unwrap_or_default();
                let count = format!("[{:>3}/{}]", self.cells_done, self.cells);
                to_stderr(format!("{count} {} {speed}  {}", self.cell, self.left()).trim_end());
            }
            Show::Lines | Show::Nothing => {}
        }
    }

    /// Lowers the number of cells: an arm is left out, or rounds do not fit in the time.
    pub fn shorten(&mut self, left: Left) {
        self.rounds = left.rounds_in_all;
        self.cells = self.cells_done + left.cells;
        if let Show::Bar(bar) = &self.show {
            bar.set_length(self.cells);
        }
    }

    pub fn finish(self) {}

    fn left(&self) -> String {
        match self.began {
            Some(began) if self.cells_done > 0 && self.cells > self.cells_done => {
                let each = began.elapsed().as_secs_f64() / self.cells_done as f64;
                let left = Duration::from_secs_f64(each * (self.cells - self.cells_done) as f64);
                format!("{} left", spoken(left))
            }
            _ => String::new(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }
}

/// Writes a message to standard error, in lines no wider than the terminal or 80 columns.
pub fn to_stderr(message: &str) {
    let width = terminal::columns(io::stderr()).unwrap_or(terminal::WIDTH);
    let lines = folded_to(width, message).join("\n");
    let _ = writeln!(io::stderr(), "{lines}");
}
