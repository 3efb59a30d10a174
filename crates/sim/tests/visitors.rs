//! Other programs open the files of the engine while it writes them.

mod common;

use common::{assert_marks, each, run_one, swarm};
use forebay_sim::plan::{Disturbance, Mix};
use forebay_sim::run::below::{appended_in_turn, read_after_a_change};
use forebay_sim::run::claimed;
use forebay_sim::world::machine::VolumePlan;
use forebay_sim::{Faults, PerMille, Plan};

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

/// Pages that were written under the lease are not kept. So a flush that fails once the lease is
/// given up cannot be repaired from memory: the file is poisoned.
#[test]
fn contract_02_a_flush_that_fails_after_the_lease_loses_nothing_in_silence() {
    let marks = swarm("contract_02_a_flush_that_fails_after_the_lease", 150, |seed| {
        let plan = Plan::passing(seed);
        let disturbance = Disturbance { programs: PerMille(200), ..plan.disturbance };
        let mix = Mix { sync: 20, ..plan.mix };
        let faults =
            Faults { flush: PerMille(150), invalidate: PerMille(0), ..plan.machine.faults };
        Plan { disturbance, mix, ..plan }.with_faults(faults)
    });
    assert_marks(&marks, &["lease broken", "flush failed", "sync failed", "sync ok"]);
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

/// An open takes the lease again while another handle appends past the cache.
#[test]
fn contract_06_an_append_beside_an_open_that_takes_the_lease_stays() {
    let marks = each("contract_06_an_append_beside", 200, claimed::run);
    assert_marks(&marks, &["appended past the cache", "leased again", "still shared"]);
}

/// Other programs reach the files by the directory below, as with FUSE, and break no lease.
#[test]
fn contract_06_a_lease_that_others_bypass_does_not_count() {
    let marks = swarm("contract_06_a_lease_that_others", 100, |seed| {
        read_leases(seed).on(&VolumePlan::fuse())
    });
    assert_marks(&marks, &["visited"]);
    assert_eq!(appended_in_turn(), b"first;theirs;last;");
    assert_eq!(read_after_a_change(), 2);
}

/// Callers that promise to be alone need no lease.
#[test]
fn contract_06_a_promise_takes_the_place_of_the_lease() {
    swarm("contract_06_a_promise", 100, |seed| {
        let volume = VolumePlan { is_promised: true, ..VolumePlan::fuse() };
        let plan = Plan::passing(seed).with_all_calls(seed).on(&volume);
        let disturbance = Disturbance { programs: PerMille(0), ..plan.disturbance };
        Plan { disturbance, ..plan }
    });
}
