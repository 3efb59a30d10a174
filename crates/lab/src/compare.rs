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

mod cells;
mod device;
pub mod judge;
mod notes;
pub mod runner;
pub mod settle;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cell::{Cell, CellResult, Verify};
use crate::load::raw::data;
use crate::plan::{Plan, Turn, Work, spoken};
use crate::progress::{Left, Progress, Speed};
use crate::scratch::{Scratch, Stop};
use crate::statistics::ROUNDS_FOR_A_VERDICT;
use cells::Turned;
use device::{Device, Found};
use runner::{CellRunner, Named, RunError};
use settle::{Settled, settle};

/// All that a comparison needs.
#[derive(Debug)]
pub struct Setting<'a> {
    /// Jobs, arms, sizes, rounds, order.
    pub plan: &'a Plan,
    /// Knobs of the engine.
    pub settings: &'a [(String, String)],
    /// Where the files go.
    pub scratch: &'a Scratch,
    /// The block device that jobs on one write over, if the user names one.
    pub target: Option<&'a Path>,
    /// The longest wait for quiet between two cells.
    pub quiet_within: Duration,
    /// Whether the user wants it to end.
    pub stop: &'a Stop,
}

/// One arm's cells in one job, one per round.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The job.
    pub job: String,
    /// The arm.
    pub arm: String,
    /// Its results; index is the round.
    pub rounds: Vec<CellResult>,
}

/// Why an arm is not among the results of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The job.
    pub job: String,
    /// The arm.
    pub arm: String,
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
    /// The order of the arms in each round that counts; with the job, where there are several.
    pub orders: Vec<Vec<String>>,
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
        device: None,
        skipped: Vec::new(),
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
    /// Where jobs on a device work, once one is there.
    device: Option<Device>,
    /// Jobs that cannot run here.
    skipped: Vec<String>,
}

/// How a round ended.
enum Round {
    Whole,
    OutOfTime,
}

impl Comparison<'_, '_> {
    fn run(mut self) -> Result<Outcome, CompareError> {
        let plan = self.setting.plan;
        for job in &plan.jobs {
            let measured =
                |arm: &str| Measured { job: job.name.clone(), arm: arm.to_owned(), rounds: Vec::new() };
            self.outcome.measured.extend(job.arms.iter().map(|arm| measured(&arm.name)));
        }
        self.outcome.notes.clone_from(&plan.notes);
        self.lay_out()?;
        self.find_device()?;
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

    /// Writes the file that requests go to, unless an earlier part has.
    fn lay_out(&mut self) -> Result<(), CompareError> {
        let Some(bytes) = self.setting.plan.data_bytes else { return Ok(()) };
        let scratch = self.setting.scratch;
        let directory = scratch.shared_directory().map_err(|error| self.lost(error))?;
        match data::lay_out(&directory, bytes, self.setting.plan.seed, self.setting.stop) {
            Ok(data::LaidOut::Whole) => Ok(()),
            Ok(data::LaidOut::Stopped) => Err(CompareError::Interrupted),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// One short cell that does not count: it wakes the disk up, and tells its speed.
    fn warm_up(&mut self) -> Result<(), CompareError> {
        let plan = self.setting.plan;
        if plan.warm_up.wants_device() && self.device.is_none() {
            return Ok(());
        }
        self.progress.warm_up();
        self.runner.next(Named { job: "", arm: "warm-up", round: None });
        let cell = self.cell("warm-up", &plan.warm_up, plan.cell_seed(u32::MAX), Verify::Off)?;
        match self.runner.run(&cell) {
            Ok(result) if plan.writes_so_much() => {
                let speed = result.metrics.get("write_bytes_per_s").copied();
                self.progress.expect(plan.expected(speed), speed);
            }
            Ok(_) => {}
            Err(RunError::Interrupted) => return Err(CompareError::Interrupted),
            // The round will tell, in the arm's own place.
            Err(RunError::Refused(_) | RunError::Failed(_)) => {}
        }
        self.settle()
    }

    /// Runs every arm of every job once. A round that does not end does not count.
    fn round(&mut self, round: u32) -> Result<Round, CompareError> {
        let plan = self.setting.plan;
        let order = plan.order(round);
        let verify = if round == 0 { Verify::After } else { Verify::Off };
        for (place, turn) in order.iter().enumerate() {
            if self.is_left_out(*turn) {
                continue;
            }
            if self.time_left() == Some(Duration::ZERO) {
                if round == 0 {
                    return Err(self.no_round(place));
                }
                return Ok(Round::OutOfTime);
            }
            let (job, arm) = (&plan.jobs[turn.job], plan.arm(*turn));
            let in_job = if plan.jobs.len() > 1 { format!("{}  ", job.title) } else { String::new() };
            self.progress.cell(round, &in_job, &arm.name);
            self.runner.next(Named { job: &job.name, arm: &arm.name, round: Some(round) });
            let cell = self.cell(&arm.name, &arm.work, plan.cell_seed(round), verify)?;
            let failed = match self.runner.run(&cell) {
                Ok(result) => {
                    self.progress.done(speed_of(&result));
                    self.keep(*turn, result);
                    None
                }
                Err(RunError::Interrupted) => return Err(CompareError::Interrupted),
                // Ctrl-C reaches the cell's process too: that it died of it is no failure of the arm.
                Err(_) if self.setting.stop.is_set() => return Err(CompareError::Interrupted),
                Err(RunError::Refused(reason)) => Some((reason, false)),
                Err(RunError::Failed(reason)) => Some((reason, true)),
            };
            if let Some((reason, failed)) = failed {
                let (job, arm) = (job.name.clone(), arm.name.clone());
                self.leave_out(LeftOut { job, arm, reason, failed })?;
                self.shorten(round, &order[place + 1..]);
            }
            if arm.work.on_disk() {
                self.settle()?;
            } else if self.setting.stop.is_set() {
                return Err(CompareError::Interrupted);
            }
        }
        let named = |turn: &Turn| match plan.jobs.as_slice() {
            [_] => plan.arm(*turn).name.clone(),
            jobs => format!("{}/{}", jobs[turn.job].name, plan.arm(*turn).name),
        };
        let ran = order.iter().filter(|turn| !self.skipped.contains(&plan.jobs[turn.job].name));
        self.outcome.orders.push(ran.map(named).collect());
        Ok(Round::Whole)
    }

    fn cell(&self, name: &str, work: &Work, seed: u64, verify: Verify) -> Result<Cell, CompareError> {
        let device = self.device.as_ref().map(Device::path);
        let turned = Turned { name, seed, verify, device };
        cells::cell(self.setting, work, turned).map_err(|error| match self.setting.stop.is_set() {
            // Making the file system of a cell takes a while, and ends too.
            true => CompareError::Interrupted,
            false => self.lost(error),
        })
    }

    /// Sees to a device where an arm wants one. Where there is none such arms are left out, and a job of nothing else is
    /// skipped, and that is said.
    fn find_device(&mut self) -> Result<(), CompareError> {
        let plan = self.setting.plan;
        let lengths = plan.jobs.iter().flat_map(|job| &job.arms).filter_map(|arm| arm.work.device_bytes());
        let Some(bytes) = lengths.max() else { return Ok(()) };
        let reason = match device::find(self.setting, bytes).map_err(|error| self.lost(error))? {
            Found::Device(device) => {
                self.device = Some(device);
                return Ok(());
            }
            Found::Stopped => return Err(CompareError::Interrupted),
            Found::None(reason) => reason,
        };
        for job in &plan.jobs {
            let (wanting, others): (Vec<_>, Vec<_>) =
                job.arms.iter().partition(|arm| arm.work.wants_device());
            if !others.is_empty() {
                // The rest of the job has something to say without them.
                for arm in wanting {
                    let (job, arm, reason) = (job.name.clone(), arm.name.clone(), reason.clone());
                    self.leave_out(LeftOut { job, arm, reason, failed: false })?;
                }
                continue;
            }
            let note = format!("{} is skipped: {reason}", job.title);
            self.progress.say(&note);
            self.outcome.notes.push(note);
            self.outcome.measured.retain(|one| one.job != job.name);
            self.skipped.push(job.name.clone());
        }
        if self.outcome.measured.is_empty() {
            return Err(CompareError::NoArm(reason));
        }
        self.progress.shorten(Left {
            rounds_in_all: self.rounds,
            cells: u64::from(self.rounds) * self.outcome.measured.len() as u64,
        });
        Ok(())
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
        let noted = notes::of_arms(&self.outcome.measured);
        self.outcome.notes.extend(noted);
        Ok(self.outcome)
    }

    fn keep(&mut self, turn: Turn, result: CellResult) {
        let plan = self.setting.plan;
        let (job, arm) = (&plan.jobs[turn.job].name, &plan.arm(turn).name);
        let measured = self.outcome.measured.iter_mut().find(|one| one.job == *job && one.arm == *arm);
        measured.expect("an arm that runs is measured").rounds.push(result);
    }

    fn leave_out(&mut self, left_out: LeftOut) -> Result<(), CompareError> {
        let word = if left_out.failed { "failed" } else { "left out" };
        let known =
            self.outcome.left_out.iter().any(|one| one.arm == left_out.arm && one.reason == left_out.reason);
        if !known {
            self.progress.say(&format!("{} {word}: {}", left_out.arm, left_out.reason));
        }
        self.outcome.measured.retain(|one| one.arm != left_out.arm || one.job != left_out.job);
        self.outcome.left_out.push(left_out);
        if self.outcome.measured.is_empty() {
            let reason = self.outcome.left_out.first().map(|first| first.reason.clone());
            return Err(CompareError::NoArm(reason.unwrap_or_default()));
        }
        Ok(())
    }

    /// Tells the progress what is left: the rest of this round, and the rounds after it.
    fn shorten(&mut self, round: u32, rest: &[Turn]) {
        let rest = rest.iter().filter(|turn| !self.is_left_out(**turn)).count() as u64;
        let rounds = u64::from(self.rounds.saturating_sub(round + 1));
        let cells = rest + rounds * self.outcome.measured.len() as u64;
        self.progress.shorten(Left { rounds_in_all: self.rounds, cells });
    }

    fn is_left_out(&self, turn: Turn) -> bool {
        let plan = self.setting.plan;
        let (job, arm) = (&plan.jobs[turn.job].name, &plan.arm(turn).name);
        let mut left_out = self.outcome.left_out.iter();
        self.skipped.contains(job) || left_out.any(|left_out| left_out.job == *job && left_out.arm == *arm)
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
        let cells =
            u32::try_from(plan.cells_in_a_round() as usize * ROUNDS_FOR_A_VERDICT).unwrap_or(u32::MAX);
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

/// What a cell is remembered by while it runs.
fn speed_of(result: &CellResult) -> Option<Speed> {
    let of = |metric: &str| result.metrics.get(metric).copied();
    // Of a cell of requests both are known, and operations are what is asked.
    if result.metrics.contains_key("ns_per_io") {
        return of("iops").map(Speed::Operations);
    }
    if let Some(rate) = of("requests_per_s") {
        return Some(Speed::Operations(rate));
    }
    of(judge::THROUGHPUT).map(Speed::Bytes)
}

#[cfg(test)]
mod tests;
