//! Our load generator against fio: the kernel's own paths, the same file, the same shapes, and both
//! twice in each round, which gives the noise of each.
//!
//! ```text
//! round 1: lab fio lab-again fio-again     round 2: fio lab fio-again lab-again     ...
//! ```
//!
//! Only latencies of the same meaning are compared. Ours is from before an operation is handed over
//! until its end was seen. For a single call that is what fio calls `clat`; over a ring `clat`
//! begins only when the submitting call has returned, and fio's `lat` includes that call.
//!
//! Uncached buffering (`RWF_DONTCACHE`) is not among the shapes: fio 3.17 to 3.37 send another flag
//! for `uncached`, which has become `RWF_ATOMIC`.

use std::path::Path;

use super::shape::{Load, Shape, shapes};
use super::{CheckError, Ground};
use crate::arm::Arm;
use crate::cell::{Cell, CellResult, CellSpec};
use crate::compare::Measured;
use crate::compare::runner::CellRunner;
use crate::fio_program;
use crate::metric;
use crate::request::{DATA_FILE, Operation};
use crate::schema::{self, Against, Comparison, Row};
use crate::statistics::{Paired, distance, mean, noise_floor, ratio};
use forebay_block::random::Random;

/// The arms, in the order of an even round.
pub const FIO_ARMS: [&str; 4] = ["lab", "fio", "lab-again", "fio-again"];

const METRICS: [&str; 3] = ["iops", "latency_p50_us", "latency_p99_us"];

/// Figures agree if they differ by at most this share.
const AGREE_WITHIN: f64 = 0.05;

/// Whether both say the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    Agree,
    /// Further apart, and no further than one of them is from itself.
    WithinNoise,
    Apart,
}

/// One figure of one shape, from both.
#[derive(Clone, PartialEq, Debug)]
pub struct Agreement {
    /// Ours to fio's, over both of each in every round; the job is the shape's name.
    pub comparison: Comparison,
    /// Ours, the mean over all rounds.
    pub lab: f64,
    pub fio: f64,
    /// The larger of both noise floors; nothing where there is but one round.
    pub floor: f64,
    pub mark: Mark,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Fio {
    pub version: String,
    /// Every metric of every shape.
    pub agreements: Vec<Agreement>,
    pub rows: Vec<Row>,
}

impl Fio {
    pub fn marked(&self, mark: Mark) -> usize {
        self.agreements.iter().filter(|one| one.mark == mark).count()
    }
}

/// Runs both generators and compares them. Reports each step to `tell`.
pub fn against_fio(
    ground: &Ground<'_>,
    runner: &mut dyn CellRunner,
    tell: &mut dyn FnMut(&str),
) -> Result<Fio, CheckError> {
    let load = Load::scaled(ground.scale);
    let directory = ground.lay_out(load.file_bytes)?;
    let mut check = Check { ground, runner, load, directory: &directory, version: String::new() };
    let shapes = shapes();
    let mut measured: Vec<Measured> = shapes.iter().flat_map(arms).collect();
    // Wakes the disk up; it does not count.
    check.lab(&shapes[0], ground.seed)?;
    for round in 0..ground.rounds {
        tell(&format!("round {} of {}", round + 1, ground.rounds));
        let mut random = Random::stream(ground.seed, u64::from(round) << 8);
        let mut order: Vec<usize> = (0..shapes.len()).collect();
        random.shuffle(&mut order);
        for at in order {
            let seed = random.draw();
            for place in places(round) {
                let result = check.cell(&shapes[at], FIO_ARMS[place], seed)?;
                measured[at * FIO_ARMS.len() + place].rounds.push(result);
            }
        }
    }
    let version = check.version;
    Ok(compared(version, &measured, ground.seed))
}

/// Empty rounds of each arm of a shape.
fn arms(shape: &Shape) -> [Measured; 4] {
    FIO_ARMS.map(|arm| Measured { job: shape.name(), arm: arm.to_owned(), rounds: Vec::new() })
}

/// Returns the order of the arms in a round. Neighbours are compared, and change places from round
/// to round.
fn places(round: u32) -> [usize; 4] {
    if round.is_multiple_of(2) { [0, 1, 2, 3] } else { [1, 0, 3, 2] }
}

struct Check<'a, 'b> {
    ground: &'a Ground<'b>,
    runner: &'a mut dyn CellRunner,
    load: Load,
    directory: &'a Path,
    version: String,
}

impl Check<'_, '_> {
    fn cell(&mut self, shape: &Shape, arm: &str, seed: u64) -> Result<CellResult, CheckError> {
        self.ground.settle()?;
        if arm.starts_with("lab") { self.lab(shape, seed) } else { self.fio(shape, seed) }
    }

    /// By our generator, in a process of its own.
    fn lab(&mut self, shape: &Shape, seed: u64) -> Result<CellResult, CheckError> {
        let arm = if shape.is_direct() { Arm::KernelDirect } else { Arm::KernelBuffered };
        let spec = CellSpec::of(arm, shape.workload(&self.load));
        let cell = Cell::Jobs(CellSpec { directory: self.directory.to_owned(), seed, ..spec });
        let found = self.ground.run(self.runner, &cell, &shape.name())?;
        let of_direction = |name: &str| format!("{}_{name}", shape.direction());
        let mut result = CellResult::default();
        for metric in METRICS {
            let known = if metric == "iops" { metric.to_owned() } else { of_direction(metric) };
            let value = found.metrics.get(&known).copied();
            result.metrics.extend(value.map(|value| (metric.to_owned(), value)));
        }
        whole(result, shape, "forebay")
    }

    fn fio(&mut self, shape: &Shape, seed: u64) -> Result<CellResult, CheckError> {
        let path = self.directory.join(DATA_FILE);
        let arguments = shape.arguments(&self.load, &path, seed);
        let report = fio_program::run(&arguments, Some(self.directory)).map_err(|error| {
            if self.ground.stop.is_set() {
                return CheckError::Interrupted;
            }
            CheckError::Failed(format!("{}: {error}", shape.name()))
        })?;
        let found = match shape.operation {
            Operation::Read => &report.jobs[0].read,
            Operation::Write => &report.jobs[0].write,
        };
        let latency = if shape.is_over_a_ring() { &found.lat_ns } else { &found.clat_ns };
        let mut result = CellResult::default();
        result.metrics.insert("iops".into(), found.iops);
        for (metric, percent) in [("latency_p50_us", 50.0), ("latency_p99_us", 99.0)] {
            let nanos = latency.percentile(percent);
            result.metrics.extend(nanos.map(|nanos| (metric.to_owned(), nanos / 1e3)));
        }
        self.version = report.version;
        whole(result, shape, "fio")
    }
}

/// Returns the result only if it has every metric.
fn whole(result: CellResult, shape: &Shape, whose: &str) -> Result<CellResult, CheckError> {
    let missing = METRICS
        .iter()
        .find(|metric| !result.metrics.get(**metric).is_some_and(|value| *value > 0.0));
    match missing {
        None => Ok(result),
        Some(metric) => Err(CheckError::Failed(format!(
            "{}: {whose} has no {metric} (give a larger --scale)",
            shape.name()
        ))),
    }
}

fn compared(version: String, measured: &[Measured], seed: u64) -> Fio {
    let mut fio = Fio { version, agreements: Vec::new(), rows: Vec::new() };
    for arms in measured.chunks(FIO_ARMS.len()) {
        fio.agreements.extend(METRICS.iter().filter_map(|metric| agreement(arms, metric, seed)));
        let rows = arms.iter().flat_map(|one| schema::rows(&one.job, &one.arm, &one.rounds));
        fio.rows.extend(rows);
    }
    fio
}

/// One metric of the four arms of a shape, which stand in their order; every round of each has it.
fn agreement(arms: &[Measured], metric: &str, seed: u64) -> Option<Agreement> {
    let values = |arm: usize| -> Vec<f64> {
        arms[arm].rounds.iter().filter_map(|round| round.metrics.get(metric).copied()).collect()
    };
    let [lab, fio, lab_again, fio_again] = [0, 1, 2, 3].map(values);
    let floor = |again: &[f64], first: &[f64]| {
        noise_floor(Paired { arm: again, base: first }).unwrap_or(0.0)
    };
    let floor = floor(&lab_again, &lab).max(floor(&fio_again, &fio));
    let (lab, fio) = ([lab, lab_again].concat(), [fio, fio_again].concat());
    let found = ratio(Paired { arm: &lab, base: &fio }, seed)?;
    let mark = match found.ratio {
        ratio if (ratio - 1.0).abs() <= AGREE_WITHIN => Mark::Agree,
        ratio if distance(ratio) <= floor => Mark::WithinNoise,
        _ => Mark::Apart,
    };
    let (metric, pair) = (metric::find(metric)?, Against { arm: "lab", base: "fio" });
    let comparison = Comparison::of(&arms[0].job, metric, pair, &found, Some(floor));
    Some(Agreement { comparison, lab: mean(&lab)?, fio: mean(&fio)?, floor, mark })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(values: [&[f64]; 4]) -> Vec<Measured> {
        let cell = |value: &f64| CellResult {
            metrics: METRICS.map(|metric| (metric.to_owned(), *value)).into(),
            ..CellResult::default()
        };
        let arm = |(arm, values): (&str, &[f64])| Measured {
            job: "job".into(),
            arm: arm.into(),
            rounds: values.iter().map(cell).collect(),
        };
        FIO_ARMS.into_iter().zip(values).map(arm).collect()
    }

    fn mark(values: [&[f64]; 4]) -> Mark {
        let fio = compared("fio-3.33".into(), &measured(values), 1);
        assert_eq!((fio.agreements.len(), fio.rows.len()), (3, 12));
        assert_eq!(fio.marked(fio.agreements[0].mark), 3);
        fio.agreements[0].mark
    }

    #[test]
    fn within_five_percent_or_within_what_each_is_from_itself() {
        let near: [&[f64]; 4] =
            [&[104.0, 103.0, 104.0], &[100.0, 101.0, 100.0], &[104.0; 3], &[100.0, 99.0, 100.0]];
        assert_eq!(mark(near), Mark::Agree);
        let apart: [&[f64]; 4] =
            [&[108.0, 109.0, 108.0], &[100.0; 3], &[108.0; 3], &[100.0, 99.0, 100.0]];
        assert_eq!(mark(apart), Mark::Apart);
        let noisy: [&[f64]; 4] =
            [&[108.0, 109.0, 108.0], &[100.0; 3], &[108.0; 3], &[100.0, 120.0, 80.0]];
        assert_eq!(mark(noisy), Mark::WithinNoise);
        let once: [&[f64]; 4] = [&[108.0], &[100.0], &[100.0], &[100.0]];
        assert_eq!(mark(once), Mark::Agree, "4 % over both; one round has no floor");
    }

    #[test]
    fn neighbours_are_one_of_each_and_change_places() {
        for round in 0..4 {
            let names = places(round).map(|place| FIO_ARMS[place]);
            assert!(
                names
                    .chunks(2)
                    .all(|pair| pair[0].starts_with("lab") != pair[1].starts_with("lab"))
            );
            assert_eq!(names[0].starts_with("lab"), round % 2 == 0);
        }
    }
}
