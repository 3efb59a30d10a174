//! Files that are open past the cache, beside files and handles that go through it.

mod common;

use std::time::Duration;

use common::{assert_marks, seeds_of, swarm};
use forebay_sim::plan::{Disturbance, Mix};
use forebay_sim::run::run;
use forebay_sim::trace::Tracing;
use forebay_sim::{Faults, PerMille, Plan};

/// A device that does nothing wrong: no operation fails, and each read finds the bytes of the
/// writes that were submitted before it.
#[test]
fn contract_15_overlapping_direct_operations_take_effect_in_their_order() {
    let marks =
        swarm("contract_15_overlapping_direct", 100, |seed| Plan::calm(seed).past_the_cache(seed));
    let places = [
        "opened direct",
        "open otherwise",
        "moved alone",
        "moved together",
        "waited behind",
        "read direct",
        "length set",
        "plugged",
        "bounced",
        "sync ok",
    ];
    assert_marks(&marks, &places);
}

/// Errors of writes come back with the write, or with the next sync or close of the handle.
#[test]
fn contract_02_direct_writes_fail_where_somebody_hears_of_it() {
    let marks = swarm("contract_02_direct_writes", 80, |seed| {
        let plan = Plan::swarm(seed);
        let faults = Faults { write: PerMille(150), read: PerMille(30), ..plan.machine.faults };
        let plan = Plan { abandoned: PerMille(200), ..plan };
        plan.with_faults(faults).past_the_cache(seed)
    });
    let places = [
        "direct operation failed",
        "dropped write failed",
        "flush failed",
        "sync failed",
        "sync ok",
    ];
    assert_marks(&marks, &places);
}

#[test]
fn contract_10_direct_devices_hold_what_was_accepted() {
    let marks =
        swarm("contract_10_direct_devices", 60, |seed| Plan::devices(seed).past_the_cache(seed));
    assert_marks(&marks, &["opened direct", "moved together", "bounced", "sync ok"]);
}

/// Looked at every few microseconds.
#[test]
fn contract_03_a_power_cut_leaves_what_direct_writes_and_syncs_promise() {
    let marks = swarm("contract_03_a_power_cut_leaves", 40, |seed| {
        let plan = Plan::swarm(seed);
        let disturbance = Disturbance {
            crash: PerMille(1000),
            pause: Duration::from_micros(40),
            programs: PerMille(0),
            ..plan.disturbance
        };
        let mix = Mix { sync: 15, ..plan.mix };
        // One operation may be many that wait for each other.
        let operations = plan.operations.min(15);
        Plan { disturbance, mix, operations, ..plan }.past_the_cache(seed)
    });
    assert_marks(&marks, &["power loss", "sync ok", "moved together", "directory flushed"]);
}

#[test]
fn contract_04_direct_writes_that_have_ended_outlive_the_process() {
    let marks =
        swarm("contract_04_direct_writes", 60, |seed| Plan::deaths(seed).past_the_cache(seed));
    assert_marks(&marks, &["killed", "power cut", "opened direct", "sync ok"]);
}

#[test]
fn contract_16_the_same_seed_does_the_same_again_past_the_cache() {
    for seed in seeds_of(10) {
        let plan = || Plan::swarm(seed).past_the_cache(seed);
        let outcome = || run(seed, plan(), Tracing::Kept).unwrap().outcome;
        assert_eq!(outcome(), outcome(), "seed {seed}");
    }
}
