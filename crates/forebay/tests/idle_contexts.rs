//! Writers that wait for room wake no context that has nothing to write. Alone in its process,
//! because it counts what the threads of the process do.

mod support;

use std::time::Duration;

use forebay::{Engine, Open};
use support::MIB;
use support::threads::sleeps;

const WRITERS: u64 = 8;
const FILE_BYTES: u64 = 16 * MIB;

#[test]
fn writers_that_wait_wake_no_idle_context() {
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
