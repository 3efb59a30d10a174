//! Contracts that real files can show cheaply: sizes, space, sharing, atomic pages, progress.

mod support;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use forebay::{Builder, Engine, File, Open};
use support::mount::{FileSystem, Mount};
use support::{MIB, PAGE, Random, allocated, eventually, process, within};

const SOON: Duration = Duration::from_secs(20);

fn small() -> Builder {
    Engine::builder().cache_bytes(8 << 20).close_timeout(SOON)
}

fn pattern(salt: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (support::mix(salt ^ (at / 8)) >> (8 * (at % 8))) as u8).collect()
}

fn assert_on_disk(path: &Path, expected: &[u8], what: &str) {
    let found = std::fs::read(path).unwrap();
    assert_eq!(found.len(), expected.len(), "{what}: size on disk");
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!(differs, None, "{what}: first byte that differs");
}

// 5: dropping writes out

#[test]
fn contract_05_dropping_a_file_and_an_engine_writes_out() {
    let directory = support::directory();
    let engine = small().dirty_age(Duration::from_secs(60)).build().unwrap();
    let paths = ["one", "two", "three"].map(|name| directory.path().join(name));
    let files = paths.each_ref().map(|path| engine.open(path, Open::create()).unwrap());
    let [one, two, three] = files;
    one.write_at(&pattern(1, 1_000_003), 0).unwrap();
    two.write_at(&pattern(2, 500_001), 0).unwrap();
    three.write_at(&pattern(3, 7), 0).unwrap();
    drop(one);
    let written = || std::fs::metadata(&paths[0]).unwrap().len() == 1_000_003;
    assert!(eventually(SOON, written), "dropping a file starts writeback");
    // Dropping the engine waits for the rest, handles that are left included.
    drop(engine);
    assert_on_disk(&paths[0], &pattern(1, 1_000_003), "dropped file");
    assert_on_disk(&paths[1], &pattern(2, 500_001), "dropped engine");
    assert_on_disk(&paths[2], &pattern(3, 7), "dropped engine, end of file");
    drop((two, three));
}

/// Handles that come and go while the context looks at their file: nothing gets lost between two of them.
#[test]
fn contract_05_a_file_opened_written_and_closed_again_and_again() {
    within(Duration::from_secs(60), "opening and closing", || {
        let directory = support::directory();
        let engine = small().dirty_age(Duration::from_millis(1)).build().unwrap();
        std::thread::scope(|scope| {
            for number in 0..4u64 {
                let (engine, path) = (&engine, directory.path().join(format!("{number}")));
                scope.spawn(move || {
                    let (mut random, mut model) = (Random(number), Vec::new());
                    for round in 0..250u64 {
                        let file = engine.open(&path, Open::create()).unwrap();
                        assert_eq!(file.len(), model.len() as u64, "round {round}");
                        let offset = random.below(model.len() as u64 + 1) as usize;
                        let data = pattern(round, 1 + random.below(20_000) as usize);
                        file.write_at(&data, offset as u64).unwrap();
                        model.resize(model.len().max(offset + data.len()), 0);
                        model[offset..offset + data.len()].copy_from_slice(&data);
                        match random.below(8) {
                            0 => {
                                file.close().unwrap();
                                assert_on_disk(&path, &model, "closed");
                            }
                            1 => file.sync_data().unwrap(),
                            2 => std::thread::sleep(Duration::from_micros(random.below(1500))),
                            3 => file.close().unwrap(),
                            _ => drop(file),
                        }
                    }
                    engine.open(&path, Open::write()).unwrap().close().unwrap();
                    assert_on_disk(&path, &model, "at the end");
                });
            }
        });
    });
}

// 6: one cache

#[test]
fn contract_06_handles_and_hard_links_share_one_cache() {
    let directory = support::directory();
    let (path, link) = (directory.path().join("file"), directory.path().join("link"));
    std::fs::write(&path, b"").unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    std::os::unix::fs::symlink(&path, directory.path().join("symbolic")).unwrap();
    let engine = small().dirty_age(Duration::from_secs(60)).build().unwrap();
    let one = engine.open(&path, Open::write()).unwrap();
    let others = ["link", "symbolic", "file", "./link"]
        .map(|name| engine.open(directory.path().join(name), Open::write()).unwrap());
    one.write_at(&pattern(1, 10_000), 0).unwrap();
    for (number, other) in others.iter().enumerate() {
        let mut buffer = vec![0; 20_000];
        assert_eq!(other.read_at(&mut buffer, 0).unwrap(), 10_000 + 3 * number);
        assert!(buffer[..10_000] == pattern(1, 10_000));
        assert!(!other.describe().contains("shared"), "{}", other.describe());
        other.append(b"and").unwrap();
    }
    assert_eq!(one.len(), 10_012);
    others[0].sync_data().unwrap();
    assert_eq!(std::fs::metadata(&link).unwrap().len(), 10_012);
    one.close().unwrap();
    others[1].write_at(b"late", 0).unwrap();
    for other in others {
        other.close().unwrap();
    }
    assert_eq!(&std::fs::read(&path).unwrap()[..4], b"late");
}

#[test]
fn contract_06_another_process_sees_each_sync() {
    let directory = support::directory();
    let path = directory.path().join("log");
    let engine = small().dirty_age(Duration::from_secs(60)).build().unwrap();
    let log = engine.open(&path, Open::append()).unwrap();
    for round in 0..12 {
        log.append(&pattern(round, 3001)).unwrap();
        log.sync_data().unwrap();
        let (size, took) = process::shell_timed("wc -c <\"$1\"", &path);
        assert_eq!(size, ((round + 1) * 3001).to_string());
        assert!(took < Duration::from_secs(2), "held back for {took:?}");
    }
    log.close().unwrap();
}

// 8: sizes

/// A file in step with a plain array of bytes.
struct Both {
    file: File,
    model: Vec<u8>,
    path: std::path::PathBuf,
}

impl Both {
    fn write(&mut self, offset: usize, length: usize) {
        let data = pattern((offset * 31 + length) as u64, length);
        self.file.write_at(&data, offset as u64).unwrap();
        self.model.resize(self.model.len().max(offset + length), 0);
        self.model[offset..offset + length].copy_from_slice(&data);
    }

    fn append(&mut self, length: usize) {
        let data = pattern((self.model.len() * 31 + length) as u64, length);
        assert_eq!(self.file.append(&data).unwrap(), self.model.len() as u64);
        self.model.extend(data);
    }

    fn set_length(&mut self, length: usize) {
        self.file.set_len(length as u64).unwrap();
        self.model.resize(length, 0);
    }

    fn sync(&self, what: &str) {
        self.file.sync_data().unwrap();
        assert_eq!(self.file.len(), self.model.len() as u64, "{what}");
        // A look at the size breaks no lease, reading would.
        assert_eq!(
            std::fs::metadata(&self.path).unwrap().len(),
            self.model.len() as u64,
            "{what}: size synced"
        );
    }
}

fn sizes_are_exact(directory: &Path, step: usize) {
    let engine = small().build().unwrap();
    let mut both = {
        let path = directory.join("sizes");
        Both { file: engine.open(&path, Open::create()).unwrap(), model: Vec::new(), path }
    };
    for length in (0..4098).step_by(step).chain([1, 511, 512, 513, 4095, 4096, 4097]) {
        both.set_length(0);
        both.write(0, length);
        both.sync("written from the start");
        both.append(4096 - length / 2);
        both.sync("appended");
        both.write(length + 9000, 5);
        both.sync("beyond a hole");
        both.set_length(length);
        both.append(1);
        both.sync("cut and appended");
        both.set_length(length + 20_000);
        both.write(length + 4000, 300);
        both.sync("grown and written within");
        assert_eq!(both.file.len(), both.model.len() as u64);
    }
    both.set_length(0);
    for record in 0..300 {
        both.append(1 + record * 37 % 6000);
        if record % 10 == 0 {
            both.sync("records");
        }
    }
    let Both { file, model, path } = both;
    let mut through = vec![0; model.len()];
    assert_eq!(file.read_at(&mut through, 0).unwrap(), model.len());
    assert!(through == model);
    file.close().unwrap();
    assert_on_disk(&path, &model, "sizes");
}

#[test]
fn contract_08_sizes_are_exact_at_every_sync_here() {
    let directory = support::directory();
    sizes_are_exact(directory.path(), 97);
}

#[test]
fn contract_08_sizes_are_exact_at_every_sync_on_xfs() {
    if let Some(mount) = Mount::new("sizes_on_xfs", FileSystem::Xfs, 2048 * MIB) {
        sizes_are_exact(&mount.path(), 293);
    }
}

/// With small blocks a page's end is not a block's end.
#[test]
fn contract_08_sizes_are_exact_at_every_sync_on_ext4_with_small_blocks() {
    if let Some(mount) = Mount::new("sizes_on_ext4", FileSystem::Ext4, 64 * MIB) {
        sizes_are_exact(&mount.path(), 293);
    }
}

/// Pages are read from the device all the while the block with the end of the file is written through the kernel.
#[test]
fn contract_08_reads_while_the_end_of_the_file_is_written() {
    within(Duration::from_secs(30), "reading beside appending", || {
        let directory = support::directory();
        let path = directory.path().join("file");
        let engine = small().dirty_age(Duration::from_millis(1)).build().unwrap();
        std::fs::write(&path, pattern(1, 24 << 20)).unwrap();
        let expected = pattern(1, 24 << 20);
        let file = engine.open(&path, Open::write()).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (file, done, expected) = (&file, &done, &expected);
                scope.spawn(move || {
                    let mut random = Random(reader);
                    while !done.load(Ordering::Relaxed) {
                        let offset = random.below(23 * MIB) as usize;
                        let mut buffer = vec![0; 1 + random.below(100_000) as usize];
                        assert_eq!(file.read_at(&mut buffer, offset as u64).unwrap(), buffer.len());
                        assert!(buffer == expected[offset..offset + buffer.len()]);
                    }
                });
            }
            for round in 0..300 {
                file.append(&pattern(round, 501)).unwrap();
                file.sync_data().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        file.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), (24 << 20) + 300 * 501);
    });
}

// 9: space

#[test]
fn contract_09_little_is_reserved_beyond_the_end_and_all_of_it_given_back() {
    let directory = support::directory();
    let path = directory.path().join("stream");
    let engine = Engine::builder().cache_bytes(16 << 20).background_bytes(1 << 20).close_timeout(SOON);
    let engine = engine.build().unwrap();
    let file = engine.open(&path, Open::create()).unwrap();
    let mut largest = 0;
    for chunk in 0..480u64 {
        file.append(&pattern(chunk, 131_072)).unwrap();
        let taken = allocated(&path);
        let allowed = file.len() + file.len() / 16 + 128 * 1024;
        assert!(taken <= allowed, "{taken} bytes allocated, with {} accepted", file.len());
        largest = largest.max(taken.saturating_sub(std::fs::metadata(&path).unwrap().len()));
    }
    println!(
        "at most {largest} bytes beyond the end on disk, {} reserved in all",
        engine.stats().reserved_bytes
    );
    file.append(b"odd").unwrap();
    file.close().unwrap();
    let length = std::fs::metadata(&path).unwrap().len();
    assert_eq!(length, 480 * 131_072 + 3);
    assert!(allocated(&path) <= length + 128 * 1024, "{} of {length} bytes", allocated(&path));
    assert_eq!(support::mark(&path), None);
}

#[test]
fn contract_09_a_sparse_file_stays_sparse() {
    let directory = support::directory();
    let path = directory.path().join("sparse");
    let engine = small().build().unwrap();
    let file = engine.open(&path, Open::create()).unwrap();
    file.set_len(4 << 30).unwrap();
    let mut random = Random(3);
    let writes = 300;
    for _ in 0..writes {
        file.write_at(&[1; 100], random.below(4 << 30)).unwrap();
    }
    file.sync_data().unwrap();
    let most = writes * 2 * 4096 + MIB;
    assert!(allocated(&path) <= most, "{} bytes allocated for {writes} small writes", allocated(&path));
    file.close().unwrap();
    assert!(allocated(&path) <= most);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 30);
}

/// Space that the user reserved is the user's, whatever is written and reserved beside it.
fn the_users_space_stays(directory: &Path) {
    let engine = small().build().unwrap();
    for (name, appended) in [("touched", 100usize), ("grown", 3 << 20)] {
        let path = directory.join(name);
        std::fs::write(&path, pattern(1, 1 << 20)).unwrap();
        support::preallocate(&path, 0, 16 * MIB);
        let before = allocated(&path);
        assert!(before >= 16 * MIB);
        let file = engine.open(&path, Open::write()).unwrap();
        file.append(&pattern(2, appended)).unwrap();
        file.sync_data().unwrap();
        file.append(b"more").unwrap();
        file.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB + appended as u64 + 4);
        let after = allocated(&path);
        assert!(after >= before, "{name}: {before} bytes reserved by the user, {after} left");
        assert_eq!(support::mark(&path), None);
    }
}

#[test]
fn contract_09_space_the_user_reserved_stays_here() {
    let directory = support::directory();
    the_users_space_stays(directory.path());
}

#[test]
fn contract_09_space_the_user_reserved_stays_on_xfs() {
    if let Some(mount) = Mount::new("users_space_on_xfs", FileSystem::Xfs, 2048 * MIB) {
        the_users_space_stays(&mount.path());
    }
}

/// Space reserved for a length that was declared and not written is given back where it makes whole requests.
#[test]
fn contract_09_a_declared_length_that_is_not_written_is_given_back() {
    let directory = support::directory();
    let path = directory.path().join("declared");
    let engine = small().build().unwrap();
    let file = engine.open(&path, Open::create()).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_at(&pattern(1, 6 << 20), 0).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 64 << 20);
    assert!(allocated(&path) < 9 * MIB, "{} bytes allocated for 6 MiB", allocated(&path));
}

// 11: pages are atomic

#[test]
fn contract_11_no_page_is_ever_seen_torn() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small().dirty_age(Duration::from_millis(1)).build().unwrap();
    let pages = 24u64;
    let file = engine.open(&path, Open::create()).unwrap();
    file.write_at(&vec![7; (pages * PAGE) as usize], 0).unwrap();
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let mut random = Random(writer);
                while !done.load(Ordering::Relaxed) {
                    let page = random.below(pages);
                    let count = 1 + random.below(pages - page).min(7);
                    let data = vec![1 + random.below(250) as u8; (count * PAGE) as usize];
                    file.write_at(&data, page * PAGE).unwrap();
                }
            });
        }
        for reader in 0..2u64 {
            let (file, done, reads) = (&file, &done, &reads);
            scope.spawn(move || {
                let mut random = Random(100 + reader);
                while !done.load(Ordering::Relaxed) {
                    let page = random.below(pages);
                    let mut buffer = vec![0; ((1 + random.below(pages - page)) * PAGE) as usize];
                    file.read_at(&mut buffer, page * PAGE).unwrap();
                    assert_whole(&buffer, "read");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..300 {
            file.sync_data().unwrap();
            std::thread::sleep(Duration::from_millis(3));
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("{} reads", reads.load(Ordering::Relaxed));
    file.close().unwrap();
    assert_whole(&std::fs::read(&path).unwrap(), "on disk");
}

fn assert_whole(bytes: &[u8], what: &str) {
    for (at, page) in bytes.chunks(PAGE as usize).enumerate() {
        assert!(page.iter().all(|byte| *byte == page[0]), "{what}: page {at} is torn");
    }
}

// 12: everybody gets on

#[test]
fn contract_12_and_13_many_threads_in_a_small_cache() {
    within(Duration::from_secs(60), "many threads", || {
        let directory = support::directory();
        let engine = small().dirty_bytes(4 << 20).build().unwrap();
        let shared = engine.open(directory.path().join("shared"), Open::create()).unwrap();
        let region = 2 * MIB;
        std::thread::scope(|scope| {
            for number in 0..16u64 {
                let (engine, shared, directory) = (&engine, &shared, &directory);
                scope.spawn(move || {
                    let mut random = Random(number);
                    let path = directory.path().join(format!("own-{number}"));
                    let own = engine.open(&path, Open::create()).unwrap();
                    let mut model = vec![0u8; region as usize];
                    for round in 0..40 {
                        let offset = random.below(region - 70_000);
                        let data = pattern(number * 1000 + round, 1 + random.below(70_000) as usize);
                        shared.write_at(&data, number * region + offset).unwrap();
                        own.append(&data).unwrap();
                        model[offset as usize..][..data.len()].copy_from_slice(&data);
                        let from = random.below(region - 50_000) as usize;
                        let mut buffer = vec![0; 50_000];
                        let read = shared.read_at(&mut buffer, number * region + from as u64).unwrap();
                        assert!(buffer[..read] == model[from..from + read], "thread {number}, round {round}");
                        match random.below(12) {
                            0 => shared.sync_data().unwrap(),
                            1 => own.sync_data().unwrap(),
                            _ => {}
                        }
                    }
                    own.close().unwrap();
                });
            }
        });
        shared.close().unwrap();
        assert_eq!(engine.stats().dirty_bytes, 0);
    });
}

/// Memory that files took and do not use goes to who needs it.
#[test]
fn contract_12_idle_files_keep_no_memory_from_others() {
    within(Duration::from_secs(30), "writing beside idle files", || {
        let directory = support::directory();
        let engine = small().dirty_age(Duration::from_millis(16)).build().unwrap();
        let idle: Vec<File> = (0..40)
            .map(|number| {
                let file = engine.open(directory.path().join(format!("{number}")), Open::create()).unwrap();
                // Written twice: the second time its pages are there, and memory taken for it is not used.
                file.write_at(&[1; 262_144], 0).unwrap();
                file.write_at(&[2; 262_144], 0).unwrap();
                assert!(eventually(SOON, || engine.stats().dirty_bytes == 0), "what is old is written out");
                file
            })
            .collect();
        let busy = engine.open(directory.path().join("busy"), Open::create()).unwrap();
        busy.write_at(&vec![3; 24 << 20], 0).unwrap();
        busy.sync_data().unwrap();
        // Most of the cache is there for what is read.
        let mut buffer = vec![0; 6 << 20];
        busy.read_at(&mut buffer, 0).unwrap();
        let before = engine.stats().read_bytes;
        busy.read_at(&mut buffer, 0).unwrap();
        let again = engine.stats().read_bytes - before;
        assert!(again < MIB, "{again} bytes of 6 MiB had to be read again into a cache of 8 MiB");
        for file in idle {
            file.close().unwrap();
        }
    });
}

/// A share of the dirty limit that was waited for and not used goes to the next.
#[test]
fn contract_12_idle_writers_keep_no_room_from_others() {
    within(Duration::from_secs(30), "writing beside writers that went idle", || {
        let directory = support::directory();
        let engine = small().dirty_bytes(4 << 20).background_bytes(4 << 20);
        let engine = engine.dirty_age(Duration::from_millis(10)).build().unwrap();
        let count = 120;
        let [opened, written, over] = [count, count + 1, count + 1].map(Barrier::new);
        std::thread::scope(|scope| {
            for number in 0..count {
                let (engine, directory) = (&engine, &directory);
                let (opened, written, over) = (&opened, &written, &over);
                scope.spawn(move || {
                    let path = directory.path().join(format!("{number}"));
                    let file = engine.open(path, Open::create()).unwrap();
                    opened.wait();
                    for page in 0..33 {
                        file.write_at(&[1; 4096], page * PAGE).unwrap();
                    }
                    written.wait();
                    over.wait();
                    file.close().unwrap();
                });
            }
            written.wait();
            let waits = engine.stats().throttle_waits;
            let busy = engine.open(directory.path().join("busy"), Open::create()).unwrap();
            busy.write_at(&vec![3; 24 << 20], 0).unwrap();
            busy.sync_data().unwrap();
            over.wait();
            println!("{waits} waits of the idle ones");
        });
    });
}

/// The limit holds, whatever the writers do.
#[test]
fn contract_18_dirty_bytes_stay_near_their_limit() {
    let directory = support::directory();
    let engine =
        Engine::builder().cache_bytes(32 << 20).dirty_bytes(8 << 20).close_timeout(SOON).build().unwrap();
    let engine = Arc::new(engine);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (engine, directory) = (Arc::clone(&engine), &directory);
            scope.spawn(move || {
                let file = engine.open(directory.path().join(format!("{number}")), Open::create()).unwrap();
                for at in 0..200u64 {
                    file.write_at(&[1; 100_000], at * 100_000).unwrap();
                }
                file.close().unwrap();
            });
        }
    });
    let peak = engine.stats().peak_dirty_bytes;
    assert!(peak <= (8 << 20) + 4 * 64 * PAGE, "{peak} bytes were dirty, with 8 MiB allowed");
}

/// The bytes of an inode that nothing here has touched are read, with their permissions, by a plain reader.
#[test]
fn a_new_file_has_the_mode_that_was_asked_for() {
    let directory = support::directory();
    let path = directory.path().join("private");
    let engine = small().build().unwrap();
    engine.open(&path, Open::create().mode(0o600)).unwrap().close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}
