//! Runs of many seeds, with the seed to replay printed if one fails.
//!
//! `FOREBAY_SIM_SEEDS=N` runs N times as many seeds as the default: the long mode (20 takes some
//! minutes in the release profile). `FOREBAY_SIM_SEEDS=A..B` runs the seeds from A up to B, without
//! B. `FOREBAY_SIM_SEED=2:S` runs the seed S alone, with its trace printed if it fails.
#![allow(dead_code, reason = "each test uses its own part")]

pub(crate) mod single;

use forebay_sim::run::{Report, run};
use forebay_sim::seed::Seed;
use forebay_sim::trace::Tracing;
use forebay_sim::world::Failure;
use forebay_sim::{Marks, Plan};

/// Runs `seeds` seeds, and adds up the marks.
pub(crate) fn swarm(name: &str, seeds: u64, plan: impl Fn(u64) -> Plan) -> Marks {
    let mut marks = Marks::default();
    for seed in seeds_of(seeds) {
        marks.merge(&run_one(name, seed, plan(seed)).marks);
    }
    marks
}

/// As [`swarm`], of a run of another kind.
pub(crate) fn each(
    name: &str,
    seeds: u64,
    run: impl Fn(u64, Tracing) -> Result<Marks, Failure>,
) -> Marks {
    let tracing = if runs_all() { Tracing::Off } else { Tracing::Kept };
    let mut marks = Marks::default();
    for seed in seeds_of(seeds) {
        let ran = run(seed, tracing).unwrap_or_else(|failure| {
            eprintln!("{failure}");
            let seed = Seed(seed);
            panic!("replay it with FOREBAY_SIM_SEED={seed} cargo test -p forebay-sim {name}")
        });
        marks.merge(&ran);
    }
    println!("{marks}");
    marks
}

/// Runs a seed.
pub(crate) fn run_one(name: &str, seed: u64, plan: Plan) -> Report {
    let tracing = if runs_all() { Tracing::Off } else { Tracing::Kept };
    run(seed, plan, tracing).unwrap_or_else(|failure| {
        eprintln!("{failure}");
        let seed = Seed(seed);
        panic!("replay it with FOREBAY_SIM_SEED={seed} cargo test -p forebay-sim {name}")
    })
}

/// The seeds to run.
pub(crate) fn seeds_of(default: u64) -> Vec<u64> {
    if let Some(Seed(seed)) = seed() {
        return vec![seed];
    }
    let Ok(text) = std::env::var("FOREBAY_SIM_SEEDS") else { return (0..default).collect() };
    let seeds = match text.split_once("..") {
        Some((first, end)) => first.parse::<u64>().and_then(|first| Ok(first..end.parse()?)),
        None => text.parse::<u64>().map(|factor| 0..default * factor),
    };
    let seeds = seeds.unwrap_or_else(|_| {
        panic!("FOREBAY_SIM_SEEDS must be a number or a range A..B, and is {text:?}")
    });
    seeds.collect()
}

fn seed() -> Option<Seed> {
    let text = std::env::var("FOREBAY_SIM_SEED").ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("FOREBAY_SIM_SEED: {error}")))
}

/// Whether all seeds are run, so that their marks can be counted.
pub(crate) fn runs_all() -> bool {
    seed().is_none()
}

/// Asserts that a run of all seeds came by each of some places.
pub(crate) fn assert_marks(marks: &Marks, places: &[&'static str]) {
    let missing: Vec<_> = places.iter().filter(|place| marks.count(place) == 0).collect();
    assert!(!runs_all() || missing.is_empty(), "no seed came by {missing:?}:\n{marks}");
}
