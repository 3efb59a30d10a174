//! Futures that are kept without being polled.

use std::time::Duration;

use forebay_sim::run::given_up::write_beside_kept_ones;

/// Writes that waited for room, got all of it, and are not polled again, keep no other waiting for
/// ever.
#[test]
fn contract_12_room_that_is_not_taken_goes_to_others() {
    let waited = write_beside_kept_ones();
    assert!(waited.is_some_and(|waited| waited < Duration::from_secs(2)), "{waited:?}");
}
