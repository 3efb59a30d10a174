//! Handles beyond reads, writes and syncs: how they print, end, and are opened.

mod support;

use std::sync::Arc;
use std::time::Duration;

use forebay::{Engine, ErrorKind, Open};
use support::{MIB, assert_on_disk, kind_of, pattern};

/// A bound for everything here.
const SOON: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    Engine::builder().cache_bytes(8 * MIB).build().unwrap()
}

#[test]
fn an_engine_and_a_file_print_on_one_short_line() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    let printed = format!("{engine:?}");
    assert!(printed.starts_with("Engine { description: \""), "{printed}");
    assert!(printed.contains(&engine.describe()) && printed.len() < 300, "{printed}");
    assert_eq!(format!("{file:?}"), format!("File {{ path: {path:?}, is_writable: true, .. }}"));
    file.close().unwrap();
}

#[test]
fn a_write_out_is_seen_by_other_programs_and_flushes_nothing() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    let data = pattern(1, 300_001);
    file.write_at(&data, 0).unwrap();
    file.write_out().unwrap();
    let stats = engine.stats();
    assert_eq!((stats.dirty_bytes, stats.flushes), (0, 0));
    assert_on_disk(&path, &data, "written out");
    file.close().unwrap();
}

#[test]
fn contract_05_a_finished_handle_has_nothing_left_to_write_and_goes_on() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = Arc::new(engine.open(&path, Open::create()).unwrap());
    let data = pattern(2, 5 << 20);
    for (at, part) in data.chunks(70_000).enumerate() {
        file.write_at(part, at as u64 * 70_000).unwrap();
    }
    let held = Arc::clone(&file);
    file.finish().unwrap();
    assert_eq!(engine.stats().dirty_bytes, 0);
    match file.layout() {
        Ok(layout) => assert_eq!(layout.reserved_bytes, 0, "reserved space stayed"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    }
    held.append(b"more").unwrap();
    held.finish().unwrap();
    drop((file, held));
    engine.shutdown(SOON).unwrap();
    assert_on_disk(&path, &[&data, &b"more"[..]].concat(), "finished twice");
}

#[test]
fn after_a_shutdown_nothing_is_written_out() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    engine.shutdown(SOON).unwrap();
    assert_eq!(kind_of(file.finish()), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.write_out()), ErrorKind::Shutdown);
}

#[test]
fn an_exact_read_is_complete_or_an_error() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    file.write_at(b"hello world", 0).unwrap();
    let mut word = [0; 5];
    file.read_exact_at(&mut word, 6).unwrap();
    assert_eq!(&word, b"world");
    let error = file.read_exact_at(&mut word, 7).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::EndOfFile, Some(7)), "{error}");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::UnexpectedEof);
    file.read_exact_at(&mut [], 100).unwrap();
    file.close().unwrap();
}
