//! Writers near the dirty limit: all go on, however many files there are and whoever sits on room.

mod support;

use std::time::Duration;

use forebay::{Engine, Options};
use support::how;

/// A small cache whose pages are never written for their age: whoever waits is helped by something
/// else, or never.
fn tight_engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(8 << 20),
        dirty_bytes: Some(4 << 20),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    })
    .unwrap()
}

/// Files that went quiet after having been granted room must not keep it from those that write.
#[test]
fn contract_12_quiet_files_give_their_room_back() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let engine = tight_engine();
    let files: Vec<_> = (0..64)
        .map(|number| {
            engine.open(directory.path().join(format!("{number}")), &how::create_new()).unwrap()
        })
        .collect();
    let block = vec![7; 64 << 10];
    for round in 0..8u64 {
        std::thread::scope(|scope| {
            for chunk in files.chunks(8) {
                let block = &block;
                scope.spawn(move || {
                    for file in chunk {
                        file.write_at(block, round * block.len() as u64).unwrap();
                    }
                });
            }
        });
    }
    assert!(engine.stats().throttle_waits > 0, "the limit was never reached: nothing was tested");
    assert!(engine.stats().peak_dirty_bytes <= 8 << 20);
    files.into_iter().for_each(|file| file.close().unwrap());
    engine.shutdown(Duration::from_secs(10)).unwrap();
    assert_eq!(engine.stats().dirty_bytes, 0);
}

/// All that is dirty are the ends of files: nobody may have to wait for their age.
#[test]
fn contract_12_many_small_files_at_the_limit_go_on() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let engine = tight_engine();
    let open = |number: usize| {
        let file =
            engine.open(directory.path().join(format!("{number}")), &how::create_new()).unwrap();
        file.write_at(b"a little", 0).unwrap();
        file
    };
    let small: Vec<_> = (0..2100).map(open).collect();
    small.into_iter().for_each(|file| file.close().unwrap());
    engine.shutdown(Duration::from_secs(10)).unwrap();
}
