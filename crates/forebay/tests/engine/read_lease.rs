//! Files that are open only for reading: their pages stay in memory until somebody writes.

use crate::support;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::MIB;
use crate::support::how;
use forebay::{Engine, File, Options};

const LENGTH: usize = 64 * 1024;

fn engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(16 * MIB), ..Options::default() }).unwrap()
}

fn read(file: &File) -> Vec<u8> {
    let mut found = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut found, 0).unwrap();
    found
}

/// Reads, and returns the number of requests that the device got for it.
fn requests(engine: &Engine, file: &File, content: &[u8]) -> u64 {
    let before = engine.stats().bios;
    assert!(read(file) == content);
    engine.stats().bios - before
}

/// Whether the file system of this directory has leases for this user.
fn has_leases(directory: &Path) -> bool {
    let engine = engine();
    let file = engine.open(directory.join("probe"), &how::create()).unwrap();
    let debug = format!("{file:?}");
    !debug.contains("shared")
}

#[test]
fn contract_06_pages_stay_in_memory_while_others_only_read() {
    let directory = support::directory();
    if !has_leases(directory.path()) {
        return support::skip("pages_stay_in_memory_while_others_only_read", "no leases here");
    }
    let path = directory.path().join("file");
    fs::write(&path, [7; LENGTH]).unwrap();
    let (engine, other) = (engine(), engine());
    let (file, elsewhere) =
        (engine.open(&path, &how::read()).unwrap(), other.open(&path, &how::read()).unwrap());
    assert!(requests(&engine, &file, &[7; LENGTH]) > 0);
    assert!(fs::read(&path).unwrap() == [7; LENGTH]);
    for _ in 0..3 {
        assert_eq!(requests(&engine, &file, &[7; LENGTH]), 0);
    }
    assert!(read(&elsewhere) == [7; LENGTH]);
    assert_eq!(requests(&other, &elsewhere, &[7; LENGTH]), 0, "each has a lease of its own");
}

#[test]
fn contract_06_a_reader_finds_what_is_written_later() {
    let directory = support::directory();
    let path = directory.path().join("file");
    fs::write(&path, [1; LENGTH]).unwrap();
    let engine = engine();
    let file = engine.open(&path, &how::read()).unwrap();
    assert!(read(&file) == [1; LENGTH]);
    for round in 2..6 {
        let begin = Instant::now();
        let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(5), "the lease was released late");
        writer.write_all_at(&[round; LENGTH], 0).unwrap();
        assert!(read(&file) == [round; LENGTH], "while it is open for writing");
        writer.write_all_at(&[round; 100], LENGTH as u64).unwrap();
        drop(writer);
        assert!(read(&file) == [round; LENGTH + 100]);
        let truncated = fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        assert_eq!((file.len().unwrap(), read(&file)), (0, vec![]));
        (&truncated).write_all(&[round; LENGTH]).unwrap();
        assert!(read(&file) == [round; LENGTH]);
    }
}

/// The lease of the reading handle is in the way of the engine's own open.
#[test]
fn contract_06_the_engine_opens_a_file_for_writing_that_it_reads() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine();
    for round in 1..20 {
        fs::write(&path, [round; LENGTH]).unwrap();
        let file = engine.open(&path, &how::read()).unwrap();
        assert!(read(&file) == [round; LENGTH]);
        let begin = Instant::now();
        let writer = engine.open(&path, &how::write()).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(5), "the own lease was in the way");
        writer.write_at(&[0; 100], 50).unwrap();
        let mut expected = [round; LENGTH];
        expected[50..150].fill(0);
        assert!(read(&file) == expected);
        writer.sync_data().unwrap();
        assert!(fs::read(&path).unwrap() == expected);
        file.close().unwrap();
        writer.close().unwrap();
    }
}

/// Many threads read and write one file through the engine and past it, so that leases come and go.
#[test]
fn contract_06_readers_never_find_older_bytes_than_before() {
    let directory = support::directory();
    let path = directory.path().join("file");
    fs::write(&path, 0_u64.to_le_bytes()).unwrap();
    let engine = engine();
    let end = Instant::now() + Duration::from_secs(2);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    std::thread::scope(|scope| {
        let (engine, path) = (&engine, &path);
        scope.spawn(move || {
            for version in 1_u64.. {
                if Instant::now() > end {
                    break;
                }
                let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(&version.to_le_bytes(), 0).unwrap();
                drop(file);
                std::thread::sleep(Duration::from_micros(version % 7 * 300));
            }
        });
        for _ in 0..3 {
            scope.spawn(move || {
                let mut last = 0;
                while Instant::now() < end {
                    let file = engine.open(path, &how::read()).unwrap();
                    for _ in 0..20 {
                        let floor = number(&fs::read(path).unwrap());
                        let found = number(&read(&file));
                        assert!(found >= floor.max(last), "{found}, and {floor} before, {last}");
                        last = found;
                    }
                }
            });
        }
    });
}
