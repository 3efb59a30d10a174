//! The process of the engine dies, or the power is cut, and another process goes on with the files.

mod common;

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
