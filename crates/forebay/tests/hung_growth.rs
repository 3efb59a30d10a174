//! A disk that hangs under many growing files does not hold up syncs on another one.
//!
//! Writes that move the end of a file, flushes and allocations wait inside the kernel's call, each
//! on a thread: a worker of io_uring, or one of the pool. However many of them a disk that hangs
//! keeps, the requests of another disk find a thread.

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay::options::{Contexts, Prealloc};
use forebay::{Engine, File, Options};
use support::faulty::{Disk, Fails};
use support::mount::FileSystem;
use support::{MIB, assert_on_disk, eventually, how, knobs, pattern, within};

const SOON: Duration = Duration::from_secs(30);

/// The longest time for a sync on the other disk, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(1);

const SYNCS: usize = 10;

/// Bytes appended to each file while its disk hangs.
const GROWTH: usize = 256 << 10;

/// More files than io_uring has workers by default (four to a processor), and than a pool had
/// threads.
fn files() -> usize {
    let processors = std::thread::available_parallelism().unwrap().get();
    (4 * processors).max(32) + 8
}

/// Goes on with a disk that hangs, on every way out.
struct Thaw<'a>(&'a Disk);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

fn beside_a_disk_that_hangs(test: &str, file_system: FileSystem, backend: &'static str) {
    let Some(disk) = Disk::new(test, file_system, 512 * MIB, Fails::Writes) else { return };
    let options = Options {
        cache_bytes: Some(128 << 20),
        close_timeout: SOON,
        contexts: Contexts::Fixed(1),
        // So each file begins with the write that moves its end.
        prealloc: Prealloc::Off,
        ..Options::default()
    };
    let engine = Engine::start(knobs::named(options, [("backend", backend)])).unwrap();
    let growing: Vec<(File, PathBuf)> = (0..files())
        .map(|number| disk.path().join(number.to_string()))
        .map(|path| (engine.open(&path, &how::create()).unwrap(), path))
        .collect();
    for (file, _) in &growing {
        file.write_at(&pattern(0, GROWTH), 0).unwrap();
        file.sync_data().unwrap();
    }
    let here = support::directory();
    let path = here.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    disk.freeze();
    std::thread::scope(|scope| {
        let thaw = Thaw(&disk);
        for (number, (file, _)) in growing.iter().enumerate() {
            scope.spawn(move || {
                file.write_at(&pattern(number as u64, GROWTH), GROWTH as u64).unwrap();
                file.sync_data().unwrap();
            });
        }
        let is_busy = eventually(SOON, || disk.is_busy());
        std::thread::sleep(Duration::from_millis(300));
        let data = pattern(9, SYNCS * GROWTH);
        let took: Vec<Duration> = within(SOON, "syncs beside a disk that hangs", {
            let data = data.clone();
            move || {
                let sync = |(at, piece): (usize, &[u8])| {
                    let start = Instant::now();
                    file.write_at(piece, (at * GROWTH) as u64).unwrap();
                    file.sync_data().unwrap();
                    start.elapsed()
                };
                let took = data.chunks(GROWTH).enumerate().map(sync).collect();
                file.close().unwrap();
                took
            }
        });
        drop(thaw);
        assert!(is_busy, "nothing reached the disk that hangs");
        assert!(took.iter().all(|took| *took < AT_ONCE), "beside a disk that hangs: {took:?}");
        assert_on_disk(&path, &data, "beside a disk that hangs");
    });
    for (number, (file, path)) in growing.into_iter().enumerate() {
        within(SOON, "closing", move || file.close().unwrap());
        let content = [pattern(0, GROWTH), pattern(number as u64, GROWTH)].concat();
        assert_on_disk(&path, &content, "on the disk that hung");
    }
    within(SOON, "dropping the engine", move || drop(engine));
}

#[test]
fn contract_15_growing_files_on_an_ext4_that_hangs_hold_up_no_other() {
    let test = "growing_files_on_an_ext4_that_hangs";
    beside_a_disk_that_hangs(test, FileSystem::Ext4, "io_uring");
}

#[test]
fn contract_15_growing_files_on_an_xfs_that_hangs_hold_up_no_other() {
    let test = "growing_files_on_an_xfs_that_hangs";
    beside_a_disk_that_hangs(test, FileSystem::XfsOfFour, "io_uring");
}

#[test]
fn contract_15_growing_files_on_an_ext4_that_hangs_leave_threads_to_others() {
    let test = "growing_files_on_an_ext4_that_hangs_and_threads";
    beside_a_disk_that_hangs(test, FileSystem::Ext4, "threads");
}

#[test]
fn contract_15_growing_files_on_an_xfs_that_hangs_leave_threads_to_others() {
    let test = "growing_files_on_an_xfs_that_hangs_and_threads";
    beside_a_disk_that_hangs(test, FileSystem::XfsOfFour, "threads");
}
