//! A disk that hangs: its requests neither end nor can be cancelled. Waiting ends by its deadline
//! and says so, memory in flight is left to the device, and the rest of the engine goes on
//! (contract 5).

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::{Engine, ErrorKind, Options};
use support::faulty::{Disk, Fails};
use support::load::{count_engine_panics, elsewhere_all_is_well, no_engine_panics};
use support::mount::FileSystem;
use support::{MIB, assert_on_disk, eventually, how, kind_of, pattern, within};

/// Upper bound for every wait in this file; far longer than the deadlines of the engines.
const SOON: Duration = Duration::from_secs(30);

/// How long the engines wait for the device.
const PATIENCE: Duration = Duration::from_millis(300);

const LENGTH: usize = 1 << 20;

type Reported = Arc<Mutex<Vec<ErrorKind>>>;

/// An engine that writes dirty pages only on request, and the errors that its callback received.
fn engine() -> (Engine, Reported) {
    let reported = Reported::default();
    let report = Arc::clone(&reported);
    let engine = Engine::builder(Options {
        cache_bytes: Some(16 << 20),
        dirty_bytes: Some(12 << 20),
        background_bytes: Some(12 << 20),
        dirty_age: Duration::from_secs(600),
        close_timeout: PATIENCE,
        ..Options::default()
    });
    (
        engine.on_error(move |error| report.lock().unwrap().push(error.kind())).build().unwrap(),
        reported,
    )
}

/// A disk with a file whose blocks and size are durable, so that overwriting it needs nothing but
/// its own bytes.
fn disk(test: &str) -> Option<(Disk, std::path::PathBuf)> {
    let disk = Disk::new(test, FileSystem::Ext4, 128 * MIB, Fails::Writes)?;
    let path = disk.path().join("file");
    std::fs::write(&path, pattern(1, LENGTH)).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    std::fs::File::open(disk.path()).unwrap().sync_all().unwrap();
    count_engine_panics();
    Some((disk, path))
}

/// Allocates memory and overwrites it, so that a read of freed memory by the device shows.
fn use_memory() {
    for salt in 0..8 {
        let used = vec![0x5a ^ salt; 16 << 20];
        assert_eq!(used[used.len() / 2], 0x5a ^ salt);
    }
}

#[test]
fn contract_05_closing_a_file_on_a_disk_that_hangs() {
    let Some((disk, path)) = disk("closing_on_a_hung_disk") else { return };
    let (engine, reported) = engine();
    let file = engine.open(&path, &how::write()).unwrap();
    file.write_at(&pattern(2, LENGTH), 0).unwrap();
    disk.freeze();
    let closed = within(SOON, "closing on a disk that hangs", move || file.close());
    assert_eq!(kind_of(closed), ErrorKind::TimedOut);
    elsewhere_all_is_well(&engine);
    disk.thaw();
    // The writing goes on; another handle waits for it.
    let again = engine.open(&path, &how::write()).unwrap();
    again.sync_data().unwrap();
    assert_on_disk(&path, &pattern(2, LENGTH), "written after all");
    again.close().unwrap();
    within(SOON, "dropping the engine", move || drop(engine));
    assert_eq!(*reported.lock().unwrap(), [], "nothing has gone wrong in the end");
    no_engine_panics();
}

/// A sync that no caller waits for continues, and the callback receives its error.
#[test]
fn contract_05_a_drop_on_a_disk_that_hangs_waits_for_nothing() {
    let Some((disk, path)) = disk("drop_on_a_hung_disk") else { return };
    let (engine, reported) = engine();
    let file = engine.open(&path, &how::write()).unwrap();
    file.write_at(&pattern(2, LENGTH), 0).unwrap();
    disk.freeze();
    within(SOON, "dropping a file on a disk that hangs", move || drop(file));
    disk.fail_when_thawed();
    disk.thaw();
    assert!(
        eventually(SOON, || reported.lock().unwrap().contains(&ErrorKind::Io)),
        "nothing was reported"
    );
    no_engine_panics();
}

/// Pages at a hung device cannot be dropped. The call waits for the device, and then drops the
/// pages that are not in flight.
#[test]
fn contract_02_and_05_what_is_in_flight_is_not_dropped() {
    let Some((disk, path)) = disk("in_flight_is_not_dropped") else { return };
    std::fs::write(&path, pattern(1, 8 << 20)).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let (engine, _) = engine();
    let [syncing, dropping] = [(); 2].map(|()| engine.open(&path, &how::write()).unwrap());
    syncing.write_at(&pattern(2, 8 << 20), 0).unwrap();
    disk.freeze();
    let sync = std::thread::spawn(move || syncing.sync_data());
    assert!(eventually(SOON, || disk.is_busy()));
    let (reported, report) = std::sync::mpsc::channel();
    let dropped = std::thread::spawn(move || {
        let dropped = dropping.abandon_unwritten();
        reported.send(()).unwrap();
        dropped
    });
    assert!(
        report.recv_timeout(Duration::from_millis(300)).is_err(),
        "what is at the device was dropped"
    );
    disk.thaw();
    let dropped =
        within(SOON, "dropping what is dirty", move || dropped.join().unwrap()).unwrap() as usize;
    let error =
        within(SOON, "a sync of what is dropped", move || sync.join().unwrap()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::ECANCELED), "{error}");
    assert!((1..8 << 20).contains(&dropped), "{dropped} bytes dropped");
    let found = std::fs::read(&path).unwrap();
    let (old, new) = (pattern(1, 8 << 20), pattern(2, 8 << 20));
    let pages = found.chunks(4096).zip(old.chunks(4096).zip(new.chunks(4096)));
    let written = pages.clone().filter(|(found, (_, new))| found == new).count();
    assert_eq!(written * 4096 + dropped, 8 << 20, "each page is written or dropped");
    assert!(pages.clone().all(|(found, (old, new))| found == old || found == new));
    no_engine_panics();
}

/// Dropping the engine ends by its deadline and reports; the device then writes from memory that is
/// still there.
#[test]
fn contract_05_dropping_the_engine_on_a_disk_that_hangs() {
    let Some((disk, path)) = disk("engine_on_a_hung_disk") else { return };
    let (engine, reported) = engine();
    let file = engine.open(&path, &how::write()).unwrap();
    file.write_at(&pattern(2, LENGTH), 0).unwrap();
    disk.freeze();
    within(SOON, "dropping an engine on a disk that hangs", move || drop(engine));
    assert!(reported.lock().unwrap().contains(&ErrorKind::TimedOut), "it did not report");
    assert_eq!(kind_of(file.sync_data()), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.write_at(b"more", 0)), ErrorKind::Shutdown);
    within(SOON, "dropping the last handle", move || drop(file));
    use_memory();
    disk.thaw();
    let is_written = || std::fs::read(&path).unwrap() == pattern(2, LENGTH);
    assert!(
        eventually(SOON, is_written),
        "what was in flight came from memory that was in other use"
    );
    no_engine_panics();
}

/// The same where somebody waits for a sync meanwhile: it ends too.
#[test]
fn contract_05_and_12_a_sync_ends_with_its_engine() {
    let Some((disk, path)) = disk("sync_on_a_hung_disk") else { return };
    let (engine, reported) = engine();
    let file = engine.open(&path, &how::write()).unwrap();
    file.write_at(&pattern(2, LENGTH), 0).unwrap();
    disk.freeze();
    let sync = std::thread::spawn(move || file.sync_data());
    assert!(eventually(SOON, || disk.is_busy()));
    within(SOON, "shutting down on a disk that hangs", {
        let engine = engine.clone();
        move || assert_eq!(kind_of(engine.shutdown(PATIENCE)), ErrorKind::TimedOut)
    });
    drop(engine);
    disk.thaw();
    let ended = within(SOON, "a sync on a disk that hung", move || sync.join().unwrap());
    // Written and flushed after all, or told that the engine is gone: both are true; nothing else
    // is.
    if let Err(error) = ended {
        assert_eq!(error.kind(), ErrorKind::Shutdown, "{error}");
    }
    assert_eq!(*reported.lock().unwrap(), []);
    no_engine_panics();
}
