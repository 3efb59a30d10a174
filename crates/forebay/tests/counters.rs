//! Counters that an engine reports about itself.

mod support;

use std::time::Duration;

use forebay::options::Flight;
use forebay::{Engine, Options, inside};
use support::{PAGE, eventually, how, knobs};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_write_is_reported_when_it_is_written_and_again_when_it_is_durable() {
    let directory = support::directory();
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        dirty_age: Duration::from_millis(5),
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    file.write_at(&[1; PAGE as usize], 0).unwrap();
    assert!(eventually(SOON, || engine.stats().dirty_bytes == 0), "what is old is written out");
    let stats = engine.stats();
    assert!(stats.written_latency_p50_us > 0, "{stats:?}");
    assert_eq!(stats.writeback_latency_p99_us, 0, "nothing is durable yet: {stats:?}");
    file.sync_data().unwrap();
    let stats = engine.stats();
    // One write alone: its two times.
    assert!(stats.writeback_latency_p50_us >= stats.written_latency_p50_us, "{stats:?}");
    assert!(stats.writeback_latency_p99_us >= stats.writeback_latency_p50_us, "{stats:?}");
    // The end of a file goes another way.
    file.write_at(b"the end", PAGE).unwrap();
    file.sync_data().unwrap();
    assert!(engine.stats().writeback_latency_p50_us <= stats.writeback_latency_p99_us);
    file.close().unwrap();
}

#[test]
fn the_longest_wait_for_room_is_reported() {
    let directory = support::directory();
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        dirty_bytes: Some(4 << 20),
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
    assert_eq!(engine.stats().throttle_wait_max_us, 0);
    let block = vec![7; 1 << 20];
    let mut at = 0;
    while engine.stats().throttle_waits == 0 && at < 1 << 30 {
        file.write_at(&block, at).unwrap();
        at += block.len() as u64;
    }
    let stats = engine.stats();
    assert!(stats.throttle_waits > 0, "a writer is faster than the device");
    assert!(stats.throttle_wait_max_us > 0, "{stats:?}");
    file.close().unwrap();
}

/// As the percentile has it; and nothing is held where that is not asked for.
#[test]
fn how_long_completions_were_held_is_reported() {
    let directory = support::directory();
    let written = |completion: &str| {
        let engine = Engine::start(knobs::named(
            Options { cache_bytes: Some(8 << 20), ..Options::default() },
            [("completion", completion)],
        ))
        .unwrap();
        assert_eq!(inside::holds(&engine), []);
        let file = engine.open(directory.path().join("file"), &how::create()).unwrap();
        for page in 0..256 {
            file.write_at(&[1; PAGE as usize], 2 * page * PAGE).unwrap();
        }
        file.sync_data().unwrap();
        let (holds, stats) = (inside::holds(&engine), engine.stats());
        file.close().unwrap();
        assert!(holds.is_sorted() && holds.iter().all(|(_, count)| *count > 0), "{holds:?}");
        (holds, stats)
    };
    let (holds, stats) = written("immediate");
    assert!(
        matches!(holds[..], [(Duration::ZERO, _)]) && stats.completion_holds == 0,
        "{holds:?} {stats:?}"
    );
    let (holds, stats) = written("delay=2000");
    assert!(
        stats.completion_holds == 0 || holds.iter().any(|(held, _)| !held.is_zero()),
        "{holds:?}"
    );
    assert_eq!(stats.completion_holds == 0, stats.completion_held_us == 0, "{stats:?}");
    let all: u64 = holds.iter().map(|(_, count)| count).sum();
    let mut seen = 0;
    let reached = holds.iter().find(|(_, count)| {
        seen += count;
        seen * 100 >= all * 99
    });
    // The counter is the upper end of the bucket, and `least` is the lower end.
    let least = reached.unwrap().0.as_micros() as u64;
    assert!((least..=least * 5 / 4 + 1).contains(&stats.hold_p99_us), "{holds:?} {stats:?}");
}

/// A flight depth bounds bulk writeback, also when it changes during writeback. Writes that a
/// caller waits for may exceed it.
#[test]
fn contract_15_bulk_writeback_beside_small_syncs_is_bounded() {
    let directory = support::directory();
    let engine = Engine::start(Options {
        cache_bytes: Some(32 << 20),
        dirty_bytes: Some(16 << 20),
        flight: Flight::Depth(3),
        ..Options::default()
    })
    .unwrap();
    let bulk = engine.open(directory.path().join("bulk"), &how::create()).unwrap();
    bulk.set_len(64 << 20).unwrap();
    let log = engine.open(directory.path().join("log"), &how::append()).unwrap();
    let round = |syncs: u32| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..64 {
                    bulk.write_at(&vec![3; 1 << 20], at << 20).unwrap();
                }
            });
            for _ in 0..syncs {
                log.append(b"a record").unwrap();
                log.sync_data().unwrap();
            }
        });
    };
    round(20);
    let stats = engine.stats();
    assert!((1..=3).contains(&stats.peak_flight), "{stats:?}");
    assert!(stats.flushes >= 20, "{stats:?}");
    // By time: as deep as it takes, but slots are left to others.
    knobs::set(&engine, "flight", "time=2000").unwrap();
    round(20);
    let stats = engine.stats();
    assert!(stats.peak_flight <= 90, "{stats:?}");
    for refused in ["0", "time=0", "deep", "113"] {
        let error = knobs::set(&engine, "flight", refused).unwrap_err().to_string();
        assert!(error.contains("time=MICROSECONDS"), "{error}");
    }
    log.close().unwrap();
    bulk.close().unwrap();
}
