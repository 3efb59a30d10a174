//! From a form of a part to its jobs. A probe makes the cells of its workloads with the services of
//! a [`Planner`]: sizes that keep every bound, times, and the arms with their settings.
//!
//! Bounds kept here, and reported when they apply: the files of a cell take at most a quarter of
//! the free space. If a bound applies, the files get smaller.

use std::time::Duration;

use crate::arm::Knobs;
use crate::cell::{Cell, Work};
use crate::request::RequestDevice;
use crate::schema::again;
use crate::suite::model::{Arm, Cut, FileBytes, Form, Part, Workload};
use crate::target::Target;
use crate::tuning::Tuning;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// No cell that runs for a time is shorter, in seconds, however small its scale.
pub(crate) const SHORTEST: f64 = 0.02;

/// The least memory an engine works with, and the step of it.
const BUDGET_STEP_BYTES: u64 = 8 * MIB;

/// The laid-out file and the files of jobs are a multiple of this: of every block size, and of what
/// one write that lays a file out takes.
pub(crate) const LENGTH_STEP_BYTES: u64 = 16 * MIB;

/// Request for a plan.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// The suite, as it is called again.
    pub suite: &'a str,
    pub form: Form,
    /// Files, memory and times of this share of the form's; above 0, at most 1. As the form says if
    /// none.
    pub scale: Option<f64>,
    pub rounds: Option<u32>,
    pub time_limit: Option<Duration>,
    pub seed: u64,
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
    /// Returns the knobs that are set for an arm before its own.
    fn settings_of(&self, knobs: Knobs) -> &[(String, String)] {
        match knobs {
            Knobs::None => &[],
            Knobs::Engine => self.engine_settings,
            Knobs::Queue => self.settings,
        }
    }
}

/// How much of the free space a cell may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// A quarter: others use the file system.
    Shared,
    /// Three quarters: it was made for this.
    Own,
}

impl Room {
    fn quarters(self) -> u64 {
        match self {
            Room::Shared => 1,
            Room::Own => 3,
        }
    }

    pub(crate) fn of(self, free_bytes: u64) -> u64 {
        free_bytes / 4 * self.quarters()
    }

    /// Returns the free space required for `bytes`.
    fn asks(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.quarters()).saturating_mul(4)
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Room::Shared => "a quarter",
            Room::Own => "three quarters",
        }
    }
}

/// Why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// Not even the smallest files fit in a quarter of the free space.
    #[error("only {free} MiB free; use --dir with at least {needed} MiB free")]
    NoSpace { free: u64, needed: u64 },
    #[error("{0}")]
    Refused(String),
}

impl PlanError {
    pub(crate) fn target(what: &str) -> Self {
        Self::Refused(format!("--target: {what}"))
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    pub name: String,
    pub title: String,
    pub workload: String,
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
    /// How much that does.
    pub work: Work,
    /// The same, as short as a cell that is not counted.
    pub short: Cell,
    pub short_work: Work,
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

    /// Returns the arm with its short cell alone.
    pub(crate) fn shortened(&self) -> Self {
        let (cell, work) = (self.short.clone(), self.short_work.clone());
        Self { cell, work, ..self.clone() }
    }
}

/// Returns these settings, and those others whose knobs are not among them.
pub(crate) fn joined(first: &[Tuning], others: &[Tuning]) -> Vec<Tuning> {
    let is_free = |other: &&Tuning| first.iter().all(|one| one.knob != other.knob);
    first.iter().chain(others.iter().filter(is_free)).cloned().collect()
}

pub(crate) type Settings = Vec<(String, String)>;

/// Goes through a part's form once.
#[derive(Debug)]
pub struct Planner<'a> {
    pub(crate) part: &'a Part,
    pub(crate) cut: &'a Cut,
    pub(crate) wish: &'a Wish<'a>,
    pub(crate) rounds: u32,
    /// Returns how much a cell of the probe does.
    pub(crate) work: fn(&Cell) -> Result<Work, String>,
    /// Bytes of the suite's laid-out file, if it has one.
    pub(crate) file: Option<FileBytes>,
    /// Notes on bounds that changed the request.
    pub(crate) notes: Vec<String>,
    /// Bytes of the laid-out file, once it is known that one is needed.
    pub(crate) data_bytes: Option<u64>,
    /// Bytes that each cell writes, if all write the same.
    pub(crate) cell_bytes: Option<u64>,
    pub(crate) target: Option<Target>,
    /// On what its cells work, in words.
    pub(crate) ground: Option<String>,
}

impl Planner<'_> {
    /// Returns the share of the form's sizes and times.
    pub(crate) fn scale(&self) -> f64 {
        let scale = self.wish.scale.unwrap_or(self.cut.scale);
        assert!(scale > 0.0 && scale <= 1.0, "{scale}: a share of a whole");
        scale
    }

    /// Returns the seconds of one cell.
    pub(crate) fn seconds(&self) -> f64 {
        debug_assert!(self.cut.seconds > 0.0, "a cell takes time");
        (self.cut.seconds * self.scale()).max(SHORTEST)
    }

    /// Refuses more bytes than a cell may take.
    pub(crate) fn has_room(&self, bytes: u64) -> Result<(), PlanError> {
        let Wish { room, free_bytes, .. } = *self.wish;
        if bytes <= room.of(free_bytes) {
            return Ok(());
        }
        Err(self.no_space(room.asks(bytes)))
    }

    pub(crate) fn no_space(&self, needed: u64) -> PlanError {
        PlanError::NoSpace { free: self.wish.free_bytes / MIB, needed: needed.div_ceil(MIB) }
    }

    /// Returns the steps of the largest files of a cell that fit in a quarter of the free space;
    /// `smallest` has one of each.
    pub(crate) fn fitting(&self, smallest: u64) -> Result<u64, PlanError> {
        assert!(smallest > 0, "a cell takes some space");
        match self.wish.free_bytes / 4 / smallest {
            0 => Err(self.no_space(4 * smallest)),
            steps => Ok(steps),
        }
    }

    /// Notes that the free space was the bound.
    pub(crate) fn note_space(&mut self, what: &str, lengths: [u64; 2], taker: &str) {
        let [fits, wanted] = lengths.map(|bytes| bytes / MIB);
        let free = self.wish.free_bytes / MIB;
        self.notes.push(format!(
            "{what} ({fits} MiB, not {wanted}): the disk has {free} MiB free, and {taker} takes a \
             quarter at most"
        ));
    }

    /// Returns a job of a workload, with the arms that can run it. `cells` returns a cell of an arm
    /// without a place, and the same as short as one that is not counted. Their settings, which are
    /// the job's, get those of the user before them and those of the arm behind.
    pub(crate) fn job(
        &self,
        workload: &Workload,
        cells: impl Fn(&Arm) -> Option<[Cell; 2]>,
    ) -> Job {
        let planned = |arm: &Arm| {
            let set = |cell: Cell| {
                let users = self.wish.settings_of(arm.way.knobs).iter().cloned();
                let settings = users.chain(cell.settings).chain(arm.knobs.iter().cloned());
                Cell { settings: settings.collect(), ..cell }
            };
            Some(self.planned_arm(arm, cells(arm)?.map(set)))
        };
        let name = workload.name.clone();
        let title =
            workload.title.as_ref().map_or_else(|| name.clone(), |title| format!("{name} {title}"));
        let arms = self.with_again(self.cut.arms.iter().filter_map(planned).collect());
        Job { workload: name.clone(), name, title, probe: workload.probe, place: None, arms }
    }

    /// Returns the knobs of an arm: the user's, then its own.
    pub(crate) fn settings(&self, arm: &Arm) -> Settings {
        self.wish.settings_of(arm.way.knobs).iter().chain(&arm.knobs).cloned().collect()
    }

    /// Notes where a user's setting does not reach an arm, because the suite gives that knob a
    /// value of its own.
    pub(crate) fn note_overridden(&mut self) {
        let queue = self.cut.arms.iter().any(|arm| arm.way.knobs == Knobs::Queue);
        let knobs = if queue { Knobs::Queue } else { Knobs::Engine };
        for (knob, value) in self.wish.settings_of(knobs) {
            let sets = |arm: &&Arm| arm.knobs.iter().any(|(name, _)| name == knob);
            let own: Vec<&str> =
                self.cut.arms.iter().filter(sets).map(|arm| arm.name.as_str()).collect();
            if !own.is_empty() {
                let arms = own.join(", ");
                self.notes.push(format!(
                    "--set {knob}={value} does not apply to {arms}: the suite sets their {knob}"
                ));
            }
        }
    }

    /// Returns an arm with its cell and its short cell, which are of one probe.
    fn planned_arm(&self, arm: &Arm, [cell, short]: [Cell; 2]) -> PlannedArm {
        let [own, other] = [&cell, &short].map(|cell| (&cell.probe, &cell.arm));
        assert_eq!(own, other, "a short cell of another arm");
        let [work, short_work] =
            [&cell, &short].map(|cell| (self.work)(cell).expect("its shape is the probe's"));
        let Arm { name, tunings, needs, .. } = arm.clone();
        assert!(short_work.fixed_bytes() <= work.fixed_bytes(), "{name}: a longer short cell");
        PlannedArm { name, cell, work, short, short_work, tunings, needs }
    }

    /// Returns the arms, and behind the one that runs twice the same once more.
    fn with_again(&self, mut arms: Vec<PlannedArm>) -> Vec<PlannedArm> {
        if let Some(place) = arms.iter().position(|arm| arm.name == self.part.again) {
            let twin = PlannedArm { name: again(&arms[place].name), ..arms[place].clone() };
            arms.insert(place + 1, twin);
        }
        arms
    }
}

/// Returns the memory for data of a bounded arm: two ninths of the bytes it writes, and at most
/// 4 GiB.
pub(crate) fn budget_of(data_bytes: u64) -> u64 {
    let share = data_bytes / 9 * 2 / BUDGET_STEP_BYTES * BUDGET_STEP_BYTES;
    share.clamp(BUDGET_STEP_BYTES, 4 * GIB)
}

/// Returns a share of a length in whole steps, and one step at least.
pub(crate) fn scaled(bytes: u64, step_bytes: u64, scale: f64) -> u64 {
    assert!(step_bytes > 0 && scale > 0.0, "{scale} of steps of {step_bytes}");
    let all = (bytes / step_bytes).max(1);
    ((all as f64 * scale).round() as u64).clamp(1, all) * step_bytes
}
