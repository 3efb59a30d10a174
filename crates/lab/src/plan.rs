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

mod planner;
pub mod queue_knobs;
mod size;

use std::time::Duration;

use crate::request::RequestDevice;
use crate::statistics::ROUNDS_FOR_A_VERDICT;
use crate::suite::{Cut, Form, Pair, Part, Suite};
use crate::target::Target;
use crate::text::{counted, spoken};
use crate::tuning::Tuning;
use forebay_block::random::Random;

use crate::arm::Arm;
use crate::cell::Cell;
use crate::programs::spec::ProgramWay;
use crate::shape::Extent;
use planner::Planner;
pub use size::{FILE_STEP_BYTES, LENGTH_STEP_BYTES, Room, Size, WRITER_STEP_BYTES};
use size::{GIB, MIB};

/// Rounds that can be asked for.
pub const MOST_ROUNDS: u32 = 1000;

/// Assumed speed of a disk before the first cell: random 4k writes into new files, in order.
const ASSUMED_BYTES_PER_S: f64 = 150e6;

/// Assumed time of a cell besides its work: starting, removing its files, waiting until quiet.
const ASSUMED_PAUSE: Duration = Duration::from_millis(500);

/// The same of a cell of requests, which leaves nothing to remove.
const ASSUMED_REQUEST_PAUSE: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// The suite, as it is called again.
    pub suite: &'a str,
    /// How much of it.
    pub form: Form,
    /// Files, memory and times of this share of the form's; above 0, at most 1. As the form says if
    /// none.
    pub scale: Option<f64>,
    /// Rounds, where the user says so.
    pub rounds: Option<u32>,
    pub time_limit: Option<Duration>,
    pub seed: u64,
    /// Free bytes of the file system.
    pub free_bytes: u64,
    /// How much of them a cell may take.
    pub room: Room,
    /// Knobs of Forebay's queue, set before those the suite says.
    pub settings: &'a [(String, String)],
    /// Knobs of Forebay's engine, set before those the suite says.
    pub engine_settings: &'a [(String, String)],
    /// File or device that the user names to be read in place of a laid-out file.
    pub target: Option<&'a Target>,
}

impl Wish<'_> {
    /// The share of a form's sizes and times.
    fn scale(&self, cut: &Cut) -> f64 {
        self.scale.unwrap_or(cut.scale)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    pub part: String,
    pub title: String,
    pub jobs: Vec<Job>,
    /// The first cell of all, which is not counted.
    pub warm_up: Cell,
    /// Of a cell on new files.
    pub size: Option<Size>,
    /// Bytes of the laid-out file; none where none is needed.
    pub data_bytes: Option<u64>,
    pub target: Option<Target>,
    /// How much each cell does, if all do the same.
    pub each: Option<Each>,
    pub rounds: u32,
    /// Of the order, the offsets and the intervals.
    pub seed: u64,
    pub time_limit: Option<Duration>,
    /// Pairs that are compared besides those with the base.
    pub also: Vec<Pair>,
    /// Notes on bounds that changed the request.
    pub notes: Vec<String>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    pub name: String,
    pub title: String,
    pub workload: String,
    /// Name of its probe.
    pub probe: &'static str,
    pub place: Option<(RequestDevice, u32)>,
    /// Its arms, in the order of the table.
    pub arms: Vec<PlannedArm>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct PlannedArm {
    pub name: String,
    /// Its cell, without a place.
    pub cell: Cell,
    /// The same, as short as a cell that is not counted.
    pub short: Cell,
    /// Settings of the machine that the user asks for. A refused one ends the comparison.
    pub tunings: Vec<Tuning>,
    /// Those that the suite and the job ask for. If one is refused, the arm is left out.
    pub needs: Vec<Tuning>,
}

impl PlannedArm {
    /// Returns the settings of the machine that hold while it works. The user's replace the others.
    pub fn settings_of_machine(&self) -> Vec<Tuning> {
        joined(&self.tunings, &self.needs)
    }
}

/// Returns these settings, and those others whose knobs are not among them.
fn joined(first: &[Tuning], others: &[Tuning]) -> Vec<Tuning> {
    let is_free = |other: &&Tuning| first.iter().all(|one| one.knob != other.knob);
    first.iter().chain(others.iter().filter(is_free)).cloned().collect()
}

/// Amount of work of each cell of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Each {
    /// It writes this many bytes.
    Written(u64),
    /// It writes what it can in a time.
    Timed(Extent),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// Not even the smallest files fit in a quarter of the free space.
    #[error("only {free} MiB free; use --dir with at least {needed} MiB free")]
    NoSpace { free: u64, needed: u64 },
    #[error("{0}")]
    Refused(String),
}

impl PlanError {
    fn target(what: String) -> Self {
        Self::Refused(format!("--target: {what}"))
    }
}

/// The name of the arm that is the other one once more: what differs between them is noise.
pub fn again(arm: &str) -> String {
    format!("{arm}-again")
}

impl Plan {
    /// A plan for a part of a suite that keeps every bound; none if the part is not in the form, or
    /// none of its arms can do its work.
    pub fn new(suite: &Suite, part: &Part, wish: &Wish<'_>) -> Result<Option<Self>, PlanError> {
        let Some(cut) = part.cut(wish.form) else { return Ok(None) };
        let rounds = wish.rounds.unwrap_or(cut.rounds);
        if !(1..=MOST_ROUNDS).contains(&rounds) {
            let what = format!("--rounds {rounds}: out of range; give 1 to {MOST_ROUNDS}");
            return Err(PlanError::Refused(what));
        }
        let mut planner = Planner::new(part, cut, wish, rounds);
        let mut jobs = planner.jobs(suite)?;
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
        let warm_up = warm_up(&jobs);
        Ok(Some(Self {
            also: part.also.iter().chain(&cut.contrasts).cloned().collect(),
            part: part.name.clone(),
            title: part.title.clone(),
            jobs,
            warm_up,
            size: planner.size,
            data_bytes: planner.data_bytes,
            target: planner.target,
            each: planner.each,
            rounds,
            seed: wish.seed,
            time_limit: wish.time_limit,
            notes,
        }))
    }

    /// The arms that have a short cell of their own before the first round, each once, for what
    /// each loads and starts by itself. Short forms have them too: of five rounds all have to agree
    /// for a verdict, so a first one that paid for that would cost more than these cells, which
    /// together take less time than a round. Programs have none: their cells share only the file
    /// that they read, and there are many parts.
    pub fn arms_to_warm_up(&self) -> Vec<PlannedArm> {
        let (mut arms, mut seen): (Vec<PlannedArm>, Vec<&str>) = (Vec::new(), Vec::new());
        let all = || self.arms();
        let of_jobs = || all().filter(|arm| !matches!(arm.cell, Cell::Program(_)));
        // On files first: an arm of several jobs needs no device.
        let without = of_jobs().filter(|arm| !arm.cell.wants_device());
        for arm in without.chain(of_jobs().filter(|arm| arm.cell.wants_device())) {
            if seen.iter().any(|known| arm.name == *known || arm.name == again(known)) {
                continue;
            }
            seen.push(&arm.name);
            // The first cell of all is of one of them.
            if arm.short != self.warm_up {
                arms.push(PlannedArm { cell: arm.short.clone(), ..arm.clone() });
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
        turns
    }

    pub fn arm(&self, turn: Turn) -> &PlannedArm {
        &self.jobs[turn.job].arms[turn.arm]
    }

    /// Seed for the offsets and data of a round: the same in all its arms, another in every round.
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

    /// Bytes of memory for data of a bounded arm, where any of its cells says that: the most of
    /// them.
    pub fn budget_bytes(&self) -> Option<u64> {
        let arms = self.arms();
        arms.filter_map(|arm| arm.cell.budget_bytes()).max()
    }

    /// Bytes of data written at most, files that are laid out and the warm-up included, where that
    /// is fixed: jobs for a time write what they can. (The sync probe adds 0.4 MB/s beside it.)
    pub fn most_written_bytes(&self) -> u64 {
        let arms = self.arms();
        let round: u64 = arms.map(|arm| arm.cell.fixed_bytes()).sum();
        let warm: u64 = self.arms_to_warm_up().iter().map(|arm| arm.cell.fixed_bytes()).sum();
        let rounds = u64::from(self.rounds).saturating_mul(round);
        rounds.saturating_add(self.warm_up.fixed_bytes() + warm + self.data_bytes.unwrap_or(0))
    }

    /// Bytes of the device that its cells share, where any works on one.
    pub fn device_bytes(&self) -> Option<u64> {
        self.arms().filter_map(|arm| arm.cell.device_bytes()).max()
    }

    /// Whether some of its cells write as much as they can in a time.
    pub fn writes_for_a_time(&self) -> bool {
        self.arms().any(|arm| arm.cell.writes_for_a_time())
    }

    /// Whether each cell writes a fixed number of bytes, so that its speed predicts the total time.
    pub fn writes_so_much(&self) -> bool {
        self.arms().any(|arm| arm.cell.written_bytes() > 0)
    }

    /// Expected time on a disk of this speed; zero for unknown parts.
    pub fn expected(&self, bytes_per_s: Option<f64>) -> Duration {
        let speed = bytes_per_s.filter(|speed| *speed >= 1.0).unwrap_or(ASSUMED_BYTES_PER_S);
        let writing = self.most_written_bytes() as f64 / speed;
        let rest = |cell: &Cell| {
            let pause = match cell {
                Cell::Jobs(_) | Cell::Fio(_) => ASSUMED_PAUSE,
                _ => ASSUMED_REQUEST_PAUSE,
            };
            cell.seconds().unwrap_or(0.0) + pause.as_secs_f64()
        };
        let round: f64 = self.arms().map(|arm| rest(&arm.cell)).sum();
        let warm: f64 = self.arms_to_warm_up().iter().map(|arm| rest(&arm.cell)).sum();
        let whole = writing + round * f64::from(self.rounds) + rest(&self.warm_up) + warm;
        let whole = Duration::try_from_secs_f64(whole).unwrap_or(Duration::MAX);
        self.time_limit.map_or(whole, |limit| limit.min(whole))
    }

    /// Describes the plan in full, one sentence a line.
    pub fn announcement(&self) -> Vec<String> {
        let rounds = counted(self.rounds.into(), "round");
        let mut lines = match self.size {
            Some(size) => vec![
                format!(
                    "{}: {} new files of {} MiB, {} arms, {rounds}, {} MiB of memory for bounded arms.",
                    self.title,
                    size.files,
                    size.file_bytes / MIB,
                    self.cells_in_a_round(),
                    size.budget_bytes / MIB,
                ),
                format!(
                    "Writes at most {:.1} GiB, {} MiB of it at a time; all files are removed again.",
                    self.most_written_bytes() as f64 / GIB as f64,
                    size.data_bytes() / MIB,
                ),
            ],
            None => vec![format!(
                "{}: {} in {rounds}{}.",
                self.title,
                counted(self.cells(), "run"),
                self.ground(),
            )],
        };
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
        let each = self.arms_to_warm_up().len();
        if each > 0 {
            lines.push(format!(
                "Warm-up before the first round: {}, not counted.",
                counted(each as u64, "short run")
            ));
        }
        lines.extend(self.notes.iter().map(|note| format!("Note: {note}.")));
        lines
    }

    /// Where its cells run, and on how much data.
    fn ground(&self) -> String {
        match (self.each, &self.target, self.data_bytes) {
            (Some(Each::Written(bytes)), ..) => format!(
                ", {} MiB each and {:.1} GiB in all; all files are removed again",
                bytes / MIB,
                self.most_written_bytes() as f64 / GIB as f64
            ),
            (_, Some(target), _) => format!(", reading {target}"),
            (Some(Each::Timed(Extent { file_bytes, seconds })), ..) => format!(
                ", {seconds:.1} s each, on files of {} MiB; all files are removed again",
                file_bytes / MIB
            ),
            (None, None, Some(bytes)) => {
                format!(", on a file of {} MiB; it is removed again", bytes / MIB)
            }
            (None, None, None) if self.arms().any(|arm| arm.cell.on_disk()) => {
                ", on small files; they are removed again".to_owned()
            }
            (None, None, None) => ", without touching the disk".to_owned(),
        }
    }

    /// The arms of all jobs.
    fn arms(&self) -> impl Iterator<Item = &PlannedArm> + Clone {
        self.jobs.iter().flat_map(|job| &job.arms)
    }
}

/// The short cell of a bounded arm, for its speed is nearer to that of the others than that of
/// plain buffering; of requests that of the first arm. One that needs no device, if there is one.
fn warm_up(jobs: &[Job]) -> Cell {
    let arms = || jobs.iter().flat_map(|job| &job.arms);
    let bounded = |arm: &&PlannedArm| match &arm.cell {
        Cell::Jobs(cell) => {
            !arm.cell.wants_device() && (cell.arm.is_bounded_kernel() || cell.arm == Arm::Kernel)
        }
        Cell::Program(cell) => cell.way == ProgramWay::Std,
        Cell::Requests(_) | Cell::Copies(_) | Cell::Fio(_) => false,
    };
    let found = arms().find(bounded).or_else(|| arms().next()).expect("a plan has arms");
    found.short.clone()
}

/// One arm in one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    pub job: usize,
    pub arm: usize,
}

/// A seed nobody chose: short enough to be typed.
pub fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() & 0xffff_ffff
}

#[cfg(test)]
mod tests;
