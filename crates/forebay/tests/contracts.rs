//! Contracts that real files can show cheaply: dropping writes out, one cache per inode, atomic
//! pages, progress.

mod support;

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use forebay::{Engine, File, Options};
use forebay_block::random::Random;
use support::{MIB, PAGE, assert_on_disk, eventually, how, pattern, process, within};

const SOON: Duration = Duration::from_secs(20);

fn small() -> Options {
    Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() }
}

// 4: what lives in this process

#[test]
fn contract_04_what_is_old_is_written_without_a_sync() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let data = pattern(1, 1_000_003);
    let engine = Engine::start(Options { dirty_age: Duration::from_secs(600), ..small() }).unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&data, 0).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "written while it is young");
    drop((file, engine));
    let engine =
        Engine::start(Options { dirty_age: Duration::from_millis(20), ..small() }).unwrap();
    let path = directory.path().join("other");
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&data, 0).unwrap();
    // Its end too, which waits for its age.
    let is_there = || std::fs::metadata(&path).unwrap().len() == 1_000_003;
    assert!(eventually(SOON, is_there), "written when it is old");
    assert!(eventually(SOON, || engine.stats().dirty_bytes == 0));
    assert_on_disk(&path, &data, "without a sync");
}

const CHILD: &str = "child_that_ends_without_closing";

#[test]
fn child_that_ends_without_closing() {
    let Some(task) = process::task() else { return };
    let (how, path) = task.split_once(' ').unwrap();
    let engine = Engine::start(Options { dirty_age: Duration::from_secs(600), ..small() }).unwrap();
    let file = engine.open(path, &how::create()).unwrap();
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    file.sync_data().unwrap();
    file.write_at(&pattern(2, 100_000), 50_000).unwrap();
    match how {
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        _ => unreachable!("{how}"),
    }
}

/// Data that was not synced, closed or old is lost with the process, however it ends; synced data
/// stays.
#[test]
fn contract_04_a_process_that_ends_without_closing_loses_what_it_did_not_sync() {
    if process::task().is_some() {
        return;
    }
    let directory = support::directory();
    for how in ["exit", "abort"] {
        let path = directory.path().join(how);
        let mut child = process::start_child(CHILD, &format!("{how} {}", path.display()));
        child.wait().unwrap();
        assert_on_disk(&path, &pattern(1, 100_000), how);
    }
}

// 5: dropping writes out

#[test]
fn contract_05_dropping_a_file_and_an_engine_writes_out() {
    let directory = support::directory();
    let engine = Engine::start(Options { dirty_age: Duration::from_secs(60), ..small() }).unwrap();
    let paths = ["one", "two", "three"].map(|name| directory.path().join(name));
    let files = paths.each_ref().map(|path| engine.open(path, &how::create()).unwrap());
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

/// Handles that come and go while the context looks at their file: nothing gets lost between two of
/// them.
#[test]
fn contract_05_a_file_opened_written_and_closed_again_and_again() {
    within(Duration::from_secs(60), "opening and closing", || {
        let directory = support::directory();
        let engine =
            Engine::start(Options { dirty_age: Duration::from_millis(1), ..small() }).unwrap();
        std::thread::scope(|scope| {
            for number in 0..4u64 {
                let (engine, path) = (&engine, directory.path().join(format!("{number}")));
                scope.spawn(move || {
                    let (mut random, mut model) = (Random::new(number), Vec::new());
                    for round in 0..250u64 {
                        let file = engine.open(&path, &how::create()).unwrap();
                        assert_eq!(file.len().unwrap(), model.len() as u64, "round {round}");
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
                    engine.open(&path, &how::write()).unwrap().close().unwrap();
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
    let engine = Engine::start(Options { dirty_age: Duration::from_secs(60), ..small() }).unwrap();
    let one = engine.open(&path, &how::write()).unwrap();
    let others = ["link", "symbolic", "file", "./link"]
        .map(|name| engine.open(directory.path().join(name), &how::write()).unwrap());
    one.write_at(&pattern(1, 10_000), 0).unwrap();
    for (number, other) in others.iter().enumerate() {
        let mut buffer = vec![0; 20_000];
        assert_eq!(other.read_at(&mut buffer, 0).unwrap(), 10_000 + 3 * number);
        assert!(buffer[..10_000] == pattern(1, 10_000));
        other.append(b"and").unwrap();
    }
    assert_eq!(one.len().unwrap(), 10_012);
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
    let engine = Engine::start(Options { dirty_age: Duration::from_secs(60), ..small() }).unwrap();
    let log = engine.open(&path, &how::append()).unwrap();
    for round in 0..12 {
        log.append(&pattern(round, 3001)).unwrap();
        log.sync_data().unwrap();
        let (size, took) = process::shell_timed("wc -c <\"$1\"", &path);
        assert_eq!(size, ((round + 1) * 3001).to_string());
        assert!(took < Duration::from_secs(2), "held back for {took:?}");
    }
    log.close().unwrap();
}

// 11: pages are atomic

#[test]
fn contract_11_no_page_is_ever_seen_torn() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = Engine::start(Options { dirty_age: Duration::from_millis(1), ..small() }).unwrap();
    let pages = 24u64;
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&vec![7; (pages * PAGE) as usize], 0).unwrap();
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let mut random = Random::new(writer);
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
                let mut random = Random::new(100 + reader);
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
        let engine = Engine::start(Options { dirty_bytes: Some(4 << 20), ..small() }).unwrap();
        let shared = engine.open(directory.path().join("shared"), &how::create()).unwrap();
        let region = 2 * MIB;
        std::thread::scope(|scope| {
            for number in 0..16u64 {
                let (engine, shared, directory) = (&engine, &shared, &directory);
                scope.spawn(move || {
                    let mut random = Random::new(number);
                    let path = directory.path().join(format!("own-{number}"));
                    let own = engine.open(&path, &how::create()).unwrap();
                    let mut model = vec![0u8; region as usize];
                    for round in 0..40 {
                        let offset = random.below(region - 70_000);
                        let data =
                            pattern(number * 1000 + round, 1 + random.below(70_000) as usize);
                        shared.write_at(&data, number * region + offset).unwrap();
                        own.append(&data).unwrap();
                        model[offset as usize..][..data.len()].copy_from_slice(&data);
                        let from = random.below(region - 50_000) as usize;
                        let mut buffer = vec![0; 50_000];
                        let read =
                            shared.read_at(&mut buffer, number * region + from as u64).unwrap();
                        assert!(
                            buffer[..read] == model[from..from + read],
                            "thread {number}, round {round}"
                        );
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
        let engine =
            Engine::start(Options { dirty_age: Duration::from_millis(16), ..small() }).unwrap();
        let idle: Vec<File> = (0..40)
            .map(|number| {
                let file = engine
                    .open(directory.path().join(format!("{number}")), &how::create())
                    .unwrap();
                // Written twice: the second time its pages are there, and memory taken for it is
                // not used.
                file.write_at(&[1; 262_144], 0).unwrap();
                file.write_at(&[2; 262_144], 0).unwrap();
                assert!(
                    eventually(SOON, || engine.stats().dirty_bytes == 0),
                    "what is old is written out"
                );
                file
            })
            .collect();
        let busy = engine.open(directory.path().join("busy"), &how::create()).unwrap();
        busy.write_at(&vec![3; 24 << 20], 0).unwrap();
        busy.sync_data().unwrap();
        // Pages that are read may use most of the cache.
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
        let engine = Engine::start(Options {
            dirty_bytes: Some(4 << 20),
            background_bytes: Some(4 << 20),
            dirty_age: Duration::from_millis(10),
            ..small()
        })
        .unwrap();
        let count = 120;
        let [opened, written, over] = [count, count + 1, count + 1].map(Barrier::new);
        std::thread::scope(|scope| {
            for number in 0..count {
                let (engine, directory) = (&engine, &directory);
                let (opened, written, over) = (&opened, &written, &over);
                scope.spawn(move || {
                    let path = directory.path().join(format!("{number}"));
                    let file = engine.open(path, &how::create()).unwrap();
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
            let busy = engine.open(directory.path().join("busy"), &how::create()).unwrap();
            busy.write_at(&vec![3; 24 << 20], 0).unwrap();
            busy.sync_data().unwrap();
            over.wait();
            println!("{waits} waits of the idle ones");
        });
    });
}

#[test]
fn contract_18_dirty_bytes_stay_near_their_limit() {
    let directory = support::directory();
    let engine = Engine::start(Options {
        cache_bytes: Some(32 << 20),
        dirty_bytes: Some(8 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let engine = Arc::new(engine);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (engine, directory) = (Arc::clone(&engine), &directory);
            scope.spawn(move || {
                let file = engine
                    .open(directory.path().join(format!("{number}")), &how::create())
                    .unwrap();
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

/// The bytes of an inode that nothing here has touched are read, with their permissions, by a plain
/// reader.
#[test]
fn a_new_file_has_the_mode_that_was_asked_for() {
    let directory = support::directory();
    let path = directory.path().join("private");
    let engine = Engine::start(small()).unwrap();
    engine.open(&path, how::create().mode(0o600)).unwrap().close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
}
