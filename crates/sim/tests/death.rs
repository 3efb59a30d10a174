//! The process of the engine dies, or the power is cut, and another process goes on with the files.

mod common;

use std::time::Duration;

use common::{assert_marks, swarm};
use forebay_sim::plan::Disturbance;
use forebay_sim::{PerMille, Plan};

/// With a keeper all accepted data is there after a death, without one all synced data, and after a
/// power cut each sector holds a version accepted since the last sync.
#[test]
fn contract_04_the_next_process_finds_the_data_that_was_promised() {
    let marks = swarm("contract_04_the_next_process", 120, Plan::deaths);
    assert_marks(&marks, &["killed", "kept", "power cut", "saved", "sync ok"]);
}

/// Looked at every few steps: the data that a keeper would save if the process died now.
#[test]
fn contract_04_accepted_data_outlives_the_process_at_every_moment() {
    let marks = swarm("contract_04_accepted_data", 60, |seed| {
        let plan = Plan::swarm(seed);
        let disturbance = Disturbance { crash: PerMille(1000), ..plan.disturbance };
        Plan { disturbance, is_survived: true, ..plan }
    });
    assert_marks(
        &marks,
        &["process death", "saved", "nothing to be saved", "page write failed", "discarded"],
    );
}

/// Looked at in the middle of each write: a page that the call copies to is not clean then, because
/// the next engine would take a part of the copy for the content of the file.
#[test]
fn contract_04_a_death_in_the_middle_of_a_copy_leaves_no_clean_page() {
    let marks = swarm("contract_04_a_death_in_the_middle", 60, |seed| {
        let plan = Plan::passing(seed);
        Plan {
            file_pages: 8,
            operations: plan.operations.min(60),
            age: Duration::from_millis(1),
            is_survived: true,
            looks_into_writes: true,
            ..plan
        }
    });
    assert_marks(&marks, &["process death", "saved", "nothing to be saved", "sync ok"]);
}

/// The keeper holds the files of the dead engine and writes what it can. The next engine adopts
/// them with their pages, and goes on as if nothing had happened.
#[test]
fn contract_04_the_next_engine_adopts_what_the_keeper_holds() {
    let marks = swarm("contract_04_the_next_engine_adopts", 150, Plan::adoptions);
    let places = [
        "adopted",
        "adopted clean",
        "adopted unwritten",
        "killed",
        "power cut",
        "sync ok",
        "lease broken",
    ];
    assert_marks(&marks, &places);
}

#[test]
fn contract_10_the_next_engine_adopts_devices() {
    let marks = swarm("contract_10_the_next_engine_adopts", 120, |seed| {
        let Plan { are_devices, odd_sectors, .. } = Plan::devices(seed);
        Plan { are_devices, odd_sectors, ..Plan::adoptions(seed) }.with_space(u64::MAX / 2)
    });
    assert_marks(&marks, &["adopted", "adopted clean", "sync ok"]);
}

/// With nothing else that goes wrong no call fails, before the death and after.
#[test]
fn contract_04_adoption_on_a_well_device_loses_nothing() {
    let marks = swarm("contract_04_adoption_on_a_well_device", 100, |seed| {
        let calm = Plan::calm(seed);
        let (faults, mix) = (calm.machine.faults, calm.mix);
        let disturbance = Disturbance { death: PerMille(100), ..calm.disturbance };
        let adoptions = Plan { mix, disturbance, ..Plan::adoptions(seed) };
        adoptions.with_faults(faults).with_space(u64::MAX / 2)
    });
    assert_marks(&marks, &["adopted", "adopted clean", "seen by others"]);
}
