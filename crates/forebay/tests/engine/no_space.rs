//! No space left: told at the write while we are alone on the file system, and lost nothing when we
//! are not.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, how, kind_of, pattern, process, within};
use forebay::{Engine, ErrorKind, File, Options};
use forebay_block::random::Random;

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(10);

fn small_engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

/// Writes until no space is left. After a sync all accepted bytes are there.
fn write_until_full(mount: &Mount, chunk: usize, scatter: bool) {
    let engine = Engine::start(Options {
        cache_bytes: Some(32 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let path = mount.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    let mut random = Random::new(7);
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
    // Blocks that exist can be overwritten without new space.
    file.write_at(&[1; 4096], accepted[0].0).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
}

#[test]
fn contract_09_no_space_is_reported_at_the_write() {
    if let Some(mount) = Mount::new("no_space_is_reported", FileSystem::Ext4, 64 * MIB) {
        within(Duration::from_secs(60), "writing until full", move || {
            write_until_full(&mount, 65536, false);
        });
    }
}

#[test]
fn contract_09_no_space_is_reported_at_the_write_of_small_pieces() {
    if let Some(mount) = Mount::new("no_space_is_reported_small", FileSystem::Ext4, 64 * MIB) {
        within(Duration::from_secs(60), "writing until full", move || {
            write_until_full(&mount, 5000, false);
        });
    }
}

#[test]
fn contract_09_no_space_is_reported_at_the_write_of_a_sparse_file() {
    if let Some(mount) = Mount::new("no_space_is_reported_sparse", FileSystem::Ext4, 64 * MIB) {
        within(Duration::from_secs(60), "writing until full", move || {
            write_until_full(&mount, 4096, true);
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
    let file = engine.open(&path, &how::create()).unwrap();
    let data = vec![1; 80 << 20];
    assert_eq!(kind_of(file.write_at(&data, 0)), ErrorKind::NoSpace);
    assert_eq!(kind_of(file.append(&data)), ErrorKind::NoSpace);
    assert_eq!(file.len().unwrap(), 0, "a part was accepted");
    assert_eq!(file.append(&data[..1 << 20]).unwrap(), 0);
    file.close().unwrap();
    assert_eq!(support::allocated(&path) >> 20, 1);
}

/// Where the pages of a file of `pages` pages are written, in a random order, each once.
fn shuffled(pages: u64, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut order: Vec<u64> = (0..pages).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order
}

/// Content of a page, marked with its number so that no two pages are equal.
fn marked(page: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![7; 4096];
    bytes[..8].copy_from_slice(&page.to_ne_bytes());
    bytes[8..16].copy_from_slice(&seed.to_ne_bytes());
    bytes
}

/// Bytes that a plain file takes when its file system is filled.
fn room(mount: &Mount) -> u64 {
    let filler = process::fill_up(&mount.path());
    let bytes = support::allocated(&filler);
    std::fs::remove_file(filler).unwrap();
    process::shell("sync -f \"$1\"", &mount.path()).unwrap();
    bytes
}

/// Writes random pages into several files at once, of a declared length or of none, until none of
/// them takes any more; and once more after some space was freed. Every page that was accepted is
/// written by a sync and found again, and they are nearly as many as a plain file would have.
fn fill_at_random(mount: &Mount, engine: &Engine, files: u64, declared: Option<u64>) {
    let (seed, room) = (support::seed(), room(mount));
    let ballast = mount.path().join("ballast");
    std::fs::write(&ballast, vec![1; 8 << 20]).unwrap();
    process::shell("sync -f \"$1\"", &mount.path()).unwrap();
    let pages = declared.unwrap_or(2 * room) / 4096;
    let open = |number| {
        let path = mount.path().join(format!("file-{number}"));
        let file = engine.open(path, &how::create()).unwrap();
        if let Some(length) = declared {
            file.set_len(length).unwrap();
        }
        (file, shuffled(pages, seed + number), 0)
    };
    let mut writers: Vec<(File, Vec<u64>, usize)> = (0..files).map(open).collect();
    for round in ["full", "full again"] {
        std::thread::scope(|scope| {
            for (file, order, done) in &mut writers {
                scope.spawn(move || {
                    loop {
                        let page = order[*done];
                        match file.write_at(&marked(page, seed), page * 4096) {
                            Ok(()) => *done += 1,
                            Err(error) => break assert_eq!(kind(&error), ErrorKind::NoSpace),
                        }
                    }
                });
            }
        });
        for (file, ..) in &writers {
            file.sync_data().unwrap_or_else(|error| panic!("accepted, not written: {error}"));
        }
        let accepted = writers.iter().map(|(.., done)| *done as u64 * 4096).sum::<u64>();
        println!("{round}: {} MiB accepted of {} MiB", accepted / MIB, room / MIB);
        if ballast.exists() {
            process::shell("rm \"$1\" && sync -f \"${1%/*}\"", &ballast).unwrap();
        } else {
            assert!(accepted * 10 > room * 9, "{accepted} bytes accepted where {room} have room");
        }
    }
    for (file, order, done) in writers {
        let path = file.path().to_owned();
        file.close().unwrap();
        let found = std::fs::File::open(path).unwrap();
        let mut bytes = vec![0; 4096];
        for page in &order[..done] {
            found.read_exact_at(&mut bytes, page * 4096).unwrap();
            assert!(bytes == marked(*page, seed), "page {page} is lost");
        }
    }
}

fn kind(error: &forebay::Error) -> ErrorKind {
    println!("{error}");
    error.kind()
}

fn fills_at_random(
    test: &str,
    (file_system, bytes): (FileSystem, u64),
    (files, declared): (u64, Option<u64>),
    knobs: &'static [(&str, &str)],
) {
    let Some(mount) = Mount::new(test, file_system, bytes) else { return };
    within(Duration::from_secs(120), "filling at random", move || {
        let mut options =
            Options { cache_bytes: Some(64 << 20), close_timeout: SOON, ..Options::default() };
        for (name, value) in knobs {
            options.set(name, value).unwrap();
        }
        let engine = Engine::start(options).unwrap();
        fill_at_random(&mount, &engine, files, declared);
    });
}

#[test]
fn contract_09_a_declared_length_larger_than_ext4() {
    let declared = (1, Some(512 * MIB));
    fills_at_random("larger_than_ext4", (FileSystem::Ext4, 256 * MIB), declared, &[]);
}

#[test]
fn contract_09_a_declared_length_larger_than_xfs() {
    let declared = (1, Some(512 * MIB));
    fills_at_random("larger_than_xfs", (FileSystem::XfsOfFour, 320 * MIB), declared, &[]);
}

#[test]
fn contract_09_several_files_that_grow_at_random() {
    fills_at_random("grow_at_random", (FileSystem::Ext4, 96 * MIB), (3, None), &[]);
}

#[test]
fn contract_09_several_declared_lengths_in_several_contexts() {
    let declared = (3, Some(80 * MIB));
    let knobs = &[("contexts", "3"), ("prealloc", "64m")];
    fills_at_random("several_declared", (FileSystem::Ext4, 96 * MIB), declared, knobs);
}

/// Another program takes the last block after a write was accepted: the sync fails, nothing is
/// lost, and once there is space again the same sync goes well.
#[test]
fn contract_02_space_taken_by_others_fails_the_sync_and_comes_back() {
    let Some(mount) = Mount::new("space_taken_by_others", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let engine = Engine::start(Options {
        cache_bytes: Some(16 << 20),
        dirty_age: SOON,
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let path = mount.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    let data = pattern(3, 3_000_000);
    file.write_at(&data, 0).unwrap();
    let filler = process::fill_up(&mount.path());
    let error = file.sync_data().unwrap_err();
    assert_eq!(
        (error.kind(), error.os_error()),
        (ErrorKind::NoSpace, Some(libc::ENOSPC)),
        "{error}"
    );
    assert!(error.to_string().contains("free space"), "no remedy: {error}");
    let mut through = vec![0; data.len()];
    assert_eq!(file.read_at(&mut through, 0).unwrap(), data.len());
    assert!(through == data, "the page that could not be written changed");
    std::fs::remove_file(filler).unwrap();
    file.sync_data().unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
    file.close().unwrap();
}

/// Makes a directory with a quota of `mebibytes`. A second call changes the quota.
fn limit(mount: &Mount, mebibytes: u64) -> PathBuf {
    let limited = mount.path().join("limited");
    let make = "test -d \"$1\" || { btrfs subvolume create \"$1\" && btrfs quota enable \"$1\"; }";
    process::shell(&format!("({make}) && btrfs qgroup limit {mebibytes}m \"$1\""), &limited)
        .unwrap();
    limited
}

/// Path of a file in a directory with a quota of 16 MiB.
fn quota_of_16_mib(test: &str) -> Option<(Mount, PathBuf)> {
    let mount = Mount::new(test, FileSystem::Btrfs, 512 * MIB)?;
    let path = limit(&mount, 16).join("file");
    Some((mount, path))
}

/// Twice as much, all of it accepted; nothing is written before somebody asks for it.
fn write_32_mib(path: &Path) -> (Engine, File, Vec<u8>) {
    let engine = Engine::start(Options {
        cache_bytes: Some(64 << 20),
        dirty_age: Duration::from_secs(600),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(path, &how::create()).unwrap();
    let data = pattern(3, 32 << 20);
    file.write_at(&data, 0).unwrap();
    (engine, file, data)
}

/// The free space of the file system does not show a quota, so writeback meets it: the sync fails,
/// nothing is lost, and a write that needs more space is refused. With a larger quota the same sync
/// succeeds.
#[test]
fn contract_09_and_02_a_quota_reached_in_the_middle_of_writeback() {
    let Some((mount, path)) = quota_of_16_mib("quota_reached") else { return };
    let (_engine, file, data) = write_32_mib(&path);
    let error = file.sync_data().unwrap_err();
    assert_eq!(
        (error.kind(), error.os_error()),
        (ErrorKind::NoSpace, Some(libc::EDQUOT)),
        "{error}"
    );
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

/// The way out: pages without space are dropped. The file is then a prefix of the written bytes,
/// and works.
#[test]
fn contract_09_and_02_what_has_no_place_can_be_dropped() {
    let Some((mount, path)) = quota_of_16_mib("no_place") else { return };
    let (_engine, file, data) = write_32_mib(&path);
    assert_eq!(file.sync_data().unwrap_err().os_error(), Some(libc::EDQUOT));
    assert!(file.abandon_unwritten().unwrap() >= 16 << 20);
    let length = file.len().unwrap() as usize;
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

/// A close writes every page that has space, although other pages of the file have none.
#[test]
fn contract_05_closing_writes_out_what_can_be_written() {
    let Some(mount) = Mount::new("closing_writes_what_can_be", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    let engine = Engine::start(Options {
        cache_bytes: Some(32 << 20),
        dirty_age: SOON,
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let path = mount.path().join("file");
    // A hole first, and then old blocks: pages without space come before pages with space.
    let half = 8 * MIB;
    let old = std::fs::File::create(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&old, &vec![1; half as usize], half).unwrap();
    drop(old);
    let file = engine.open(&path, &how::write()).unwrap();
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
