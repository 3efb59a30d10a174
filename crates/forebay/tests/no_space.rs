//! No space left: told at the write while we are alone on the file system, and lost nothing when we
//! are not.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay::{Engine, ErrorKind, File, Open};
use support::mount::{FileSystem, Mount};
use support::{MIB, Random, kind_of, pattern, process, within};

/// What nothing here may take longer than.
const SOON: Duration = Duration::from_secs(10);

fn small_engine() -> Engine {
    Engine::builder().cache_bytes(8 << 20).close_timeout(SOON).build().unwrap()
}

/// Writes until there is no space; what was accepted is all there after a sync.
fn write_until_full(mount: &Mount, chunk: usize, scatter: bool) {
    let engine = Engine::builder().cache_bytes(32 << 20).close_timeout(SOON).build().unwrap();
    let path = mount.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    let mut random = Random(7);
    let mut accepted: Vec<(u64, u64)> = Vec::new();
    let error = loop {
        let number = accepted.len() as u64;
        assert!(number * chunk as u64 <= 80 * MIB, "80 MiB accepted on a file system of 64 MiB");
        // Scattered: each chunk in a block of its own of a sparse file; each is written once.
        let place = if scatter { number * 2 + random.below(2) } else { number };
        let offset = place * chunk as u64;
        match file.write_at(&pattern(number, chunk), offset) {
            Ok(()) => accepted.push((offset, number)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("free space"), "no remedy: {error}");
    let bytes = accepted.len() * chunk;
    println!("{bytes} bytes accepted");
    assert!(bytes as u64 > 30 * MIB, "only {bytes} bytes accepted on a file system of 64 MiB");
    file.sync_data().unwrap_or_else(|error| panic!("what was accepted has no place: {error}"));
    let found = std::fs::read(&path).unwrap();
    for (offset, number) in accepted.iter().copied() {
        let range = offset as usize..offset as usize + chunk;
        assert!(found[range] == pattern(number, chunk), "the chunk at {offset} is lost");
    }
    // What is there can be changed, for that needs no space.
    file.write_at(&[1; 4096], accepted[0].0).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
}

#[test]
fn contract_09_no_space_is_told_at_the_write() {
    if let Some(mount) = Mount::new("no_space_is_told", FileSystem::Ext4, 64 * MIB) {
        within(Duration::from_secs(60), "writing until full", move || {
            write_until_full(&mount, 65536, false)
        });
    }
}

#[test]
fn contract_09_no_space_is_told_at_the_write_of_small_pieces() {
    if let Some(mount) = Mount::new("no_space_is_told_small", FileSystem::Ext4, 64 * MIB) {
        within(Duration::from_secs(60), "writing until full", move || {
            write_until_full(&mount, 5000, false)
        });
    }
}

#[test]
fn contract_09_no_space_is_told_at_the_write_of_a_sparse_file() {
    if let Some(mount) = Mount::new("no_space_is_told_sparse", FileSystem::Ext4, 64 * MIB) {
        within(Duration::from_secs(60), "writing until full", move || {
            write_until_full(&mount, 4096, true)
        });
    }
}

#[test]
fn contract_09_a_write_larger_than_all_space_is_refused_whole() {
    let Some(mount) = Mount::new("larger_than_all_space", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let path = mount.path().join("file");
    let engine = small_engine();
    let file = engine.open(&path, Open::create()).unwrap();
    let data = vec![1; 80 << 20];
    assert_eq!(kind_of(file.write_at(&data, 0)), ErrorKind::NoSpace);
    assert_eq!(kind_of(file.append(&data)), ErrorKind::NoSpace);
    assert_eq!(file.len(), 0, "a part was accepted");
    assert_eq!(file.append(&data[..1 << 20]).unwrap(), 0);
    file.close().unwrap();
    assert_eq!(support::allocated(&path) >> 20, 1);
}

/// Another program takes the last block after a write was accepted: the sync fails, nothing is
/// lost, and once there is space again the same sync goes well.
#[test]
fn contract_02_space_taken_by_others_fails_the_sync_and_comes_back() {
    let Some(mount) = Mount::new("space_taken_by_others", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let engine = Engine::builder()
        .cache_bytes(16 << 20)
        .dirty_age(SOON)
        .close_timeout(SOON)
        .build()
        .unwrap();
    let path = mount.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    let data = pattern(3, 3_000_000);
    file.write_at(&data, 0).unwrap();
    let filler = process::fill_up(&mount.path());
    let error = file.sync_data().unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(libc::ENOSPC)), "{error}");
    assert!(error.to_string().contains("free space"), "no remedy: {error}");
    let mut through = vec![0; data.len()];
    assert_eq!(file.read_at(&mut through, 0).unwrap(), data.len());
    assert!(through == data, "the page that could not be written changed");
    std::fs::remove_file(filler).unwrap();
    file.sync_data().unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
    file.close().unwrap();
}

/// A directory of which no more than so much may be written; told again, the limit is another one.
fn limit(mount: &Mount, mebibytes: u64) -> PathBuf {
    let limited = mount.path().join("limited");
    let make = "test -d \"$1\" || { btrfs subvolume create \"$1\" && btrfs quota enable \"$1\"; }";
    process::shell(&format!("({make}) && btrfs qgroup limit {mebibytes}m \"$1\""), &limited)
        .unwrap();
    limited
}

/// Where a file goes of which no more than 16 MiB may be written.
fn quota_of_16_mib(test: &str) -> Option<(Mount, PathBuf)> {
    let mount = Mount::new(test, FileSystem::Btrfs, 512 * MIB)?;
    let path = limit(&mount, 16).join("file");
    Some((mount, path))
}

/// Twice as much, all of it accepted; nothing is written before somebody asks for it.
fn write_32_mib(path: &Path) -> (Engine, File, Vec<u8>) {
    let engine = Engine::builder().cache_bytes(64 << 20).dirty_age(Duration::from_secs(600));
    let engine = engine.close_timeout(SOON).build().unwrap();
    let file = engine.open(path, Open::create()).unwrap();
    let data = pattern(3, 32 << 20);
    file.write_at(&data, 0).unwrap();
    (engine, file, data)
}

/// What is free says nothing of a quota, so that it is told by the writeback: the sync fails,
/// nothing is lost, and what would only add to it is refused at the write. With more of it the same
/// sync goes well.
#[test]
fn contract_09_and_02_a_quota_reached_in_the_middle_of_writeback() {
    let Some((mount, path)) = quota_of_16_mib("quota_reached") else { return };
    let (_engine, file, data) = write_32_mib(&path);
    let error = file.sync_data().unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(libc::EDQUOT)), "{error}");
    assert!(error.to_string().contains("free space"), "no remedy: {error}");
    let error = file.append(&[1; 4096]).unwrap_err();
    assert_eq!(
        (error.kind(), error.os_error()),
        (ErrorKind::NoSpace, Some(libc::EDQUOT)),
        "{error}"
    );
    let mut through = vec![0; data.len()];
    assert_eq!(file.read_at(&mut through, 0).unwrap(), data.len());
    assert!(through == data, "a page that could not be written changed");
    limit(&mount, 256);
    file.sync_data().unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
    file.append(&[1; 4096]).unwrap();
    file.close().unwrap();
}

/// The way out: what has no place is dropped, and the file is a prefix of what was written, and
/// works.
#[test]
fn contract_09_and_02_what_has_no_place_can_be_dropped() {
    let Some((mount, path)) = quota_of_16_mib("no_place") else { return };
    let (_engine, file, data) = write_32_mib(&path);
    assert_eq!(file.sync_data().unwrap_err().os_error(), Some(libc::EDQUOT));
    assert!(file.discard_dirty().unwrap() >= 16 << 20);
    let length = file.len() as usize;
    assert!(length <= 16 << 20, "{length} bytes of a quota of 16 MiB");
    let mut through = vec![0; length];
    assert_eq!(file.read_at(&mut through, 0).unwrap(), length);
    assert!(through == data[..length], "not what was written first");
    file.sync_data().unwrap();
    // Not even a cut has room before.
    limit(&mount, 64);
    file.set_len(1 << 20).unwrap();
    file.write_at(&[9; 4096], 0).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
}

/// Closing a file of which some pages have no place writes out all the others.
#[test]
fn contract_05_closing_writes_out_what_can_be_written() {
    let Some(mount) = Mount::new("closing_writes_what_can_be", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let engine = Engine::builder()
        .cache_bytes(32 << 20)
        .dirty_age(SOON)
        .close_timeout(SOON)
        .build()
        .unwrap();
    let path = mount.path().join("file");
    // A hole first, and then old blocks: what has no place comes before what has.
    let half = 8 * MIB;
    let old = std::fs::File::create(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&old, &vec![1; half as usize], half).unwrap();
    drop(old);
    let file = engine.open(&path, Open::write()).unwrap();
    for at in 0..2 * half / 65536 {
        file.write_at(&[3; 8192], at * 65536).unwrap();
    }
    process::fill_up(&mount.path());
    let error = file.close().unwrap_err();
    assert_eq!(error.os_error(), Some(libc::ENOSPC), "{error}");
    let found = std::fs::read(&path).unwrap();
    let overwrites = half as usize / 65536..2 * half as usize / 65536;
    let lost = overwrites.clone().filter(|at| found[at * 65536] != 3).count();
    assert_eq!(lost, 0, "overwrites of {} old blocks", overwrites.len());
}
