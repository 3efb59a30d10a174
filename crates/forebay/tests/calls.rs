//! Calls at the wrong time or from the wrong place: after a shutdown, from the engine's own
//! callback, in a forked child, or against a deadline. Each is answered, and none hangs.

mod support;

use std::future::Future as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use forebay::{Batch, Engine, ErrorKind, File, Options};
use forebay_block::random::Random;
use support::mount::{FileSystem, Mount};
use support::{MIB, eventually, how, kind_of, pattern, process, within};

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(10);

fn small_engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

#[test]
fn after_shutdown_every_call_says_so() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small_engine();
    let (file, other) =
        (engine.open(&path, &how::create()).unwrap(), engine.open(&path, &how::append()).unwrap());
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    engine.shutdown(SOON).unwrap();
    assert!(std::fs::read(&path).unwrap() == pattern(1, 100_000), "shutting down writes out");
    assert_eq!(kind_of(file.write_at(b"x", 0)), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.read_at(&mut [0; 10], 0)), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.sync_data()), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.sync_all()), ErrorKind::Shutdown);
    assert_eq!(kind_of(file.set_len(0)), ErrorKind::Shutdown);
    assert_eq!(kind_of(other.append(b"x")), ErrorKind::Shutdown);
    assert_eq!(kind_of(engine.open(&path, &how::read())), ErrorKind::Shutdown);
    assert_eq!(kind_of(other.close()), ErrorKind::Shutdown);
    engine.shutdown(SOON).unwrap();
    drop(file);
    drop(engine);
    assert!(std::fs::read(&path).unwrap() == pattern(1, 100_000));
}

/// Shutting down while others write: each of their calls is served or told `Shutdown`, and none
/// hangs.
#[test]
fn contract_05_shutdown_while_others_write() {
    let directory = support::directory();
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let writers: Vec<_> = (0..4)
        .map(|number| {
            let path = directory.path().join(format!("file-{number}"));
            let file = engine.open(&path, &how::create()).unwrap();
            std::thread::spawn(move || {
                let mut random = Random::new(number);
                loop {
                    let offset = random.below(8 * MIB);
                    let result = match random.below(10) {
                        0 => file.sync_data(),
                        1 => file.read_at(&mut [0; 5000], offset).map(drop),
                        _ => file.write_at(&[1; 50_000], offset),
                    };
                    if let Err(error) = result {
                        return error.kind();
                    }
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    within(SOON, "shutting down", move || engine.shutdown(Duration::from_secs(8))).unwrap();
    for writer in writers {
        let kind = within(SOON, "a writer after the shutdown", move || writer.join().unwrap());
        assert_eq!(kind, ErrorKind::Shutdown);
    }
}

#[test]
fn contract_12_a_blocking_call_from_the_callback_is_refused() {
    let Some(mount) = Mount::new("blocking_call_from_the_callback", FileSystem::Ext4, 64 * MIB)
    else {
        return;
    };
    let elsewhere = support::directory();
    let held: Arc<OnceLock<(Engine, [File; 2], PathBuf)>> = Arc::default();
    let kinds: Arc<Mutex<Vec<Option<ErrorKind>>>> = Arc::default();
    let (held_inside, kinds_inside) = (Arc::clone(&held), Arc::clone(&kinds));
    let engine = Engine::builder(Options { cache_bytes: Some(8 << 20), ..Options::default() })
        .on_error(move |_| {
            let (engine, [file, whole], path) = held_inside.get().unwrap();
            let results = [
                whole.write_at(&[2; 4096], 0),
                whole.sync_data(),
                whole.read_at(&mut [0; 10], 500_000).map(drop),
                file.write_at(b"more", 3),
                file.sync_data(),
                file.set_len(77),
                file.read_at(&mut [0; 10], 500_000).map(drop),
                engine.open(path, &how::create()).map(drop),
                engine.shutdown(SOON),
                Engine::new().map(drop),
            ];
            kinds_inside
                .lock()
                .unwrap()
                .extend(results.map(|result| result.err().map(|error| error.kind())));
        })
        .build()
        .unwrap();
    let other = elsewhere.path().join("other");
    let files = [other, elsewhere.path().join("whole")].map(|path| {
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        engine.open(&path, &how::write()).unwrap()
    });
    held.set((engine.clone(), files, elsewhere.path().join("new"))).unwrap();
    let dying = engine.open(mount.path().join("file"), &how::create()).unwrap();
    mount.cut_off();
    dying.write_at(&[1; 40_960], 0).unwrap();
    drop(dying);
    assert!(eventually(SOON, || kinds.lock().unwrap().len() >= 10), "the callback hangs");
    let refused = Some(ErrorKind::WouldDeadlock);
    // A write that finds room waits for nothing, not even for the rest of its page.
    let mut expected = [refused; 10];
    (expected[0], expected[3]) = (None, None);
    assert_eq!(kinds.lock().unwrap()[..10], expected);
    let (_, files, _) = held.get().unwrap();
    files.iter().for_each(|file| file.sync_data().unwrap());
}

#[test]
fn contract_05_close_has_a_deadline() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let reported = Arc::clone(&errors);
    let engine = Engine::builder(Options {
        cache_bytes: Some(128 << 20),
        close_timeout: Duration::ZERO,
        dirty_age: Duration::from_secs(60),
        ..Options::default()
    })
    .on_error(move |error| reported.lock().unwrap().push(error.to_string()))
    .build()
    .unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    let data = pattern(1, 64 << 20);
    file.write_at(&data, 0).unwrap();
    let start = Instant::now();
    let error = file.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // The writing goes on.
    let written = || {
        std::fs::metadata(&path).unwrap().len() == data.len() as u64
            && engine.stats().dirty_bytes == 0
    };
    assert!(eventually(SOON, written));
    assert!(std::fs::read(&path).unwrap() == data);
    assert!(errors.lock().unwrap().is_empty(), "{:?}", errors.lock().unwrap());
}

#[test]
fn child_that_forks_with_an_engine() {
    let Some(path) = process::task() else { return };
    let engine =
        Engine::start(Options { cache_bytes: Some(48 << 20), ..Options::default() }).unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&pattern(1, 300_000), 0).unwrap();
    let arena = arena_bytes();
    assert!(arena >= 48 << 20, "{arena} bytes of memory for the cache");
    // SAFETY: no lock of this program's own is held; the C library readies its allocator for the
    // child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let refused = |result: forebay::Result<()>| {
            result.err().map(|error| error.kind()) == Some(ErrorKind::Forked)
        };
        let checks = [
            refused(file.write_at(b"x", 0)),
            refused(file.read_at(&mut [0; 10], 0).map(drop)),
            refused(file.append(b"x").map(drop)),
            refused(file.sync_data()),
            refused(file.set_len(3)),
            refused(engine.open(&path, &how::read()).map(drop)),
            refused(engine.shutdown(Duration::from_secs(1))),
            arena_bytes() == 0,
            {
                let closing = engine.clone();
                drop(closing);
                refused(file.close())
            },
            {
                drop(engine);
                true
            },
        ];
        let failed = checks.iter().position(|holds| !holds);
        // SAFETY: ends the child at once, without what the parent would do at its end.
        unsafe { libc::_exit(failed.map_or(0, |at| 1 + at as libc::c_int)) };
    }
    let mut status = -1;
    // SAFETY: it is our child, and the status is written during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(
        (libc::WIFEXITED(status), libc::WEXITSTATUS(status)),
        (true, 0),
        "which check fails in the child"
    );
    // The parent is not harmed.
    file.write_at(&pattern(2, 300_000), 300_000).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    engine.shutdown(SOON).unwrap();
    process::report(format_args!("done"));
}

/// Bytes of the cache's memory that this process has mapped. No other mapping here is as large.
fn arena_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bytes = maps.lines().map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next().unwrap().split_once('-').unwrap();
        let bytes = u64::from_str_radix(end, 16).unwrap() - u64::from_str_radix(start, 16).unwrap();
        if words.next().unwrap().starts_with("rw") { bytes } else { 0 }
    });
    bytes.filter(|bytes| *bytes >= 48 << 20).sum()
}

#[test]
fn contract_14_in_a_forked_child_every_call_is_an_error() {
    if process::task().is_some() {
        return;
    }
    let directory = support::directory();
    let path = directory.path().join("file");
    let child = process::start_child("child_that_forks_with_an_engine", path.to_str().unwrap());
    let output = within(Duration::from_secs(30), "the forking child", move || {
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("@ done"), "{said}");
    let found = std::fs::read(&path).unwrap();
    assert!(found[..300_000] == pattern(1, 300_000) && found[300_000..] == pattern(2, 300_000));
}

/// Other threads use the file and the batch all the time, so at some of the forks one of them has
/// the lock that a drop in the child would take.
#[test]
fn child_that_forks_beside_other_threads() {
    let Some(path) = process::task() else { return };
    let engine = small_engine();
    let file = engine.open(&path, &how::create()).unwrap();
    let (batch, is_over) = (engine.batch(), AtomicBool::new(false));
    let missing = Path::new(&path).with_file_name("missing");
    let status = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    file.read_at(&mut [0; 10], 0).unwrap();
                    batch.remove(&missing).unwrap_err();
                }
            });
        }
        let forks = (0..300).map(|fork| status_of_a_dropping_child(&file, &batch, fork));
        let status = forks.into_iter().find(|status| *status != 0);
        is_over.store(true, Ordering::Relaxed);
        status
    });
    assert_eq!(status, None, "a child waited for a thread that it does not have");
    file.close().unwrap();
    engine.shutdown(SOON).unwrap();
    process::report(format_args!("done"));
}

/// Returns how a forked child ends that drops calls which its parent has begun, and the batch.
fn status_of_a_dropping_child(file: &File, batch: &Batch, fork: u64) -> libc::c_int {
    file.write_at(&[1; 5000], fork * 5000).unwrap();
    let mut sync = Box::pin(file.asynchronous().sync_data());
    let mut write_out = Box::pin(file.asynchronous().write_out());
    let context = &mut Context::from_waker(Waker::noop());
    // They may have ended already.
    let _ = (sync.as_mut().poll(context), write_out.as_mut().poll(context));
    // SAFETY: no lock of this program's own is held; the C library readies its allocator for the
    // child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: it ends a child that waits for ever, and takes no memory.
        unsafe { libc::alarm(10) };
        drop((sync, write_out));
        // SAFETY: the child has no other thread, and does not use the batch after this.
        drop(unsafe { std::ptr::read(batch) });
        // SAFETY: ends the child at once, without what the parent would do at its end.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: it is our child, and the status is written during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn contract_14_a_forked_child_drops_what_its_parent_uses() {
    if process::task().is_some() {
        return;
    }
    let directory = support::directory();
    let path = directory.path().join("file");
    let child =
        process::start_child("child_that_forks_beside_other_threads", path.to_str().unwrap());
    let output = within(Duration::from_secs(60), "the forking child", move || {
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("@ done"), "{said}");
}
