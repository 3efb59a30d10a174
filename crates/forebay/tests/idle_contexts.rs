//! Callers that wait for room or frames wake no context that has nothing to write. Alone in its
//! process, because it counts what the threads of the process do.

mod support;

use std::sync::Mutex;
use std::time::Duration;

use forebay::{Engine, Open};
use support::MIB;
use support::threads::sleeps;

const WRITERS: u64 = 8;
const FILE_BYTES: u64 = 16 * MIB;

/// Held by the test that counts.
static COUNTS: Mutex<()> = Mutex::new(());

#[test]
fn writers_that_wait_wake_no_idle_context() {
    let _counts = COUNTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let directory = support::directory();
    let engine = Engine::builder()
        .cache_bytes(32 * MIB)
        .dirty_bytes(4 * MIB)
        .background_bytes(2 * MIB)
        .build()
        .unwrap();
    engine.set("contexts", "4").unwrap();
    engine.set("affinity", "single").unwrap();
    let have_slept = support::eventually(Duration::from_secs(20), || sleeps(3..) > 0);
    assert!(have_slept, "the last context is a thread with that name");
    let before = sleeps(1..);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (engine, directory) = (&engine, directory.path());
            scope.spawn(move || {
                let file = engine.open(directory.join(writer.to_string()), Open::create()).unwrap();
                // Each block once, far apart, so that each is a request of its own.
                let blocks = FILE_BYTES / 4096;
                for n in 0..blocks {
                    file.write_at(&[1; 4096], n * 1031 % blocks * 4096).unwrap();
                }
                file.close().unwrap();
            });
        }
    });
    let (slept, waits) = (sleeps(1..) - before, engine.stats().throttle_waits);
    println!("{slept} sleeps of idle contexts for {waits} waits of writers");
    assert!(waits > 1000, "the writers did not wait: {waits}");
    assert!(slept < waits / 10, "{slept} sleeps of idle contexts for {waits} waits of writers");
}

/// Each of the writers holds frames that the others need.
#[test]
fn writers_without_frames_wake_no_idle_context() {
    const BLOCK: usize = 512 << 10;
    const BLOCKS: u64 = 100;
    const WRITERS: u64 = 64;
    let _counts = COUNTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let directory = support::directory();
    let engine = Engine::builder().cache_bytes(8 * MIB).build().unwrap();
    engine.set("contexts", "4").unwrap();
    engine.set("affinity", "single").unwrap();
    let have_slept = support::eventually(Duration::from_secs(20), || sleeps(3..) > 0);
    assert!(have_slept, "the last context is a thread with that name");
    let before = sleeps(1..);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (engine, directory) = (&engine, directory.path());
            scope.spawn(move || {
                let file = engine.open(directory.join(writer.to_string()), Open::create()).unwrap();
                let block = vec![1; BLOCK];
                for n in 0..BLOCKS {
                    file.write_at(&block, n % 8 * BLOCK as u64).unwrap();
                }
                file.close().unwrap();
            });
        }
    });
    let (slept, writes) = (sleeps(1..) - before, WRITERS * BLOCKS);
    println!("{slept} sleeps of idle contexts for {writes} writes");
    // Some 18,000 if each caller that waits for frames wakes every context.
    assert!(slept < writes / 4, "{slept} sleeps of idle contexts for {writes} writes");
}
