//! How far it is. On a terminal one line that moves, with the time left; on a pipe one line per
//! cell. To standard error, always: standard output is for results.
//!
//! Nothing here is printed with `eprintln!`: that panics when nobody reads any more.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::plan::{Plan, spoken};

/// The moving line, or the lines.
#[derive(Debug)]
pub struct Progress {
    show: Show,
    rounds: u32,
    cells: u64,
    cells_done: u64,
    /// Set when the first counted cell starts: the warm-up is no measure for the others.
    began: Option<Instant>,
    cell: String,
}

/// What is still to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Rounds, those done included.
    pub rounds_in_all: u32,
    /// Cells that will still run.
    pub cells: u64,
}

/// How fast a cell was.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Speed {
    /// Bytes a second.
    Bytes(f64),
    /// Operations a second.
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

impl Progress {
    /// For a plan, as standard error can show it.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let show = if io::stderr().is_terminal() {
            let bar =
                ProgressBar::with_draw_target(Some(plan.cells()), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} [{bar:20}] {pos}/{len} {wide_msg}");
            bar.set_style(style.expect("the template is fixed").progress_chars("=> "));
            bar.enable_steady_tick(Duration::from_millis(120));
            Show::Bar(bar)
        } else {
            Show::Lines
        };
        Self::with(plan, show)
    }

    /// Shows nothing.
    #[must_use]
    pub fn hidden(plan: &Plan) -> Self {
        Self::with(plan, Show::Nothing)
    }

    fn with(plan: &Plan, show: Show) -> Self {
        let (rounds, cells) = (plan.rounds, plan.cells());
        Self { show, rounds, cells, cells_done: 0, began: None, cell: String::new() }
    }

    /// Says something that stays on the screen.
    pub fn say(&self, line: &str) {
        match &self.show {
            Show::Bar(bar) => bar.suspend(|| to_stderr(line)),
            Show::Lines => to_stderr(line),
            Show::Nothing => {}
        }
    }

    /// The cell before the first round has started.
    pub fn warm_up(&mut self) {
        if let Show::Bar(bar) = &self.show {
            bar.set_message("warm-up, not counted");
        }
    }

    /// The warm-up has shown how long the rest should take.
    pub fn expect(&self, whole: Duration, bytes_per_s: Option<f64>) {
        if let Some(speed) = bytes_per_s {
            self.say(&format!(
                "Warm-up: {:.0} MB/s, so about {} from here.",
                speed / 1e6,
                spoken(whole)
            ));
        }
    }

    /// A cell has started.
    pub fn cell(&mut self, round: u32, job: &str, arm: &str) {
        self.began.get_or_insert_with(Instant::now);
        self.cell = format!("round {}/{}  {job}{arm:<24}", round + 1, self.rounds);
        if let Show::Bar(bar) = &self.show {
            bar.set_message(format!("{} {}", self.cell, self.left()));
        }
    }

    /// It has ended.
    pub fn done(&mut self, speed: Option<Speed>) {
        self.cells_done += 1;
        match &self.show {
            Show::Bar(bar) => bar.set_position(self.cells_done),
            Show::Lines => {
                let speed = speed.map(|speed| speed.to_string()).unwrap_or_default();
                let count = format!("[{:>3}/{}]", self.cells_done, self.cells);
                to_stderr(format!("{count} {} {speed}  {}", self.cell, self.left()).trim_end());
            }
            Show::Nothing => {}
        }
    }

    /// It comes to less than planned: an arm is left out, or rounds do not fit in the time.
    pub fn shorten(&mut self, left: Left) {
        self.rounds = left.rounds_in_all;
        self.cells = self.cells_done + left.cells;
        if let Show::Bar(bar) = &self.show {
            bar.set_length(self.cells);
        }
    }

    /// Leaves the screen to the results.
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

fn to_stderr(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
