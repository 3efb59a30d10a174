//! Other programs open the files of the engine while it writes them.

mod common;

use common::{assert_marks, run_one, swarm};
use forebay_sim::plan::Disturbance;
use forebay_sim::{PerMille, Plan};

/// The engine gives up the lease in time, and the other program finds what was accepted.
#[test]
fn contract_06_a_lease_is_released_to_other_programs() {
    let marks = swarm("contract_06_a_lease", 150, |seed| {
        let plan = Plan::passing(seed);
        let disturbance = Disturbance { programs: PerMille(200), ..plan.disturbance };
        Plan { disturbance, ..plan }
    });
    let places = ["lease broken", "seen by others", "visited", "visitor refused"];
    assert_marks(&marks, &places);
    assert_marks(&marks, &["appended past the cache"]);
}

fn read_leases(seed: u64) -> Plan {
    let plan = Plan::passing(seed).with_all_calls(seed);
    let disturbance = Disturbance { programs: PerMille(200), ..plan.disturbance };
    Plan { disturbance, ..plan }
}

/// In the run of this seed old pages are written out just when a file is to be extended that
/// another program has open, and the context refuses that meanwhile.
#[test]
fn contract_16_an_extension_that_ends_beside_writeback_is_heard() {
    let seed = 940_506;
    run_one("contract_16_an_extension", seed, read_leases(seed));
}

/// A file that is open only for reading has a read lease. An open for writing breaks it,
/// also the engine itself.
#[test]
fn contract_06_a_read_lease_is_released_to_writers() {
    let marks = swarm("contract_06_a_read_lease", 150, read_leases);
    let places = ["read lease broken", "write lease broken", "visited", "cut at open"];
    assert_marks(&marks, &places);
}
