//! An engine with an intent log on real files: what its syncs promise after the death of the
//! process, and what other programs see.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use forebay::intent_log::{self, Ask};
use forebay::{Engine, ErrorKind, File, Options};
use support::mount::{FileSystem, Mount};
use support::{MIB, how, pattern, process};

const CHILD: &str = "child_that_logs_until_it_is_killed";

const PAGE: usize = 4096;

fn options() -> Options {
    Options { cache_bytes: Some(16 * MIB), ..Options::default() }
}

fn engine(directory: &Path) -> Engine {
    Engine::builder(options()).intent_log_always(directory).build().unwrap()
}

/// Opens a file of 64 pages that is synced, and waits until its syncs can be logged.
fn marked(engine: &Engine, path: &Path) -> File {
    let file = engine.open(path, &how::create()).unwrap();
    file.write_at(&pattern(1, 64 * PAGE), 0).unwrap();
    file.sync_data().unwrap();
    let before = engine.stats().logged_syncs;
    let is_logged = support::eventually(Duration::from_secs(10), || {
        file.write_at(&pattern(1, PAGE), 0).unwrap();
        file.sync_data().unwrap();
        engine.stats().logged_syncs > before
    });
    assert!(is_logged, "no sync is logged: {}", engine.describe());
    file
}

#[test]
fn contract_25_a_close_brings_logged_bytes_into_place() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine(directory.path());
    let file = marked(&engine, &path);
    let (logged, flushes) = (engine.stats().logged_syncs, engine.stats().flushes);
    for page in 0..20 {
        file.write_at(&pattern(page, PAGE), page * PAGE as u64).unwrap();
        file.sync_data().unwrap();
    }
    let stats = engine.stats();
    assert_eq!((stats.logged_syncs - logged, stats.flushes), (20, flushes), "no file is flushed");
    assert!(engine.describe().contains("intent log in"), "{}", engine.describe());
    file.close().unwrap();
    let mut expected = pattern(1, 64 * PAGE);
    for page in 0..20 {
        expected[page * PAGE..(page + 1) * PAGE].copy_from_slice(&pattern(page as u64, PAGE));
    }
    support::assert_on_disk(&path, &expected, "after the close");
    engine.shutdown(Duration::from_secs(20)).unwrap();
}

#[test]
fn contract_23_syncs_of_many_threads_and_files_share_batches() {
    let directory = support::directory();
    let engine = engine(directory.path());
    let path = |number: usize| directory.path().join(format!("file{number}"));
    let files: Vec<_> = (0..8).map(|number| marked(&engine, &path(number))).collect();
    std::thread::scope(|scope| {
        for (number, file) in files.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..50 {
                    file.write_at(&pattern(number as u64 + round, PAGE), round * PAGE as u64)
                        .unwrap();
                    file.sync_data().unwrap();
                }
            });
        }
    });
    let all: Vec<&File> = files.iter().collect();
    files.iter().for_each(|file| file.write_at(b"together", 5).unwrap());
    engine.sync_many(&all).unwrap();
    let stats = engine.stats();
    assert!(stats.logged_syncs >= 8 * 50 && stats.log_batches <= stats.logged_syncs);
    drop(files);
    engine.shutdown(Duration::from_secs(20)).unwrap();
    for number in 0..8 {
        let found = fs::read(path(number)).unwrap();
        assert_eq!(&found[5..13], b"together");
        let last = &found[49 * PAGE..50 * PAGE];
        assert_eq!(last, pattern(number as u64 + 49, PAGE), "file {number}");
    }
}

/// New pages get their space while other threads ask for syncs of the file.
#[test]
fn contract_23_threads_that_append_to_one_file_share_its_records() {
    let directory = support::directory();
    let engine = engine(directory.path());
    let path = directory.path().join("file");
    let file = marked(&engine, &path);
    let before = engine.stats().logged_syncs;
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..300 {
                    file.append(&[thread + 1; PAGE / 2]).unwrap();
                    file.sync_data().unwrap();
                }
            });
        }
    });
    let logged = engine.stats().logged_syncs - before;
    assert!(logged > 600, "{logged} of 1200 syncs were logged");
    file.close().unwrap();
    engine.shutdown(Duration::from_secs(20)).unwrap();
    let found = fs::read(&path).unwrap();
    let mut counts = [0; 5];
    found[64 * PAGE..].chunks(PAGE / 2).for_each(|half| counts[half[0] as usize] += 1);
    assert_eq!(counts, [0, 300, 300, 300, 300]);
}

#[test]
fn child_that_logs_until_it_is_killed() {
    let Some(directory) = process::task() else { return };
    let directory = Path::new(&directory);
    let engine = engine(directory);
    let file = marked(&engine, &directory.join("file"));
    for round in 0.. {
        file.write_at(&pattern(round, PAGE), round % 64 * PAGE as u64).unwrap();
        file.sync_data().unwrap();
        process::report(format_args!("synced {round} {}", engine.stats().logged_syncs));
    }
}

/// The last acknowledged version of each page, or the one after it, is in the file once the next
/// engine has replayed the log.
#[test]
fn contract_24_the_next_engine_replays_what_a_killed_process_has_synced() {
    let directory = support::directory();
    let (last, logged) = log_until_killed(directory.path());
    assert!(logged > 50, "{logged} of {last} syncs are logged");
    let engine = engine(directory.path());
    let found = fs::read(directory.path().join("file")).unwrap();
    for page in 0..64 {
        let newest = last - (last + 64 - page) % 64;
        let bytes = &found[page as usize * PAGE..][..PAGE];
        let is_right = bytes == pattern(newest, PAGE) || bytes == pattern(newest + 64, PAGE);
        assert!(is_right, "page {page}, after {last} rounds");
    }
    engine.shutdown(Duration::from_secs(20)).unwrap();
}

/// Runs a child, and kills it after 100 syncs. Returns the last one that it reported, and how many
/// were logged.
fn log_until_killed(directory: &Path) -> (u64, u64) {
    let mut child = process::start_child(CHILD, directory.to_str().unwrap());
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut last = None;
    for line in output.lines().map_while(Result::ok) {
        let Some(said) = process::reported(&line) else { continue };
        let numbers: Vec<u64> =
            said.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
        last = Some((numbers[0], numbers[1]));
        if numbers[0] == 100 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    last.expect("the child syncs")
}

#[test]
fn contract_24_another_program_finds_logged_bytes_in_the_file() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine(directory.path());
    let file = marked(&engine, &path);
    file.write_at(b"logged", 7 * PAGE as u64).unwrap();
    file.sync_data().unwrap();
    let found = fs::read(&path).unwrap();
    assert_eq!(&found[7 * PAGE..7 * PAGE + 6], b"logged");
    file.write_at(b"shared", 7 * PAGE as u64).unwrap();
    file.sync_data().unwrap();
    assert_eq!(&fs::read(&path).unwrap()[7 * PAGE..7 * PAGE + 6], b"shared");
}

#[test]
fn contract_24_a_change_of_length_is_not_undone() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine(directory.path());
    let file = marked(&engine, &path);
    file.write_at(b"beyond the cut", 30 * PAGE as u64).unwrap();
    file.sync_data().unwrap();
    file.set_len(8 * PAGE as u64).unwrap();
    file.sync_all().unwrap();
    file.close().unwrap();
    engine.shutdown(Duration::from_secs(20)).unwrap();
    let again = self::engine(directory.path());
    assert_eq!(fs::metadata(&path).unwrap().len(), 8 * PAGE as u64);
    drop(again);
}

#[test]
fn contract_26_a_removed_log_is_reported_once_and_passed_by() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let (report, reported) = std::sync::mpsc::channel();
    let engine = Engine::builder(options())
        .intent_log_always(directory.path())
        .on_error(move |error| drop(report.send(error.to_string())))
        .build()
        .unwrap();
    let file = marked(&engine, &path);
    fs::remove_file(directory.path().join(intent_log::NAME)).unwrap();
    let (logged, flushes) = (engine.stats().logged_syncs, engine.stats().flushes);
    for page in 0..5 {
        file.write_at(&pattern(page + 9, PAGE), page * PAGE as u64).unwrap();
        file.sync_data().unwrap();
    }
    let stats = engine.stats();
    assert_eq!(stats.logged_syncs, logged, "no recovery would find them");
    assert!(stats.flushes > flushes);
    let found = fs::read(&path).unwrap();
    (0..5).for_each(|page| {
        assert_eq!(&found[page as usize * PAGE..][..PAGE], pattern(page + 9, PAGE));
    });
    file.close().unwrap();
    engine.shutdown(Duration::from_secs(20)).unwrap();
    // It has the other end of the channel.
    drop(engine);
    let reported: Vec<String> = reported.into_iter().collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("another program removed it"), "{reported:?}");
}

#[test]
fn a_log_excludes_another_engine() {
    let directory = support::directory();
    let builder = || Engine::builder(options()).intent_log_always(directory.path());
    let first = builder().build().unwrap();
    assert_eq!(support::kind_of(builder().build().map(drop)), ErrorKind::Busy);
    drop(first);
    drop(builder().build().unwrap());
    let missing = Engine::builder(options()).intent_log(directory.path().join("no")).build();
    assert_eq!(support::kind_of(missing.map(drop)), ErrorKind::NotFound);
}

/// Mounts the file system anew for reading. The kernel may still end what a process had in flight.
fn read_only(directory: &Path) {
    let remount = || process::shell("mount -o remount,ro \"$1\"", directory).is_ok();
    assert!(support::eventually(Duration::from_secs(10), remount));
}

#[test]
fn a_log_on_a_read_only_file_system_is_no_obstacle_if_it_is_empty() {
    let Some(mount) = Mount::new("log_read_only", FileSystem::Ext4, 256 * MIB) else { return };
    let directory = mount.path();
    let first = engine(&directory);
    drop(marked(&first, &directory.join("file")));
    first.shutdown(Duration::from_secs(20)).unwrap();
    drop(first);
    read_only(&directory);
    let recovery = intent_log::recover(&directory, &Ask::default()).unwrap();
    assert!(recovery.is_empty && recovery.files.is_empty(), "{recovery:?}");
    let writing = Engine::builder(options()).intent_log(&directory).build();
    assert_eq!(support::kind_of(writing.map(drop)), ErrorKind::Unsupported);
    process::shell("mount -o remount,rw \"$1\"", &directory).unwrap();
    log_until_killed(&directory);
    read_only(&directory);
    let refused = intent_log::recover(&directory, &Ask::default());
    assert_eq!(support::kind_of(refused.map(drop)), ErrorKind::Unsupported);
    process::shell("mount -o remount,rw \"$1\"", &directory).unwrap();
    let recovery = intent_log::recover(&directory, &Ask::default()).unwrap();
    assert!(recovery.is_empty && recovery.files[0].bytes > 0, "{recovery:?}");
}
