//! How long one writer waits on hard devices and files, and the prices of a device that an engine
//! learns, in virtual time.

use std::time::Duration;

use forebay_sim::run::learned;
use forebay_sim::run::stall::{Hard, Waits, waits};
use forebay_sim::world::machine::Prices;

const DIRTY_AGE: Duration = Duration::from_secs(1);

/// Time of the processor that no load is compared in.
const SLACK: Duration = Duration::from_millis(50);

/// Writes on a device that answers after this time wait no longer than for the oldest dirty page
/// and one answer. Twice as many writes send at most three times as many requests: the first ones
/// stay in the cache. They take at most three times the time of the processor.
fn check(device: Duration, hard: Hard, count: u64) {
    let measure = |count: u64| {
        let start = processor_time();
        let found = waits(hard, count, device, DIRTY_AGE);
        (found, processor_time() - start)
    };
    // A neighbour on the machine can slow one measurement down, but not each of them.
    let mut again = 2;
    let (half, whole) = loop {
        let ((half, of_half), (whole, of_whole)) = (measure(count / 2), measure(count));
        println!("{hard:?}, {device:?}: {half:?}, {of_half:?}, then {whole:?}, {of_whole:?}");
        if of_whole <= of_half * 3 + SLACK {
            break (half, whole);
        }
        assert!(again > 0, "{hard:?}: {of_half:?}, then {of_whole:?}");
        again -= 1;
    };
    let Waits { write, .. } = whole;
    assert!(write <= DIRTY_AGE + device, "{hard:?} on a device of {device:?}: {write:?}");
    assert!(whole.requests <= half.requests * 3 + 16, "{hard:?}: {half:?}, then {whole:?}");
}

/// Returns the time of the processor that this thread has used.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time during the call.
    let got = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(got, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn check_all(device: Duration) {
    check(device, Hard::Random, 20_000);
    check(device, Hard::Stream, 1_000);
    check(device, Hard::Holes, 10_000);
    check(device, Hard::Appends, 20_000);
    check(device, Hard::Files, 10_000);
    check(device, Hard::Aged, 10_000);
}

#[test]
fn contract_15_a_writer_waits_for_one_answer_of_a_device_of_100_ms() {
    check_all(Duration::from_millis(100));
}

#[test]
fn contract_15_a_writer_waits_for_one_answer_of_a_device_of_5_us() {
    check_all(Duration::from_micros(5));
}

/// Without extra requests: the limits show in the completions.
#[test]
fn an_engine_learns_the_prices_of_its_device() {
    let near = |found: u64, wanted: u64| found.abs_diff(wanted) * 10 < wanted;
    for device in [
        Prices { requests_per_second: 3_000, bytes_per_second: 125_000_000 },
        Prices { requests_per_second: 20_000, bytes_per_second: 500_000_000 },
    ] {
        let [sync, small, large] = learned::prices(device);
        let flush = sync.flush_us;
        assert!(flush >= learned::LATENCY.as_micros() as u64, "a flush takes {flush} us");
        let requests = small.disk_requests_per_second;
        assert!(near(requests, device.requests_per_second), "{requests} of {device:?}");
        let bytes = large.disk_bytes_per_second;
        assert!(near(bytes, device.bytes_per_second), "{bytes} of {device:?}");
        let requests = large.disk_requests_per_second;
        assert!(near(requests, device.requests_per_second), "{requests} of {device:?} stay");
    }
}
