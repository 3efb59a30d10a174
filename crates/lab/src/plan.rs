//! What will be run, fixed before the first cell: sizes, rounds, the order of the arms, how much is written.
//!
//! Every round is one random permutation of all arms from the printed seed. Arms one after the other in blocks
//! would take the machine's drift for a difference. The number of rounds is fixed beforehand; what was measured
//! never decides whether to go on, only the clock may (`--seconds`).
//!
//! Bounds kept here, and said where they bite: the files of a cell take at most a quarter of the free space; the
//! quick form writes at most 12 GiB in all. Where a bound bites, the files get smaller, and the budget with them,
//! so that the share of the data that fits in memory (two ninths) stays.

use std::time::Duration;

use crate::arm::Arm;
use crate::statistics::ROUNDS_FOR_A_VERDICT;
use crate::statistics::random::SplitMix64;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Files of a cell.
const FILES: u32 = 12;

/// Bytes of one write.
const BLOCK_BYTES: u32 = 4096;

/// Files are a multiple of this: 12 of them make 36 MiB, of which two ninths, the budget, are whole 8 MiB.
const FILE_STEP_BYTES: u64 = 3 * MIB;

/// What the quick form may write in all.
const QUICK_WRITES_AT_MOST_BYTES: u64 = 12 * GIB;

/// Rounds where nothing else is asked.
const DEFAULT_ROUNDS: u32 = 5;

/// Rounds that can be asked for.
pub const MOST_ROUNDS: u32 = 1000;

/// What a disk is taken to do before the first cell has shown it: random 4k writes into new files, in order.
const ASSUMED_BYTES_PER_S: f64 = 150e6;

/// What a cell costs besides writing: its process, removing its files, waiting until quiet.
const ASSUMED_PAUSE: Duration = Duration::from_millis(800);

/// How big.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A first look in about two minutes: 12 files of 24 MiB, 64 MiB of memory.
    Quick,
    /// For figures that are shown around: 12 files of 96 MiB, 256 MiB of memory.
    Full,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// How big.
    pub form: Form,
    /// Files and memory of this share of the form's; above 0, at most 1.
    pub scale: f64,
    /// Rounds, where the user says so.
    pub rounds: Option<u32>,
    /// Most time for the whole comparison.
    pub time_limit: Option<Duration>,
    /// Seed, where the user says so.
    pub seed: Option<u64>,
    /// Free bytes of the file system.
    pub free_bytes: u64,
}

/// What one cell writes, and with how much memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// New files.
    pub files: u32,
    /// Bytes of each.
    pub file_bytes: u64,
    /// Bytes of one write.
    pub block_bytes: u32,
    /// Memory for data of a bounded arm.
    pub budget_bytes: u64,
}

impl Size {
    fn new(file_bytes: u64) -> Self {
        let data = u64::from(FILES) * file_bytes;
        Self { files: FILES, file_bytes, block_bytes: BLOCK_BYTES, budget_bytes: data / 9 * 2 }
    }

    /// Bytes a cell writes.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        u64::from(self.files) * self.file_bytes
    }
}

/// What will be run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Of one counted cell.
    pub size: Size,
    /// Of the cell before the first round, which is not counted.
    pub warm_up: Size,
    /// Rounds.
    pub rounds: u32,
    /// Arms of every round, in the order of the table.
    pub arms: Vec<Arm>,
    /// Of the order, the offsets and the intervals.
    pub seed: u64,
    /// Most time for the whole comparison.
    pub time_limit: Option<Duration>,
    /// Where a bound made this differ from what was asked.
    pub notes: Vec<String>,
}

/// There is no plan that keeps the bounds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// Not even the smallest files fit in a quarter of the free space.
    #[error("{free} MiB free: too little for a comparison (use --dir with {needed} MiB or more free)")]
    NoSpace {
        /// MiB that are free.
        free: u64,
        /// MiB that would do.
        needed: u64,
    },
    /// So many rounds cannot be written within the quick form's bound.
    #[error(
        "{rounds} rounds would write more than the quick form's 12 GiB (use `forebay compare layout`, or \
         --rounds {most} or less)"
    )]
    TooManyRounds {
        /// Rounds asked for.
        rounds: u32,
        /// Rounds that fit.
        most: u32,
    },
    /// Nothing is measured in no rounds.
    #[error("--rounds {rounds} is out of range (1 to {MOST_ROUNDS})")]
    Rounds {
        /// Rounds asked for.
        rounds: u32,
    },
}

impl Plan {
    /// A plan for these arms that keeps every bound.
    pub fn new(wish: &Wish, arms: &[Arm]) -> Result<Self, PlanError> {
        assert!(!arms.is_empty(), "a plan needs arms");
        let rounds = wish.rounds.unwrap_or(DEFAULT_ROUNDS);
        if !(1..=MOST_ROUNDS).contains(&rounds) {
            return Err(PlanError::Rounds { rounds });
        }
        let mut notes = Vec::new();
        let whole = match wish.form {
            Form::Quick => 24 * MIB,
            Form::Full => 96 * MIB,
        };
        let wanted = scaled(whole, wish.scale);
        if wanted < whole {
            notes.push(format!("smaller files ({} MiB, not {}): --scale", wanted / MIB, whole / MIB));
        }
        let fits = fitting_on(wish.free_bytes)?;
        let may = match wish.form {
            Form::Quick => fitting_quick_form(rounds, arms.len())?,
            Form::Full => u64::MAX,
        };
        let file_bytes = wanted.min(fits).min(may);
        if fits < wanted.min(may) {
            notes.push(format!(
                "smaller files ({} MiB, not {}): the disk has {} MiB free, and a cell takes a quarter at most",
                file_bytes / MIB,
                wanted / MIB,
                wish.free_bytes / MIB,
            ));
        } else if may < wanted {
            notes.push(format!(
                "smaller files ({} MiB, not {}): the quick form writes 12 GiB at most in all",
                file_bytes / MIB,
                wanted / MIB,
            ));
        }
        if (rounds as usize) < ROUNDS_FOR_A_VERDICT {
            notes.push(format!("below {ROUNDS_FOR_A_VERDICT} rounds no verdict is given"));
        }
        Ok(Self {
            size: Size::new(file_bytes),
            warm_up: Size::new(FILE_STEP_BYTES),
            rounds,
            arms: arms.to_vec(),
            seed: wish.seed.unwrap_or_else(fresh_seed),
            time_limit: wish.time_limit,
            notes,
        })
    }

    /// The arms of a round, in the order in which they run.
    #[must_use]
    pub fn order(&self, round: u32) -> Vec<Arm> {
        let mut arms = self.arms.clone();
        SplitMix64::stream(self.seed, u64::from(round) << 8).shuffle(&mut arms);
        arms
    }

    /// Seed for the offsets and data of a round: the same in all its arms, another in every round.
    #[must_use]
    pub fn cell_seed(&self, round: u32) -> u64 {
        SplitMix64::stream(self.seed, (u64::from(round) << 8) | 1).next()
    }

    /// Cells that count.
    #[must_use]
    pub fn cells(&self) -> u64 {
        u64::from(self.rounds) * self.arms.len() as u64
    }

    /// Bytes of data written at most, the warm-up included. (The sync probe adds 0.4 MB/s beside it.)
    #[must_use]
    pub fn most_written_bytes(&self) -> u64 {
        self.cells() * self.size.data_bytes() + self.warm_up.data_bytes()
    }

    /// How long it should take on a disk that takes so many bytes a second; none for what is not known yet.
    #[must_use]
    pub fn expected(&self, bytes_per_s: Option<f64>) -> Duration {
        let speed = bytes_per_s.filter(|speed| *speed >= 1.0).unwrap_or(ASSUMED_BYTES_PER_S);
        let writing = self.most_written_bytes() as f64 / speed;
        let pauses = ASSUMED_PAUSE.as_secs_f64() * (self.cells() + 1) as f64;
        let whole = Duration::try_from_secs_f64(writing + pauses).unwrap_or(Duration::MAX);
        self.time_limit.map_or(whole, |limit| limit.min(whole))
    }

    /// What is told before anything is done.
    #[must_use]
    pub fn announcement(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "Going to write {} new files of {} MiB on {} arms in {} {}, {} MiB of memory for bounded arms.",
                self.size.files,
                self.size.file_bytes / MIB,
                self.arms.len(),
                self.rounds,
                if self.rounds == 1 { "round" } else { "rounds" },
                self.size.budget_bytes / MIB,
            ),
            format!(
                "Writes {:.1} GiB at most, {} MiB of it on the disk at a time; all of it is removed again.",
                self.most_written_bytes() as f64 / GIB as f64,
                self.size.data_bytes() / MIB,
            ),
            match self.time_limit {
                None => format!(
                    "Should take about {}, at {:.0} MB/s; the first cells tell better.",
                    spoken(self.expected(None)),
                    ASSUMED_BYTES_PER_S / 1e6
                ),
                Some(limit) => {
                    format!("Takes {} at most; rounds that do not fit are left out.", spoken(limit))
                }
            },
        ];
        lines.extend(self.notes.iter().map(|note| format!("Note: {note}.")));
        lines
    }
}

/// A duration as one says it.
#[must_use]
pub fn spoken(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..100 => format!("{} s", seconds.max(1)),
        seconds @ 100..6000 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

/// In whole steps, and one step at least.
fn scaled(file_bytes: u64, scale: f64) -> u64 {
    let steps = (file_bytes / FILE_STEP_BYTES) as f64 * scale;
    (steps.round() as u64).clamp(1, file_bytes / FILE_STEP_BYTES) * FILE_STEP_BYTES
}

/// The largest files of which a cell's worth fits in a quarter of the free space.
fn fitting_on(free_bytes: u64) -> Result<u64, PlanError> {
    let smallest_cell = u64::from(FILES) * FILE_STEP_BYTES;
    let steps = free_bytes / 4 / smallest_cell;
    if steps == 0 {
        return Err(PlanError::NoSpace { free: free_bytes / MIB, needed: 4 * smallest_cell / MIB });
    }
    Ok(steps * FILE_STEP_BYTES)
}

/// The largest files with which the quick form stays within its bound.
fn fitting_quick_form(rounds: u32, arms: usize) -> Result<u64, PlanError> {
    let smallest_cell = u64::from(FILES) * FILE_STEP_BYTES;
    let counted = QUICK_WRITES_AT_MOST_BYTES - smallest_cell;
    let steps = counted / (u64::from(rounds) * arms as u64) / smallest_cell;
    if steps == 0 {
        let most = counted / (arms as u64 * smallest_cell);
        return Err(PlanError::TooManyRounds { rounds, most: u32::try_from(most).unwrap_or(MOST_ROUNDS) });
    }
    Ok(steps * FILE_STEP_BYTES)
}

/// A seed nobody chose: short enough to be typed.
#[must_use]
pub fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compare::ARMS;

    fn wish(form: Form) -> Wish {
        Wish { form, scale: 1.0, rounds: None, time_limit: None, seed: Some(0x7f3a), free_bytes: 1 << 40 }
    }

    #[test]
    fn the_two_forms() {
        let quick = Plan::new(&wish(Form::Quick), &ARMS).unwrap();
        assert_eq!((quick.size.file_bytes, quick.size.budget_bytes, quick.rounds), (24 * MIB, 64 * MIB, 5));
        assert!(quick.most_written_bytes() <= QUICK_WRITES_AT_MOST_BYTES);
        let full = Plan::new(&wish(Form::Full), &ARMS).unwrap();
        assert_eq!((full.size.file_bytes, full.size.budget_bytes, full.rounds), (96 * MIB, 256 * MIB, 5));
        assert!(quick.notes.is_empty() && full.notes.is_empty());
        assert!(quick.announcement().iter().any(|line| line.contains("11.3 GiB at most")));
    }

    #[test]
    fn every_round_is_a_permutation_and_replays() {
        let plan = Plan::new(&wish(Form::Quick), &ARMS).unwrap();
        let orders: Vec<_> = (0..5).map(|round| plan.order(round)).collect();
        for order in &orders {
            for arm in ARMS {
                assert_eq!(order.iter().filter(|other| **other == arm).count(), 1);
            }
        }
        assert_ne!(orders[0], orders[1]);
        assert_eq!(orders[3], plan.order(3));
        assert_ne!(plan.cell_seed(0), plan.cell_seed(1));
    }

    #[test]
    fn what_cannot_be_planned_is_refused_with_a_remedy() {
        let refused = |wish: Wish| Plan::new(&wish, &ARMS).unwrap_err().to_string();
        let text = refused(Wish { free_bytes: 100 * MIB, ..wish(Form::Full) });
        assert_eq!(text, "100 MiB free: too little for a comparison (use --dir with 144 MiB or more free)");
        let text = refused(Wish { rounds: Some(500), ..wish(Form::Quick) });
        assert!(text.contains("--rounds 42 or less"), "{text}");
        assert!(Plan::new(&Wish { rounds: Some(42), ..wish(Form::Quick) }, &ARMS).is_ok());
        assert!(Plan::new(&Wish { rounds: Some(43), ..wish(Form::Quick) }, &ARMS).is_err());
        assert!(refused(Wish { rounds: Some(0), ..wish(Form::Full) }).contains("out of range"));
    }

    #[test]
    fn few_rounds_and_small_disks_are_said() {
        let plan = Plan::new(&Wish { rounds: Some(3), free_bytes: GIB, ..wish(Form::Full) }, &ARMS).unwrap();
        assert_eq!(plan.size.file_bytes, 21 * MIB);
        assert!(plan.notes[0].contains("21 MiB, not 96") && plan.notes[1].contains("no verdict"));
        let plan = Plan::new(&Wish { rounds: Some(10), ..wish(Form::Quick) }, &ARMS).unwrap();
        assert!(plan.notes[0].contains("12 GiB at most"));
        let plan = Plan::new(&Wish { scale: 0.05, ..wish(Form::Quick) }, &ARMS).unwrap();
        assert_eq!((plan.size.file_bytes, plan.size.budget_bytes), (3 * MIB, 8 * MIB));
        assert_eq!(plan.notes, ["smaller files (3 MiB, not 24): --scale"]);
    }

    proptest! {
        #[test]
        fn bounds_hold(
            rounds in 1u32..=MOST_ROUNDS,
            free in 0u64..1 << 36,
            scale in 0.001f64..=1.0,
            quick: bool,
            seed: u64,
        ) {
            let form = if quick { Form::Quick } else { Form::Full };
            let wish = Wish {
                form,
                scale,
                rounds: Some(rounds),
                free_bytes: free,
                seed: Some(seed),
                time_limit: None,
            };
            if let Ok(plan) = Plan::new(&wish, &ARMS) {
                prop_assert!(plan.size.data_bytes() <= free / 4);
                prop_assert!(plan.warm_up.data_bytes() <= plan.size.data_bytes());
                prop_assert!(!quick || plan.most_written_bytes() <= QUICK_WRITES_AT_MOST_BYTES);
                prop_assert_eq!(plan.size.budget_bytes * 9, plan.size.data_bytes() * 2);
                prop_assert!(plan.size.budget_bytes.is_multiple_of(4 * MIB));
            }
        }
    }

    #[test]
    fn the_time_expected_follows_the_speed_and_the_limit() {
        let mut plan = Plan::new(&wish(Form::Full), &ARMS).unwrap();
        assert!(plan.expected(Some(1e9)) < plan.expected(Some(1e8)));
        assert_eq!(plan.expected(Some(f64::NAN)), plan.expected(None));
        plan.time_limit = Some(Duration::from_secs(20));
        assert_eq!(plan.expected(Some(1e6)), Duration::from_secs(20));
        assert_eq!(spoken(Duration::from_secs(150)), "3 min");
    }
}
