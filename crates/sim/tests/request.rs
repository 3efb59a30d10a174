//! The way of a request over faulty layers, with knobs and layers changing in flight: some hundred seeds here,
//! `FOREBAY_SIM_SEEDS=250` in the release profile for 100,000 of them.

mod common;

use common::{assert_marks, runs_all, seeds_of};
use forebay_sim::Marks;
use forebay_sim::request::{Features, Run};

const SEEDS: u64 = 400;

/// A device that cannot write zeroes says so, and the queue has to write them.
const FEATURES: Features = Features { unsupported_zeroes: false };

/// Says how to replay the seed that fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay it with FOREBAY_SIM_SEED={} cargo test -p forebay-sim --test request", self.0);
        }
    }
}

#[test]
fn contract_13_15_and_16_every_bio_ends_once_in_order_and_with_its_own_bytes() {
    let mut marks = Marks::default();
    for seed in seeds_of(SEEDS) {
        let replay = Replay(seed);
        marks.merge(&Run::new(seed, FEATURES).run());
        drop(replay);
    }
    let places =
        ["merged", "asked again", "taken", "refused", "short", "interrupted", "failed", "power loss"];
    assert_marks(&marks, &places);
    if runs_all() {
        println!("{marks}");
    }
}
