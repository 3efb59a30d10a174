//! Runs of many seeds, and what is needed to replay the one that fails.
//!
//! `FOREBAY_SIM_SEEDS=N` runs N times as many seeds as the default: the long mode (20 takes some
//! minutes in the release profile). `FOREBAY_SIM_SEED=S` runs that one alone, with its trace
//! printed when it fails.
#![allow(dead_code, reason = "each test uses its own part")]

pub(crate) mod single;

use forebay_sim::trace::Tracing;
use forebay_sim::{Driver, Marks, Plan};

/// Runs each of so many seeds, and adds up what was come by.
pub(crate) fn swarm(name: &str, seeds: u64, plan: impl Fn(u64) -> Plan) -> Marks {
    let mut marks = Marks::default();
    for seed in seeds_of(seeds) {
        let mut run = Run::new(name, seed, plan(seed));
        marks.merge(run.driver.run());
    }
    marks
}

/// The seeds to run.
pub(crate) fn seeds_of(default: u64) -> Vec<u64> {
    match number("FOREBAY_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..default * factor()).collect(),
    }
}

/// How many times the default is to be done.
pub(crate) fn factor() -> u64 {
    number("FOREBAY_SIM_SEEDS").unwrap_or(1)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, and is {text:?}")))
}

/// Whether all seeds are run, so that what they come by can be counted.
pub(crate) fn runs_all() -> bool {
    number("FOREBAY_SIM_SEED").is_none()
}

/// A run that says how to replay it when it fails.
pub(crate) struct Run {
    name: String,
    seed: u64,
    pub(crate) driver: Driver,
}

impl Run {
    pub(crate) fn new(name: &str, seed: u64, plan: Plan) -> Self {
        let tracing = if runs_all() { Tracing::Off } else { Tracing::Kept };
        Self { name: name.to_owned(), seed, driver: Driver::new(seed, plan, tracing) }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for line in self.driver.trace().lines() {
            eprintln!("{line}");
        }
        eprintln!(
            "replay it with FOREBAY_SIM_SEED={} cargo test -p forebay-sim {}",
            self.seed, self.name
        );
    }
}

/// Asserts that a run of all seeds came by each of some places.
pub(crate) fn assert_marks(marks: &Marks, places: &[&'static str]) {
    let missing: Vec<_> = places.iter().filter(|place| marks.count(place) == 0).collect();
    assert!(!runs_all() || missing.is_empty(), "no seed came by {missing:?}:\n{marks}");
}
