//! Whatever the order of events: what is read is what was written, sizes are exact at every sync
//! and close, every bio ends once, everybody who waits goes on, and nothing is left over.

mod common;

use common::{Run, assert_marks, seeds_of, swarm};
use forebay_sim::trace::Tracing;
use forebay_sim::{Driver, Plan};

#[test]
fn contract_16_the_same_seed_does_the_same_again() {
    for seed in seeds_of(20) {
        let trace = || {
            let mut driver = Driver::new(seed, Plan::swarm(seed), Tracing::Kept);
            driver.run();
            driver.trace().lines().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let lines = trace();
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "lines are of one width");
        assert_eq!(lines, trace(), "seed {seed}");
    }
}

/// Looked at after steps by chance, whatever goes wrong: what another process would make of what is
/// said.
#[test]
fn contract_04_what_was_accepted_outlives_the_process() {
    let marks = swarm("contract_04_what_was_accepted", 120, Plan::swarm);
    assert_marks(
        &marks,
        &[
            "process death",
            "saved",
            "nothing to be saved",
            "cut saved",
            "partial page filled",
            "touched in flight",
            "page write failed",
            "flush got over",
            "lease broken",
            "discarded",
            "evicted",
        ],
    );
}

/// With a device that does nothing wrong no sync, read or write may fail.
#[test]
fn contract_08_reads_and_sizes_agree_with_a_plain_file() {
    let marks = swarm("contract_08_reads_and_sizes", 300, Plan::calm);
    assert_marks(
        &marks,
        &[
            "read",
            "fill",
            "length set",
            "tail",
            "extending",
            "zeroes written",
            "sync ok",
            "evicted",
            "candidate stays",
            "candidate was not read yet",
            "candidate was gone",
            "read ahead",
            "room made ahead",
            "sent for it does not stay",
            "waits for what does not stay",
            "throttled",
            "starved of frames",
            "touched in flight",
            "partial page written",
            "partial page filled",
            "lease broken",
            "lease given up",
            "lease given up early",
            "seen by others",
            "lease had",
            "reclaimed",
            "abandoned",
        ],
    );
}

/// Short, interrupted, refused: nobody hears of it.
#[test]
fn contract_13_short_interrupted_and_refused_are_got_over() {
    let marks = swarm("contract_13_short", 600, Plan::passing);
    assert_marks(&marks, &["flush got over", "rewritten"]);
    assert_eq!(marks.count("sync failed"), 0);
    assert_eq!(marks.count("fill failed"), 0);
}

/// All at once.
#[test]
fn contract_16_every_bio_ends_once_and_nothing_is_left_over() {
    let marks = swarm("contract_16_every_bio", 800, Plan::swarm);
    assert_marks(
        &marks,
        &[
            "page write failed",
            "flush failed",
            "lost at close",
            "no room",
            "tick",
            "rate learned",
            "level shared out",
        ],
    );
}

/// Devices: each of its size, with a part of a page at its end, discarded under reads, writes and
/// losses of power.
#[test]
fn contract_10_devices_hold_what_was_accepted() {
    let marks = swarm("contract_10_devices", 800, Plan::devices);
    let places = [
        "discard",
        "discard failed",
        "page write failed",
        "flush failed",
        "lost at close",
        "evicted",
    ];
    assert_marks(&marks, &places);
    assert_eq!(marks.count("tail") + marks.count("extending") + marks.count("allocation"), 0);
}

/// Files large enough that space is reserved for them.
#[test]
fn contract_09_space_is_reserved_within_bounds_and_given_back() {
    let marks = swarm("contract_09_space", 150, Plan::large);
    assert_marks(
        &marks,
        &["allocation", "given back", "punched", "room made", "reserved in parts"],
    );
}

#[test]
fn a_run_can_be_frozen_and_goes_the_same_way_until_then() {
    for seed in seeds_of(5) {
        let mut whole = Run::new("a_run_can_be_frozen", seed, Plan::passing(seed));
        whole.driver.run();
        let half = whole.driver.transitions() / 2;
        let mut frozen = Run::new("a_run_can_be_frozen", seed, Plan::passing(seed));
        frozen.driver.run_until_power_loss(half);
        assert!(frozen.driver.transitions() >= half);
    }
}
