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
pub mod settle;
pub mod state;
pub mod trial;
mod writes;

use std::time::{Duration, Instant};

use crate::cell::{Cell, CellResult, Ground, Verify};
use crate::load::data;
use crate::plan::{PlannedArm, Turn};
use crate::progress::Progress;
use crate::statistics::ROUNDS_FOR_A_VERDICT;
use crate::target::Target;
use crate::text::{counted, spoken};
use crate::tuning::{Held, Journal, Places};
use device::{Device, Found};
pub use outcome::{CompareError, LeftOut, Measured, Outcome, RunError, Setting};
use record::{CellRecord, PartOfRecord, Round};
use settle::{Settled, settle};
use state::Before;
pub use writes::Writes;

/// Runs a cell to its end. Returns [`RunError::Interrupted`] soon after the user wanted it to end,
/// with nothing left running that could write into the cell's directory.
pub type CellRunner<'a> = &'a mut dyn FnMut(&Cell) -> Result<CellResult, RunError>;

pub fn compare(
    setting: &Setting<'_>,
    runner: CellRunner<'_>,
    progress: &mut Progress,
) -> Result<Outcome, CompareError> {
    Comparison {
        setting,
        runner,
        progress,
        started: Instant::now(),
        rounds: setting.plan.rounds,
        done: Vec::new(),
        left_out: Vec::new(),
        skipped: Vec::new(),
        notes: setting.plan.notes.clone(),
        busy_cells: 0,
        device: None,
    }
    .run()
}

struct Comparison<'a, 'b> {
    setting: &'a Setting<'b>,
    runner: CellRunner<'a>,
    progress: &'a mut Progress,
    started: Instant,
    /// Rounds that will run; less than planned if the time does not reach.
    rounds: u32,
    done: Vec<Round>,
    left_out: Vec<LeftOut>,
    /// Jobs that cannot run here.
    skipped: Vec<String>,
    notes: Vec<String>,
    busy_cells: u32,
    /// Where jobs on a device work, once one is there.
    device: Option<Device>,
}

impl Comparison<'_, '_> {
    fn run(mut self) -> Result<Outcome, CompareError> {
        self.take_up()?;
        let first = self.done.len() as u32;
        if first < self.rounds {
            self.find_device()?;
            self.lay_out()?;
            self.warm_up()?;
        }
        let mut longest_round = Duration::ZERO;
        for number in first.. {
            let began = Instant::now();
            let late = self.time_left().is_some_and(|left| left < longest_round);
            if number >= self.rounds || late {
                break;
            }
            let Some(round) = self.round(number)? else { break };
            if let Some(PartOfRecord { record, .. }) = self.setting.record {
                record.borrow_mut().append(&round)?;
            }
            self.done.push(round);
            longest_round = longest_round.max(began.elapsed());
            if number == first {
                self.rounds = self.rounds_that_fit(number + 1, longest_round);
                self.shorten(number, &[]);
            }
        }
        Ok(self.finish())
    }

    /// Takes over the rounds that an earlier run has written down.
    fn take_up(&mut self) -> Result<(), CompareError> {
        let Some(PartOfRecord { record, part }) = self.setting.record else { return Ok(()) };
        let plan = self.setting.plan;
        self.done = record.borrow().of(part);
        self.done.truncate(plan.rounds as usize);
        let Some(last) = self.done.last().cloned() else { return Ok(()) };
        for left_out in last.left_out {
            self.leave_out(left_out)?;
        }
        // A job that could not run then has no rounds to be paired with.
        let ran = |job: &str| last.cells.iter().any(|cell| cell.state.job == job);
        let known = |job: &str| ran(job) || self.left_out.iter().any(|one| one.job == job);
        let jobs = plan.jobs.iter().map(|job| job.name.clone());
        self.skipped = jobs.filter(|job| !known(job)).collect();
        let resumed = counted(self.done.len() as u64, "round");
        self.progress.say(&format!("Resuming after round {}.", self.done.len()));
        self.notes.push(format!("the first {resumed} ran earlier and were resumed"));
        Ok(())
    }

    /// Writes the file that requests go to, unless an earlier part has.
    fn lay_out(&mut self) -> Result<(), CompareError> {
        let Some(bytes) = self.setting.plan.data_bytes else { return Ok(()) };
        let scratch = self.setting.scratch;
        let directory = scratch.shared_directory()?;
        if !data::is_laid_out(&directory, bytes) {
            if !self.setting.writes.has_room(bytes) {
                return Err(self.setting.writes.no_round());
            }
            self.setting.writes.add(bytes);
        }
        match data::lay_out(&directory, bytes, self.setting.plan.seed, self.setting.stop)? {
            data::LaidOut::Whole => Ok(()),
            data::LaidOut::Stopped => Err(CompareError::Interrupted),
        }
    }

    /// Runs short cells that do not count. If one fails, the first round reports that.
    fn warm_up(&mut self) -> Result<(), CompareError> {
        let Setting { plan, writes, .. } = *self.setting;
        self.progress.warm_up();
        for (place, arm) in plan.warm_ups().iter().enumerate() {
            let nowhere = arm.work.wants_device() && self.device.is_none();
            if nowhere || self.time_left() == Some(Duration::ZERO) {
                continue;
            }
            if !writes.allow(&arm.work) {
                if place == 0 {
                    return Err(writes.no_round());
                }
                continue;
            }
            let seed = plan.cell_seed(u32::MAX);
            let cell = self.cell("warm-up", arm, seed, self.verify(false))?;
            match self.run_with(arm, &cell) {
                Ok(result) => {
                    writes.count(&arm.work, &result);
                    if place == 0 && plan.writes_so_much() {
                        let speed = result.metrics.get("write_bytes_per_s").copied();
                        self.progress.expect(plan.expected(speed), speed);
                    }
                }
                Err(RunError::Interrupted) => return Err(CompareError::Interrupted),
                Err(RunError::Refused(_) | RunError::Failed(_)) => {}
            }
            self.settle()?;
        }
        Ok(())
    }

    /// Returns whether a cell reads its data back. Data that is not read back is new in one word of
    /// each sector only. An image in memory would have to keep all bytes of it.
    fn verify(&self, is_first_round: bool) -> Verify {
        let is_verified = is_first_round || self.setting.scratch.is_in_memory();
        if is_verified { Verify::After } else { Verify::Off }
    }

    /// Runs every arm of every job once. Returns nothing if a limit ends the round.
    fn round(&mut self, number: u32) -> Result<Option<Round>, CompareError> {
        let Setting { plan, scratch, stop, writes, .. } = *self.setting;
        let order = plan.order(number);
        let verify = self.verify(number == 0);
        let mut cells = Vec::new();
        for (place, turn) in order.iter().enumerate() {
            if self.is_left_out(*turn) {
                continue;
            }
            let (job, arm) = (&plan.jobs[turn.job], plan.arm(*turn));
            if self.time_left() == Some(Duration::ZERO) {
                return if number == 0 { Err(self.no_round(place)) } else { Ok(None) };
            }
            if !writes.allow(&arm.work) {
                return if number == 0 { Err(writes.no_round()) } else { Ok(self.full(number)) };
            }
            let in_job =
                if plan.jobs.len() > 1 { format!("{}  ", job.title) } else { String::new() };
            self.progress.cell(number, &in_job, &arm.name);
            let seed = plan.cell_seed(number);
            let cell = self.cell(&arm.name, arm, seed, verify)?;
            let before = Before::look(scratch.path());
            let failed = match self.run_with(arm, &cell) {
                Ok(result) => {
                    writes.count(&arm.work, &result);
                    self.progress.done(&speed_of(&result));
                    let state = before.ended(number, &job.name, &arm.name);
                    cells.push(CellRecord { state, result });
                    None
                }
                Err(RunError::Interrupted) => return Err(CompareError::Interrupted),
                // Ctrl-C reaches the cell's process too: that it died of it is no failure of the
                // arm.
                Err(_) if stop.is_set() => return Err(CompareError::Interrupted),
                Err(RunError::Refused(reason)) => Some((reason, false)),
                Err(RunError::Failed(reason)) => Some((reason, true)),
            };
            if let Some((reason, failed)) = failed {
                let (job, arm) = (job.name.clone(), arm.name.clone());
                self.leave_out(LeftOut { job, arm, reason, failed })?;
                self.shorten(number, &order[place + 1..]);
            }
            if arm.work.on_disk {
                self.settle()?;
            } else if stop.is_set() {
                return Err(CompareError::Interrupted);
            }
        }
        let named = |turn: &Turn| match plan.jobs.as_slice() {
            [_] => plan.arm(*turn).name.clone(),
            jobs => format!("{}/{}", jobs[turn.job].name, plan.arm(*turn).name),
        };
        let ran = order.iter().filter(|turn| !self.skipped.contains(&plan.jobs[turn.job].name));
        let (part, order) = (self.setting.record.map_or(0, |of| of.part), ran.map(named).collect());
        Ok(Some(Round { part, round: number, order, cells, left_out: self.left_out.clone() }))
    }

    /// Notes that no further round may be written.
    fn full(&mut self, rounds: u32) -> Option<Round> {
        let most = self.setting.writes.most().unwrap_or_default() >> 20;
        let planned = counted(self.setting.plan.rounds.into(), "round");
        self.notes.push(format!("{rounds} of {planned} fit in the {most} MiB of --max-writes"));
        None
    }

    /// Runs a cell while the machine is set as its arm wants it, and puts that back.
    fn run_with(&mut self, arm: &PlannedArm, cell: &Cell) -> Result<CellResult, RunError> {
        let (tunings, work) = (arm.settings_of_machine(), &arm.work);
        if tunings.is_empty() {
            return (self.runner)(cell);
        }
        let scratch = self.setting.scratch;
        let target = self.setting.plan.target.as_ref().map(Target::path);
        let device = self.device.as_ref().filter(|_| work.wants_device()).map(Device::path);
        let on = target.or(device).or(work.works_on(cell)).unwrap_or(&cell.directory);
        let journal = Journal::of(scratch.path());
        let held = Held::new(&tunings, &Places::under(on), &journal, self.setting.claim);
        let held = held.map_err(|error| RunError::Refused(error.to_string()))?;
        let ran = (self.runner)(cell);
        held.release().map_err(RunError::Failed)?;
        ran
    }

    /// Returns a planned cell in its place, whose directory is made.
    fn cell(
        &self,
        name: &str,
        arm: &PlannedArm,
        seed: u64,
        verify: Verify,
    ) -> Result<Cell, CompareError> {
        let Setting { scratch, stop, .. } = *self.setting;
        let (planned, work) = (&arm.cell, &arm.work);
        assert!(planned.directory.as_os_str().is_empty(), "a planned cell has no place yet");
        let place = || -> std::io::Result<Cell> {
            let directory = match work.ground {
                Ground::Own => scratch.cell_directory(name)?,
                // The device may be that of the cells' file system, which must not be mounted then.
                Ground::Device => scratch.directory_beside(name)?,
                Ground::Shared => scratch.shared_directory()?,
                Ground::Kept => scratch.kept_directory(name)?,
            };
            // A file system of the cells' own may be another for each cell.
            let shared = work.shares_source && scratch.made().is_none();
            let source = if shared { scratch.shared_directory()? } else { directory.clone() };
            let device = self.device.as_ref().filter(|_| work.wants_device());
            let device = device.map(|device| device.path().to_owned());
            Ok(Cell { directory, source, device, seed, verify, ..planned.clone() })
        };
        place().map_err(|error| match stop.is_set() {
            // Making the file system of a cell takes a while, and ends too.
            true => CompareError::Interrupted,
            false => error.into(),
        })
    }

    /// Finds a device for arms that need one. Without a device these arms are left out, jobs
    /// without other arms are skipped, and both are reported.
    fn find_device(&mut self) -> Result<(), CompareError> {
        let plan = self.setting.plan;
        let Some(bytes) = plan.device_bytes() else { return Ok(()) };
        let reason = match device::find(self.setting, bytes)? {
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
            self.notes.push(note);
            self.skipped.push(job.name.clone());
        }
        if self.running() == 0 {
            return Err(CompareError::NoArm { reason, left_out: self.left_out.clone() });
        }
        self.progress.shorten(self.rounds, u64::from(self.rounds) * self.running());
        Ok(())
    }

    /// Brings the file system back to where it was before the cell.
    fn settle(&mut self) -> Result<(), CompareError> {
        let setting = self.setting;
        if setting.stop.is_set() {
            return Err(CompareError::Interrupted);
        }
        setting.scratch.clear()?;
        let limit =
            self.time_left().map_or(setting.quiet_within, |left| setting.quiet_within.min(left));
        match settle(setting.scratch.directory(), limit, setting.stop)? {
            Settled::Quiet => {}
            Settled::StillBusy => self.busy_cells += 1,
            Settled::Stopped => return Err(CompareError::Interrupted),
        }
        Ok(())
    }

    fn finish(mut self) -> Outcome {
        let Setting { plan, metric, .. } = *self.setting;
        let rounds = self.done.len();
        let mut measured = Vec::new();
        for (job, planned) in plan.jobs.iter().enumerate() {
            for (arm, of_job) in planned.arms.iter().enumerate() {
                if !self.is_left_out(Turn { job, arm }) {
                    let (job, arm) = (planned.name.clone(), of_job.name.clone());
                    measured.push(Measured { job, arm, rounds: Vec::new() });
                }
            }
        }
        let (mut orders, mut states) = (Vec::new(), Vec::new());
        for round in self.done {
            orders.push(round.order);
            for CellRecord { state, result } in round.cells {
                // An arm that failed later has lost the rounds it has.
                let of = |one: &&mut Measured| one.job == state.job && one.arm == state.arm;
                if let Some(measured) = measured.iter_mut().find(of) {
                    measured.rounds.push(result);
                }
                states.push(state);
            }
        }
        let whole = measured.iter().all(|one| one.rounds.len() == rounds);
        assert!(whole, "an arm lacks a round of others");
        if let (true, Some(limit)) = (rounds < plan.rounds as usize, plan.time_limit) {
            let limit = spoken(limit);
            let planned = counted(plan.rounds.into(), "round");
            self.notes.push(format!("{rounds} of {planned} fit in {limit} (--seconds)"));
        }
        if self.busy_cells > 0 {
            self.notes.push(format!(
                "another program used the disk before {}; stop it and repeat",
                counted(self.busy_cells.into(), "run")
            ));
        }
        self.notes.extend(notes::of_arms(&measured));
        self.notes.extend(state::notes(&states));
        self.notes.extend(drift::notes(&measured, metric));
        Outcome { measured, left_out: self.left_out, orders, notes: self.notes, states }
    }

    fn leave_out(&mut self, left_out: LeftOut) -> Result<(), CompareError> {
        let word = if left_out.failed { "failed" } else { "left out" };
        let mut of_arm = self.left_out.iter().filter(|one| one.arm == left_out.arm);
        if of_arm.clone().any(|one| one.job == left_out.job) {
            return Ok(());
        }
        if !of_arm.any(|one| one.reason == left_out.reason) {
            self.progress.say(&format!("{} {word}: {}", left_out.arm, left_out.reason));
        }
        self.left_out.push(left_out);
        if self.running() == 0 {
            let left_out = self.left_out.clone();
            return Err(CompareError::NoArm { reason: left_out[0].reason.clone(), left_out });
        }
        Ok(())
    }

    /// Tells the progress what is left: the rest of this round, and the rounds after it.
    fn shorten(&mut self, round: u32, rest: &[Turn]) {
        let rest = rest.iter().filter(|turn| !self.is_left_out(**turn)).count() as u64;
        let rounds = u64::from(self.rounds.saturating_sub(round + 1));
        self.progress.shorten(self.rounds, rest + rounds * self.running());
    }

    /// Returns the number of cells in each further round.
    fn running(&self) -> u64 {
        let order = self.setting.plan.order(0);
        order.into_iter().filter(|turn| !self.is_left_out(*turn)).count() as u64
    }

    fn is_left_out(&self, turn: Turn) -> bool {
        let plan = self.setting.plan;
        let (job, arm) = (&plan.jobs[turn.job].name, &plan.arm(turn).name);
        let mut left_out = self.left_out.iter();
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
}

/// Returns whole seconds, a quarter more than measured.
fn seconds_with_slack(duration: Duration) -> u64 {
    (duration.as_secs_f64() * 1.25).ceil().max(1.0) as u64
}

/// Returns the speed that the progress shows.
fn speed_of(result: &CellResult) -> String {
    let of = |metric: &str, unit: f64, name: &str| {
        let found = result.metrics.get(metric);
        found.map(|speed| format!("{:6.0} {name}", speed / unit)).unwrap_or_default()
    };
    // Of a cell of requests both are known, and operations are what is asked.
    match result.metrics.contains_key("ns_per_io") {
        true => of("iops", 1e3, "k/s"),
        false => of("write_bytes_per_s", 1e6, "MB/s"),
    }
}

#[cfg(test)]
mod tests;
