//! A comparison: one question, several arms, in rounds.
//!
//! ```text
//! warm-up   round 1: C A D B   round 2: B D A C   ...   judge
//!                    |
//!                    +-- fresh directory, cell, remove its files, syncfs, wait until quiet
//! ```
//!
//! Cells run one at a time, each in an empty directory on a file system that has come to rest, so
//! that none pays for what another left. The data is read back once per arm, in the first round,
//! after the clock has stopped.
//!
//! An arm that this kernel or file system refuses is left out, with its reason; one that fails (a
//! wrong byte, a dead process) is left out too, and the comparison as a whole counts as failed.
//! Both lose the rounds they have: half an arm cannot be paired.

mod device;
mod drift;
pub mod judge;
mod notes;
pub mod outcome;
pub mod record;
pub mod runner;
pub mod settle;
pub mod state;
pub mod trial;
mod writes;

use std::mem;
use std::time::{Duration, Instant};

use crate::cell::{Cell, CellResult, Place, Verify, Work};
use crate::load::data;
use crate::plan::{PlannedArm, Turn};
use crate::progress::{Left, Progress, Speed};
use crate::statistics::ROUNDS_FOR_A_VERDICT;
use crate::text::{counted, spoken};
use crate::tuning::{Held, Journal, Places};
use device::{Device, Found};
pub use outcome::{CompareError, LeftOut, Measured, Outcome, Setting};
use record::{PartOfRecord, RoundRecord};
use runner::{CellRunner, RunError};
use settle::{Settled, settle};
use state::Before;
pub use writes::Writes;

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

enum Round {
    Whole,
    OutOfTime,
    OutOfWrites,
}

impl Comparison<'_, '_> {
    fn run(mut self) -> Result<Outcome, CompareError> {
        let plan = self.setting.plan;
        for job in &plan.jobs {
            let measured = |arm: &str| Measured {
                job: job.name.clone(),
                arm: arm.to_owned(),
                rounds: Vec::new(),
            };
            self.outcome.measured.extend(job.arms.iter().map(|arm| measured(&arm.name)));
        }
        self.outcome.notes.clone_from(&plan.notes);
        let mut round = self.take_up()?;
        if round < self.rounds {
            self.find_device()?;
            self.lay_out()?;
            self.warm_up()?;
        }

        let mut longest_round = Duration::ZERO;
        let first = round;
        while round < self.rounds {
            let began = Instant::now();
            if self.time_left().is_some_and(|left| left < longest_round) {
                break;
            }
            match self.round(round)? {
                Round::Whole => self.write_down(round)?,
                Round::OutOfTime => break,
                Round::OutOfWrites => {
                    let most = self.setting.writes.most().unwrap_or_default() >> 20;
                    let note = format!(
                        "{round} of {} fit in the {most} MiB of --max-writes",
                        counted(plan.rounds.into(), "round")
                    );
                    self.outcome.notes.push(note);
                    break;
                }
            }
            round += 1;
            longest_round = longest_round.max(began.elapsed());
            if round == first + 1 {
                self.rounds = self.rounds_that_fit(round, longest_round);
                self.shorten(round - 1, &[]);
            }
        }
        self.finish(round)
    }

    /// Rounds that an earlier run has written down; returns how many.
    fn take_up(&mut self) -> Result<u32, CompareError> {
        let Some(PartOfRecord { record, part }) = self.setting.record else { return Ok(0) };
        let rounds = record.borrow().of(part);
        let rounds = &rounds[..rounds.len().min(self.setting.plan.rounds as usize)];
        let Some(last) = rounds.last() else { return Ok(0) };
        for left_out in &last.left_out {
            self.leave_out(left_out.clone())?;
        }
        for round in rounds {
            for measured in &mut self.outcome.measured {
                measured.rounds.extend(round.result(&measured.job, &measured.arm).cloned());
            }
            self.outcome.states.extend(round.states.iter().cloned());
            self.outcome.orders.push(round.order.clone());
        }
        let many = rounds.len() as u32;
        // A job that could not run then has no rounds to be paired with.
        let jobs = self.setting.plan.jobs.iter();
        let without = |job: &String| {
            let mut of_job = self.outcome.measured.iter().filter(|one| one.job == *job);
            of_job.any(|one| one.rounds.len() < rounds.len())
        };
        let skipped: Vec<String> = jobs.map(|job| job.name.clone()).filter(without).collect();
        self.outcome.measured.retain(|one| !skipped.contains(&one.job));
        self.skipped.extend(skipped);
        self.progress.say(&format!("Resuming after round {many}."));
        let resumed = counted(u64::from(many), "round");
        self.outcome.notes.push(format!("the first {resumed} ran earlier and were resumed"));
        Ok(many)
    }

    fn write_down(&mut self, round: u32) -> Result<(), CompareError> {
        let Some(PartOfRecord { record, part }) = self.setting.record else { return Ok(()) };
        let of_round = self.outcome.states.iter().filter(|state| state.round == round);
        let whole = RoundRecord {
            left_out: self.outcome.left_out.clone(),
            states: of_round.cloned().collect(),
            order: self.outcome.orders.last().cloned().unwrap_or_default(),
            ..RoundRecord::new(part, round, &self.outcome.measured)
        };
        Ok(record.borrow_mut().append(whole)?)
    }

    /// Writes the file that requests go to, unless an earlier part has.
    fn lay_out(&mut self) -> Result<(), CompareError> {
        let Some(bytes) = self.setting.plan.data_bytes else { return Ok(()) };
        let scratch = self.setting.scratch;
        let directory = scratch.shared_directory().map_err(|error| self.lost(error))?;
        if !data::is_laid_out(&directory, bytes) {
            if !self.setting.writes.has_room(bytes) {
                return Err(self.setting.writes.no_round());
            }
            self.setting.writes.add(bytes);
        }
        match data::lay_out(&directory, bytes, self.setting.plan.seed, self.setting.stop) {
            Ok(data::LaidOut::Whole) => Ok(()),
            Ok(data::LaidOut::Stopped) => Err(CompareError::Interrupted),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Runs short cells that do not count: they wake the disk up, and show its speed.
    fn warm_up(&mut self) -> Result<(), CompareError> {
        let plan = self.setting.plan;
        if plan.warm_up_work.wants_device() && self.device.is_none() {
            return Ok(());
        }
        if !self.setting.writes.allow(&plan.warm_up_work) {
            return Err(self.setting.writes.no_round());
        }
        self.progress.warm_up();
        let cell = self.cell(
            "warm-up",
            (&plan.warm_up, &plan.warm_up_work),
            plan.cell_seed(u32::MAX),
            Verify::Off,
        )?;
        match self.runner.run(&cell) {
            Ok(result) if plan.writes_so_much() => {
                self.setting.writes.count(&plan.warm_up_work, &result);
                let speed = result.metrics.get("write_bytes_per_s").copied();
                self.progress.expect(plan.expected(speed), speed);
            }
            Ok(result) => self.setting.writes.count(&plan.warm_up_work, &result),
            Err(RunError::Interrupted) => return Err(CompareError::Interrupted),
            // The round will tell, in the arm's own place.
            Err(RunError::Refused(_) | RunError::Failed(_)) => {}
        }
        self.settle()?;
        for arm in plan.arms_to_warm_up() {
            self.warm_up_arm(&arm)?;
        }
        Ok(())
    }

    fn warm_up_arm(&mut self, arm: &PlannedArm) -> Result<(), CompareError> {
        let plan = self.setting.plan;
        let nowhere = arm.work.wants_device() && self.device.is_none();
        if nowhere
            || self.time_left() == Some(Duration::ZERO)
            || !self.setting.writes.allow(&arm.work)
        {
            return Ok(());
        }
        let cell =
            self.cell("warm-up", (&arm.cell, &arm.work), plan.cell_seed(u32::MAX), Verify::Off)?;
        match self.run_with(arm, &cell) {
            Ok(result) => self.setting.writes.count(&arm.work, &result),
            Err(RunError::Interrupted) => return Err(CompareError::Interrupted),
            Err(RunError::Refused(_) | RunError::Failed(_)) => {}
        }
        self.settle()
    }

    /// Runs every arm of every job once. A round that does not end does not count.
    fn round(&mut self, round: u32) -> Result<Round, CompareError> {
        let plan = self.setting.plan;
        let order = plan.order(round);
        let setting = self.setting;
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
            if !self.setting.writes.allow(&arm.work) {
                if round == 0 {
                    return Err(self.setting.writes.no_round());
                }
                return Ok(Round::OutOfWrites);
            }
            let in_job =
                if plan.jobs.len() > 1 { format!("{}  ", job.title) } else { String::new() };
            self.progress.cell(round, &in_job, &arm.name);
            let cell =
                self.cell(&arm.name, (&arm.cell, &arm.work), plan.cell_seed(round), verify)?;
            let before = Before::look(setting.scratch.path());
            let ran = self.run_with(arm, &cell);
            let failed = match ran {
                Ok(result) => {
                    setting.writes.count(&arm.work, &result);
                    self.progress.done(speed_of(&result));
                    self.outcome.states.push(before.ended(round, &job.name, &arm.name));
                    self.keep(*turn, result);
                    None
                }
                Err(RunError::Interrupted) => return Err(CompareError::Interrupted),
                // Ctrl-C reaches the cell's process too: that it died of it is no failure of the
                // arm.
                Err(_) if self.setting.stop.is_set() => return Err(CompareError::Interrupted),
                Err(RunError::Refused(reason)) => Some((reason, false)),
                Err(RunError::Failed(reason)) => Some((reason, true)),
            };
            if let Some((reason, failed)) = failed {
                let (job, arm) = (job.name.clone(), arm.name.clone());
                self.leave_out(LeftOut { job, arm, reason, failed })?;
                self.shorten(round, &order[place + 1..]);
            }
            if arm.work.on_disk {
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

    /// Runs a cell while the machine is set as its arm wants it, and puts that back.
    fn run_with(&mut self, arm: &PlannedArm, cell: &Cell) -> Result<CellResult, RunError> {
        let tunings = arm.settings_of_machine();
        if tunings.is_empty() {
            return self.runner.run(cell);
        }
        let scratch = self.setting.scratch;
        let on = self.setting.plan.target.as_ref().map(|target| target.path().to_owned());
        let device = self.device.as_ref().filter(|_| arm.work.wants_device());
        let on = on.or_else(|| device.map(|device| device.path().to_owned()));
        let on =
            on.unwrap_or_else(|| arm.work.works_on(cell).unwrap_or(&cell.directory).to_owned());
        let places = Places::under(&on);
        let journal = Journal::of(scratch.path());
        let held = Held::new(&tunings, &places, &journal, self.setting.claim);
        let held = held.map_err(|error| RunError::Refused(error.to_string()))?;
        let ran = self.runner.run(cell);
        held.release().map_err(RunError::Failed)?;
        ran
    }

    /// Returns a planned cell in its place.
    fn cell(
        &self,
        name: &str,
        (planned, work): (&Cell, &Work),
        seed: u64,
        verify: Verify,
    ) -> Result<Cell, CompareError> {
        let Setting { scratch, stop, .. } = *self.setting;
        let device = self.device.as_ref().map(Device::path);
        let place = Place { name, scratch, seed, verify, device };
        planned.at(work, &place).map_err(|error| match stop.is_set() {
            // Making the file system of a cell takes a while, and ends too.
            true => CompareError::Interrupted,
            false => self.lost(error),
        })
    }

    /// Finds a device for arms that need one. Without a device these arms are left out, jobs
    /// without other arms are skipped, and both are reported.
    fn find_device(&mut self) -> Result<(), CompareError> {
        let plan = self.setting.plan;
        let Some(bytes) = plan.device_bytes() else { return Ok(()) };
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
            return Err(CompareError::NoArm {
                reason,
                left_out: mem::take(&mut self.outcome.left_out),
            });
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
        let limit =
            self.time_left().map_or(setting.quiet_within, |left| setting.quiet_within.min(left));
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
        for measured in &mut self.outcome.measured {
            // The cells of a round that did not end.
            measured.rounds.truncate(rounds as usize);
        }
        self.outcome.states.retain(|state| state.round < rounds);
        let whole = |one: &Measured| one.rounds.len() == rounds as usize;
        assert!(self.outcome.measured.iter().all(whole), "an arm lacks a round of others");
        assert_eq!(self.outcome.orders.len(), rounds as usize, "each round has an order");
        if let (true, Some(limit)) = (rounds < plan.rounds, plan.time_limit) {
            let limit = spoken(limit);
            let planned = counted(plan.rounds.into(), "round");
            self.outcome.notes.push(format!("{rounds} of {planned} fit in {limit} (--seconds)"));
        }
        if self.busy_cells > 0 {
            self.outcome.notes.push(format!(
                "another program used the disk before {}; stop it and repeat",
                counted(self.busy_cells.into(), "run")
            ));
        }
        let noted = notes::of_arms(&self.outcome.measured);
        self.outcome.notes.extend(noted);
        self.outcome.notes.extend(state::notes(&self.outcome.states));
        self.outcome.notes.extend(drift::notes(&self.outcome.measured, self.setting.metric));
        Ok(self.outcome)
    }

    fn keep(&mut self, turn: Turn, result: CellResult) {
        let plan = self.setting.plan;
        let (job, arm) = (&plan.jobs[turn.job].name, &plan.arm(turn).name);
        let measured =
            self.outcome.measured.iter_mut().find(|one| one.job == *job && one.arm == *arm);
        let measured = measured.expect("an arm that runs is measured");
        assert!(measured.rounds.len() < plan.rounds as usize, "more results than rounds");
        measured.rounds.push(result);
    }

    fn leave_out(&mut self, left_out: LeftOut) -> Result<(), CompareError> {
        let word = if left_out.failed { "failed" } else { "left out" };
        let mut of_arm = self.outcome.left_out.iter().filter(|one| one.arm == left_out.arm);
        if of_arm.clone().any(|one| one.job == left_out.job) {
            return Ok(());
        }
        if !of_arm.any(|one| one.reason == left_out.reason) {
            self.progress.say(&format!("{} {word}: {}", left_out.arm, left_out.reason));
        }
        self.outcome.measured.retain(|one| one.arm != left_out.arm || one.job != left_out.job);
        self.outcome.left_out.push(left_out);
        if self.outcome.measured.is_empty() {
            let left_out = mem::take(&mut self.outcome.left_out);
            let reason = left_out.first().map(|first| first.reason.clone()).unwrap_or_default();
            return Err(CompareError::NoArm { reason, left_out });
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
        self.skipped.contains(job)
            || left_out.any(|left_out| left_out.job == *job && left_out.arm == *arm)
    }

    /// Returns the time left; none without a limit.
    fn time_left(&self) -> Option<Duration> {
        self.setting.plan.time_limit.map(|limit| limit.saturating_sub(self.started.elapsed()))
    }

    /// Returns the rounds that fit in the time limit. Decided once, from the clock alone, after the
    /// first round that ran.
    fn rounds_that_fit(&mut self, done: u32, round_takes: Duration) -> u32 {
        let rounds = self.rounds;
        let Some(left) = self.time_left() else { return rounds };
        let more = left.as_secs_f64() / round_takes.as_secs_f64().max(1e-3);
        let fit = rounds.min((more as u32).saturating_add(done));
        assert!(done <= fit, "{fit} rounds fit, and {done} are done");
        if fit < rounds {
            self.progress.say(&format!(
                "a round takes {}: {fit} of {} fit in the time limit",
                spoken(round_takes),
                counted(rounds.into(), "round")
            ));
            if (fit as usize) < ROUNDS_FOR_A_VERDICT {
                let needed =
                    self.started.elapsed() + round_takes * (ROUNDS_FOR_A_VERDICT as u32 - done);
                self.progress.say(&format!(
                    "fewer than {ROUNDS_FOR_A_VERDICT} rounds show no difference; use --seconds {}",
                    seconds_with_slack(needed)
                ));
            }
        }
        fit
    }

    fn no_round(&self, cells_done: usize) -> CompareError {
        let plan = self.setting.plan;
        let cell = self.started.elapsed() / u32::try_from(cells_done).unwrap_or(1).max(1);
        let cells = u32::try_from(plan.cells_in_a_round() as usize * ROUNDS_FOR_A_VERDICT)
            .unwrap_or(u32::MAX);
        let limit = spoken(plan.time_limit.unwrap_or_default());
        let needed = seconds_with_slack(cell.saturating_mul(cells));
        CompareError::NoRound(format!("{limit}; use --seconds {needed} or more, or no limit"))
    }

    fn lost(&self, source: std::io::Error) -> CompareError {
        CompareError::Scratch { path: self.setting.scratch.path().display().to_string(), source }
    }
}

/// Returns whole seconds, a quarter more than measured.
fn seconds_with_slack(duration: Duration) -> u64 {
    (duration.as_secs_f64() * 1.25).ceil().max(1.0) as u64
}

/// Returns the speed that the progress shows.
fn speed_of(result: &CellResult) -> Option<Speed> {
    let of = |metric: &str| result.metrics.get(metric).copied();
    // Of a cell of requests both are known, and operations are what is asked.
    if result.metrics.contains_key("ns_per_io") {
        return of("iops").map(Speed::Operations);
    }
    of("write_bytes_per_s").map(Speed::Bytes)
}

#[cfg(test)]
mod tests;
