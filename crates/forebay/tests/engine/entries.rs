//! The first sync of a file we created also syncs its directory, once, however often it was closed
//! before (contract 1).
//!
//! The kernel's own sync of a file may make its entry durable as well, so a loss of power proves
//! nothing here. The flushes are counted, and the kernel is made to refuse those of the directory
//! alone.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, how, knobs, process};
use forebay::{Engine, ErrorKind, File, Options};

/// Bios of a sync with nothing to write.
fn flushes(engine: &Engine, sync: impl FnOnce() -> forebay::Result<()>) -> u64 {
    let before = engine.stats().bios;
    sync().unwrap();
    engine.stats().bios - before
}

/// Closed without a sync: written out, and so far from durable.
fn make(engine: &Engine, path: &Path) {
    let file = engine.open(path, &how::create_new()).unwrap();
    file.write_at(&[1; 5000], 0).unwrap();
    file.close().unwrap();
}

#[test]
fn contract_01_a_file_closed_without_a_sync_still_has_its_directory_synced() {
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let path = directory.path().join("file");
    make(&engine, &path);
    // Opens in between, under any name, change nothing.
    engine.open(&path, &how::write()).unwrap().close().unwrap();
    std::fs::hard_link(&path, directory.path().join("link")).unwrap();
    let file = engine.open(directory.path().join("link"), &how::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_data()), 2, "the directory, and the file");
    assert_eq!(flushes(&engine, || file.sync_all()), 1, "once");
    file.close().unwrap();
    let file = engine.open(&path, &how::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_all()), 1, "and once is enough for later opens");
    drop(file);
}

#[test]
fn contract_01_a_file_that_was_there_has_its_directory_left_alone() {
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, [1; 5000]).unwrap();
    let file = engine.open(&path, &how::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_all()), 1);
}

/// The two ways into a file share the memory: made through the cache, synced past it, and the other
/// way round.
#[test]
fn contract_01_the_directory_is_synced_past_the_cache_too() {
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let (cached, direct) = (directory.path().join("cached"), directory.path().join("direct"));
    make(&engine, &cached);
    let file = engine.open_direct(&cached, &how::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_data().wait()), 2);
    file.close().wait().unwrap();
    let file = engine.open_direct(&direct, &how::create_new()).unwrap();
    file.close().wait().unwrap();
    let file: File = engine.open(&direct, &how::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_data()), 2);
    file.close().unwrap();
}

/// A second name of a file, by a bind mount, in a directory of another file system.
struct Bound(PathBuf);

impl Bound {
    fn new(path: &Path, file: &Path) -> Self {
        std::fs::File::create(path).unwrap();
        process::run("mount", &[OsStr::new("--bind"), file.as_os_str(), path.as_os_str()]).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let gone = || process::run("umount", &[self.0.as_os_str()]).is_ok();
        assert!(support::eventually(Duration::from_secs(5), gone) || std::thread::panicking());
    }
}

/// The results of a sync, a second sync and a close of a handle.
type Outcome = [Result<(), (ErrorKind, Option<i32>)>; 3];

fn outcome(result: forebay::Result<()>) -> Result<(), (ErrorKind, Option<i32>)> {
    result.map_err(|error| (error.kind(), error.os_error()))
}

fn sync_cached(engine: &Engine, path: &Path) -> Outcome {
    let file = engine.open(path, &how::write()).unwrap();
    [outcome(file.sync_data()), outcome(file.sync_data()), outcome(file.close())]
}

fn sync_direct(engine: &Engine, path: &Path) -> Outcome {
    let file = engine.open_direct(path, &how::write()).unwrap();
    [
        outcome(file.sync_data().wait()),
        outcome(file.sync_data().wait()),
        outcome(file.close().wait()),
    ]
}

/// The kernel refuses a flush of the directory, and of nothing else: the file is on a file system
/// that works, and its name in one that is shut down. A sync that succeeds has flushed nothing.
fn flushes_the_directory(test: &str, backend: &str, sync: fn(&Engine, &Path) -> Outcome) {
    let Some(mount) = Mount::new(test, FileSystem::Ext4, 64 * MIB) else { return };
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = Engine::start(knobs::named(
        Options { cache_bytes: Some(8 << 20), ..Options::default() },
        [("backend", backend)],
    ))
    .unwrap();
    make(&engine, &path);
    let bound = Bound::new(&mount.path().join("name"), &path);
    std::fs::File::open(mount.path()).unwrap().sync_all().unwrap();
    mount.cut_off();
    let poisoned = Err((ErrorKind::Poisoned, Some(libc::EIO)));
    let [first, second, close] = sync(&engine, &bound.0);
    assert_eq!(first, poisoned, "the first sync flushes the directory of the name");
    assert_eq!(second, poisoned, "a failed flush of the directory fails later syncs, too");
    println!("close: {close:?}");
    // The entry is still to be made durable, by the next open.
    assert_eq!(sync(&engine, &bound.0)[0], poisoned);
    assert_eq!(sync(&engine, &path), [Ok(()); 3]);
    assert_eq!(sync(&engine, &bound.0), [Ok(()); 3], "once is enough");
    engine.shutdown(Duration::from_secs(10)).unwrap();
    drop(bound);
}

#[test]
fn contract_01_a_reopened_files_directory_is_flushed_by_the_ring() {
    flushes_the_directory("flushed_by_the_ring", "io_uring", sync_cached);
}

#[test]
fn contract_01_a_reopened_files_directory_is_flushed_by_the_thread_pool() {
    flushes_the_directory("flushed_by_the_thread_pool", "threads", sync_cached);
}

#[test]
fn contract_01_and_02_a_reopened_direct_files_directory_is_flushed_by_the_ring() {
    flushes_the_directory("direct_flushed_by_the_ring", "io_uring", sync_direct);
}

#[test]
fn contract_01_and_02_a_reopened_direct_files_directory_is_flushed_by_the_thread_pool() {
    flushes_the_directory("direct_flushed_by_the_thread_pool", "threads", sync_direct);
}

/// An open that fails after it took the memory of an unsynced entry does not lose it.
#[test]
fn contract_01_a_failed_open_leaves_the_directory_to_the_next() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let builder =
        || Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let (engine, other) = (builder(), builder());
    make(&engine, &path);
    let held = other.open(&path, &how::write()).unwrap();
    assert_eq!(support::kind_of(engine.open(&path, &how::write())), ErrorKind::Busy);
    assert_eq!(support::kind_of(engine.open_direct(&path, &how::write())), ErrorKind::Busy);
    held.close().unwrap();
    let file = engine.open(&path, &how::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_data()), 2, "the directory, and the file");
    file.close().unwrap();
}
