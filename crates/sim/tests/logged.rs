//! The intent log of an engine: syncs that are records, files that are emptied, losses of power at
//! any moment, and recoveries that are cut.

mod common;

use common::{assert_marks, swarm};
use forebay_sim::Plan;

/// After a loss of power at any moment the files have, with the records of the log, all bytes that
/// a sync has acknowledged, and no older ones.
#[test]
fn contract_23_a_logged_sync_outlives_a_loss_of_power() {
    let marks = swarm("contract_23_a_logged_sync", 150, Plan::logged);
    let places = [
        "logged syncs",
        "log batches",
        "files emptied",
        "power loss with live records",
        "mark not covered by a flush of data",
        "lease broken",
    ];
    assert_marks(&marks, &places);
}

/// The engine dies, or the power is cut, also in the middle of a recovery.
#[test]
fn contract_24_a_recovery_puts_the_newest_acknowledged_bytes_back() {
    let marks = swarm("contract_24_a_recovery", 150, Plan::logged_deaths);
    let places = ["killed", "power cut", "recovery cut", "replayed", "logged syncs", "sync ok"];
    assert_marks(&marks, &places);
}
