//! Verdicts where the answer is known: comparisons of a thing with itself on the real file, where
//! hardly any difference may be shown, and of two devices 5 % apart, where it must be found.
//!
//! The device that is known to be slower is the modelled one whose doorbell costs, in real time: it
//! spins, so the planted difference is 5 % of the processor's own time, below the noise that the
//! machine adds.

use std::path::Path;

use super::{CheckError, Ground};
use crate::cell::Cell;
use crate::compare::judge::rows as rows_of;
use crate::compare::outcome::Measured;
use crate::compare::runner::CellRunner;
use crate::compare::trial::{ARMS, BASE, judged, order};
use crate::probes::{RequestShape, request_cell};
use crate::request::{
    Operation, Pattern, Poll, RequestDevice, RequestSpec, Submitter, Switch, Way,
};
use crate::schema::{Comparison, Row};
use crate::statistics::Verdict;
use forebay_block::random::Random;

const SAME: u32 = 20;

/// Length of the file at full scale.
const FILE_BYTES: u64 = 256 << 20;

/// Step of that length.
const STEP_BYTES: u64 = 128 << 10;

/// The laid-out file that all cells read and write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Length of the file, in whole blocks.
    pub file_bytes: u64,
}

impl Load {
    /// Returns this share of the full length, of eight steps at least.
    pub fn scaled(scale: f64) -> Self {
        let file_bytes = (FILE_BYTES as f64 * scale) as u64 / STEP_BYTES * STEP_BYTES;
        Self { file_bytes: file_bytes.max(8 * STEP_BYTES) }
    }
}

/// Comparisons of a thing with itself that may show a difference.
pub const MOST_FALSE: usize = 3;

const PLANTED: u32 = 3;

const PLANTED_ROUNDS: u32 = 10;

/// Nanoseconds a doorbell costs, and costs with 5 % more.
const DOORBELLS: [u64; 2] = [20_000, 21_000];

/// How long a cell takes at full scale, in seconds: they are tiny.
const SECONDS: f64 = 0.1;

/// Loads of the comparisons of a thing with itself.
const LOADS: [(Way, Operation, u32); 5] = [
    (Way::Uring, Operation::Read, 1),
    (Way::Uring, Operation::Read, 32),
    (Way::Queue, Operation::Read, 32),
    (Way::Pread, Operation::Read, 1),
    (Way::Uring, Operation::Write, 32),
];

#[derive(Clone, PartialEq, Debug)]
pub struct Said {
    pub title: String,
    pub comparison: Comparison,
}

impl Said {
    pub fn is_shown(&self) -> bool {
        self.comparison.verdict != Verdict::NotShown
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Itself {
    pub same: Vec<Said>,
    /// Comparisons of a device with one that is 5 % slower.
    pub planted: Vec<Said>,
    pub rows: Vec<Row>,
}

impl Itself {
    /// Comparisons of a thing with itself that were shown.
    pub fn false_verdicts(&self) -> usize {
        self.same.iter().filter(|said| said.is_shown()).count()
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

/// Runs the comparisons. Reports each step to `report`.
pub fn against_itself(
    ground: &Ground<'_>,
    runner: &mut dyn CellRunner,
    report: &mut dyn FnMut(&str),
) -> Result<Itself, CheckError> {
    let load = Load::scaled(ground.scale);
    let directory = ground.lay_out(load.file_bytes)?;
    let seconds = (SECONDS * ground.scale).max(0.005);
    let mut found = Itself::default();
    for number in 0..SAME {
        let (way, operation, depth) = LOADS[number as usize % LOADS.len()];
        let spec = RequestSpec { operation, depth, ..spec(RequestDevice::file(), &load, seconds) };
        let direction = if operation == Operation::Read { "read" } else { "write" };
        let title = format!("{} {direction} 4k {depth}", way.name());
        report(&format!("{} of {SAME}: {title}", number + 1));
        let trial = Trial { number, title, rounds: ground.rounds, settles: true };
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
            let spec = RequestSpec { depth: 1, seed, ..spec(device, &load, seconds) };
            request(Way::Queue, spec, &directory)
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
        &self,
        ground: &Ground<'_>,
        runner: &mut dyn CellRunner,
        cell: &dyn Fn(&str, u64) -> Cell,
        rows: &mut Vec<Row>,
    ) -> Result<Option<Said>, CheckError> {
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
                let place =
                    ARMS.iter().position(|known| *known == arm).expect("it is one of the arms");
                measured[place].rounds.push(result);
            }
        }
        rows.extend(measured.iter().flat_map(|one| rows_of(&job, &one.arm, &one.rounds)));
        let comparison = judged(&measured, seed);
        Ok(comparison.map(|comparison| Said { title: self.title.clone(), comparison }))
    }
}

fn spec(device: RequestDevice, load: &Load, seconds: f64) -> RequestSpec {
    RequestSpec {
        device,
        depth: 1,
        block_bytes: 4096,
        pattern: Pattern::Random,
        operation: Operation::Read,
        knobs: Vec::new(),
        fixed_files: Switch::Off,
        batch: None,
        from: Submitter::Local,
        file_bytes: load.file_bytes,
        seconds,
        seed: 0,
    }
}

fn request(way: Way, spec: RequestSpec, directory: &Path) -> Cell {
    let seed = spec.seed;
    let cell = request_cell(way.name(), &RequestShape { spec, poll: Poll::Never, target: None });
    Cell { seed, directory: directory.to_owned(), ..cell }
}
