//! A caller that waits is served, however much goes on beside it.

mod common;

use common::{run_one, seeds_of};
use forebay_sim::plan::{Disturbance, Mix};
use forebay_sim::{PerMille, Plan};

/// Transitions of the device a sync may wait. Over some hundred seeds, and runs of any length, it
/// is below 500: each of 24 pages twice on its way, interrupted now and then. One that redirtying
/// keeps from ending waits for the rest of the run, which is thousands.
const MOST: u64 = 1_000;

/// Writers that never pause, and now and then a sync.
fn busy(seed: u64) -> Plan {
    let plan = Plan::passing(seed);
    let mix = Mix { write: 60, append: 20, read: 5, set_length: 0, sync: 2, close: 0, discard: 0 };
    Plan {
        files: 1,
        callers: 4,
        file_pages: 24,
        frames: 64,
        dirty_pages: 48,
        turns_knobs: false,
        operations: 6_000,
        mix,
        abandoned: PerMille(0),
        disturbance: Disturbance::default(),
        ..plan
    }
}

#[test]
fn contract_01_redirtying_cannot_keep_a_sync_from_ending() {
    for seed in seeds_of(8) {
        let longest = run_one("contract_01_redirtying", seed, busy(seed)).longest_sync;
        assert!(longest < MOST, "a sync waited for {longest} transitions of the device");
    }
}
