//! How much a cell on new files writes, and with how much memory; how large the files of jobs are,
//! and the laid-out file of a suite.
//!
//! Bounds kept here, and reported when they apply: the files of a cell, or the laid-out file, take
//! at most a quarter of the free space; a form has a limit of bytes. If a bound applies, the files
//! get smaller, and the budget with them, so that the share of the data that fits in memory (two
//! ninths) stays.

use crate::writers::Writers;

use super::planner::Planner;
use super::{MOST_ROUNDS, PlanError};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// Step of a file's length: 12 of these make 36 MiB, whose two ninths, the budget, are 8 MiB.
pub const FILE_STEP_BYTES: u64 = 3 * MIB;

/// The least memory an engine works with, and the step of it.
const BUDGET_STEP_BYTES: u64 = 8 * MIB;

/// The laid-out file and the files of jobs are a multiple of this: of every block size, and of what
/// one write that lays a file out takes.
pub const LENGTH_STEP_BYTES: u64 = 16 * MIB;

/// The files of jobs are as many times their memory at least.
const FILE_IN_MEMORIES: u64 = 4;

/// Down to this share of its sizes a job keeps its memory; below, that shrinks too.
const MEMORY_KEPT_TO: f64 = 0.02;

/// The files of writers are a multiple of this, and of a block.
pub const WRITER_STEP_BYTES: u64 = 64 << 10;

/// How much of the free space a cell may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// A quarter: others use the file system.
    Shared,
    /// Three quarters: it was made for this.
    Own,
}

impl Room {
    pub(super) fn of(self, free_bytes: u64) -> u64 {
        match self {
            Room::Shared => free_bytes / 4,
            Room::Own => free_bytes / 4 * 3,
        }
    }

    /// Free space required for `bytes`.
    pub(super) fn asks(self, bytes: u64) -> u64 {
        match self {
            Room::Shared => bytes.saturating_mul(4),
            Room::Own => bytes.div_ceil(3).saturating_mul(4),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Room::Shared => "a quarter",
            Room::Own => "three quarters",
        }
    }
}

/// Memory for data of a bounded arm: two ninths of the bytes it writes.
fn budget_of(data_bytes: u64) -> u64 {
    (data_bytes / 9 * 2 / BUDGET_STEP_BYTES * BUDGET_STEP_BYTES).max(BUDGET_STEP_BYTES)
}

/// Bytes and memory of a cell on new files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub files: u32,
    pub file_bytes: u64,
    pub block_bytes: u32,
    /// Memory for data of a bounded arm.
    pub budget_bytes: u64,
}

impl Size {
    fn new(shape: Shape, file_bytes: u64) -> Self {
        Self {
            files: shape.files,
            file_bytes,
            block_bytes: shape.block_bytes,
            budget_bytes: budget_of(u64::from(shape.files) * file_bytes),
        }
    }

    /// The same files, as small as they can be.
    pub(super) fn smallest(&self) -> Self {
        Self::new(Shape { files: self.files, block_bytes: self.block_bytes }, FILE_STEP_BYTES)
    }

    pub fn data_bytes(&self) -> u64 {
        u64::from(self.files) * self.file_bytes
    }
}

/// New files, apart from their length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) files: u32,
    pub(super) block_bytes: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Largest {
    pub(super) files: u64,
    /// Bytes of memory for data.
    pub(super) memory_bytes: u64,
}

/// Lengths that keep every bound. Those that applied are noted.
impl Planner<'_> {
    /// Of new files, the largest that was asked for; `in_a_round`: cells of a round.
    pub(super) fn files(&mut self, shape: Shape, in_a_round: u64) -> Result<Size, PlanError> {
        let (cut, wish) = (self.cut, self.wish);
        let whole = cut.file_bytes.expect("a form on new files says how long they are");
        let wanted = scaled(whole, FILE_STEP_BYTES, wish.scale(cut));
        if wanted < whole {
            let (wanted, whole) = (wanted / MIB, whole / MIB);
            self.notes.push(format!("smaller files ({wanted} MiB, not {whole}): --scale"));
        }
        let smallest_cell = u64::from(shape.files) * FILE_STEP_BYTES;
        let fits = self.fitting(smallest_cell)? * FILE_STEP_BYTES;
        let may = match cut.writes_at_most {
            Some(most) => self.fitting_form(most, in_a_round, smallest_cell)? * FILE_STEP_BYTES,
            None => u64::MAX,
        };
        let file_bytes = wanted.min(fits).min(may);
        if fits < wanted.min(may) {
            self.note_space("smaller files", [fits, wanted], "a cell");
        } else if may < wanted {
            self.notes.push(format!(
                "smaller files ({} MiB, not {}): the {} form writes at most {} GiB",
                file_bytes / MIB,
                wanted / MIB,
                wish.form.name(),
                cut.writes_at_most.unwrap_or_default() / GIB,
            ));
        }
        Ok(Size::new(shape, file_bytes))
    }

    /// Of the laid-out file of a suite, in bytes.
    pub(super) fn data(&mut self, bytes: u64) -> Result<u64, PlanError> {
        let whole = bytes.next_multiple_of(LENGTH_STEP_BYTES);
        let wanted = scaled(whole, LENGTH_STEP_BYTES, self.wish.scale(self.cut));
        let fits = self.fitting(LENGTH_STEP_BYTES)? * LENGTH_STEP_BYTES;
        if fits < wanted {
            self.note_space("a smaller file", [fits, wanted], "it");
        }
        Ok(wanted.min(fits))
    }

    /// Of each file of jobs, in bytes, scaled. At least a multiple of the memory, so that the cache
    /// does not hold it; all together at most a quarter of the free space.
    pub(super) fn files_of_jobs(&mut self, largest: Largest) -> Result<u64, PlanError> {
        let whole = self.cut.file_bytes.expect("a form of jobs says how long their files are");
        let scaled = (whole as f64 * self.wish.scale(self.cut)) as u64;
        let least = largest.memory_bytes * FILE_IN_MEMORIES;
        let wanted = scaled.max(least).min(whole).next_multiple_of(LENGTH_STEP_BYTES);
        let fits = self.fitting(largest.files * LENGTH_STEP_BYTES)? * LENGTH_STEP_BYTES;
        if fits < wanted {
            self.note_space("smaller files", [fits, wanted], "a cell");
        }
        Ok(wanted.min(fits))
    }

    /// Of each file of writers, in bytes, scaled, and memory for data of a bounded arm. All
    /// together fit in the free space.
    pub(super) fn files_of(&mut self, writers: &Writers) -> Result<(u64, u64), PlanError> {
        let (cut, wish) = (self.cut, self.wish);
        let whole = cut.cell_bytes.expect("a form of writers says how much they write");
        let step = WRITER_STEP_BYTES.max(u64::from(writers.block_bytes));
        let smallest_cell = step * u64::from(writers.files());
        let steps = ((whole / smallest_cell) as f64 * wish.scale(cut)).round().max(1.0) as u64;
        let fits = wish.room.of(wish.free_bytes) / smallest_cell;
        if fits == 0 {
            let needed = match wish.room {
                Room::Shared => smallest_cell * 4,
                Room::Own => smallest_cell / 3 * 4,
            };
            return Err(PlanError::NoSpace {
                free: wish.free_bytes / MIB,
                needed: needed.div_ceil(MIB),
            });
        }
        if fits < steps {
            let note = format!(
                "smaller files ({} MiB a run, not {}): {} MiB are free, and a run uses at most {}",
                fits * smallest_cell / MIB,
                steps * smallest_cell / MIB,
                wish.free_bytes / MIB,
                wish.room.words(),
            );
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        let file_bytes = steps.min(fits) * step;
        Ok((file_bytes, budget_of(file_bytes * u64::from(writers.files()))))
    }

    /// Steps of the largest files of a cell that fit in a quarter of the free space; `smallest` has
    /// one of each.
    fn fitting(&self, smallest: u64) -> Result<u64, PlanError> {
        let free = self.wish.free_bytes;
        match free / 4 / smallest {
            0 => Err(PlanError::NoSpace { free: free / MIB, needed: 4 * smallest / MIB }),
            steps => Ok(steps),
        }
    }

    /// Steps of the largest files that keep a form within its bound.
    fn fitting_form(&self, most: u64, in_a_round: u64, smallest: u64) -> Result<u64, PlanError> {
        let (rounds, gib, suite) = (self.rounds, most / GIB, self.wish.suite);
        // The warm-up of the arms is as small as possible, and less than such a round.
        let counted = most.saturating_sub(in_a_round * smallest);
        match counted / (u64::from(rounds) * in_a_round) / smallest {
            0 => {
                let fit = counted / (in_a_round * smallest);
                let fit = u32::try_from(fit).unwrap_or(MOST_ROUNDS);
                Err(PlanError::Refused(format!(
                    "{rounds} rounds write more than the {gib} GiB of this form; use `forebay \
                     compare {suite}`, or --rounds {fit} or less"
                )))
            }
            steps => Ok(steps),
        }
    }

    /// That the free space bit.
    fn note_space(&mut self, what: &str, lengths: [u64; 2], taker: &str) {
        let [fits, wanted] = lengths.map(|bytes| bytes / MIB);
        let free = self.wish.free_bytes / MIB;
        self.notes.push(format!(
            "{what} ({fits} MiB, not {wanted}): the disk has {free} MiB free, and {taker} takes a \
             quarter at most"
        ));
    }
}

/// The share of its memory that a job has at a scale.
pub(super) fn memory_share(scale: f64) -> f64 {
    (scale / MEMORY_KEPT_TO).min(1.0)
}

/// In whole steps, and one step at least.
fn scaled(bytes: u64, step_bytes: u64, scale: f64) -> u64 {
    let all = (bytes / step_bytes).max(1);
    ((all as f64 * scale).round() as u64).clamp(1, all) * step_bytes
}
