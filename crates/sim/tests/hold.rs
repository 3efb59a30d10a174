//! Completed writes that are held keep nobody waiting.

use std::time::Duration;

use forebay_block::knobs::Holding;
use forebay_block::limits::HOLD_MAX;
use forebay_sim::run::hold::{Act, beside_a_hold, syncs_after_failed_writes};

#[test]
fn contract_16_a_hold_lasts_its_time() {
    for act in [Act::Waits, Act::Reads, Act::Writes] {
        let took = beside_a_hold(act);
        println!("{act:?}: {took:?}");
        assert!(took.hold >= HOLD_MAX && took.hold < HOLD_MAX * 11 / 10, "{act:?}: {took:?}");
        assert!(took.act < HOLD_MAX / 10, "{act:?}: {took:?}");
    }
}

#[test]
fn contract_16_a_hold_ends_for_those_who_wait() {
    for act in [Act::Syncs, Act::Closes, Act::ShutsDown, Act::Visits] {
        let took = beside_a_hold(act);
        println!("{act:?}: {took:?}");
        assert!(took.hold < HOLD_MAX / 2 && took.act < HOLD_MAX / 10, "{act:?}: {took:?}");
    }
}

/// A held error is neither lost nor reported twice.
#[test]
fn contract_02_an_error_is_reported_as_without_a_hold() {
    let [at_once, held] = [Holding::Immediate, Holding::Delay(Duration::from_millis(5))]
        .map(syncs_after_failed_writes);
    assert_eq!(at_once, held);
    assert_eq!(at_once.0, [true, false, false]);
}
