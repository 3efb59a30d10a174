//! A frozen file system (`fsfreeze`) does not hold up syncs on another one, in each state that a
//! file on the frozen one may be in.

mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay::options::Contexts;
use forebay::{Engine, File, Options, inside};
use support::mount::{FileSystem, Frozen, Mount};
use support::{MIB, assert_on_disk, can_mark, eventually, how, knobs, mark, pattern, within};

const SOON: Duration = Duration::from_secs(15);

/// The longest time for a sync on the other file system, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Syncs while the file system is frozen, a moment apart.
const SYNCS: usize = 10;

/// Both backends.
const BACKENDS: [&str; 2] = ["io_uring", "threads"];

/// A file system of its own for each, for the freeze is of a whole one.
fn on_each(test: &str, run: impl Fn(&Bench)) {
    for file_system in [FileSystem::Xfs, FileSystem::Ext4] {
        let bytes = if file_system == FileSystem::Xfs { 2048 * MIB } else { 256 * MIB };
        let Some(mount) = Mount::new(test, file_system, bytes) else { return };
        for backend in BACKENDS {
            let what = format!("{file_system:?}, {backend}");
            let engine = Engine::start(knobs::named(
                Options {
                    cache_bytes: Some(64 << 20),
                    close_timeout: SOON,
                    contexts: Contexts::Fixed(1),
                    ..Options::default()
                },
                [("backend", backend)],
            ));
            let bench = Bench { engine: engine.unwrap(), path: mount.path().join(backend), what };
            run(&bench);
            within(SOON, "dropping the engine", move || drop(bench));
        }
    }
}

struct Bench {
    engine: Engine,
    /// Of the file on the file system that is frozen.
    path: PathBuf,
    what: String,
}

impl Bench {
    fn open(&self, path: &Path) -> File {
        self.engine.open(path, &how::create()).unwrap()
    }

    /// A file with a reservation mark and with all reserved space used: its closing begins with the
    /// removal of the mark.
    fn marked(&self) -> File {
        let file = self.open(&self.path);
        // Grows, so that space is reserved ahead.
        for at in 0..16 {
            file.write_at(&pattern(at, 256 << 10), at * (256 << 10)).unwrap();
            if at % 4 == 3 {
                file.sync_data().unwrap();
            }
        }
        assert!(eventually(SOON, || mark(&self.path).is_some()), "{}: no mark", self.what);
        knobs::set(&self.engine, "prealloc", "off").unwrap();
        let reserved = || inside::layout(&file).unwrap().reserved_bytes;
        while reserved() > 0 {
            file.write_at(&pattern(1, reserved() as usize), file.len().unwrap()).unwrap();
            file.sync_all().unwrap();
        }
        knobs::set(&self.engine, "prealloc", "adaptive").unwrap();
        assert!(mark(&self.path).is_some(), "{}: the mark stays until the close", self.what);
        file
    }

    /// Syncs on another file system, while that of the engine's other file is frozen.
    fn sync_elsewhere(&self) {
        let (engine, what) = (self.engine.clone(), self.what.clone());
        within(SOON, "syncs beside a frozen file system", move || {
            let here = support::directory();
            let path = here.path().join("file");
            let file = engine.open(&path, &how::create()).unwrap();
            for at in 0..SYNCS {
                let data = pattern(at as u64, 64 << 10);
                let start = Instant::now();
                file.write_at(&data, 0).unwrap();
                file.sync_data().unwrap();
                let took = start.elapsed();
                assert!(took < AT_ONCE, "{what}: sync {at} took {took:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
            let start = Instant::now();
            file.close().unwrap();
            assert!(start.elapsed() < AT_ONCE, "{what}: the close took {:?}", start.elapsed());
            assert_on_disk(&path, &pattern(SYNCS as u64 - 1, 64 << 10), &what);
        });
    }
}

fn frozen(mounted: &Path) -> Frozen {
    Frozen::of(mounted)
}

#[test]
fn contract_15_closing_a_marked_file_on_a_frozen_file_system_holds_up_no_other() {
    let test = "contract_15_closing_a_marked_file_on_a_frozen_file_system_holds_up_no_other";
    on_each(test, |bench| {
        let directory = bench.path.parent().unwrap();
        assert!(can_mark(directory));
        let file = bench.marked();
        let length = file.len().unwrap();
        let frozen = frozen(directory);
        drop(file);
        bench.sync_elsewhere();
        drop(frozen);
        // It is there altogether, or gone altogether.
        let again = bench.open(&bench.path);
        assert_eq!((again.len().unwrap(), mark(&bench.path)), (length, None), "{}", bench.what);
        assert_eq!(again.describe(), "direct", "{}: the lease is to be had again", bench.what);
        again.close().unwrap();
    });
}

#[test]
fn contract_15_opening_a_file_that_is_being_closed_waits_for_that() {
    let test = "contract_15_opening_a_file_that_is_being_closed_waits_for_that";
    on_each(test, |bench| {
        let file = bench.marked();
        let length = file.len().unwrap();
        let frozen = frozen(bench.path.parent().unwrap());
        drop(file);
        std::thread::sleep(Duration::from_millis(50));
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| {
                let again = bench.open(&bench.path);
                (again.len().unwrap(), again.describe(), mark(&bench.path))
            });
            std::thread::sleep(Duration::from_millis(300));
            assert!(!opened.is_finished(), "{}: opened while it was being closed", bench.what);
            drop(frozen);
            let found = opened.join().unwrap();
            assert_eq!(found, (length, "direct".to_owned(), None), "{}", bench.what);
        });
    });
}

#[test]
fn contract_15_a_reservation_on_a_frozen_file_system_holds_up_no_other() {
    let test = "contract_15_a_reservation_on_a_frozen_file_system_holds_up_no_other";
    on_each(test, |bench| {
        let file = bench.open(&bench.path);
        let frozen = frozen(bench.path.parent().unwrap());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for at in 0..32 {
                    file.write_at(&pattern(at, 256 << 10), at * (256 << 10)).unwrap();
                }
                file.sync_data().unwrap();
            });
            // Until something of it is on its way.
            std::thread::sleep(Duration::from_millis(200));
            bench.sync_elsewhere();
            assert!(!writer.is_finished(), "{}: written to a frozen file system", bench.what);
            drop(frozen);
            writer.join().unwrap();
        });
        let content: Vec<u8> = (0..32).flat_map(|at| pattern(at, 256 << 10)).collect();
        assert_on_disk(&bench.path, &content, &bench.what);
        within(SOON, "closing", move || file.close().unwrap());
    });
}

#[test]
fn contract_15_many_growing_files_on_a_frozen_file_system_hold_up_no_other() {
    let test = "contract_15_many_growing_files_on_a_frozen_file_system_hold_up_no_other";
    on_each(test, |bench| {
        let files: Vec<(File, PathBuf)> = (0..48)
            .map(|number| bench.path.with_extension(number.to_string()))
            .map(|path| (bench.open(&path), path))
            .collect();
        let frozen = frozen(bench.path.parent().unwrap());
        std::thread::scope(|scope| {
            for (number, (file, _)) in files.iter().enumerate() {
                scope.spawn(move || {
                    file.write_at(&pattern(number as u64, 256 << 10), 0).unwrap();
                    file.sync_data().unwrap();
                });
            }
            std::thread::sleep(Duration::from_millis(200));
            bench.sync_elsewhere();
            drop(frozen);
        });
        for (number, (file, path)) in files.into_iter().enumerate() {
            within(SOON, "closing", move || file.close().unwrap());
            assert_on_disk(&path, &pattern(number as u64, 256 << 10), &bench.what);
        }
    });
}

#[test]
fn contract_15_reading_a_shared_file_on_a_frozen_file_system_holds_up_no_other() {
    let test = "contract_15_reading_a_shared_file_on_a_frozen_file_system_holds_up_no_other";
    on_each(test, |bench| {
        std::fs::write(&bench.path, pattern(1, 1 << 20)).unwrap();
        let other = std::fs::File::open(&bench.path).unwrap();
        other.sync_all().unwrap();
        let file = bench.open(&bench.path);
        assert!(file.describe().ends_with("shared"), "{}: {}", bench.what, file.describe());
        let frozen = frozen(bench.path.parent().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut found = vec![0; 1 << 20];
                for _ in 0..10 {
                    assert_eq!(file.read_at(&mut found, 0).unwrap(), 1 << 20);
                    assert!(found == pattern(1, 1 << 20), "{}: wrong bytes", bench.what);
                }
            });
            bench.sync_elsewhere();
        });
        drop(frozen);
        within(SOON, "closing", move || file.close().unwrap());
    });
}

/// The last close of a file without a name deletes it, and that changes its file system.
#[test]
fn contract_15_the_last_close_of_an_unlinked_file_holds_up_no_other() {
    let test = "contract_15_the_last_close_of_an_unlinked_file_holds_up_no_other";
    on_each(test, |bench| {
        let file = bench.open(&bench.path);
        file.write_at(&pattern(1, 1 << 20), 0).unwrap();
        file.set_len(1 << 19).unwrap();
        file.sync_all().unwrap();
        std::fs::remove_file(&bench.path).unwrap();
        let frozen = frozen(bench.path.parent().unwrap());
        drop(file);
        bench.sync_elsewhere();
        drop(frozen);
    });
}
