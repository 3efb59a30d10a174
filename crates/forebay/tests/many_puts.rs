//! Many threads that create, sync and close files: the callers close them, and the context sleeps.
//! Alone in its process, because it counts what the threads of the process do.

mod support;

use std::time::Duration;

use forebay::{Engine, Options};
use support::MIB;
use support::how;
use support::knobs;
use support::threads::sleeps;

const THREADS: u64 = 32;
const PUTS: u64 = 60;

#[test]
fn short_lived_files_wake_no_context() {
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(32 * MIB), ..Options::default() }).unwrap();
    knobs::set(&engine, "contexts", "1").unwrap();
    // It goes to sleep once it has started.
    let has_slept = support::eventually(Duration::from_secs(20), || sleeps(0..) > 0);
    assert!(has_slept, "the context is a thread with that name");
    let before = sleeps(0..);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, directory) = (&engine, directory.path());
            scope.spawn(move || {
                for put in 0..PUTS {
                    let path = directory.join(format!("{thread}-{put}"));
                    let file = engine.open(&path, &how::temporary()).unwrap();
                    file.write_at(&[1; 16 << 10], 0).unwrap();
                    file.sync_data().unwrap();
                    file.close().unwrap();
                }
            });
        }
    });
    let (slept, puts) = (sleeps(0..) - before, THREADS * PUTS);
    println!("{slept} sleeps of the context for {puts} files");
    assert!(slept < puts / 4, "{slept} sleeps of the context for {puts} files");
}
