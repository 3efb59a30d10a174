//! A comparison: one question, several arms, in rounds.
//!
//! ```text
//! warm-up   round 1: C A D B   round 2: B D A C   ...   judge
//!                    |
//!                    +-- fresh directory, cell, remove its files, syncfs, wait until quiet
//! ```
//!
//! Cells run one at a time, each in an empty directory on a file system that has come to rest, so that none pays
//! for what another left. The data is read back once per arm, in the first round, after the clock has stopped.
//!
//! An arm that this kernel or file system refuses is left out, with its reason; one that fails (a wrong byte, a
//! dead process) is left out too, and the comparison as a whole counts as failed. Both lose the rounds they have:
//! half an arm cannot be paired.

pub mod judge;
pub mod runner;
pub mod settle;

use std::time::{Duration, Instant};

use crate::arm::Arm;
use crate::cell::{CellResult, CellSpec, SyncProbe, Verify};
use crate::job::{Declared, Workload};
use crate::plan::{Form, Plan, Size, spoken};
use crate::progress::{Left, Progress};
use crate::scratch::{Scratch, Stop};
use crate::statistics::ROUNDS_FOR_A_VERDICT;
use runner::{CellRunner, RunError};
use settle::{Settled, settle};

/// The arms of the quick form, in the order of the table. The last two are the A/A pair.
pub const ARMS: [Arm; 8] = [
    Arm::KernelBuffered,
    Arm::KernelBounded,
    Arm::KernelBoundedPrealloc,
    Arm::KernelUncached,
    Arm::KernelUncachedPrealloc,
    Arm::KernelDirectPrealloc,
    Arm::Forebay,
    Arm::ForebayAgain,
];

/// The arms of the full form: one more, for what a caller gains by telling the length of a file beforehand.
pub const FULL_ARMS: [Arm; 9] = {
    let mut arms = [Arm::ForebayDeclared; 9];
    let mut place = 0;
    while place < ARMS.len() {
        arms[place] = ARMS[place];
        place += 1;
    }
    arms
};

/// The arms of a form, in the order of the table.
#[must_use]
pub fn arms(form: Form) -> &'static [Arm] {
    match form {
        Form::Quick => &ARMS,
        Form::Full => &FULL_ARMS,
    }
}

/// What is asked of every arm.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The suite it belongs to, and the job's name, in files.
    pub suite: &'static str,
    /// The job's name in files.
    pub job: &'static str,
    /// In a heading.
    pub title: &'static str,
    /// The jobs for so many files, bytes of each, bytes of a block.
    pub workload: fn(u32, u64, u32) -> Workload,
}

impl Question {
    /// Random writes into new files: where early writeback leaves an extent per block, and late writeback needs
    /// the memory.
    #[must_use]
    pub fn layout(workload: fn(u32, u64, u32) -> Workload) -> Self {
        Self {
            suite: "layout",
            job: "random-writes-into-new-files",
            title: "Random 4k writes, 12 new files",
            workload,
        }
    }
}

/// All that a comparison needs.
#[derive(Debug)]
pub struct Setting<'a> {
    /// What is asked.
    pub question: Question,
    /// Sizes, rounds, order.
    pub plan: &'a Plan,
    /// Knobs of the forebay arms.
    pub settings: &'a [(String, String)],
    /// Where the files go.
    pub scratch: &'a Scratch,
    /// The longest wait for quiet between two cells.
    pub quiet_within: Duration,
    /// Whether the user wants it to end.
    pub stop: &'a Stop,
}

/// One arm's cells, one per round.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The arm.
    pub arm: Arm,
    /// Its results; index is the round.
    pub rounds: Vec<CellResult>,
}

/// Why an arm is not among the results.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The arm.
    pub arm: Arm,
    /// Why.
    pub reason: String,
    /// Whether that is a failure, rather than something this kernel or file system does not do.
    pub failed: bool,
}

/// What came out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Arms that ran in every round, in the order of the table.
    pub measured: Vec<Measured>,
    /// Arms that did not.
    pub left_out: Vec<LeftOut>,
    /// The order of the arms in each round that counts.
    pub orders: Vec<Vec<Arm>>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// There is nothing to judge.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
    /// No arm is left.
    #[error("no arm could run: {0}")]
    NoArm(String),
    /// Not one round fit.
    #[error("not one round fit in {limit} (give --seconds {needed} or more, or leave it out)")]
    NoRound {
        /// The limit.
        limit: String,
        /// Seconds that would do for a verdict.
        needed: u64,
    },
    /// The scratch directory failed.
    #[error("{path}: {source} (is the disk full, or read-only?)")]
    Scratch {
        /// Where.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Runs the whole comparison.
pub fn compare(
    setting: &Setting<'_>,
    runner: &mut dyn CellRunner,
    progress: &mut Progress,
) -> Result<Outcome, CompareError> {
    Comparison {
        setting,
        runner,
        progress,
        outcome: Outcome::default(),
        started: Instant::now(),
        rounds: setting.plan.rounds,
        busy_cells: 0,
    }
    .run()
}

struct Comparison<'a, 'b> {
    setting: &'a Setting<'b>,
    runner: &'a mut dyn CellRunner,
    progress: &'a mut Progress,
    outcome: Outcome,
    started: Instant,
    /// Rounds that will run; less than planned if the time does not reach.
    rounds: u32,
    busy_cells: u32,
}

/// How a round ended.
enum Round {
    Whole,
    OutOfTime,
}

impl Comparison<'_, '_> {
    fn run(mut self) -> Result<Outcome, CompareError> {
        let plan = self.setting.plan;
        self.outcome.measured =
            plan.arms.iter().map(|arm| Measured { arm: *arm, rounds: Vec::new() }).collect();
        self.outcome.notes.clone_from(&plan.notes);
        self.warm_up()?;

        let mut longest_round = Duration::ZERO;
        let mut round = 0;
        while round < self.rounds {
            let began = Instant::now();
            if self.time_left().is_some_and(|left| left < longest_round) {
                break;
            }
            match self.round(round)? {
                Round::Whole => round += 1,
                Round::OutOfTime => break,
            }
            longest_round = longest_round.max(began.elapsed());
            if round == 1 {
                self.rounds = self.rounds_that_fit(longest_round);
                self.shorten(0, &[]);
            }
        }
        self.finish(round)
    }

    /// One short cell that does not count: it wakes the disk up, and tells its speed.
    fn warm_up(&mut self) -> Result<(), CompareError> {
        let plan = self.setting.plan;
        // A bounded arm, for its speed is nearer to that of the others than that of plain buffering.
        let arm = plan.arms.iter().copied().find(|arm| arm.is_bounded_kernel()).unwrap_or(plan.arms[0]);
        self.progress.warm_up();
        let spec = self.spec(arm, plan.warm_up, plan.cell_seed(u32::MAX), Verify::Off)?;
        match self.runner.run(&spec) {
            Ok(result) => {
                let speed = result.metrics.get("write_bytes_per_s").copied();
                self.progress.expect(plan.expected(speed), speed);
            }
            Err(RunError::Interrupted) => return Err(CompareError::Interrupted),
            // The round will tell, in the arm's own place.
            Err(RunError::Refused(_) | RunError::Failed(_)) => {}
        }
        self.settle()
    }

    /// Runs every arm once. A round that does not end does not count.
    fn round(&mut self, round: u32) -> Result<Round, CompareError> {
        let plan = self.setting.plan;
        let order = plan.order(round);
        let verify = if round == 0 { Verify::After } else { Verify::Off };
        for (place, arm) in order.iter().enumerate() {
            if self.is_left_out(*arm) {
                continue;
            }
            if self.time_left() == Some(Duration::ZERO) {
                if round == 0 {
                    return Err(self.no_round(place));
                }
                return Ok(Round::OutOfTime);
            }
            self.progress.cell(round, *arm);
            let spec = self.spec(*arm, plan.size, plan.cell_seed(round), verify)?;
            match self.runner.run(&spec) {
                Ok(result) => {
                    self.progress.done(result.metrics.get("write_bytes_per_s").copied());
                    self.keep(*arm, result);
                }
                Err(RunError::Interrupted) => return Err(CompareError::Interrupted),
                // Ctrl-C reaches the cell's process too: that it died of it is no failure of the arm.
                Err(_) if self.setting.stop.is_set() => return Err(CompareError::Interrupted),
                Err(RunError::Refused(reason)) => {
                    self.leave_out(LeftOut { arm: *arm, reason, failed: false })?;
                    self.shorten(round, &order[place + 1..]);
                }
                Err(RunError::Failed(reason)) => {
                    self.leave_out(LeftOut { arm: *arm, reason, failed: true })?;
                    self.shorten(round, &order[place + 1..]);
                }
            }
            self.settle()?;
        }
        self.outcome.orders.push(order);
        Ok(Round::Whole)
    }

    fn spec(&self, arm: Arm, size: Size, seed: u64, verify: Verify) -> Result<CellSpec, CompareError> {
        let directory = self.setting.scratch.cell_directory(arm.name()).map_err(|error| self.lost(error))?;
        let workload = (self.setting.question.workload)(size.files, size.file_bytes, size.block_bytes);
        let declared = if arm == Arm::ForebayDeclared { Declared::Yes } else { Declared::No };
        Ok(CellSpec {
            workload: workload.declared(declared),
            arm,
            directory,
            budget_bytes: size.budget_bytes,
            settings: self.setting.settings.to_vec(),
            seed,
            verify,
            sync_probe: SyncProbe::On,
        })
    }

    /// Brings the file system back to where it was before the cell.
    fn settle(&mut self) -> Result<(), CompareError> {
        let setting = self.setting;
        if setting.stop.is_set() {
            return Err(CompareError::Interrupted);
        }
        setting.scratch.clear().map_err(|error| self.lost(error))?;
        let limit = self.time_left().map_or(setting.quiet_within, |left| setting.quiet_within.min(left));
        match settle(setting.scratch.directory(), limit, setting.stop) {
            Ok(Settled::Quiet) => Ok(()),
            Ok(Settled::StillBusy) => {
                self.busy_cells += 1;
                Ok(())
            }
            Ok(Settled::Stopped) => Err(CompareError::Interrupted),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn finish(mut self, rounds: u32) -> Result<Outcome, CompareError> {
        let plan = self.setting.plan;
        if rounds < plan.rounds {
            let limit = spoken(plan.time_limit.unwrap_or_default());
            self.outcome.notes.push(format!("{rounds} rounds of {} fit in {limit}", plan.rounds));
        }
        if self.busy_cells > 0 {
            self.outcome.notes.push(format!(
                "the disk was not at rest before {} of the cells: something else uses it",
                self.busy_cells
            ));
        }
        for measured in &mut self.outcome.measured {
            // The cells of a round that did not end.
            measured.rounds.truncate(rounds as usize);
        }
        let noted = notes_of_arms(&self.outcome.measured);
        self.outcome.notes.extend(noted);
        Ok(self.outcome)
    }

    fn keep(&mut self, arm: Arm, result: CellResult) {
        let measured = self.outcome.measured.iter_mut().find(|measured| measured.arm == arm);
        measured.expect("an arm that runs is measured").rounds.push(result);
    }

    fn leave_out(&mut self, left_out: LeftOut) -> Result<(), CompareError> {
        let word = if left_out.failed { "failed" } else { "left out" };
        self.progress.say(&format!("{} {word}: {}", left_out.arm.name(), left_out.reason));
        self.outcome.measured.retain(|measured| measured.arm != left_out.arm);
        self.outcome.left_out.push(left_out);
        if self.outcome.measured.is_empty() {
            let reason = self.outcome.left_out.first().map(|first| first.reason.clone());
            return Err(CompareError::NoArm(reason.unwrap_or_default()));
        }
        Ok(())
    }

    /// Tells the progress what is left: the rest of this round, and the rounds after it.
    fn shorten(&mut self, round: u32, rest: &[Arm]) {
        let rest = rest.iter().filter(|arm| !self.is_left_out(**arm)).count() as u64;
        let rounds = u64::from(self.rounds.saturating_sub(round + 1));
        let cells = rest + rounds * self.outcome.measured.len() as u64;
        self.progress.shorten(Left { rounds_in_all: self.rounds, cells });
    }

    fn is_left_out(&self, arm: Arm) -> bool {
        self.outcome.left_out.iter().any(|left_out| left_out.arm == arm)
    }

    /// None without a limit.
    fn time_left(&self) -> Option<Duration> {
        self.setting.plan.time_limit.map(|limit| limit.saturating_sub(self.started.elapsed()))
    }

    /// Decided once, from the clock alone, after the first round.
    fn rounds_that_fit(&mut self, round_takes: Duration) -> u32 {
        let rounds = self.rounds;
        let Some(left) = self.time_left() else { return rounds };
        let more = left.as_secs_f64() / round_takes.as_secs_f64().max(1e-3);
        let fit = rounds.min((more as u32).saturating_add(1));
        if fit < rounds {
            self.progress.say(&format!(
                "a round takes {}: {fit} of {rounds} rounds fit in the time given",
                spoken(round_takes)
            ));
            if (fit as usize) < ROUNDS_FOR_A_VERDICT {
                let needed = self.started.elapsed() + round_takes * (ROUNDS_FOR_A_VERDICT as u32 - 1);
                self.progress.say(&format!(
                    "below {ROUNDS_FOR_A_VERDICT} rounds no verdict is given (--seconds {} would do)",
                    seconds_with_slack(needed)
                ));
            }
        }
        fit
    }

    fn no_round(&self, cells_done: usize) -> CompareError {
        let plan = self.setting.plan;
        let cell = self.started.elapsed() / u32::try_from(cells_done).unwrap_or(1).max(1);
        let cells = u32::try_from(plan.arms.len() * ROUNDS_FOR_A_VERDICT).unwrap_or(u32::MAX);
        CompareError::NoRound {
            limit: spoken(plan.time_limit.unwrap_or_default()),
            needed: seconds_with_slack(cell.saturating_mul(cells)),
        }
    }

    fn lost(&self, source: std::io::Error) -> CompareError {
        CompareError::Scratch { path: self.setting.scratch.path().display().to_string(), source }
    }
}

/// Whole seconds, a quarter more than measured.
fn seconds_with_slack(duration: Duration) -> u64 {
    (duration.as_secs_f64() * 1.25).ceil().max(1.0) as u64
}

/// What cells noted, each once, with the arms it is true of.
fn notes_of_arms(measured: &[Measured]) -> Vec<String> {
    let mut noted: Vec<(&str, Vec<&str>)> = Vec::new();
    for Measured { arm, rounds } in measured {
        for note in rounds.iter().flat_map(|result| &result.notes) {
            match noted.iter_mut().find(|(known, _)| known == note) {
                Some((_, arms)) if arms.contains(&arm.name()) => {}
                Some((_, arms)) => arms.push(arm.name()),
                None => noted.push((note, vec![arm.name()])),
            }
        }
    }
    let said = |(note, arms): (&str, Vec<&str>)| match arms.len() {
        count if count > 1 && count == measured.len() => format!("every arm: {note}"),
        _ => format!("{}: {note}", arms.join(", ")),
    };
    noted.into_iter().map(said).collect()
}

#[cfg(test)]
mod tests;
