//! The plan, fixed before the first cell: sizes, rounds, the order of the arms, the bytes written.
//!
//! ```text
//! round 1: job B (arms c a b), job A (arms b c a)      round 2: job A (arms a c b), job B ...
//! ```
//!
//! Every round goes through all jobs in a random order and within each through all its arms in a
//! random order, from the printed seed. Arms one after the other in blocks would take the machine's
//! drift for a difference; arms of one job far apart would be paired across it. The number of
//! rounds is fixed beforehand; no result decides about more rounds, only the clock may
//! (`--seconds`).

use std::time::Duration;

use crate::cell::Work;
use crate::planning::{GIB, Planner};
pub use crate::planning::{Job, PlanError, PlannedArm, Room, Wish};
use crate::probes;
use crate::schema::again;
use crate::statistics::ROUNDS_FOR_A_VERDICT;
use crate::suite::model::{Pair, Part, Suite};
use crate::target::Target;
use crate::text::{counted, spoken};
use forebay_block::random::Random;

/// Rounds that can be asked for.
pub const MOST_ROUNDS: u32 = 1000;

/// Assumed speed of a disk before the first cell: random 4k writes into new files, in order.
const ASSUMED_BYTES_PER_S: f64 = 150e6;

/// Assumed time of a cell besides its work: starting, removing its files, waiting until quiet.
const ASSUMED_PAUSE: Duration = Duration::from_millis(500);

/// The same of a cell that leaves nothing to remove.
const ASSUMED_SHORT_PAUSE: Duration = Duration::from_millis(250);

#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    pub part: String,
    pub title: String,
    pub jobs: Vec<Job>,
    /// Bytes of the laid-out file; none where none is needed.
    pub data_bytes: Option<u64>,
    /// Bytes that each cell writes, if all write the same.
    pub cell_bytes: Option<u64>,
    pub target: Option<Target>,
    pub ground: String,
    pub rounds: u32,
    /// Of the order, the offsets and the intervals.
    pub seed: u64,
    pub time_limit: Option<Duration>,
    /// Pairs that are compared besides those with the base.
    pub also: Vec<Pair>,
    pub notes: Vec<String>,
}

impl Plan {
    /// Returns a plan for a part of a suite that keeps every bound; none if the part is not in the
    /// form, or none of its arms can do its work.
    pub fn new(suite: &Suite, part: &Part, wish: &Wish<'_>) -> Result<Option<Self>, PlanError> {
        let Some(cut) = part.cut(wish.form) else { return Ok(None) };
        let rounds = wish.rounds.unwrap_or(cut.rounds);
        if !(1..=MOST_ROUNDS).contains(&rounds) {
            let what = format!("--rounds {rounds}: out of range; give 1 to {MOST_ROUNDS}");
            return Err(PlanError::Refused(what));
        }
        let mut planner = Planner {
            part,
            cut,
            wish,
            rounds,
            work: probes::by_name(cut.probe()).expect("the suite was checked").work,
            file: suite.file,
            notes: Vec::new(),
            data_bytes: None,
            cell_bytes: None,
            target: None,
            ground: None,
        };
        planner.note_overridden();
        let mut jobs = Vec::new();
        for workload in &cut.workloads {
            let probe = probes::by_name(workload.probe).expect("the suite was checked");
            planner.work = probe.work;
            jobs.extend((probe.plan)(&mut planner, workload)?);
        }
        // Arms of the user's own may do none of the work of a job.
        jobs.retain(|job| !job.arms.is_empty());
        if jobs.is_empty() {
            return Ok(None);
        }
        // Results refer to jobs by name, across all parts.
        for job in jobs.iter_mut().filter(|job| job.name == job.workload) {
            if suite
                .parts
                .iter()
                .any(|other| other.name != part.name && other.has_workload(&job.name))
            {
                job.name = format!("{}/{}", part.name, job.name);
            }
        }
        let mut notes = planner.notes;
        if (rounds as usize) < ROUNDS_FOR_A_VERDICT {
            notes.push(format!(
                "fewer than {ROUNDS_FOR_A_VERDICT} rounds show no difference; use --rounds 5 or more"
            ));
        }
        assert!(jobs.iter().all(|job| !job.name.is_empty()), "results refer to jobs by name");
        Ok(Some(Self {
            also: cut.also.clone(),
            part: part.name.clone(),
            title: part.title.clone(),
            jobs,
            data_bytes: planner.data_bytes,
            cell_bytes: planner.cell_bytes,
            target: planner.target,
            ground: planner.ground.unwrap_or_default(),
            rounds,
            seed: wish.seed,
            time_limit: wish.time_limit,
            notes,
        }))
    }

    /// Returns the arms that have a short cell before the first round, each once: it wakes the disk
    /// up, and the arm loads and starts what it needs. Short forms have them too: of five rounds
    /// all have to agree for a verdict, so a first one that paid for that would cost more than
    /// these cells, which together take less time than a round. The first shows the speed of the
    /// disk: it is bounded if any is, so that its speed is near that of the others.
    pub fn warm_ups(&self) -> Vec<PlannedArm> {
        let is_near = |arm: &&PlannedArm| arm.work.is_bounded && !arm.work.wants_device();
        let first = self.arms().find(is_near).or_else(|| self.arms().next());
        let of_jobs = self.jobs.iter().filter(|job| warms_up(job)).flat_map(|job| &job.arms);
        // On files first: an arm of several jobs needs no device.
        let (on_device, on_files): (Vec<_>, Vec<_>) =
            of_jobs.partition(|arm| arm.work.wants_device());
        let mut arms: Vec<PlannedArm> = Vec::new();
        for arm in first.into_iter().chain(on_files).chain(on_device) {
            let is_arm =
                |known: &PlannedArm| arm.name == known.name || arm.name == again(&known.name);
            if !arms.iter().any(is_arm) {
                arms.push(arm.shortened());
            }
        }
        arms
    }

    /// Returns the arms of a round in their order.
    pub fn order(&self, round: u32) -> Vec<Turn> {
        let mut jobs: Vec<usize> = (0..self.jobs.len()).collect();
        let mut random = Random::stream(self.seed, u64::from(round) << 8);
        random.shuffle(&mut jobs);
        let mut turns = Vec::new();
        for job in jobs {
            let mut arms: Vec<usize> = (0..self.jobs[job].arms.len()).collect();
            random.shuffle(&mut arms);
            turns.extend(arms.into_iter().map(|arm| Turn { job, arm }));
        }
        assert_eq!(turns.len() as u64, self.cells_in_a_round(), "each arm runs once in a round");
        turns
    }

    pub fn arm(&self, turn: Turn) -> &PlannedArm {
        &self.jobs[turn.job].arms[turn.arm]
    }

    /// Returns the seed for the offsets and data of a round: the same in all its arms, another in
    /// every round.
    pub fn cell_seed(&self, round: u32) -> u64 {
        Random::stream(self.seed, (u64::from(round) << 8) | 1).draw()
    }

    pub fn cells_in_a_round(&self) -> u64 {
        self.jobs.iter().map(|job| job.arms.len() as u64).sum()
    }

    /// Cells that count.
    pub fn cells(&self) -> u64 {
        u64::from(self.rounds) * self.cells_in_a_round()
    }

    /// Returns the bytes of memory for data of a bounded arm, where any of its cells says that: the
    /// most of them.
    pub fn budget_bytes(&self) -> Option<u64> {
        let arms = self.arms();
        arms.filter_map(|arm| arm.work.budget_bytes).max()
    }

    /// Returns the bytes of data written at most, if that number is fixed: files that are laid out
    /// and the warm-up are included. Jobs for a time write what they can. (The sync probe adds 0.4
    /// MB/s beside it.)
    pub fn most_written_bytes(&self) -> u64 {
        let arms = self.arms();
        let round: u64 = arms.map(|arm| arm.work.fixed_bytes()).sum();
        let warm: u64 = self.warm_ups().iter().map(|arm| arm.work.fixed_bytes()).sum();
        let rounds = u64::from(self.rounds).saturating_mul(round);
        rounds.saturating_add(warm + self.data_bytes.unwrap_or(0))
    }

    /// Returns the bytes of the device that its cells share, where any works on one.
    pub fn device_bytes(&self) -> Option<u64> {
        self.arms().filter_map(|arm| arm.work.device_bytes).max()
    }

    /// Returns whether some of its cells write as much as they can in a time.
    pub fn writes_for_a_time(&self) -> bool {
        self.arms().any(|arm| arm.work.writes_for_a_time)
    }

    /// Returns whether each cell writes a fixed number of bytes, so that its speed predicts the
    /// total time.
    pub fn writes_so_much(&self) -> bool {
        self.arms().any(|arm| arm.work.written_bytes > 0)
    }

    /// Returns the expected time on a disk of this speed; zero for unknown parts.
    pub fn expected(&self, bytes_per_s: Option<f64>) -> Duration {
        let speed = bytes_per_s.filter(|speed| *speed >= 1.0).unwrap_or(ASSUMED_BYTES_PER_S);
        let writing = self.most_written_bytes() as f64 / speed;
        let rest = |work: &Work| {
            let leaves = work.fixed_bytes() > 0 || work.writes_for_a_time;
            let pause = if leaves { ASSUMED_PAUSE } else { ASSUMED_SHORT_PAUSE };
            work.seconds.unwrap_or(0.0) + pause.as_secs_f64()
        };
        let round: f64 = self.arms().map(|arm| rest(&arm.work)).sum();
        let warm: f64 = self.warm_ups().iter().map(|arm| rest(&arm.work)).sum();
        let whole = writing + round * f64::from(self.rounds) + warm;
        let whole = Duration::try_from_secs_f64(whole).unwrap_or(Duration::MAX);
        self.time_limit.map_or(whole, |limit| limit.min(whole))
    }

    /// Describes the plan in full, one sentence a line.
    pub fn announcement(&self) -> Vec<String> {
        let rounds = counted(self.rounds.into(), "round");
        let (runs, ground) = (counted(self.cells(), "run"), &self.ground);
        let mut lines = vec![format!("{}: {runs} in {rounds}, {ground}.", self.title)];
        if self.most_written_bytes() > 0 {
            lines.push(format!(
                "Writes at most {:.1} GiB; all files are removed again.",
                self.most_written_bytes() as f64 / GIB as f64
            ));
        }
        lines.push(match self.time_limit {
            None if self.writes_so_much() => format!(
                "Takes about {} at {:.0} MB/s.",
                spoken(self.expected(None)),
                ASSUMED_BYTES_PER_S / 1e6
            ),
            None => format!("Takes about {}.", spoken(self.expected(None))),
            Some(limit) => {
                format!("Takes at most {}; rounds that do not fit are left out.", spoken(limit))
            }
        });
        let warm_ups = counted(self.warm_ups().len() as u64, "short run");
        lines.push(format!("Warm-up before the first round: {warm_ups}, not counted."));
        lines.extend(self.notes.iter().map(|note| format!("Note: {note}.")));
        lines
    }

    /// Returns the arms of all jobs.
    fn arms(&self) -> impl Iterator<Item = &PlannedArm> + Clone {
        self.jobs.iter().flat_map(|job| &job.arms)
    }
}

/// Returns whether the arms of a job have a short cell each before the first round.
fn warms_up(job: &Job) -> bool {
    probes::by_name(job.probe).is_some_and(|probe| probe.warms_up)
}

/// One arm in one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    pub job: usize,
    pub arm: usize,
}

/// Returns a new random seed, short enough to be typed.
pub fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() & 0xffff_ffff
}

#[cfg(test)]
mod tests;
