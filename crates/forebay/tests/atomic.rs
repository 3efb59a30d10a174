//! Atomic writes of several files on real file systems: their effect, refusals, and the state after
//! the program is killed, or the power is gone, in the middle of one.
//!
//! `FOREBAY_TEST_KILLS=N` ends a child N times in each way instead of a few.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use forebay::intent_log::{self, Ask};
use forebay::{Engine, ErrorKind, File, OpenOptions, Options};
use forebay_block::random::Random;
use support::mount::{FileSystem, Mount};
use support::{MIB, how, kind_of, process};

const CHILD: &str = "child_that_writes_several_files_until_it_ends";

const PAGE: usize = 4096;

/// Ranges of a call: file, offset and length. Some share a sector, some a page, and one crosses
/// pages.
const RANGES: [(usize, u64, usize); 7] = [
    (0, 0, 8),
    (0, 100, 300),
    (0, 8000, 9000),
    (1, 511, 2),
    (1, 40_000, 4096),
    (2, 4096, 8192),
    (2, 20_001, 77),
];

const PATHS: [&str; 3] = ["table", "index", "journal"];

fn engine(directory: &Path) -> Engine {
    let options = Options { cache_bytes: Some(16 * MIB), ..Options::default() };
    Engine::builder(options).intent_log(directory).build().unwrap()
}

fn open(engine: &Engine, directory: &Path) -> [File; 3] {
    PATHS.map(|name| engine.open(directory.join(name), &how::create()).unwrap())
}

/// Writes a generation into all ranges.
fn write(engine: &Engine, files: &[File; 3], generation: u64) -> forebay::Result<()> {
    let data = bytes_of(generation);
    let writes = RANGES.map(|(file, offset, length)| (&files[file], offset, &data[..length]));
    engine.atomic(&writes)
}

fn bytes_of(generation: u64) -> Vec<u8> {
    generation.to_le_bytes().repeat(2000)
}

/// Returns the generation that all ranges have.
fn generation(directory: &Path) -> u64 {
    let found = PATHS.map(|name| fs::read(directory.join(name)).unwrap_or_default());
    let first = found[0].get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    for (file, offset, length) in RANGES {
        let mut bytes = found[file].get(offset as usize..).unwrap_or_default().to_vec();
        bytes.resize(length, 0);
        let expected = &bytes_of(first)[..length];
        assert!(bytes == expected, "a part of generation {first} is missing at {file} {offset}");
    }
    first
}

#[test]
fn contract_27_ranges_of_several_files_are_read_back_and_in_place_after_the_end() {
    let directory = support::directory();
    let engine = engine(directory.path());
    let files = open(&engine, directory.path());
    files[1].write_at(&[9; 60_000], 0).unwrap();
    for generation in 1..20 {
        write(&engine, &files, generation).unwrap();
        let mut found = [0; 9000];
        files[0].read_exact_at(&mut found, 8000).unwrap();
        assert_eq!(found[..], bytes_of(generation)[..9000]);
    }
    assert!(engine.stats().log_batches >= 19, "{:?}", engine.stats());
    // Bytes beside the ranges stay.
    let mut beside = [0; 511];
    files[1].read_exact_at(&mut beside, 0).unwrap();
    assert_eq!(beside, [9; 511]);
    assert_eq!(files.each_ref().map(|file| file.len().unwrap()), [17_000, 60_000, 20_078]);
    files.into_iter().for_each(|file| file.close().unwrap());
    engine.shutdown(Duration::from_secs(20)).unwrap();
    assert_eq!(generation(directory.path()), 19);
    assert_eq!(fs::read(directory.path().join("index")).unwrap()[..511], [9; 511]);
}

#[test]
fn contract_27_threads_write_the_same_files_at_once() {
    let directory = support::directory();
    let engine = engine(directory.path());
    let files = open(&engine, directory.path());
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (engine, files) = (&engine, &files);
            scope.spawn(move || {
                for round in 1..=50_u64 {
                    let data = [(thread * 50 + round) as u8; 100];
                    let at = thread * 100;
                    let both = [(&files[0], at, &data[..]), (&files[2], 5000 + at, &data[..])];
                    engine.atomic(&both).unwrap();
                    files[1].write_at(&data, at).unwrap();
                    files[1].sync_data().unwrap();
                }
            });
        }
    });
    drop(files);
    engine.shutdown(Duration::from_secs(20)).unwrap();
    let found = PATHS.map(|name| fs::read(directory.path().join(name)).unwrap());
    for thread in 0..4 {
        let last = [(thread * 50 + 50) as u8; 100];
        let at = thread * 100;
        assert_eq!((&found[0][at..at + 100], &found[1][at..at + 100]), (&last[..], &last[..]));
        assert_eq!(found[2][5000 + at..5100 + at], last);
    }
}

#[test]
fn contract_27_a_call_that_is_refused_changes_nothing() {
    let directory = support::directory();
    let elsewhere = support::directory();
    let engine = engine(directory.path());
    let [table, index, _] = open(&engine, directory.path());
    let other = Engine::new().unwrap();
    let of_other = other.open(elsewhere.path().join("file"), &how::create()).unwrap();
    let outside = engine.open(elsewhere.path().join("outside"), &how::create()).unwrap();
    let appending = OpenOptions::new().append(true).create(true).clone();
    let appending = engine.open(directory.path().join("appended"), &appending).unwrap();
    fs::write(directory.path().join("read"), b"read").unwrap();
    let reading = engine.open(directory.path().join("read"), &how::read()).unwrap();
    let large = vec![1; 17 << 20];
    type Writes<'a> = [(&'a File, u64, &'a [u8])];
    let refused: [(&Writes<'_>, ErrorKind); 7] = [
        (&[(&table, 0, b"new"), (&of_other, 0, b"new")], ErrorKind::InvalidInput),
        (&[(&table, 0, b"new"), (&table, 2, b"new")], ErrorKind::InvalidInput),
        (&[(&table, 0, &large)], ErrorKind::InvalidInput),
        (&[(&table, 0, b"new"), (&index, u64::MAX, b"new")], ErrorKind::InvalidInput),
        (&[(&table, 0, b"new"), (&reading, 0, b"new")], ErrorKind::NotPermitted),
        (&[(&table, 0, b"new"), (&appending, 0, b"new")], ErrorKind::NotPermitted),
        (&[(&table, 0, b"new"), (&outside, 0, b"new")], ErrorKind::Unsupported),
    ];
    for (number, (writes, kind)) in refused.into_iter().enumerate() {
        assert_eq!(kind_of(engine.atomic(writes)), kind, "call {number}");
        assert_eq!(table.len().unwrap(), 0, "call {number}");
    }
    assert_eq!(kind_of(other.atomic(&[(&of_other, 0, b"new")])), ErrorKind::Unsupported);
    engine.atomic(&[]).unwrap();
    engine.atomic(&[(&table, 0, b"new"), (&index, 7, b"")]).unwrap();
    assert_eq!((table.len().unwrap(), index.len().unwrap()), (3, 0));
    engine.shutdown(Duration::from_secs(20)).unwrap();
    assert_eq!(kind_of(engine.atomic(&[(&table, 0, b"late")])), ErrorKind::Shutdown);
}

#[test]
fn contract_27_another_program_with_the_file_open_is_a_reason_to_refuse() {
    let directory = support::directory();
    let engine = engine(directory.path());
    let files = open(&engine, directory.path());
    write(&engine, &files, 1).unwrap();
    let seen = fs::read(directory.path().join("journal")).unwrap();
    assert_eq!(seen[20_001..20_078], bytes_of(1)[..77], "another program finds them in place");
    let held = fs::File::open(directory.path().join("table")).unwrap();
    let refused = write(&engine, &files, 2);
    assert_eq!(kind_of(refused), ErrorKind::Unsupported);
    drop(held);
    drop(files);
    engine.shutdown(Duration::from_secs(20)).unwrap();
    assert_eq!(generation(directory.path()), 1);
}

#[test]
fn contract_27_without_its_log_nothing_is_written() {
    let directory = support::directory();
    let engine = engine(directory.path());
    let files = open(&engine, directory.path());
    write(&engine, &files, 1).unwrap();
    fs::remove_file(directory.path().join(intent_log::NAME)).unwrap();
    let refused = write(&engine, &files, 2).expect_err("the log is gone");
    assert_eq!(refused.kind(), ErrorKind::Io, "{refused}");
    files[0].write_at(b"later", 30_000).unwrap();
    files[0].sync_data().unwrap();
    drop(files);
    engine.shutdown(Duration::from_secs(20)).unwrap();
    assert_eq!(generation(directory.path()), 1);
}

#[test]
fn child_that_writes_several_files_until_it_ends() {
    let Some(directory) = process::task() else { return };
    let directory = Path::new(&directory);
    let last = generation(directory);
    let engine = engine(directory);
    let files = open(&engine, directory);
    let mut buffer = [7; PAGE];
    for generation in last + 1.. {
        process::report(format_args!("begun {generation}"));
        if write(&engine, &files, generation).is_err() {
            // The file system was cut off.
            return;
        }
        process::report(format_args!("returned {generation}"));
        // Writes beside, in place at times.
        buffer[0] = generation as u8;
        let beside = files[1].write_at(&buffer[..500], 1024);
        let beside = beside.and_then(|()| match generation % 5 {
            0 => files[1].sync_all(),
            2 => files[0].write_out(),
            _ => Ok(()),
        });
        if beside.is_err() {
            return;
        }
    }
}

/// Starts a child and ends it by a call after a while. Returns the last generations that have
/// returned and begun.
fn run_child(directory: &Path, random: &mut Random, end: impl FnOnce()) -> (u64, u64) {
    let mut child = process::start_child(CHILD, directory.to_str().unwrap());
    let output = BufReader::new(child.stdout.take().unwrap());
    let (started, has_started) = std::sync::mpsc::channel();
    let listener = std::thread::spawn(move || {
        let mut said = (0, 0);
        for line in output.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            match process::reported(&line).and_then(|said| said.split_once(' ')) {
                Some(("begun", number)) => said.1 = number.parse().unwrap(),
                Some(("returned", number)) => said.0 = number.parse().unwrap(),
                _ => {}
            }
            if said.0 > 0 {
                let _ = started.send(());
            }
        }
        said
    });
    has_started.recv_timeout(Duration::from_secs(60)).expect("a call returns");
    std::thread::sleep(Duration::from_micros(random.below(200_000)));
    end();
    let _ = child.kill();
    child.wait().unwrap();
    listener.join().unwrap()
}

fn check(directory: &Path, (returned, begun): (u64, u64)) {
    let recovery = intent_log::recover(directory, &Ask::default()).unwrap();
    assert!(recovery.is_empty, "{recovery:?}");
    let found = generation(directory);
    assert!((returned..=begun.max(returned)).contains(&found), "{found}: {returned}..={begun}");
}

fn ends() -> u64 {
    support::number("FOREBAY_TEST_KILLS", 4)
}

#[test]
fn contract_27_a_killed_program_leaves_all_ranges_or_none() {
    let directory = support::directory();
    let mut random = Random::new(support::seed());
    let mut last = 0;
    for _ in 0..ends() {
        let said = run_child(directory.path(), &mut random, || {});
        check(directory.path(), (said.0.max(last), said.1.max(last)));
        last = generation(directory.path());
    }
    assert!(last > 0, "no call has returned");
}

fn lose_power(test: &str, file_system: FileSystem, bytes: u64) {
    let Some(mut mount) = Mount::new(test, file_system, bytes) else { return };
    let mut random = Random::new(support::seed());
    let mut last = 0;
    for _ in 0..ends() {
        let path = mount.path();
        let said = run_child(&path, &mut random, || mount.cut_off());
        mount.reboot();
        check(&path, (said.0.max(last), said.1.max(last)));
        last = generation(&path);
    }
    assert!(last > 0, "no call has returned");
}

#[test]
fn contract_27_power_lost_on_ext4_leaves_all_ranges_or_none() {
    lose_power("atomic_power_ext4", FileSystem::Ext4, 512 * MIB);
}

#[test]
fn contract_27_power_lost_on_xfs_leaves_all_ranges_or_none() {
    lose_power("atomic_power_xfs", FileSystem::Xfs, 2048 * MIB);
}
