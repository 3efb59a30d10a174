//! Handles beyond reads, writes and syncs: how they print, end, and are opened.

mod support;

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Engine, ErrorKind, Options};
use support::{MIB, allocated, assert_on_disk, how, kind_of, pattern};

/// A bound for everything here.
const SOON: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 * MIB), ..Options::default() }).unwrap()
}

#[test]
fn an_engine_and_a_file_print_on_one_short_line() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
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
    let file = engine.open(&path, &how::create()).unwrap();
    let data = pattern(1, 300_001);
    file.write_at(&data, 0).unwrap();
    file.write_out().unwrap();
    let stats = engine.stats();
    assert_eq!((stats.dirty_bytes, stats.flushes), (0, 0));
    assert_on_disk(&path, &data, "written out");
    file.close().unwrap();
}

#[test]
fn contract_05_a_shared_handle_that_is_written_out_has_nothing_left_to_write_and_goes_on() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = Arc::new(engine.open(&path, &how::create()).unwrap());
    let data = pattern(2, 5 << 20);
    for (at, part) in data.chunks(70_000).enumerate() {
        file.write_at(part, at as u64 * 70_000).unwrap();
    }
    let held = Arc::clone(&file);
    file.write_out().unwrap();
    assert_eq!(engine.stats().dirty_bytes, 0);
    held.append(b"more").unwrap();
    held.write_out().unwrap();
    assert_on_disk(&path, &[&data, &b"more"[..]].concat(), "written out twice");
    drop((file, held));
    engine.shutdown(SOON).unwrap();
    let allocated = allocated(&path);
    assert!(allocated <= data.len() as u64 + (1 << 16), "reserved space stayed: {allocated}");
}

#[test]
fn after_a_shutdown_nothing_is_written_out() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    engine.shutdown(SOON).unwrap();
    assert_eq!(kind_of(file.write_out()), ErrorKind::Shutdown);
}

#[test]
fn an_exact_read_is_complete_or_an_error() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
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

#[test]
fn the_descriptor_of_a_file_is_that_of_its_engine() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&pattern(1, 10_000), 0).unwrap();
    file.write_out().unwrap();
    let status = rustix::fs::fstat(&file).unwrap();
    assert_eq!((status.st_ino, status.st_size), (std::fs::metadata(&path).unwrap().ino(), 10_000));
    // Two engines are kept apart by their locks; a second handle here shares the file.
    let other = engine.open(&path, &how::read()).unwrap();
    assert_eq!(other.as_fd().as_raw_fd(), file.as_fd().as_raw_fd());
    file.close().unwrap();
}

/// A file that the program has opened itself: the same file as by its path, also if it has no name.
#[test]
fn a_file_is_opened_by_a_descriptor() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let options = || {
        let mut options = std::fs::File::options();
        options.read(true).write(true).create(true).truncate(false);
        options
    };
    // Appending and without blocking, which the engine must undo.
    let opened = options().append(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let file = engine.open_fd(opened, &how::write()).unwrap();
    assert_eq!(file.path(), path.canonicalize().unwrap());
    let data = pattern(3, 3 << 20);
    file.write_at(&data, 0).unwrap();
    file.write_at(&data[..100], 0).unwrap();
    file.sync_data().unwrap();
    assert_on_disk(&path, &data, "by a descriptor");
    let by_path = engine.open(&path, &how::write()).unwrap();
    by_path.write_at(b"seen", 5).unwrap();
    let mut word = [0; 4];
    file.read_exact_at(&mut word, 5).unwrap();
    assert_eq!(&word, b"seen");
    let again = engine.open_fd(options().open(&path).unwrap(), &how::append()).unwrap();
    assert_eq!(again.append(b"end").unwrap(), 3 << 20);
    for file in [file, by_path, again] {
        file.close().unwrap();
    }

    let nameless = options().open(directory.path().join("gone")).unwrap();
    std::fs::remove_file(directory.path().join("gone")).unwrap();
    let file = engine.open_fd(nameless, how::write().truncate(true)).unwrap();
    file.write_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    let nameless = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    assert_on_disk(Path::new(&nameless), &data, "without a name");
    file.close().unwrap();
}

#[test]
fn a_descriptor_that_does_not_serve_is_refused_and_closed() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    std::fs::write(&path, b"data").unwrap();
    let read = || std::fs::File::open(&path).unwrap();
    assert_eq!(kind_of(engine.open_fd(read(), &how::write())), ErrorKind::NotPermitted);
    assert_eq!(kind_of(engine.open_fd(read(), &how::create_new())), ErrorKind::InvalidInput);
    let only_write = std::fs::File::options().write(true).open(&path).unwrap();
    assert_eq!(kind_of(engine.open_fd(only_write, &how::write())), ErrorKind::NotPermitted);
    let of_directory = std::fs::File::open(directory.path()).unwrap();
    assert_eq!(kind_of(engine.open_fd(of_directory, &how::read())), ErrorKind::Unsupported);
    let (pipe, _end) = std::io::pipe().unwrap();
    assert_eq!(kind_of(engine.open_fd(pipe, &how::read())), ErrorKind::Unsupported);
    // Nothing of them is left open, so the lease is granted.
    let file = engine.open(&path, &how::write()).unwrap();
    if file.describe().contains("shared") {
        support::skip("the lease after refused descriptors", &file.describe());
    }
    file.close().unwrap();
    let reader = engine.open_fd(read(), &how::read()).unwrap();
    let mut all = [0; 4];
    reader.read_exact_at(&mut all, 0).unwrap();
    assert_eq!(&all, b"data");
    // The path is opened again for the writer, as for any file that is open for reading.
    let writer = engine.open(&path, &how::write()).unwrap();
    writer.write_at(b"new!", 0).unwrap();
    reader.read_exact_at(&mut all, 0).unwrap();
    assert_eq!(&all, b"new!");
    engine.shutdown(SOON).unwrap();
    assert_eq!(kind_of(engine.open_fd(read(), &how::read())), ErrorKind::Shutdown);
}
