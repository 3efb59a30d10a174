//! The intent log of an engine: syncs that are records, files that are emptied, losses of power at
//! any moment, and recoveries that are cut.

mod common;

use common::{assert_marks, each, run_one, swarm};
use std::time::Duration;

use forebay_sim::Plan;
use forebay_sim::run::new_pages::lost_pages;
use forebay_sim::run::unwritable::{Unwritable, syncs, wait_for_lease};
use forebay_sim::run::whole;

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

/// In the runs of these seeds a file grows by a write behind a hole, and its old end is inside a
/// sector. That sector is in no record. It is written again before the size is durable.
#[test]
fn contract_03_a_replay_behind_an_old_end_leaves_no_mixture_of_two_versions() {
    let name = "contract_03_a_replay_behind";
    for seed in [6979, 8264] {
        run_one(name, seed, Plan::logged(seed));
    }
    run_one(name, 6979, Plan::logged_deaths(6979));
}

/// In the run of this seed the file ends inside a sector with one record, and the next record is
/// behind that sector. A later write of the sector is on the disk, and no sync covers it.
#[test]
fn contract_03_a_replay_zeroes_the_rest_of_a_sector_in_front_of_a_later_record() {
    let seed = 11877;
    run_one("contract_03_a_replay_zeroes", seed, Plan::logged(seed));
}

/// The engine dies, or the power is cut, also in the middle of a recovery.
#[test]
fn contract_24_a_recovery_puts_the_newest_acknowledged_bytes_back() {
    let marks = swarm("contract_24_a_recovery", 150, Plan::logged_deaths);
    let places = ["killed", "power cut", "recovery cut", "replayed", "logged syncs", "sync ok"];
    assert_marks(&marks, &places);
}

/// The engine dies, and its keeper brings all files of the log into place, with everything that was
/// written. The power may be cut meanwhile. No recovery of the log puts older bytes over that.
#[test]
fn contract_25_a_keeper_brings_everything_into_place_beside_a_log() {
    let marks = swarm("contract_25_a_keeper", 150, Plan::logged_kept);
    let places = ["kept", "keeper cut", "killed", "power cut", "replayed", "logged syncs"];
    assert_marks(&marks, &places);
}

/// In the run of this seed the engine cannot write a file with records that another program opens.
/// The bytes that a sync has promised are in the copy that the recovery saves.
#[test]
fn contract_24_a_recovery_saves_the_acknowledged_bytes_of_a_file_it_may_not_write() {
    let seed = 71555;
    run_one("contract_24_a_recovery_saves", seed, Plan::logged_deaths(seed));
}

/// In the runs of these seeds a flush of the file fails after the record, so the kernel has a size
/// that is not durable. The recovery writes the bytes of the record below that size.
#[test]
fn contract_24_a_recovery_makes_the_size_durable_that_a_failed_flush_has_lost() {
    for seed in [6258, 8565] {
        run_one("contract_24_a_recovery_makes", seed, Plan::logged_deaths(seed));
    }
}

/// Tasks write new pages of one file and sync it. A sync that comes while space is allocated for
/// the record of another one waits for a batch, too.
#[test]
fn contract_23_a_sync_waits_for_its_batch_though_space_was_allocated_for_another() {
    for seed in 0..40 {
        assert_eq!(lost_pages(seed), [0; 0], "seed {seed}");
    }
}

/// In the runs of these seeds a sync comes while space is allocated for a record of its file.
#[test]
fn contract_23_a_file_is_in_a_batch_once() {
    for seed in [10107, 11630] {
        run_one("contract_23_a_file_is", seed, Plan::logged_deaths(seed));
    }
}

/// A log that cannot be written stops nothing: its files are brought into place without it.
#[test]
fn contract_26_a_log_that_cannot_be_written_stops_nothing() {
    let marks = swarm("contract_26_a_log_that", 150, Plan::failing_log);
    let places = ["log spoiled", "promise in a mark", "logged syncs", "files emptied", "sync ok"];
    assert_marks(&marks, &places);
}

/// Its files are changed by promises in their marks, also after the promise of the log.
#[test]
fn contract_26_syncs_of_a_file_end_well_though_its_log_can_never_be_written() {
    for sync in syncs(Unwritable::Log) {
        assert!(sync.error.is_none() && sync.is_durable, "{sync:?}");
        assert!(sync.took < Duration::from_secs(5), "{sync:?}");
    }
}

/// Without any promise the file is poisoned: its calls fail, and none waits forever.
#[test]
fn contract_26_syncs_fail_if_neither_the_log_nor_the_mark_can_be_written() {
    for sync in syncs(Unwritable::LogAndMarks) {
        assert!(sync.error.is_some() && sync.took < Duration::from_secs(50), "{sync:?}");
    }
}

/// The mark of a file with records cannot be flushed on an aborted journal. Its lease is released
/// in time nevertheless.
#[test]
fn contract_06_a_lease_is_released_though_no_flush_ends_well() {
    let waited = wait_for_lease();
    assert!(waited < Duration::from_secs(1), "another program waited {waited:?}");
}

/// After a loss of power at any moment all ranges of an atomic write are found, or none.
#[test]
fn contract_27_all_ranges_of_an_atomic_write_are_found_or_none() {
    let marks = each("contract_27_all_ranges", 60, whole::run);
    let places = ["atomic write", "unknown", "sync beside", "power cut", "kept", "recovered"];
    assert_marks(&marks, &places);
}
