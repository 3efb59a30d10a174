//! The engine in the simulated machine: reads find the bytes that were written, sizes are exact at
//! every sync and close, every caller that waits goes on, and nothing is left over.

mod common;

use common::{assert_marks, run_one, seeds_of, swarm};
use forebay_sim::plan::Disturbance;
use forebay_sim::run::run;
use forebay_sim::trace::Tracing;
use forebay_sim::world::machine::VolumePlan;
use forebay_sim::{PerMille, Plan};

#[test]
fn contract_16_the_same_seed_does_the_same_again() {
    for seed in seeds_of(20) {
        let outcome = || run(seed, Plan::swarm(seed), Tracing::Kept).unwrap().outcome;
        let first = outcome();
        assert!(!first.trace.is_empty());
        assert_eq!(first, outcome(), "seed {seed}");
    }
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
            "clean pages written",
            "sync ok",
            "evicted",
            "throttled",
            "written in part",
            "abandoned",
            "future dropped",
            "read back",
            "knob turned",
            "handed over",
            "merged",
            "lease broken",
            "seen by others",
            "visitor refused",
            "no data at open",
            "data in part at open",
        ],
    );
}

/// Short, interrupted, refused: no caller hears of it.
#[test]
fn contract_13_short_interrupted_and_refused_are_got_over() {
    let marks = swarm("contract_13_short", 300, |seed| {
        let plan = Plan::passing(seed);
        let disturbance = Disturbance { programs: PerMille(0), ..plan.disturbance };
        Plan { disturbance, ..plan }
    });
    assert_marks(&marks, &["resubmitted"]);
    assert_eq!(marks.count("sync failed"), 0);
    assert_eq!(marks.count("fill failed"), 0);
}

/// All at once.
#[test]
fn contract_16_every_bio_ends_once_and_nothing_is_left_over() {
    let marks = swarm("contract_16_every_bio", 400, Plan::swarm);
    assert_marks(
        &marks,
        &[
            "page write failed",
            "flush failed",
            "lost at close",
            "write refused",
            "discarded",
            "rewritten",
            "lease broken",
        ],
    );
}

/// In the run of this seed the flush before an append past the cache fails. The append succeeds,
/// and the only handle is dropped: the program's callback gets the error of the flush.
#[test]
fn contract_02_a_failed_flush_before_an_append_is_reported() {
    let seed = 2954;
    run_one("contract_02_a_failed_flush", seed, Plan::swarm(seed));
}

/// Devices: each of its size, with a part of a page at its end, discarded under reads, writes and
/// losses of power.
#[test]
fn contract_10_devices_hold_what_was_accepted() {
    let marks = swarm("contract_10_devices", 300, Plan::devices);
    let places = [
        "range discarded",
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
    let marks = swarm("contract_09_space", 300, Plan::large);
    assert_marks(&marks, &["allocation", "punched", "reserved"]);
}

/// Free space about as large as what makes the engine refuse writes: each is accepted whole, or
/// nothing of it.
#[test]
fn contract_09_a_refused_write_is_refused_whole() {
    let marks = swarm("contract_09_refused_whole", 300, |seed| {
        // 8 MiB besides four times what is not written yet.
        let space = 2_048 + 4 * (2 + seed % 20);
        Plan::calm(seed).on(&VolumePlan::btrfs()).with_space(space)
    });
    assert_marks(&marks, &["no room", "sync ok"]);
}

/// A run depends on its seed and plan alone, not on the run before it on the same thread.
#[test]
fn a_run_does_not_depend_on_the_run_before() {
    let name = "a_run_does_not_depend";
    for seed in seeds_of(5) {
        let first = run_one(name, seed, Plan::passing(seed)).outcome.fingerprint;
        run_one(name, seed + 1, Plan::passing(seed + 1));
        assert_eq!(run_one(name, seed, Plan::passing(seed)).outcome.fingerprint, first);
    }
}
