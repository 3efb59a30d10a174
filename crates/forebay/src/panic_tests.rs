//! Panics in a change of a file: that file ends, and nothing else (contract 21).
//!
//! A failed assertion is a bug of ours, so no call of the public interface causes one. The tests
//! lock the file and panic, break its cache so that code of the context panics, or panic in a
//! change of a direct file.

use std::fs::File as StdFile;
use std::future::Future as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use forebay_block::Frame;
use forebay_cache::{CachedFile, Liberties, Origin, TicketKind};

use crate::core::wait;
use crate::keeper::image::{Run, recover};
use crate::options::Contexts;
use crate::{Builder, Engine, ErrorKind, File, Keeper, OpenOptions, Options, Result};

const SOON: Duration = Duration::from_secs(60);
const LENGTH: usize = 1_000_003;

fn existing() -> OpenOptions {
    OpenOptions::new().read(true).write(true).clone()
}

fn created() -> OpenOptions {
    existing().create(true).clone()
}

/// Bytes that depend on their place.
fn pattern(salt: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 4096 * 7 + salt) as u8).collect()
}

fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + SOON;
    while !is_so() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

type Reported = Arc<Mutex<Vec<String>>>;

/// Returns the options of an engine that writes nothing by itself.
fn options() -> Options {
    Options {
        cache_bytes: Some(32 << 20),
        dirty_bytes: Some(24 << 20),
        background_bytes: Some(24 << 20),
        dirty_age: Duration::from_secs(3600),
        contexts: Contexts::Fixed(1),
        close_timeout: SOON,
        ..Options::default()
    }
}

/// Returns a builder of such an engine, and the errors of its callback.
fn builder() -> (Builder, Reported) {
    let reported = Reported::default();
    let report = Arc::clone(&reported);
    let builder = Engine::builder(options());
    (builder.on_error(move |error| report.lock().unwrap().push(error.to_string())), reported)
}

fn set_contexts(engine: &Engine, number: usize) {
    let contexts = Contexts::Fixed(number);
    engine.set_options(Options { contexts, ..engine.options() }).unwrap();
}

fn dirty(engine: &Engine) -> u64 {
    engine.stats().dirty_bytes
}

/// Panics on this thread, in the middle of a change of the file.
fn panic_under_lock(file: &File) {
    let panics = AssertUnwindSafe(|| {
        let _state = file.inode.lock();
        panic!("a test panics under the lock of a file");
    });
    assert!(catch_unwind(panics).is_err());
}

#[track_caller]
fn assert_interrupted<T: std::fmt::Debug>(result: Result<T>, path: &Path) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert!(error.to_string().contains("a panic interrupted a change"), "{error}");
    assert_eq!(error.path(), Some(path));
}

#[track_caller]
fn assert_on_disk(path: &Path, expected: &[u8]) {
    assert!(std::fs::read(path).unwrap() == expected, "{}", path.display());
}

#[test]
fn contract_21_a_panic_under_a_files_lock_ends_that_file_alone() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, other_path) = (directory.path().join("file"), directory.path().join("other"));
    let (builder, reported) = builder();
    let engine = builder.build().unwrap();
    let file = engine.open(&path, &created()).unwrap();
    let second = engine.open(&path, &existing()).unwrap();
    let other = engine.open(&other_path, &created()).unwrap();
    file.write_at(&pattern(1, LENGTH), 0).unwrap();
    file.sync_data().unwrap();
    other.write_at(&pattern(2, LENGTH), 0).unwrap();
    let others = dirty(&engine);
    file.write_at(&pattern(3, LENGTH), 0).unwrap();
    assert!(dirty(&engine) > others);

    panic_under_lock(&file);
    for file in [&file, &second] {
        assert_interrupted(file.sync_data(), &path);
        assert_interrupted(file.sync_all(), &path);
        assert_interrupted(file.write_at(b"more", 0), &path);
        assert_interrupted(file.write_at(&vec![1; 4 << 20], 0), &path);
        assert_interrupted(file.append(b"more"), &path);
        assert_interrupted(file.set_len(7), &path);
        assert_interrupted(file.abandon_unwritten(), &path);
        assert_interrupted(file.read_at(&mut [0; 100], 0), &path);
    }
    let late = engine.open(&path, &existing()).unwrap();
    assert_interrupted(late.sync_data(), &path);
    assert!(eventually(|| dirty(&engine) == others), "{} of {others} bytes", dirty(&engine));
    assert!(eventually(|| reported.lock().unwrap().len() == 1), "{reported:?}");
    assert!(reported.lock().unwrap()[0].starts_with(path.to_str().unwrap()), "{reported:?}");

    other.append(b"goes on").unwrap();
    other.sync_data().unwrap();
    let third = engine.open(directory.path().join("third"), &created()).unwrap();
    third.write_at(b"new", 0).unwrap();
    third.close().unwrap();
    assert_on_disk(&other_path, &[&pattern(2, LENGTH), &b"goes on"[..]].concat());
    assert_on_disk(&path, &pattern(1, LENGTH));

    for file in [file, second, late] {
        assert_interrupted(file.close(), &path);
    }
    assert_eq!(reported.lock().unwrap().len(), 1, "each handle got the error, the callback once");
    let again = engine.open(&path, &existing()).unwrap();
    let mut found = vec![0; LENGTH];
    assert_eq!(again.read_at(&mut found, 0).unwrap(), LENGTH);
    assert!(found == pattern(1, LENGTH), "as it was synced");
    again.write_at(b"anew", 0).unwrap();
    again.sync_data().unwrap();
    drop((again, other));
    engine.shutdown(SOON).unwrap();
}

/// Counts its wakes.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Replaces the cache of a file by one that does not know of requests at the device. Returns false
/// if none is there.
fn break_cache(file: &File) -> bool {
    let mut state = file.inode.lock();
    if !state.cache.in_flight() {
        return false;
    }
    let (target, size) = (state.cache.target(), state.cache.size());
    let mut other = CachedFile::new(target, Origin::Existing(size), Liberties::Exclusive);
    // It counts as many pages, and has a ticket that a caller waits for.
    (0..state.cache.dirty_pages()).for_each(|page| other.adopt_dirty(page, Frame(0)));
    other.ask(TicketKind::FlushData);
    state.cache = other;
    true
}

#[test]
fn contract_21_a_panic_on_a_context_ends_that_file_alone() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, other_path) = (directory.path().join("file"), directory.path().join("other"));
    let (builder, _) = builder();
    let engine = builder.build().unwrap();
    let other = engine.open(&other_path, &created()).unwrap();
    other.write_at(&pattern(2, LENGTH), 0).unwrap();
    let others = dirty(&engine);
    for round in 0..3 {
        let file = engine.open(&path, &created()).unwrap();
        let counts = Arc::new(Counts::default());
        let waker = Waker::from(Arc::clone(&counts));
        // A sync that ended before its requests were seen tests nothing.
        let (mut tries, mut is_broken) = (0, false);
        while !is_broken {
            tries += 1;
            assert!(tries < 1000, "requests were never seen in flight");
            file.write_at(&pattern(round, 8 << 20), 0).unwrap();
            let mut sync = pin!(file.sync_data_async());
            let mut poll = || sync.as_mut().poll(&mut Context::from_waker(&waker));
            while poll().is_pending() {
                if break_cache(&file) {
                    is_broken = true;
                    break;
                }
            }
            if is_broken {
                let end = Instant::now() + SOON;
                let result = loop {
                    match poll() {
                        Poll::Ready(result) => break result,
                        Poll::Pending => assert!(Instant::now() < end, "nobody wakes the sync"),
                    }
                };
                assert_interrupted(result, &path);
            }
        }
        assert_interrupted(file.write_at(b"more", 0), &path);
        assert!(eventually(|| dirty(&engine) == others), "{} of {others}", dirty(&engine));
        // Both files belong to the context that had the panic.
        other.append(b"goes on").unwrap();
        let written = 5 * 4096;
        other.write_at(&pattern(round, written), 0).unwrap();
        other.sync_data().unwrap();
        assert_on_disk(&other_path, &{
            let mut expected = pattern(2, LENGTH);
            (0..=round).for_each(|_| expected.extend_from_slice(b"goes on"));
            expected[..written].copy_from_slice(&pattern(round, written));
            expected
        });
        other.write_at(&pattern(2, LENGTH), 0).unwrap();
        assert_interrupted(file.close(), &path);
    }
    drop(other);
    engine.shutdown(SOON).unwrap();
}

/// After a panic in a copy, its pages would stay busy for ever.
#[test]
fn contract_21_a_panic_between_the_plan_of_a_write_and_its_end_ends_the_file() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    let engine = Engine::start(options()).unwrap();
    let file = engine.open(&path, &created()).unwrap();
    file.write_at(b"whole", 0).unwrap();
    file.inode.copying(|| ());
    file.sync_data().unwrap();
    let panics =
        AssertUnwindSafe(|| file.inode.copying(|| panic!("a test panics while it copies")));
    assert!(catch_unwind(panics).is_err());
    assert_interrupted(file.sync_data(), &path);
    assert_interrupted(file.close(), &path);
    engine.shutdown(SOON).unwrap();
    assert_on_disk(&path, b"whole");
}

/// Panics at the first lock of a file by the engine's threads, then at the second, and so on.
#[test]
fn contract_21_a_panic_at_any_lock_of_a_context_ends_that_file_alone() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, other_path) = (directory.path().join("file"), directory.path().join("other"));
    let mut is_sprung = true;
    for nth in 1.. {
        if !is_sprung {
            assert!(nth > 10, "a context locks a file more often");
            break;
        }
        let engine = Engine::start(Options {
            dirty_age: Duration::from_millis(100),
            contexts: Contexts::Fixed(2),
            ..options()
        });
        let engine = engine.unwrap();
        let other = engine.open(&other_path, &created()).unwrap();
        other.write_at(&pattern(2, LENGTH), 0).unwrap();
        let file = engine.open(&path, &created()).unwrap();
        file.inode.trap.store(nth, Ordering::SeqCst);
        // A page becomes too old, a sync waits, and files go to another context.
        let _ = file.write_at(b"a page", 0);
        std::thread::sleep(Duration::from_millis(150));
        let _ = file.write_at(&pattern(1, LENGTH), 0);
        let _ = file.sync_data();
        let _ = file.write_at(b"a page", 0);
        set_contexts(&engine, 1);
        let _ = file.sync_data();
        is_sprung = file.inode.trap.load(Ordering::SeqCst) == 0;
        if is_sprung {
            assert_interrupted(file.sync_data(), &path);
        }
        let _ = file.close();
        other.append(b"goes on").unwrap();
        other.sync_data().unwrap();
        other.close().unwrap();
        assert_on_disk(&other_path, &[&pattern(2, LENGTH), &b"goes on"[..]].concat());
        engine.shutdown(SOON).unwrap();
        std::fs::remove_file(&other_path).unwrap();
    }
}

/// Panics at the first change of a direct file, then at the second, and so on.
#[test]
fn contract_21_a_panic_in_a_change_of_a_direct_file_ends_that_file_alone() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (path, other_path) = (directory.path().join("file"), directory.path().join("other"));
    std::fs::write(&path, pattern(1, LENGTH)).unwrap();
    let engine = Engine::start(options()).unwrap();
    let other = engine.open_direct(&other_path, &created()).unwrap();
    let mut is_sprung = true;
    for nth in 1.. {
        if !is_sprung {
            assert!(nth > 20, "a file changes more often");
            break;
        }
        let file = engine.open_direct(&path, &existing()).unwrap();
        let second = engine.open_direct(&path, &existing()).unwrap();
        file.inode.trap.store(nth, Ordering::SeqCst);
        // The first write covers part of a block, and the second moves the end.
        let writes = [(pattern(nth, 5000), 100), (pattern(nth, 8192), LENGTH as u64)];
        let writes = writes.map(|(bytes, offset)| file.write_at(bytes, offset));
        let other_write = other.write_at(pattern(nth, 5000), 100);
        for write in writes {
            let (result, bytes) = wait::drive(write);
            assert!(!bytes.is_empty(), "the memory comes back");
            if result.is_err() {
                assert_interrupted(result, &path);
            }
        }
        wait::drive(other_write).0.unwrap();
        let _ = (file.read_at(vec![0; 100], 50), file.sync_data(), file.set_len(LENGTH as u64));
        is_sprung = file.inode.trap.load(Ordering::SeqCst) == 0;
        if is_sprung {
            assert_interrupted(file.sync_all().wait(), &path);
            assert_interrupted(second.read_at(vec![0; 10], 0).wait().0, &path);
            assert_interrupted(file.close().wait(), &path);
            assert_interrupted(second.close().wait(), &path);
        }
        other.sync_data().wait().unwrap();
        let (read, bytes) = other.read_at(vec![0; 5000], 100).wait();
        assert!(read.unwrap() == 5000 && bytes == pattern(nth, 5000));
    }
    other.close().wait().unwrap();
    engine.shutdown(SOON).unwrap();
}

/// The file waits for its requests to end, and then moves. It does so after the panic as well.
#[test]
fn contract_21_a_file_that_is_moving_to_another_context_is_closed_after_a_panic() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let mut options = options();
    options.set("affinity", "hash").unwrap();
    let engine = Engine::start(options).unwrap();
    // Each round leaks the frames of its file.
    for round in 0..10 {
        set_contexts(&engine, 2);
        let path = directory.path().join(format!("file {round}"));
        let file = engine.open(&path, &created()).unwrap();
        file.write_at(&pattern(round, 2 * LENGTH), 0).unwrap();
        // A sync that nobody waits for: its requests are at the device.
        let _ = pin!(file.sync_data_async()).poll(&mut Context::from_waker(Waker::noop()));
        std::thread::sleep(Duration::from_micros(50 * (round as u64 % 5)));
        set_contexts(&engine, 1);
        file.inode.trap.store(1, Ordering::SeqCst);
        let began = Instant::now();
        let _ = file.close();
        assert!(began.elapsed() < SOON / 2, "round {round}: the file is not closed");
    }
    engine.shutdown(SOON).unwrap();
}

/// A panic of the program's own, whose unwinding drops a handle and so locks the file.
#[test]
fn contract_21_a_lock_taken_while_a_thread_unwinds_marks_nothing() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    let (builder, reported) = builder();
    let engine = builder.build().unwrap();
    let file = engine.open(&path, &created()).unwrap();
    let second = engine.open(&path, &existing()).unwrap();
    let panics = AssertUnwindSafe(move || {
        second.write_at(b"before", 0).unwrap();
        // Unwinding drops the handle, which locks the file.
        let _handle = second;
        panic!("a test panics beside a file");
    });
    assert!(catch_unwind(panics).is_err());
    file.append(b" and after").unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    assert_on_disk(&path, b"before and after");
    engine.shutdown(SOON).unwrap();
    assert!(reported.lock().unwrap().is_empty(), "{reported:?}");
}

const KEEPER_TEST: &str = "panic_tests::keeper";
const CHILD_TEST: &str = "panic_tests::child_that_panics";
const CHILD_IN: &str = "FOREBAY_TEST_PANIC_IN";

#[test]
fn keeper() {
    crate::keeper::run_if_asked();
}

/// Panics under the lock of one of its files, and waits to be killed.
#[test]
fn child_that_panics() {
    let Some(directory) = std::env::var_os(CHILD_IN).map(PathBuf::from) else { return };
    let keeper = Keeper {
        log: Some(directory.join("log")),
        save_to: Some(directory.clone()),
        arguments: ["--exact", KEEPER_TEST, "--nocapture", "--test-threads=1"]
            .map(Into::into)
            .to_vec(),
        ..Keeper::this_program()
    };
    let engine = Engine::builder(options()).survive(keeper).build().unwrap();
    let open = |name: &str| engine.open(directory.join(name), &created()).unwrap();
    let (file, other, closed) = (open("file"), open("other"), open("closed"));
    for (salt, file) in [(1, &file), (2, &other), (3, &closed)] {
        file.write_at(&pattern(salt, LENGTH), 0).unwrap();
    }
    panic_under_lock(&closed);
    panic_under_lock(&file);
    // Its handles are closed and it is opened again: nothing of the mark is left.
    assert_interrupted(closed.close(), &directory.join("closed"));
    let closed = open("closed");
    closed.write_at(&pattern(4, LENGTH), 0).unwrap();
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@ ready").unwrap();
    out.flush().unwrap();
    std::thread::sleep(SOON);
    drop((file, other, closed));
}

#[test]
fn contract_21_a_keeper_writes_nothing_of_an_interrupted_file() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", CHILD_TEST, "--nocapture", "--test-threads=1"])
        .env(CHILD_IN, &directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(std::io::Result::ok).any(|line| line == "@ ready"), "it ended early");
    child.kill().unwrap();
    child.wait().unwrap();
    let said = || std::fs::read_to_string(directory.join("log")).unwrap_or_default();
    assert!(eventually(|| said().contains("saved to")), "{}", said());
    let said = said();
    println!("{said}");

    let path = directory.join("file");
    let lost = format!("{}: {LENGTH} bytes are not written: the program panicked", path.display());
    assert!(said.contains(&lost) && said.contains(&format!("they are at 0..{LENGTH}")), "{said}");
    assert!(!said.contains("closed:"), "{said}");
    assert_on_disk(&path, &[]);
    assert_on_disk(&directory.join("other"), &pattern(2, LENGTH));
    assert_on_disk(&directory.join("closed"), &pattern(4, LENGTH));

    let image = PathBuf::from(said.trim_end().rsplit("forebay recover ").next().unwrap());
    for run in [Run::Dry, Run::Real] {
        let found = recover(&image, run).unwrap();
        assert_eq!((found.len(), &found[0].path, found[0].bytes), (1, &path, LENGTH as u64));
        let error = found.into_iter().next().unwrap().result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert!(error.to_string().contains("the image keeps the data"), "{error}");
        assert!(error.to_string().contains(&format!("0..{LENGTH}")), "{error}");
    }
    assert_on_disk(&path, &[]);
    an_image_of_the_version_before_is_written(&image, &path);
}

/// An image of version 2 has no marks: data of the file in this one is written from it.
fn an_image_of_the_version_before_is_written(image: &Path, path: &Path) {
    let file = StdFile::options().read(true).write(true).open(image).unwrap();
    let word = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_ne_bytes(bytes)
    };
    let put = |at: u64, word: u64| file.write_all_at(&word.to_ne_bytes(), at).unwrap();
    put(0, u64::from_ne_bytes(*b"FOREBAY\x02"));
    put(8, 2);
    let (records, entered) = (word(8 * 8), word(13 * 8));
    let marks = (0..entered).map(|number| records + number * 512 + 60 * 8);
    let marked: Vec<u64> = marks.filter(|at| word(*at) != 0).collect();
    assert_eq!(marked.len(), 1, "one file was interrupted when the program died");
    put(marked[0], 0);
    let found = recover(image, Run::Real).unwrap();
    assert!(found.len() == 1 && found[0].result.is_ok(), "{found:?}");
    assert_on_disk(path, &pattern(1, LENGTH));
    assert_eq!(StdFile::open(path).unwrap().metadata().unwrap().len(), LENGTH as u64);
}
