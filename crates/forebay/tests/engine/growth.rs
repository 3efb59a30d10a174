//! Contract 9: files that grow in turn lie in few extents, and small files reserve nothing.

use std::path::Path;
use std::time::Duration;

use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, allocated, how, pattern};
use forebay::{Engine, Options};
use forebay_uring::{Access, Create, How, OpenFile, Truncate};

const FILES: usize = 16;
const EACH: u64 = 8 * MIB;
const SOON: Duration = Duration::from_secs(60);

fn engine() -> Engine {
    // Pages are written for their number alone, not for their age on a slow machine.
    Engine::start(Options {
        cache_bytes: Some(32 << 20),
        dirty_age: SOON,
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap()
}

/// Grows files in turn by 64 KiB at a time. Returns the mean number of extents, in hundredths.
fn grow_in_turn(directory: &Path) -> u64 {
    let engine = engine();
    let open =
        |number: usize| engine.open(directory.join(number.to_string()), &how::create()).unwrap();
    let files: Vec<_> = (0..FILES).map(open).collect();
    for piece in 0..EACH / 65_536 {
        for (number, file) in files.iter().enumerate() {
            file.append(&pattern(piece << 8 | number as u64, 65_536)).unwrap();
        }
    }
    files.iter().for_each(|file| file.sync_data().unwrap());
    println!("{:?}", engine.stats());
    let mut extents = Vec::new();
    for (number, file) in files.into_iter().enumerate() {
        let path = file.path().to_owned();
        file.close().unwrap();
        assert!(allocated(&path) <= EACH + 128 * 1024, "{} bytes left", allocated(&path));
        assert_eq!(support::mark(&path), None);
        // Once the rest of the reserved space is gone, each extent is written data.
        let how =
            How { access: Access::Read, create: Create::No, truncate: Truncate::Keep, mode: 0 };
        extents.push(OpenFile::open(&path, &how).unwrap().file.extents().unwrap().count);
        let found = std::fs::read(&path).unwrap();
        for (piece, bytes) in found.chunks(65_536).enumerate() {
            let expected = pattern((piece as u64) << 8 | number as u64, 65_536);
            assert!(bytes == expected, "file {number}, piece {piece}");
        }
        assert_eq!(found.len() as u64, EACH);
    }
    println!("extents: {extents:?}");
    extents.iter().sum::<u64>() * 100 / FILES as u64
}

#[test]
fn contract_09_files_that_grow_in_turn_lie_in_few_extents_on_xfs() {
    let Some(mount) = Mount::new("grow_in_turn_xfs", FileSystem::Xfs, 2048 * MIB) else { return };
    let found = grow_in_turn(&mount.path());
    assert!(found <= 400, "{found} hundredths of an extent in each file");
}

#[test]
fn contract_09_files_that_grow_in_turn_lie_in_few_extents_on_ext4() {
    let Some(mount) = Mount::new("grow_in_turn_ext4", FileSystem::Ext4, 2048 * MIB) else { return };
    let found = grow_in_turn(&mount.path());
    assert!(found <= 500, "{found} hundredths of an extent in each file");
}

/// A file that is complete before it is synced needs one write and no reservation.
#[test]
fn small_files_reserve_nothing() {
    let directory = support::directory();
    let engine = engine();
    for number in 0..16u64 {
        let path = directory.path().join(number.to_string());
        let file = engine.open(&path, &how::create()).unwrap();
        file.write_at(&pattern(number, 300 << 10), 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(support::mark(&path), None);
        file.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 300 << 10);
    }
    assert_eq!(engine.stats().reserved_bytes, 0, "{:?}", engine.stats());
}
