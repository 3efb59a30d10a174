//! Power may go at any moment: many looks at the states that may be found then, each compared with
//! the promises of the engine.

mod common;

use std::time::Duration;

use common::{assert_marks, swarm};
use forebay_sim::plan::{Disturbance, Mix};
use forebay_sim::{Marks, PerMille, Plan};

/// Runs with a look after every few microseconds.
fn look_at_every_moment(name: &str, seeds: u64, plan: impl Fn(u64) -> Plan) -> Marks {
    swarm(name, seeds, |seed| {
        let plan = plan(seed);
        let disturbance = Disturbance {
            crash: PerMille(1000),
            pause: Duration::from_micros(40),
            // They keep files open for longer than all looks of a run take together.
            programs: PerMille(0),
            ..plan.disturbance
        };
        Plan { disturbance, operations: plan.operations.min(60), ..plan }
    })
}

#[test]
fn contract_03_each_sector_holds_a_version_accepted_since_the_last_sync() {
    let marks = look_at_every_moment("contract_03_each_sector", 60, Plan::passing);
    assert_marks(&marks, &["power loss", "sync ok", "tail", "length set", "extending"]);
}

#[test]
fn contract_03_holds_while_the_device_fails() {
    let marks = look_at_every_moment("contract_03_holds_while", 60, Plan::swarm);
    assert_marks(&marks, &["power loss", "page write failed", "flush failed"]);
}

/// New files, synced once and again: the entry, the size and the bytes must be there.
#[test]
fn contract_01_synced_files_are_there_with_name_and_size() {
    let marks = look_at_every_moment("contract_01_synced_files", 60, |seed| {
        let plan = Plan::passing(seed);
        let mix = Mix { sync: 30, append: 20, close: 5, ..plan.mix };
        Plan { mix, operations: 40, file_pages: 16, ..plan }
    });
    assert_marks(&marks, &["power loss", "sync ok", "directory flushed"]);
}
