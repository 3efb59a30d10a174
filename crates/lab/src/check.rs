//! Checks the verdicts of the lab where the answer is known: comparisons of a thing with itself on
//! the real file, where hardly any difference may be shown, and of two devices 5 % apart, where it
//! must be found.
//!
//! The device that is known to be slower is the modelled one whose doorbell costs, in real time: it
//! spins, so the planted difference is 5 % of the processor's own time, below the noise that the
//! machine adds.
//!
//! The check runs real cells on this machine, one at a time, in a directory that is removed at the
//! end and on a file system at rest. On a busy machine its result means little.

use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_block::random::Random;

use crate::cell::{Cell, CellResult};
use crate::compare::CellRunner;
use crate::compare::judge::rows as rows_of;
use crate::compare::outcome::{Measured, RunError};
use crate::compare::settle::{Settled, settle};
use crate::compare::trial::{ARMS, BASE, judged, order};
use crate::load::data::{self, LaidOut};
use crate::probes::request_cell;
use crate::request::{Operation, RequestCell, RequestDevice, RequestSpec, Way};
use crate::schema::{Comparison, Row};
use crate::scratch::{Scratch, Stop};
use crate::statistics::Verdict;

/// Rounds of a check, unless another number is asked for.
pub const ROUNDS: u32 = 5;

/// Comparisons of a thing with itself, and those of them that may show a difference.
const SAME: u32 = 20;
pub const MOST_FALSE: usize = 3;

/// Comparisons of two devices, and their rounds.
const PLANTED: u32 = 3;
const PLANTED_ROUNDS: u32 = 10;

/// Nanoseconds a doorbell costs, and costs with 5 % more.
const DOORBELLS: [u64; 2] = [20_000, 21_000];

/// How long a cell takes at full scale, in seconds: they are tiny.
const SECONDS: f64 = 0.1;

/// Length of the file at full scale, and its step.
const FILE_BYTES: u64 = 256 << 20;
const STEP_BYTES: u64 = 128 << 10;

/// Loads of the comparisons of a thing with itself.
const LOADS: [(Way, Operation, u32); 5] = [
    (Way::Uring, Operation::Read, 1),
    (Way::Uring, Operation::Read, 32),
    (Way::Queue, Operation::Read, 32),
    (Way::Pread, Operation::Read, 1),
    (Way::Uring, Operation::Write, 32),
];

#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    pub scratch: &'a Scratch,
    pub stop: &'a Stop,
    /// The longest wait for quiet between two cells.
    pub quiet_within: Duration,
    pub rounds: u32,
    /// Share of the full sizes and times; above 0, at most 1.
    pub scale: f64,
    /// Of the order, the offsets and the data.
    pub seed: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Said {
    pub title: String,
    pub comparison: Comparison,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Itself {
    pub same: Vec<Said>,
    /// Comparisons of a device with one that is 5 % slower.
    pub planted: Vec<Said>,
    pub rows: Vec<Row>,
}

impl Itself {
    /// Returns the number of comparisons of a thing with itself that were shown.
    pub fn false_verdicts(&self) -> usize {
        let is_shown = |said: &&Said| said.comparison.verdict != Verdict::NotShown;
        self.same.iter().filter(is_shown).count()
    }

    /// Returns the number of comparisons of two devices that found the slower one.
    pub fn found(&self) -> usize {
        self.planted.iter().filter(|said| said.comparison.verdict == Verdict::Worse).count()
    }

    /// Returns whether the verdicts may be believed.
    pub fn holds(&self) -> bool {
        self.false_verdicts() <= MOST_FALSE && self.found() == self.planted.len()
    }
}

/// Returns the length of the file that all cells read and write, of eight steps at least.
pub fn file_bytes(scale: f64) -> u64 {
    let steps = (FILE_BYTES as f64 * scale) as u64 / STEP_BYTES;
    steps.max(8) * STEP_BYTES
}

/// Runs the comparisons. Reports each step to `report`.
///
/// # Errors
/// A cell that cannot run, with its comparison, and the end by the user.
pub fn against_itself(
    ground: &Ground<'_>,
    runner: CellRunner<'_>,
    report: &mut dyn FnMut(&str),
) -> Result<Itself, RunError> {
    let bytes = file_bytes(ground.scale);
    let directory = ground.scratch.shared_directory().map_err(|error| ground.lost(&error))?;
    match data::lay_out(&directory, bytes, ground.seed, ground.stop) {
        Ok(LaidOut::Whole) => {}
        Ok(LaidOut::Stopped) => return Err(RunError::Interrupted),
        Err(error) => return Err(ground.lost(&error)),
    }
    let spec = RequestSpec {
        file_bytes: bytes,
        seconds: (SECONDS * ground.scale).max(0.005),
        ..RequestSpec::random_reads(RequestDevice::file())
    };
    let mut found = Itself::default();
    for (number, (way, operation, depth)) in (0..SAME).zip(LOADS.into_iter().cycle()) {
        let direction = if operation == Operation::Read { "read" } else { "write" };
        let title = format!("{} {direction} 4k {depth}", way.name());
        report(&format!("{} of {SAME}: {title}", number + 1));
        let trial = Trial { number, title, rounds: ground.rounds, settles: true };
        let spec = RequestSpec { operation, depth, ..spec.clone() };
        let cell = |_: &str, seed| request(way, RequestSpec { seed, ..spec.clone() }, &directory);
        found.same.extend(trial.run(ground, runner, &cell, &mut found.rows)?);
    }
    for number in 0..PLANTED {
        let title = format!("modelled {} ns", DOORBELLS[0]);
        report(&format!("planted, {} of {PLANTED}: {title} against {}", number + 1, DOORBELLS[1]));
        let trial = Trial { number: SAME + number, title, rounds: PLANTED_ROUNDS, settles: false };
        let cell = |arm: &str, seed| {
            let nanos = if arm == BASE { DOORBELLS[0] } else { DOORBELLS[1] };
            let device = format!("free:{nanos}").parse().expect("it is one of those there are");
            request(Way::Queue, RequestSpec { device, seed, ..spec.clone() }, &directory)
        };
        found.planted.extend(trial.run(ground, runner, &cell, &mut found.rows)?);
    }
    Ok(found)
}

/// One comparison to be made.
struct Trial {
    number: u32,
    title: String,
    rounds: u32,
    /// Whether cells leave something that the next would suffer from.
    settles: bool,
}

impl Trial {
    /// Returns the verdict on the arm; none if no request ended in the time given.
    fn run(
        self,
        ground: &Ground<'_>,
        runner: CellRunner<'_>,
        cell: &dyn Fn(&str, u64) -> Cell,
        rows: &mut Vec<Row>,
    ) -> Result<Option<Said>, RunError> {
        let seed = Random::stream(ground.seed, u64::from(self.number)).draw();
        let job = format!("{} {}", self.number + 1, self.title);
        let mut measured =
            ARMS.map(|arm| Measured { job: job.clone(), arm: arm.to_owned(), rounds: Vec::new() });
        for round in 0..self.rounds {
            for arm in order(seed, round) {
                if self.settles {
                    ground.settle()?;
                }
                let result =
                    ground.run(runner, &cell(arm, seed ^ u64::from(round)), &self.title)?;
                let of_arm = measured.iter_mut().find(|one| one.arm == arm);
                of_arm.expect("it is one of the arms").rounds.push(result);
            }
        }
        rows.extend(measured.iter().flat_map(|one| rows_of(&job, &one.arm, &one.rounds)));
        let comparison = judged(&measured, seed);
        Ok(comparison.map(|comparison| Said { title: self.title, comparison }))
    }
}

impl Ground<'_> {
    fn settle(&self) -> Result<(), RunError> {
        match settle(self.scratch.directory(), self.quiet_within, self.stop) {
            Ok(Settled::Quiet | Settled::StillBusy) => Ok(()),
            Ok(Settled::Stopped) => Err(RunError::Interrupted),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn run(&self, runner: CellRunner<'_>, cell: &Cell, what: &str) -> Result<CellResult, RunError> {
        runner(cell).map_err(|error| match error {
            RunError::Refused(reason) | RunError::Failed(reason) if !self.stop.is_set() => {
                RunError::Failed(format!("{what}: {reason}"))
            }
            // Ctrl-C reaches the cell's process too.
            _ => RunError::Interrupted,
        })
    }

    fn lost(&self, error: &io::Error) -> RunError {
        let path = self.scratch.path().display();
        RunError::Failed(format!("{path}: {error} (is the disk full, or read-only?)"))
    }
}

fn request(way: Way, spec: RequestSpec, directory: &Path) -> Cell {
    let seed = spec.seed;
    let directory = directory.to_owned();
    Cell { seed, ..request_cell(RequestCell { directory, ..RequestCell::of(way, spec) }) }
}
