//! Several file systems at once: each has its own way to its device and its own part of the dirty
//! limit.

use std::time::Duration;

use crate::support::faulty::{Disk, Fails};
use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, assert_on_disk, eventually, how, pattern, within};
use forebay::{Engine, Options};

const SOON: Duration = Duration::from_secs(60);
const PIECE: usize = 64 << 10;

fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(16 << 20),
        dirty_bytes: Some(8 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap()
}

/// One that hangs has all of the limit before anybody writes elsewhere; and yet who does goes on.
#[test]
fn contract_15_a_disk_that_hangs_holds_up_no_other() {
    let Some(disk) =
        Disk::new("hangs_holds_up_no_other", FileSystem::Ext4, 128 * MIB, Fails::Writes)
    else {
        return;
    };
    let path = disk.path().join("file");
    std::fs::write(&path, pattern(1, 32 << 20)).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let engine = engine();
    let hung = engine.open(&path, &how::write()).unwrap();
    disk.freeze();
    let data = pattern(2, 32 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (at, piece) in data.chunks(PIECE).enumerate() {
                hung.write_at(piece, (at * PIECE) as u64).unwrap();
            }
        });
        let is_full = eventually(SOON, || engine.stats().throttle_waits > 0);
        assert!(is_full, "the writer is faster than a disk that hangs");
        let clone = engine.clone();
        within(SOON, "writing beside a disk that hangs", move || {
            let directory = support::directory();
            let path = directory.path().join("file");
            let file = clone.open(&path, &how::create()).unwrap();
            let data = pattern(3, 24 << 20);
            for (at, piece) in data.chunks(PIECE).enumerate() {
                file.write_at(piece, (at * PIECE) as u64).unwrap();
                if at % 64 == 0 {
                    file.sync_data().unwrap();
                }
            }
            file.close().unwrap();
            assert_on_disk(&path, &data, "beside a disk that hangs");
        });
        disk.thaw();
    });
    hung.close().unwrap();
    assert_on_disk(&path, &data, "on the disk that hung");
    assert_eq!(engine.stats().dirty_bytes, 0);
    within(SOON, "dropping the engine", move || drop(engine));
}

/// Two at once, each written by several, and synced meanwhile.
#[test]
fn contract_12_two_file_systems_share_the_limit() {
    let Some(mount) = Mount::new("two_file_systems", FileSystem::Ext4, 256 * MIB) else { return };
    let (engine, here) = (engine(), support::directory());
    let files: Vec<_> = (0..6u64)
        .map(|number| {
            let directory = if number % 2 == 0 { here.path().to_owned() } else { mount.path() };
            directory.join(format!("{number}"))
        })
        .collect();
    std::thread::scope(|scope| {
        for (number, path) in files.iter().enumerate() {
            let engine = &engine;
            scope.spawn(move || {
                let file = engine.open(path, &how::create()).unwrap();
                let data = pattern(number as u64, 12 << 20);
                for (at, piece) in data.chunks(PIECE).enumerate() {
                    file.write_at(piece, (at * PIECE) as u64).unwrap();
                    if at % (17 + number) == 0 {
                        file.sync_data().unwrap();
                    }
                }
                file.close().unwrap();
                assert_on_disk(path, &data, "of two file systems");
            });
        }
    });
    let stats = engine.stats();
    assert_eq!(stats.dirty_bytes, 0);
    // The limit, and a least part and the grants of writers beyond it.
    assert!(stats.peak_dirty_bytes <= 11 << 20, "{stats:?}");
    engine.shutdown(SOON).unwrap();
}
