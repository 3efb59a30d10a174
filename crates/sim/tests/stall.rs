//! How long one writer waits on hard devices and files, in virtual time.

use std::time::Duration;

use forebay_sim::run::stall::{Hard, Waits, waits};

const DIRTY_AGE: Duration = Duration::from_secs(1);

/// Writes on a device that answers after this time wait no longer than for the oldest dirty page
/// and one answer. Twice as many writes send at most three times as many requests: the first ones
/// stay in the cache.
fn check(device: Duration, hard: Hard, count: u64) {
    let [half, whole] = [count / 2, count].map(|count| waits(hard, count, device, DIRTY_AGE));
    println!("{hard:?} on a device of {device:?}: {half:?}, then {whole:?}");
    let Waits { write, .. } = whole;
    assert!(write <= DIRTY_AGE + device, "{hard:?} on a device of {device:?}: {write:?}");
    assert!(whole.requests <= half.requests * 3 + 16, "{hard:?}: {half:?}, then {whole:?}");
}

fn check_all(device: Duration) {
    check(device, Hard::Random, 20_000);
    check(device, Hard::Stream, 1_000);
    check(device, Hard::Holes, 10_000);
    check(device, Hard::Appends, 20_000);
    check(device, Hard::Files, 400);
}

#[test]
fn contract_15_a_writer_waits_for_one_answer_of_a_device_of_100_ms() {
    check_all(Duration::from_millis(100));
}

#[test]
fn contract_15_a_writer_waits_for_one_answer_of_a_device_of_5_us() {
    check_all(Duration::from_micros(5));
}
