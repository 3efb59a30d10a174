//! Batches and syncs of many files: the power may go at any point, and processes die.

mod common;

use common::{assert_marks, each};
use forebay_sim::run::batch::{self, Trial};
use forebay_sim::run::together;
use forebay_sim::trace::Tracing;

#[test]
fn contract_20_a_power_cut_at_every_durability_point() {
    let name = "contract_20_a_power_cut";
    let marks = each(name, 200, |seed, tracing| batch::run(seed, Trial::Calm, tracing));
    let wanted = ["committed", "failed", "dropped", "raced", "power cut", "synced with all"];
    assert_marks(&marks, &wanted);
}

/// Each outcome that a failed commit reports is true, also after a loss of power.
#[test]
fn contract_20_holds_while_the_device_fails() {
    let name = "contract_20_holds_while";
    let marks = each(name, 200, |seed, tracing| batch::run(seed, Trial::Faults, tracing));
    let wanted = ["committed", "failed", "dropped", "flush failed", "power cut", "synced with all"];
    assert_marks(&marks, &wanted);
}

/// The next batch removes what a dead one has left, and nothing of a batch that lives.
#[test]
fn contract_20_the_next_batch_removes_what_a_dead_one_left() {
    let name = "contract_20_the_next_batch";
    let marks = each(name, 200, |seed, tracing| batch::run(seed, Trial::Death, tracing));
    assert_marks(&marks, &["committed", "killed", "power went"]);
}

/// A batch finds each lock file that another one has made and not locked yet, and may remove it.
#[test]
fn contract_20_batches_that_begin_at_once_leave_each_other_alone() {
    let name = "contract_20_batches_that_begin";
    let marks = each(name, 60, |seed, tracing| batch::run(seed, Trial::Crowd, tracing));
    assert_marks(&marks, &["committed", "dropped"]);
}

/// The kernel reports the error of a write-back once, to the call that waited for it: the flush of
/// the file may end well.
#[test]
fn contract_20_an_error_of_an_early_write_back_fails_the_commit() {
    let name = "contract_20_an_error_of_an_early";
    let marks = each(name, 60, |seed, tracing| batch::run(seed, Trial::WriteBack, tracing));
    let wanted = ["committed", "failed", "write-back failed", "power cut", "synced with all"];
    assert_marks(&marks, &wanted);
}

#[test]
fn contract_19_each_file_of_a_set_is_durable_or_reports_why_not() {
    let name = "contract_19_each_file";
    let marks = each(name, 200, |seed, tracing| together::run(seed, seed % 2 == 1, tracing));
    assert_marks(
        &marks,
        &[
            "synced",
            "sync failed",
            "flush failed",
            "directory not synced",
            "future dropped",
            "power cut",
            "refused",
            "failed behind a refused file",
        ],
    );
}

/// The kernel reports the error of a directory once for each descriptor.
#[test]
fn contract_01_a_sync_beside_one_of_a_set_shares_the_sync_of_the_directory() {
    let name = "contract_01_a_sync_beside";
    let marks = each(name, 400, together::beside::run);
    assert_marks(&marks, &["synced alone", "failed alone", "synced", "sync failed"]);
}

/// A failed sync of one directory lost a rename in another one, which was reported as durable.
#[test]
fn contract_20_a_failed_sync_of_a_directory_makes_no_target_new() {
    batch::run(1735, Trial::Faults, Tracing::Off).unwrap();
}
