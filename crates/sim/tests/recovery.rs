//! Recovery of an intent log after kills and power cuts, with changes of other programs between,
//! and recoveries that are cut and repeated.

mod common;

use common::{assert_marks, each};
use forebay_sim::run::recovery::run;
use forebay_sim::trace::Tracing;

/// No acknowledged byte is lost or older, and no change of another program is undone.
#[test]
fn contract_24_a_recovery_puts_back_what_was_acknowledged_and_nothing_older() {
    let marks = each("contract_24_a_recovery", 400, |seed, tracing| run(seed, false, tracing));
    let places = [
        "logged",
        "emptied",
        "advanced",
        "killed",
        "power cut",
        "recovery cut",
        "replayed",
        "nothing counts",
        "of a removed file",
        "skipped",
        "changed by others",
        "replaced by others",
        "renamed by others",
        "replaced by its owner",
        "cut by its owner",
        "mark not covered by a flush of data",
    ];
    assert_marks(&marks, &places);
}

/// In the run of this seed the power is cut while a directory is flushed. The flush ends once the
/// process is dead, and makes the removal of a name durable.
#[test]
fn contract_24_a_power_cut_leaves_the_names_of_its_own_moment() {
    run(34551, false, Tracing::Off).unwrap_or_else(|failure| panic!("{failure}"));
}

/// In the run of this seed a power cut brings back the name of a removed file, with its new change
/// time. A recovery saves its bytes, and is cut once the log is empty.
#[test]
fn contract_24_a_recovery_that_is_cut_at_its_end_has_saved_all_bytes() {
    let seed = 35010;
    let marks = run(seed, false, Tracing::Off).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(marks.count("saved by a recovery that was cut") > 0, "the run of {seed} has changed");
}

/// The same with reads, writes and flushes that fail.
#[test]
fn contract_26_a_recovery_on_a_failing_disk_keeps_the_log() {
    let marks = each("contract_26_a_recovery", 300, |seed, tracing| run(seed, true, tracing));
    let places = ["append failed", "restarted", "recovery refused", "file refused", "replayed"];
    assert_marks(&marks, &places);
}
