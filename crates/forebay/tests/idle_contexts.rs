//! Callers that wait for room or frames wake no context that has nothing to write. Alone in its
//! process, because it counts what the threads of the process do.

mod support;

use std::sync::Mutex;
use std::time::Duration;

use forebay::{Engine, File, Options};
use support::MIB;
use support::how;
use support::knobs;
use support::threads::sleeps;

/// Held by the test that counts.
static COUNTS: Mutex<()> = Mutex::new(());

/// Builds an engine with four contexts. One of them has all files. Has the writers write a file
/// each. Returns the engine, and how often the other contexts slept meanwhile.
fn slept_beside(
    options: Options,
    writers: u64,
    write: impl Fn(&File) + Send + Copy,
) -> (Engine, u64) {
    let directory = support::directory();
    let are_alone = support::eventually(Duration::from_secs(20), || sleeps(..) == 0);
    assert!(are_alone, "threads of the engine before this one end");
    let engine = Engine::start(options).unwrap();
    knobs::set(&engine, "contexts", "4").unwrap();
    knobs::set(&engine, "affinity", "single").unwrap();
    let have_slept = support::eventually(Duration::from_secs(20), || sleeps(3..) > 0);
    assert!(have_slept, "the last context is a thread with that name");
    let before = sleeps(1..);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (engine, directory) = (&engine, directory.path());
            scope.spawn(move || {
                let file = engine.open(directory.join(writer.to_string()), &how::create()).unwrap();
                write(&file);
                file.close().unwrap();
            });
        }
    });
    (engine, sleeps(1..) - before)
}

#[test]
fn writers_that_wait_wake_no_idle_context() {
    const FILE_BYTES: u64 = 16 * MIB;
    let _counts = COUNTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let options = Options {
        cache_bytes: Some(32 * MIB),
        dirty_bytes: Some(4 * MIB),
        background_bytes: Some(2 * MIB),
        ..Options::default()
    };
    let (engine, slept) = slept_beside(options, 8, |file| {
        // Each block once, far apart, so that each is a request of its own.
        let blocks = FILE_BYTES / 4096;
        for n in 0..blocks {
            file.write_at(&[1; 4096], n * 1031 % blocks * 4096).unwrap();
        }
    });
    let waits = engine.stats().throttle_waits;
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
    let (_, slept) = slept_beside(
        Options { cache_bytes: Some(8 * MIB), ..Options::default() },
        WRITERS,
        |file| {
            let block = vec![1; BLOCK];
            for n in 0..BLOCKS {
                file.write_at(&block, n % 8 * BLOCK as u64).unwrap();
            }
        },
    );
    let writes = WRITERS * BLOCKS;
    println!("{slept} sleeps of idle contexts for {writes} writes");
    // Some 18,000 if each caller that waits for frames wakes every context.
    assert!(slept < writes / 4, "{slept} sleeps of idle contexts for {writes} writes");
}
