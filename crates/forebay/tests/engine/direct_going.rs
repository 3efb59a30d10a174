//! Direct files that go while the engine, or other handles, still have something to ask.

use std::time::Duration;

use crate::support::{self, assert_on_disk, how, pattern, within};
use forebay::{DirectFile, Engine, Options};

const SOON: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

/// The context lets go of each while the shutdown asks all of them to settle.
#[test]
fn contract_16_an_engine_goes_right_after_many_files() {
    within(Duration::from_secs(60), "an engine that goes with its files", || {
        let directory = support::directory();
        for _ in 0..20 {
            let engine = engine();
            let open = |number| {
                engine
                    .open_direct(directory.path().join(format!("{number}")), &how::create())
                    .unwrap()
            };
            let files: Vec<DirectFile> = (0..300).map(open).collect();
            drop(files);
            engine.shutdown(SOON).unwrap();
        }
    });
}

/// One handle goes while the other submits its last write and goes too.
#[test]
fn contract_05_the_last_write_of_the_last_handle_is_not_lost() {
    within(Duration::from_secs(60), "handles that go", || {
        let directory = support::directory();
        let path = directory.path().join("file");
        let engine = engine();
        for round in 0..20_000 {
            let data = pattern(round, 512);
            let last = engine.open_direct(&path, &how::create()).unwrap();
            drop(engine.open_direct(&path, &how::write()).unwrap());
            for _ in 0..round % 64 * 8 {
                std::hint::spin_loop();
            }
            let write = last.write_at(data.clone(), 0);
            drop(last);
            assert_eq!(write.wait().0.unwrap(), 512, "round {round}");
        }
        engine.shutdown(SOON).unwrap();
        assert_on_disk(&path, &pattern(19_999, 512), "at the end");
    });
}

#[test]
fn patience_may_be_without_end() {
    within(Duration::from_secs(60), "an engine with all the time in the world", || {
        let directory = support::directory();
        let build = || {
            Engine::start(Options {
                cache_bytes: Some(8 << 20),
                close_timeout: Duration::MAX,
                ..Options::default()
            })
            .unwrap()
        };
        let engine = build();
        let file = engine.open_direct(directory.path().join("direct"), &how::create()).unwrap();
        let cached = engine.open(directory.path().join("cached"), &how::create()).unwrap();
        assert_eq!(file.write_at(vec![1; 700], 0).wait().0.unwrap(), 700);
        cached.write_at(&[2; 700], 0).unwrap();
        file.close().wait().unwrap();
        engine.shutdown(Duration::MAX).unwrap();
        drop(cached);
        let engine = build();
        engine
            .open(directory.path().join("last"), &how::create())
            .unwrap()
            .write_at(b"x", 700)
            .unwrap();
        // An engine that panics here takes the test with it.
        drop(engine);
        assert_eq!(std::fs::read(directory.path().join("last")).unwrap().len(), 701);
    });
}
