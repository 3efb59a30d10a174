//! The way of a request over faulty layers, with knobs and layers changing in flight: some hundred
//! seeds here, `FOREBAY_SIM_SEEDS=250` in the release profile for 100,000 of them.

mod common;

use common::{assert_marks, runs_all, seeds_of};
use forebay_sim::Marks;
use forebay_sim::request::{Features, Files, Run};

const SEEDS: u64 = 400;

/// A device that cannot write zeroes says so, and the queue has to write them.
const UNSUPPORTED_ZEROES: bool = true;

/// Says how to replay the seed that fails.
struct Replay<'a> {
    test: &'a str,
    seed: u64,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!(
                "replay it with FOREBAY_SIM_SEED={seed} cargo test -p forebay-sim --test request {test}"
            );
        }
    }
}

fn swarm(test: &str, seeds: u64, files: Files) -> Marks {
    let mut marks = Marks::default();
    for seed in seeds_of(seeds) {
        let replay = Replay { test, seed };
        marks.merge(
            &Run::new(seed, Features { unsupported_zeroes: UNSUPPORTED_ZEROES, files }).run(),
        );
        drop(replay);
    }
    if runs_all() {
        println!("{marks}");
    }
    marks
}

#[test]
fn contract_13_15_and_16_every_bio_ends_once_in_order_and_with_its_own_bytes() {
    let marks = swarm("contract_13", SEEDS, Files::Mixed);
    let places = [
        "merged",
        "asked again",
        "taken",
        "refused",
        "short",
        "interrupted",
        "failed",
        "power loss",
    ];
    assert_marks(&marks, &places);
}

#[test]
fn contract_18_and_what_is_larger_than_a_request_too() {
    let marks = swarm("contract_18", SEEDS / 10, Files::Large);
    assert_marks(&marks, &["merged", "asked again", "short", "failed"]);
}
