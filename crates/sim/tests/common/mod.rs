//! Runs of many seeds, and what is needed to replay the one that fails.
//!
//! `FOREBAY_SIM_SEEDS=N` runs N times as many seeds as the default (long mode: 100 takes some minutes), and
//! `FOREBAY_SIM_SEED=S` runs that one alone, with its trace printed when it fails.
#![allow(dead_code, reason = "each test uses its own part")]

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
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("FOREBAY_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..default * number("FOREBAY_SIM_SEEDS").unwrap_or(1)).collect(),
    }
}

/// A run that says how to replay it when it fails.
pub(crate) struct Run {
    name: String,
    seed: u64,
    pub(crate) driver: Driver,
}

impl Run {
    pub(crate) fn new(name: &str, seed: u64, plan: Plan) -> Self {
        let alone = std::env::var_os("FOREBAY_SIM_SEED").is_some();
        let tracing = if alone { Tracing::Kept } else { Tracing::Off };
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
        eprintln!("replay it with FOREBAY_SIM_SEED={} cargo test -p forebay-sim {}", self.seed, self.name);
    }
}
