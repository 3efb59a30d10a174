//! Batches: the power may go at any point, and processes die.

mod common;

use common::{assert_marks, runs_all, seeds_of};
use forebay_sim::Marks;
use forebay_sim::run::batch::{self, Trial};
use forebay_sim::seed::Seed;
use forebay_sim::trace::Tracing;
use forebay_sim::world::Failure;

/// Runs `seeds` seeds, and adds up the marks.
fn each(name: &str, seeds: u64, run: impl Fn(u64, Tracing) -> Result<Marks, Failure>) -> Marks {
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
    marks
}

#[test]
fn contract_20_a_power_cut_at_every_durability_point() {
    let name = "contract_20_a_power_cut";
    let marks = each(name, 100, |seed, tracing| batch::run(seed, Trial::Calm, tracing));
    assert_marks(&marks, &["committed", "failed", "dropped", "raced", "power cut"]);
}
