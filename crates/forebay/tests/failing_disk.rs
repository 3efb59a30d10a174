//! Disks that fail for a while, or for good: the pages that stay dirty, the calls that report the
//! error, and the calls that still work (contract 2). Also file systems that are gone, full or
//! read-only underneath (contracts 2, 5 and 9).

mod support;

use std::future::Future as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::{Engine, Error, ErrorKind, File, Options};
use support::faulty::{Disk, Fails};
use support::load::{count_engine_panics, elsewhere_all_is_well, no_engine_panics};
use support::mount::FileSystem;
use support::{MIB, assert_on_disk, eventually, how, kind_of, pattern, process, within};

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(20);

/// Bytes of the file that exists before anything fails. One request writes them, so one error
/// covers all pages that failed.
const LENGTH: usize = 1 << 20;

/// An engine that writes dirty pages only on request.
fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(16 << 20),
        dirty_bytes: Some(12 << 20),
        background_bytes: Some(12 << 20),
        dirty_age: Duration::from_secs(600),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap()
}

/// A file whose blocks and size are durable, so that overwriting it needs nothing but its own
/// bytes.
fn durable(path: &Path) {
    std::fs::write(path, pattern(1, LENGTH)).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

fn is_io(error: &Error) -> bool {
    error.kind() == ErrorKind::Io && error.os_error() == Some(libc::EIO)
}

// 2: pages that cannot be written

/// The page stays dirty, and every sync fails until the page is written. In the end each handle,
/// even one opened later, has reported the error.
fn writes_fail_for_a_while(file_system: FileSystem) {
    let name = "writes_fail_for_a_while";
    let bytes = if file_system == FileSystem::Xfs { 2048 * MIB } else { 128 * MIB };
    let Some(disk) = Disk::new(name, file_system, bytes, Fails::Writes) else { return };
    let path = disk.path().join("file");
    durable(&path);
    let engine = engine();
    let files = [(); 3].map(|()| engine.open(&path, &how::write()).unwrap());
    let new = pattern(2, LENGTH);
    files[0].write_at(&new, 0).unwrap();
    disk.fail();
    let error = files[0].sync_data().unwrap_err();
    assert!(is_io(&error), "{error}");
    assert_eq!(error.path(), Some(path.as_path()));
    for file in files[..2].iter().rev() {
        let error = file.sync_data().unwrap_err();
        assert!(is_io(&error), "the page is still not written: {error}");
        assert!(is_io(&file.sync_all().unwrap_err()));
    }
    let mut through = vec![0; LENGTH];
    assert_eq!(files[2].read_at(&mut through, 0).unwrap(), LENGTH);
    assert!(through == new, "a page that could not be written has lost its content");
    disk.heal();
    files[0].sync_data().expect("it has heard of the error, and the pages are written now");
    assert_on_disk(&path, &new, "after the device came back");
    for file in &files[1..] {
        assert!(is_io(&file.sync_data().unwrap_err()), "an error got over is told to each handle");
        file.sync_data().expect("and once");
    }
    let late = engine.open(&path, &how::write()).unwrap();
    assert!(is_io(&late.sync_data().unwrap_err()), "to those opened later too");
    late.sync_data().expect("and once");
    for file in files {
        file.close().expect("everybody has heard");
    }
    late.close().unwrap();
    // With the last handle the memory of it has gone.
    let fresh = engine.open(&path, &how::write()).unwrap();
    fresh.sync_data().unwrap();
    fresh.close().unwrap();
}

#[test]
fn contract_02_writes_fail_for_a_while_on_ext4() {
    writes_fail_for_a_while(FileSystem::Ext4);
}

#[test]
fn contract_02_writes_fail_for_a_while_on_xfs() {
    writes_fail_for_a_while(FileSystem::Xfs);
}

// 2: pages that cannot be read

/// Reads the third page.
fn read_page(file: &File) -> forebay::Result<()> {
    let mut page = vec![0; 4096];
    assert_eq!(file.read_at(&mut page, 8192)?, 4096);
    assert!(page == pattern(1, LENGTH)[8192..12288], "another page");
    Ok(())
}

/// Every caller that waits for the page gets the error, other files go on, and a later read
/// succeeds.
fn reads_fail_for_a_while(file_system: FileSystem) {
    let name = "reads_fail_for_a_while";
    let bytes = if file_system == FileSystem::Xfs { 2048 * MIB } else { 128 * MIB };
    let Some(disk) = Disk::new(name, file_system, bytes, Fails::Reads) else { return };
    let (path, other_path) = (disk.path().join("file"), disk.path().join("other"));
    durable(&path);
    durable(&other_path);
    let engine = engine();
    let file = Arc::new(engine.open(&path, &how::write()).unwrap());
    let other = engine.open(&other_path, &how::write()).unwrap();
    read_page(&other).unwrap();
    disk.forget();
    disk.fail();
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let (file, path) = (Arc::clone(&file), path.clone());
            std::thread::spawn(move || {
                for _ in 0..20 {
                    let error = read_page(&file).unwrap_err();
                    assert!(is_io(&error), "{error}");
                    assert_eq!(error.path(), Some(path.as_path()));
                }
            })
        })
        .collect();
    for _ in 0..20 {
        read_page(&other).expect("the page is in memory");
    }
    within(SOON, "every reader gets its errors", || {
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    // A write of part of a page needs the rest of it.
    file.write_at(b"part", 100).unwrap();
    assert!(is_io(&file.sync_data().unwrap_err()));
    disk.heal();
    read_page(&file).unwrap();
    file.sync_data().unwrap();
    let mut expected = pattern(1, LENGTH);
    expected[100..104].copy_from_slice(b"part");
    assert_on_disk(&path, &expected, "after the device came back");
    Arc::into_inner(file).unwrap().close().unwrap();
    other.close().unwrap();
}

#[test]
fn contract_02_reads_fail_for_a_while_on_ext4() {
    reads_fail_for_a_while(FileSystem::Ext4);
}

#[test]
fn contract_02_reads_fail_for_a_while_on_xfs() {
    reads_fail_for_a_while(FileSystem::Xfs);
}

/// Writing out without a flush reports the same errors as a sync.
#[test]
fn contract_02_a_write_out_reports_a_failed_page() {
    let name = "a_write_out_reports_a_failed_page";
    let Some(disk) = Disk::new(name, FileSystem::Ext4, 128 * MIB, Fails::Writes) else { return };
    let path = disk.path().join("file");
    durable(&path);
    let engine = engine();
    let (file, other) =
        (engine.open(&path, &how::write()).unwrap(), engine.open(&path, &how::read()).unwrap());
    let new = pattern(2, LENGTH);
    file.write_at(&new, 0).unwrap();
    disk.fail();
    for _ in 0..2 {
        assert!(is_io(&file.write_out().unwrap_err()), "the page is still not written");
    }
    disk.heal();
    file.write_out().expect("this handle has reported the error");
    assert_on_disk(&path, &new, "after the device came back");
    assert!(is_io(&other.write_out().unwrap_err()), "once to each handle");
    other.write_out().expect("and once");
    other.close().unwrap();
    file.close().unwrap();
}

/// Pages that fail in the background, with nobody waiting: the next sync tries again, and tells.
#[test]
fn contract_02_an_error_in_the_background_is_reported_by_the_next_sync() {
    let Some(disk) =
        Disk::new("error_in_the_background", FileSystem::Ext4, 128 * MIB, Fails::Writes)
    else {
        return;
    };
    let path = disk.path().join("file");
    durable(&path);
    let engine = Engine::start(Options {
        cache_bytes: Some(16 << 20),
        dirty_age: Duration::from_millis(20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(&path, &how::write()).unwrap();
    disk.fail();
    let before = engine.stats().completed_bios;
    file.write_at(&pattern(2, LENGTH), 0).unwrap();
    assert!(
        eventually(SOON, || engine.stats().completed_bios > before),
        "what is old is written out"
    );
    disk.heal();
    assert!(eventually(SOON, || engine.stats().dirty_bytes == 0), "what failed is tried again");
    assert_on_disk(&path, &pattern(2, LENGTH), "tried again");
    assert!(is_io(&file.sync_data().unwrap_err()));
    file.sync_data().unwrap();
    file.close().unwrap();
}

// 2: flushes that fail

/// The disk accepts and keeps every write, but cannot flush for a while. The disk recovers and the
/// file does not: data written since the last successful flush may be lost.
fn flushes_fail_for_a_while(file_system: FileSystem) {
    let name = "flushes_fail_for_a_while";
    let bytes = if file_system == FileSystem::Xfs { 2048 * MIB } else { 128 * MIB };
    let Some(disk) = Disk::new(name, file_system, bytes, Fails::Flushes) else { return };
    let (path, other) = (disk.path().join("file"), disk.path().join("other"));
    durable(&path);
    durable(&other);
    let engine = engine();
    let files = [(); 2].map(|()| engine.open(&path, &how::write()).unwrap());
    let beside = engine.open(&other, &how::write()).unwrap();
    files[0].write_at(&pattern(2, 70_000), 5).unwrap();
    disk.fail();
    assert_eq!(kind_of(files[0].sync_data()), ErrorKind::Poisoned);
    disk.heal();
    let late = engine.open(&path, &how::write()).unwrap();
    for file in files.iter().chain([&late]) {
        assert_eq!(kind_of(file.sync_data()), ErrorKind::Poisoned);
        assert_eq!(kind_of(file.sync_all()), ErrorKind::Poisoned);
    }
    // Of this file alone.
    beside.write_at(&pattern(3, 5000), 0).unwrap();
    beside.sync_data().unwrap();
    beside.close().unwrap();
    // Calls that promise no durability still work.
    files[1].write_at(b"more", 0).unwrap();
    let mut through = [0; 4];
    files[0].read_at(&mut through, 0).unwrap();
    assert_eq!(&through, b"more");
    for file in files.into_iter().chain([late]) {
        assert_eq!(kind_of(file.close()), ErrorKind::Poisoned);
    }
    let fresh = engine.open(&path, &how::write()).unwrap();
    fresh.write_at(b"again", 9).unwrap();
    fresh.sync_data().expect("all handles were closed");
    fresh.close().unwrap();
    let mut expected = pattern(1, LENGTH);
    expected[5..70_005].copy_from_slice(&pattern(2, 70_000));
    expected[..4].copy_from_slice(b"more");
    expected[9..14].copy_from_slice(b"again");
    assert_on_disk(&path, &expected, "after everything");
}

#[test]
fn contract_02_flushes_fail_for_a_while_on_ext4() {
    flushes_fail_for_a_while(FileSystem::Ext4);
}

#[test]
fn contract_02_flushes_fail_for_a_while_on_xfs() {
    flushes_fail_for_a_while(FileSystem::Xfs);
}

/// The future of the sync is dropped after the flush has failed, and then the file: the callback is
/// the last that can hear of it.
#[test]
fn contract_02_a_failed_flush_that_no_call_has_returned_is_reported_to_the_callback_once() {
    let Some(disk) = Disk::new("no_call", FileSystem::Ext4, 128 * MIB, Fails::Flushes) else {
        return;
    };
    let reported: Arc<Mutex<Vec<ErrorKind>>> = Arc::default();
    let reports = Arc::clone(&reported);
    let engine = Engine::builder(Options {
        cache_bytes: Some(16 << 20),
        close_timeout: SOON,
        ..Options::default()
    });
    let engine = engine.on_error(move |error| reports.lock().unwrap().push(error.kind()));
    let engine = engine.build().unwrap();
    for is_returned in [false, true] {
        let waits = |n| {
            let path = disk.path().join(format!("{is_returned}{n}"));
            durable(&path);
            let file = engine.open(&path, &how::write()).unwrap();
            file.write_at(&pattern(2, 5000), 0).unwrap();
            disk.fail();
            let mut syncing = Box::pin(file.asynchronous().sync_data());
            let mut context = Context::from_waker(Waker::noop());
            let mut polled = syncing.as_mut().poll(&mut context);
            let waited = polled.is_pending();
            if waited {
                std::thread::sleep(Duration::from_secs(1));
            }
            if waited && is_returned {
                polled = syncing.as_mut().poll(&mut context);
            }
            drop(syncing);
            match polled {
                Poll::Ready(result) => assert_eq!(kind_of(result), ErrorKind::Poisoned),
                Poll::Pending => assert!(!is_returned, "the flush has ended"),
            }
            assert!(
                is_returned || reported.lock().unwrap().is_empty(),
                "a call may still return it"
            );
            drop(file);
            disk.heal();
            waited
        };
        // A context can be faster than this thread, and then this call has returned the error.
        assert!((0..16).any(waits), "no sync was waited for");
        let is_reported = || *reported.lock().unwrap() == [ErrorKind::Poisoned];
        assert!(eventually(SOON, is_reported), "{:?}", reported.lock().unwrap());
    }
    engine.shutdown(SOON).unwrap();
    assert_eq!(*reported.lock().unwrap(), [ErrorKind::Poisoned]);
}

/// The sync is given up after its flush has failed, and the handle outlives the engine.
#[test]
fn contract_02_the_shutdown_returns_a_failed_flush_that_no_call_has_returned() {
    let Some(disk) = Disk::new("shutdown", FileSystem::Ext4, 128 * MIB, Fails::Flushes) else {
        return;
    };
    let reported_by_shutdown = |number: usize| {
        let (engine, reported) = reporting();
        let path = disk.path().join(format!("{number}"));
        durable(&path);
        let file = engine.open(&path, &how::write()).unwrap();
        file.write_at(&pattern(2, 5000), 0).unwrap();
        disk.fail();
        let mut syncing = Box::pin(file.asynchronous().sync_data());
        let polled = syncing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        std::thread::sleep(Duration::from_secs(1));
        drop(syncing);
        disk.heal();
        let ended = engine.shutdown(SOON);
        drop(file);
        // A context can be faster than this thread, and then this call has returned the error.
        if polled.is_pending() {
            assert_eq!(kind_of(ended), ErrorKind::Poisoned);
            assert_eq!(reported.lock().unwrap().len(), 0);
        }
        polled.is_pending()
    };
    assert!((0..16).any(reported_by_shutdown), "no sync was waited for");
}

#[test]
fn contract_05_the_error_of_a_shutdown_that_was_given_up_is_reported_to_the_callback() {
    let Some(disk) = Disk::new("given_up", FileSystem::Ext4, 128 * MIB, Fails::Writes) else {
        return;
    };
    let (engine, reported) = reporting();
    let path = disk.path().join("file");
    durable(&path);
    let file = engine.open(&path, &how::write()).unwrap();
    disk.fail();
    file.write_at(&pattern(2, 5000), 0).unwrap();
    let mut ending = Box::pin(engine.asynchronous().shutdown(SOON));
    assert!(ending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(ending);
    assert!(eventually(SOON, || reported.lock().unwrap().iter().any(is_io_kind)), "no error came");
    disk.heal();
}

fn is_io_kind(error: &Error) -> bool {
    error.kind() == ErrorKind::Io
}

// 2: the way out

fn is_discarded(error: &Error) -> bool {
    error.kind() == ErrorKind::Io && error.os_error() == Some(libc::ECANCELED)
}

#[test]
fn contract_02_what_cannot_be_written_can_be_dropped() {
    let Some(disk) = Disk::new("can_be_dropped", FileSystem::Ext4, 128 * MIB, Fails::Writes) else {
        return;
    };
    let path = disk.path().join("file");
    durable(&path);
    let engine = engine();
    let [file, other] = [(); 2].map(|()| engine.open(&path, &how::write()).unwrap());
    file.write_at(&pattern(2, LENGTH), 0).unwrap();
    file.append(&pattern(3, 30_000)).unwrap();
    assert_eq!(other.len().unwrap(), LENGTH as u64 + 30_000);
    disk.fail();
    assert!(is_io(&file.sync_data().unwrap_err()));
    assert_eq!(file.abandon_unwritten().unwrap(), LENGTH as u64 + 8 * 4096);
    assert_eq!(engine.stats().dirty_bytes, 0, "its memory is free");
    assert_eq!(other.len().unwrap(), LENGTH as u64, "the size is the file system's");
    // Not before: a sync is a flush too, and the file system has something to write for that.
    disk.heal();
    file.sync_data().expect("it knows, and nothing is dirty");
    assert!(is_discarded(&other.sync_data().unwrap_err()), "others hear of it");
    other.sync_data().expect("once");
    let late = engine.open(&path, &how::write()).unwrap();
    assert!(is_discarded(&late.sync_data().unwrap_err()));
    let mut through = vec![0; LENGTH];
    assert_eq!(other.read_at(&mut through, 0).unwrap(), LENGTH);
    assert!(through == pattern(1, LENGTH), "what was there before");
    file.append(b"more").unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.abandon_unwritten().unwrap(), 0, "nothing is dirty, nothing is dropped");
    other.sync_data().expect("and nobody told");
    let mut expected = pattern(1, LENGTH);
    expected.extend_from_slice(b"more");
    assert_on_disk(&path, &expected, "written after the way out");
    for file in [file, other, late] {
        file.close().unwrap();
    }
}

#[test]
fn contract_02_dropping_what_is_dirty_does_not_undo_a_failed_flush() {
    let Some(disk) = Disk::new("does_not_undo", FileSystem::Ext4, 128 * MIB, Fails::Flushes) else {
        return;
    };
    let path = disk.path().join("file");
    durable(&path);
    let engine = engine();
    let file = engine.open(&path, &how::write()).unwrap();
    file.write_at(&pattern(2, 5000), 0).unwrap();
    disk.fail();
    assert_eq!(kind_of(file.sync_data()), ErrorKind::Poisoned);
    disk.heal();
    file.write_at(&pattern(3, 5000), 0).unwrap();
    assert_eq!(file.abandon_unwritten().unwrap(), 8192);
    assert_eq!(kind_of(file.sync_data()), ErrorKind::Poisoned);
    assert_eq!(kind_of(file.close()), ErrorKind::Poisoned);
    let fresh = engine.open(&path, &how::write()).unwrap();
    fresh.sync_data().unwrap();
    let mut through = vec![0; 5000];
    fresh.read_at(&mut through, 0).unwrap();
    assert!(through == pattern(2, 5000), "what was written before the flush failed");
}

#[test]
fn contract_02_only_who_may_write_may_drop() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, [1; 100]).unwrap();
    let engine = engine();
    let [reader, writer] =
        [&how::read(), &how::write()].map(|open| engine.open(&path, open).unwrap());
    writer.write_at(&[2; 100], 50).unwrap();
    assert_eq!(kind_of(reader.abandon_unwritten()), ErrorKind::NotPermitted);
    assert_eq!(reader.len().unwrap(), 150);
    assert_eq!(support::block_on(writer.asynchronous().abandon_unwritten()).unwrap(), 4096);
    assert_eq!(reader.len().unwrap(), 100);
    writer.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [1; 100]);
}

// 2: bounds

/// A file that has as many pages that cannot be written as it may have takes no more, and does
/// again when it is well.
#[test]
fn contract_02_too_many_pages_that_cannot_be_written_are_reported_at_the_write() {
    let Some(disk) = Disk::new("too_many_pages", FileSystem::Ext4, 128 * MIB, Fails::Writes) else {
        return;
    };
    let (path, other) = (disk.path().join("file"), disk.path().join("other"));
    durable(&path);
    durable(&other);
    let engine = engine();
    let file = engine.open(&path, &how::write()).unwrap();
    let beside = engine.open(&other, &how::write()).unwrap();
    file.write_at(&pattern(2, LENGTH), 0).unwrap();
    disk.fail();
    assert!(is_io(&file.sync_data().unwrap_err()));
    let dirty = engine.stats().dirty_bytes;
    for _ in 0..100 {
        assert!(is_io(&file.write_at(&[3; 4096], 0).unwrap_err()));
        assert!(is_io(&file.append(&[3; 100]).unwrap_err()));
    }
    assert_eq!(engine.stats().dirty_bytes, dirty, "nothing of it was accepted");
    // The failed mebibyte is above the limit for a file, a sixteenth of the dirty limit. It is
    // below the limit for a device, a quarter.
    beside.write_at(&pattern(4, 4096), 0).unwrap();
    disk.heal();
    file.sync_data().unwrap();
    file.write_at(&pattern(3, 4096), 0).unwrap();
    file.sync_data().unwrap();
    beside.sync_data().unwrap();
}

/// One writer fills all the memory that it can get, for a device that accepts nothing. A writer to
/// another device goes on.
#[test]
fn contract_02_a_dead_device_does_not_hold_the_memory_of_all() {
    let Some(disk) = Disk::new("memory_of_all", FileSystem::Ext4, 128 * MIB, Fails::Writes) else {
        return;
    };
    count_engine_panics();
    let paths = ["one", "two"].map(|name| disk.path().join(name));
    paths.iter().for_each(|path| std::fs::write(path, vec![1; 16 << 20]).unwrap());
    let engine = Engine::start(Options {
        cache_bytes: Some(12 << 20),
        dirty_bytes: Some(8 << 20),
        background_bytes: Some(8 << 20),
        dirty_age: Duration::from_millis(30),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let [one, two] = paths.map(|path| engine.open(path, &how::write()).unwrap());
    disk.fail();
    let elsewhere = support::directory();
    let elsewhere = engine.open(elsewhere.path().join("file"), &how::create()).unwrap();
    within(SOON, "writing beside a dead device", {
        let engine = engine.clone();
        move || {
            let fill = |file: &File| {
                (0..)
                    .find_map(|at: u64| file.write_at(&[2; 65536], at % 256 * 65536).err())
                    .unwrap()
            };
            assert!(is_io(&fill(&one)));
            // Another file of the device, once as much of the first has failed as the device may
            // have.
            assert!(is_io(&fill(&two)));
            assert!(is_io(&two.append(&[1]).unwrap_err()));
            for at in 0..64 {
                elsewhere.write_at(&pattern(at, 1 << 20), at << 20).unwrap();
            }
            elsewhere.sync_data().unwrap();
            elsewhere.close().unwrap();
            // Also after every page was tried again, many times.
            std::thread::sleep(Duration::from_millis(300));
            let dirty = engine.stats().dirty_bytes;
            // The last step of a writer may go beyond the limit.
            assert!(dirty <= 9 << 20, "{dirty} bytes dirty");
            assert!(is_io(&fill(&one)) && is_io(&fill(&two)));
            for file in [one, two] {
                file.abandon_unwritten().unwrap();
            }
            assert_eq!(engine.stats().dirty_bytes, 0);
        }
    });
    no_engine_panics();
}

// 2 and 5: a device that is gone

/// An engine, and the errors that its callback received.
fn reporting() -> (Engine, Arc<Mutex<Vec<Error>>>) {
    let errors: Arc<Mutex<Vec<Error>>> = Arc::default();
    let reported = Arc::clone(&errors);
    let engine = Engine::builder(Options {
        cache_bytes: Some(16 << 20),
        dirty_age: Duration::from_millis(20),
        close_timeout: SOON,
        ..Options::default()
    });
    let engine = engine.on_error(move |error| reported.lock().unwrap().push(error.clone()));
    (engine.build().unwrap(), errors)
}

/// The device is taken away under a mounted file system with dirty pages. Every call ends, each
/// waiting caller gets the error, and the rest of the engine works as before.
#[test]
fn contract_02_and_05_the_device_is_taken_away() {
    let Some(mut disk) = Disk::new("device_taken_away", FileSystem::Xfs, 2048 * MIB, Fails::Writes)
    else {
        return;
    };
    count_engine_panics();
    let path = disk.path().join("file");
    durable(&path);
    let (engine, errors) = reporting();
    let [closed, dropped] = [(); 2].map(|()| engine.open(&path, &how::write()).unwrap());
    let made = engine.open(disk.path().join("made"), &how::create_new()).unwrap();
    disk.cut_power();
    closed.write_at(&pattern(2, LENGTH), 0).unwrap();
    // Refused at once where space has to be looked for first.
    let _ = made.append(&pattern(3, 100_000));
    within(SOON, "calls on a device that is gone", {
        let path = path.clone();
        move || {
            assert!(is_io(&closed.sync_data().unwrap_err()));
            assert!(made.sync_data().is_err());
            assert!(is_io(&closed.close().unwrap_err()));
            drop(made);
            assert!(
                errors.lock().unwrap().iter().all(|error| error.path() != Some(&path)),
                "{errors:?}"
            );
            // The last handle is dropped, so only the callback can report the error.
            drop(dropped);
            let reported =
                || errors.lock().unwrap().iter().any(|error| error.path() == Some(&path));
            assert!(
                eventually(SOON, reported),
                "nothing was reported: {:?}",
                errors.lock().unwrap()
            );
        }
    });
    elsewhere_all_is_well(&engine);
    within(SOON, "dropping the engine", move || drop(engine));
    no_engine_panics();
    disk.reboot();
    assert_eq!(std::fs::read(&path).unwrap().len(), LENGTH);
}

/// ext4 makes itself read-only after an error. The dirty pages cannot be written from then on, and
/// no call reports success for them.
#[test]
fn contract_02_a_file_system_becomes_read_only_underneath() {
    let Some(disk) = Disk::new("becomes_read_only", FileSystem::Ext4, 128 * MIB, Fails::Writes)
    else {
        return;
    };
    let path = disk.path().join("file");
    durable(&path);
    let (engine, errors) = reporting();
    let file = engine.open(&path, &how::write()).unwrap();
    process::shell("mount -o remount,errors=remount-ro \"$1\"", &disk.path()).unwrap();
    let device = disk.device();
    let trigger =
        Path::new("/sys/fs/ext4").join(device.file_name().unwrap()).join("trigger_fs_error");
    std::fs::write(trigger, "a test's own").unwrap();
    file.write_at(&pattern(2, 100_000), 0).unwrap();
    let error = file.sync_data().unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(libc::EROFS)), "{error}");
    let mut through = vec![0; 100_000];
    file.read_at(&mut through, 0).unwrap();
    assert!(through == pattern(2, 100_000), "what is dirty can still be read");
    assert_eq!(kind_of(file.sync_data()), ErrorKind::Io);
    drop(file);
    assert!(eventually(SOON, || !errors.lock().unwrap().is_empty()), "nothing was reported");
    elsewhere_all_is_well(&engine);
}
