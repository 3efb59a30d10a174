//! Futures that are not polled until they end.

use std::time::Duration;

use forebay_sim::run::given_up::{
    errors_of_a_dropped_sync, shutdown_beside_kept_ones, write_behind_kept_ones,
    write_beside_kept_ones,
};

/// Writes that waited for room, got all of it, and are not polled again, keep no other waiting for
/// ever.
#[test]
fn contract_12_room_that_is_not_taken_goes_to_others() {
    let waited = write_beside_kept_ones();
    assert!(waited.is_some_and(|waited| waited < Duration::from_secs(2)), "{waited:?}");
}

/// Writes that wait for room, or got it, and are not polled again keep no shutdown waiting.
#[test]
fn contract_12_a_shutdown_ends_beside_writes_that_are_given_up() {
    let waited = shutdown_beside_kept_ones();
    let has_ended = waited.is_some_and(|waited| waited < Duration::from_secs(1));
    assert!(has_ended, "contract 12: a shutdown waits for room that is not taken: {waited:?}");
}

/// Writers in line that were woken, and are not polled again, keep back no other: no request is in
/// flight whose end would wake the next.
#[test]
fn contract_15_writers_in_line_come_through_behind_ones_that_are_given_up() {
    let waited = write_behind_kept_ones();
    let is_woken = waited.is_some_and(|waited| waited < Duration::from_secs(2));
    assert!(is_woken, "contract 15: a writer in line is not woken: {waited:?}");
}

/// No caller has got the error, and no handle is left that would.
#[test]
fn contract_02_the_error_of_a_dropped_sync_is_reported_once_at_the_close() {
    assert_eq!(errors_of_a_dropped_sync(), 1, "contract 2: errors of a dropped sync");
}
