//! Opens and calls in their other forms: handles for reading or appending only, opens that cut the
//! file, bytes in several slices, appends whose future is dropped, space that is allocated or
//! freed, writing out, and pages that are written whole again and again.

mod common;

use common::{assert_marks, run_one, swarm};
use forebay_sim::Plan;

#[test]
fn contract_08_every_form_of_a_call_agrees_with_a_plain_file() {
    let marks = swarm("contract_08_every_form", 200, |seed| Plan::calm(seed).with_all_calls(seed));
    let places = [
        "in slices",
        "appended alone",
        "not permitted",
        "made once",
        "cut at open",
        "opened as temporary",
        "layout",
        "sync ok",
        "read back",
        "allocated",
        "hole punched",
        "written out",
    ];
    assert_marks(&marks, &places);
}

#[test]
fn contract_02_every_form_of_a_call_survives_a_device_that_fails() {
    let marks = swarm("contract_02_every_form", 150, |seed| Plan::swarm(seed).with_all_calls(seed));
    assert_marks(
        &marks,
        &["cut at open", "sync failed", "discarded", "not permitted", "allocated", "hole punched"],
    );
}

#[test]
fn contract_10_handles_of_devices_permit_what_they_are_for() {
    let marks = swarm("contract_10_handles_of_devices", 60, |seed| {
        Plan::devices(seed).with_all_calls(seed)
    });
    assert_marks(&marks, &["in slices", "not permitted", "sync ok"]);
}

/// Past the cache in some of the opens, and with deaths of the process.
fn deaths(seed: u64) -> Plan {
    Plan::deaths(seed).with_all_calls(seed).past_the_cache(seed)
}

#[test]
fn contract_04_every_form_of_a_call_before_a_death() {
    let marks = swarm("contract_04_every_form", 160, deaths);
    assert_marks(
        &marks,
        &["killed", "power cut", "cut at open", "opened direct", "opened as temporary"],
    );
}

/// In the run of this seed an open creates a temporary file and fails, because another one has
/// found the file and opened it in the other mode. The sync of the other one flushes the directory.
#[test]
fn contract_01_a_temporary_file_that_another_open_finds_has_a_durable_name() {
    let seed = 385;
    run_one("contract_01_a_temporary_file", seed, deaths(seed));
}

/// Under everything else that happens: a write of a page that is dirty already is planned and
/// published in one step.
#[test]
fn contract_11_a_page_is_written_again_and_again() {
    let marks = swarm("contract_11_a_page", 240, |seed| {
        let plan = match seed % 4 {
            0 => Plan::swarm(seed),
            1 => Plan::large(seed),
            2 => Plan::deaths(seed),
            _ => Plan::adoptions(seed),
        };
        let plan = if seed % 8 < 4 { plan } else { plan.with_all_calls(seed) };
        plan.with_rewrites(seed)
    });
    let places =
        ["in place", "killed", "adopted", "hole punched", "page write failed", "rewritten"];
    assert_marks(&marks, &places);
}
