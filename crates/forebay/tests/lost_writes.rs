//! The power goes under load on a disk that keeps writes in a cache until a flush, and loses the
//! cache. All synced data is there; any other sector holds one of the versions accepted since, or
//! zeroes.
//!
//! A file system that is shut down loses what it had in memory; this disk loses what it had
//! acknowledged as well, so a sync that trusts a completion is found out here.

mod support;

use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use forebay::{Engine, Options};
use support::faulty::{Disk, Fails};
use support::load::{Syncs, lose_power_under_load};
use support::mount::FileSystem;
use support::{MIB, how, pattern};

/// The disk does what the others rely on: without a flush writes are lost, and with one they are
/// not.
#[test]
fn contract_03_the_disk_loses_what_is_not_flushed() {
    let Some(mut disk) = Disk::new("disk_loses", FileSystem::Ext4, 128 * MIB, Fails::Writes) else {
        return;
    };
    let path = disk.path().join("file");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let file =
        std::fs::OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    file.sync_all().unwrap();
    std::fs::File::open(disk.path()).unwrap().sync_all().unwrap();
    // Direct I/O needs an aligned buffer, and the allocator does not promise one.
    let buffer = vec![2u8; 3 << 12];
    let at = buffer.as_ptr().align_offset(4096);
    file.write_all_at(&buffer[at..at + 8192], 8192).unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[8192], 2, "written, and seen by everybody");
    drop(file);
    disk.cut_power();
    disk.reboot();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        vec![1; 1 << 20],
        "acknowledged, not flushed, and yet there"
    );
}

#[test]
fn contract_01_and_03_a_disk_that_loses_its_cache_on_xfs() {
    if let Some(mut disk) =
        Disk::new("loses_cache_on_xfs", FileSystem::Xfs, 2048 * MIB, Fails::Writes)
    {
        lose_power_under_load(&mut disk, Syncs::InPlace, 12);
    }
}

#[test]
fn contract_01_and_03_a_disk_that_loses_its_cache_on_ext4() {
    if let Some(mut disk) =
        Disk::new("loses_cache_on_ext4", FileSystem::Ext4, 512 * MIB, Fails::Writes)
    {
        lose_power_under_load(&mut disk, Syncs::InPlace, 12);
    }
}

#[test]
fn contract_23_and_24_logged_syncs_on_a_disk_that_loses_its_cache_on_xfs() {
    if let Some(mut disk) =
        Disk::new("logged_loses_cache_on_xfs", FileSystem::Xfs, 2048 * MIB, Fails::Writes)
    {
        lose_power_under_load(&mut disk, Syncs::Logged, 6);
    }
}

#[test]
fn contract_23_and_24_logged_syncs_on_a_disk_that_loses_its_cache_on_ext4() {
    if let Some(mut disk) =
        Disk::new("logged_loses_cache_on_ext4", FileSystem::Ext4, 512 * MIB, Fails::Writes)
    {
        lose_power_under_load(&mut disk, Syncs::Logged, 6);
    }
}

/// A sync of a file says something of that file: its name included, the first time.
#[test]
fn contract_01_a_file_that_was_made_and_synced_has_its_name() {
    let Some(mut disk) = Disk::new("has_its_name", FileSystem::Xfs, 2048 * MIB, Fails::Writes)
    else {
        return;
    };
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let directory = disk.path().join("directory");
    std::fs::create_dir(&directory).unwrap();
    std::fs::File::open(disk.path()).unwrap().sync_all().unwrap();
    let path = directory.join("file");
    let file = engine.open(&path, &how::create_new()).unwrap();
    file.write_at(&pattern(1, 10_000), 0).unwrap();
    file.sync_data().unwrap();
    disk.cut_power();
    drop(file);
    drop(engine);
    disk.reboot();
    assert_eq!(std::fs::read(&path).unwrap(), pattern(1, 10_000));
}

/// Both with one `syncfs` for a window and with a flush for each file.
fn a_batch_that_is_committed_is_there(file_system: FileSystem, bytes: u64) {
    let Some(mut disk) = Disk::new("batch_loses_power", file_system, bytes, Fails::Writes) else {
        return;
    };
    let engine = Engine::new().unwrap();
    for (round, count) in [8, 40, 300].into_iter().enumerate() {
        let batch = engine.batch();
        let directory = disk.path();
        let path = |number: u64| directory.join(format!("{round}-{number}"));
        let content = |number: u64| pattern(number, 1000 + 97 * number as usize);
        for number in 0..count {
            batch.write(path(number), &content(number)).unwrap();
        }
        batch.commit().unwrap();
        disk.cut_power();
        disk.reboot();
        for number in 0..count {
            let found = std::fs::read(path(number)).unwrap();
            assert!(found == content(number), "file {number} of {count}");
        }
    }
}

#[test]
fn contract_20_a_committed_batch_survives_a_loss_of_power_on_xfs() {
    a_batch_that_is_committed_is_there(FileSystem::Xfs, 2048 * MIB);
}

#[test]
fn contract_20_a_committed_batch_survives_a_loss_of_power_on_ext4() {
    a_batch_that_is_committed_is_there(FileSystem::Ext4, 512 * MIB);
}
