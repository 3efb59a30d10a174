//! Futures that are dropped after their first poll, their second, and so on, until the call ends
//! sooner: each leaves what the table of `AsyncFile` says, and the file can be used as before.

mod support;

use std::cell::Cell;
use std::future::Future;
use std::io::IoSlice;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use forebay::{AsyncFile, Engine, File, Options, Times};
use support::{MIB, eventually, how, pattern};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(10);

/// Polls after which futures are dropped.
const POLLS: u32 = 12;

/// Bytes in the file before each call. The last of three parts is not written out.
const BEFORE: u64 = 3 * MIB;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future, each time once it has woken its caller, and drops it after some polls.
fn poll<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    for left in (0..polls).rev() {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Some(result);
        }
        if left > 0 {
            thread::park_timeout(SOON);
        }
    }
    None
}

struct Bench {
    directory: TempDir,
    engine: Engine,
    before: Vec<u8>,
    /// Futures that were dropped before their end.
    dropped: Cell<u32>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        assert!(thread::panicking() || self.dropped.get() > 0, "no call waited");
    }
}

impl Bench {
    fn new() -> Self {
        let options = Options {
            cache_bytes: Some(16 << 20),
            dirty_bytes: Some(4 << 20),
            ..Options::default()
        };
        let (directory, engine) = (support::directory(), Engine::start(options).unwrap());
        let before = pattern(1, BEFORE as usize);
        Self { directory, engine, before, dropped: Cell::new(0) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    /// Returns a file with the bytes of before, none of the first part in memory.
    fn file(&self) -> File {
        let _ = std::fs::remove_file(self.path());
        std::fs::write(self.path(), &self.before[..2 * MIB as usize]).unwrap();
        let file = self.engine.open(self.path(), &how::write()).unwrap();
        file.write_at(&self.before[2 * MIB as usize..], 2 * MIB).unwrap();
        file
    }

    /// Has a call made by a future that is dropped after one poll, two polls, and so on, and checks
    /// the bytes of the file each time.
    fn each(
        &self,
        call: &str,
        make: impl Fn(&File, u32) -> Option<forebay::Result<()>>,
        check: impl Fn(&[u8], bool) -> bool,
    ) {
        for polls in 1..=POLLS {
            let file = self.file();
            let made = make(&file, polls);
            let has_ended = made.is_some();
            made.unwrap_or(Ok(())).unwrap_or_else(|error| panic!("{call}: {error}"));
            self.dropped.set(self.dropped.get() + u32::from(!has_ended));
            let is_right = || {
                let mut found = vec![0; file.len().unwrap() as usize];
                // A change of the length may be under way.
                let length = file.read_at(&mut found, 0).unwrap();
                check(&found[..length], has_ended)
            };
            assert!(eventually(SOON, is_right), "{call}, {polls} polls, ended: {has_ended}");
            file.write_at(b"goes on", 0).unwrap();
            file.sync_data().unwrap();
            file.close().unwrap();
            assert_eq!(self.engine.stats().dirty_bytes, 0, "{call}, {polls} polls");
            if has_ended {
                break;
            }
        }
    }

    /// Whether the engine has no handle of the file: it is opened in one way at a time.
    fn is_closed(&self) -> bool {
        let file = self.engine.open_direct(self.path(), &how::read());
        file.is_ok_and(|file| file.close().wait().is_ok())
    }

    fn is_as_before(&self, found: &[u8]) -> bool {
        found == self.before
    }
}

/// Whether `found` begins with a prefix of `new`, and all of it if the call has ended, and goes on
/// as `old`.
fn is_prefix_over(found: &[u8], new: &[u8], old: &[u8], has_ended: bool) -> bool {
    let differs = found.iter().zip(new).position(|(found, new)| found != new);
    let taken = differs.unwrap_or(found.len().min(new.len()));
    let rest = old.get(taken..).unwrap_or(&[]);
    found[taken..] == *rest && (!has_ended || taken == new.len())
}

#[test]
fn contract_13_a_write_that_is_dropped_leaves_a_prefix() {
    let (bench, data) = (Bench::new(), pattern(2, 12 << 20));
    let write = |file: &File, polls| poll(polls, file.asynchronous().write_at(&data, 0));
    bench.each("write_at", write, |found, has_ended| {
        is_prefix_over(found, &data, &bench.before, has_ended)
    });
    let appended = |found: &[u8], has_ended| {
        let (old, new) = found.split_at(BEFORE as usize);
        bench.is_as_before(old) && is_prefix_over(new, &data, &[], has_ended)
    };
    let append = |file: &File, polls| {
        poll(polls, file.asynchronous().append(&data)).map(|result| result.map(drop))
    };
    bench.each("append", append, appended);
    let slices = [IoSlice::new(&data[..5_000_001]), IoSlice::new(&data[5_000_001..])];
    let append = |file: &File, polls| {
        poll(polls, file.asynchronous().append_vectored(&slices)).map(|result| result.map(drop))
    };
    bench.each("append_vectored", append, appended);
}

#[test]
fn contract_13_a_read_that_is_dropped_changes_nothing() {
    let bench = Bench::new();
    let read = |file: &File, polls| {
        let mut buffer = vec![0; BEFORE as usize];
        let result = poll(polls, file.asynchronous().read_at(&mut buffer, 0))?;
        assert_eq!(buffer[..result.unwrap()], bench.before);
        Some(Ok(()))
    };
    bench.each("read_at", read, |found, _| bench.is_as_before(found));
    let read = |file: &File, polls| {
        let mut buffer = vec![0; BEFORE as usize];
        poll(polls, file.asynchronous().read_exact_at(&mut buffer, 0))
    };
    bench.each("read_exact_at", read, |found, _| bench.is_as_before(found));
}

#[test]
fn contract_13_a_sync_that_is_dropped_is_carried_out() {
    let bench = Bench::new();
    let is_written =
        |found: &[u8], _| bench.is_as_before(found) && bench.engine.stats().dirty_bytes == 0;
    bench.each("sync_data", |file, n| poll(n, file.asynchronous().sync_data()), is_written);
    bench.each("sync_all", |file, n| poll(n, file.asynchronous().sync_all()), is_written);
    bench.each("write_out", |file, n| poll(n, file.asynchronous().write_out()), is_written);
    let sync_many = |file: &File, polls| {
        let synced = poll(polls, bench.engine.asynchronous().sync_many(&[file]));
        synced.map(|result| result.map_err(|error| panic!("{error}")))
    };
    bench.each("sync_many", sync_many, is_written);
}

#[test]
fn contract_13_a_change_that_is_dropped_is_carried_out_or_not() {
    let bench = Bench::new();
    let (a_third, hole) = (MIB as usize, MIB as usize..2 * MIB as usize);
    bench.each(
        "set_len",
        |file, n| poll(n, file.asynchronous().set_len(MIB)),
        |found, _| *found == bench.before[..a_third],
    );
    let allocate = |file: &File, polls| poll(polls, file.asynchronous().allocate(BEFORE, MIB));
    bench.each("allocate", allocate, |found, has_ended| {
        let (old, new) = found.split_at(BEFORE as usize);
        let is_right = if has_ended { [a_third, a_third] } else { [0, a_third] };
        bench.is_as_before(old)
            && is_right.contains(&new.len())
            && new.iter().all(|byte| *byte == 0)
    });
    let punch_hole = |file: &File, polls| poll(polls, file.asynchronous().punch_hole(MIB, MIB));
    bench.each("punch_hole", punch_hole, |found, has_ended| {
        let is_right = |(at, byte): (usize, &u8)| {
            let is_zero = hole.contains(&at) && *byte == 0;
            is_zero || !(has_ended && hole.contains(&at)) && *byte == bench.before[at]
        };
        found.len() == BEFORE as usize && found.iter().enumerate().all(is_right)
    });
    let times = Times { modified: Some(std::time::UNIX_EPOCH), ..Times::default() };
    bench.each(
        "set_times",
        |file, n| poll(n, file.asynchronous().set_times(times)),
        |found, _| bench.is_as_before(found),
    );
}

#[test]
fn contract_13_a_close_that_is_dropped_closes() {
    let bench = Bench::new();
    for polls in 1..=POLLS {
        let closed = poll(polls, AsyncFile::close(bench.file()));
        let has_ended = closed.is_some();
        closed.unwrap_or(Ok(())).unwrap();
        assert!(eventually(SOON, || bench.is_closed()), "{polls} polls");
        assert!(std::fs::read(bench.path()).unwrap() == bench.before, "{polls} polls");
        if has_ended {
            break;
        }
        bench.dropped.set(bench.dropped.get() + 1);
    }
}

#[test]
fn contract_13_an_open_that_is_dropped_leaves_no_handle() {
    let bench = Bench::new();
    bench.file().close().unwrap();
    // An open ends at its first poll if its thread is quick.
    for _ in 0..100 {
        for polls in 1..=POLLS {
            let opened = poll(polls, bench.engine.asynchronous().open(bench.path(), &how::write()));
            let has_ended = opened.is_some();
            drop(opened.transpose().unwrap());
            assert!(eventually(SOON, || bench.is_closed()), "{polls} polls");
            if has_ended {
                break;
            }
            assert!(polls < POLLS, "an open takes more than {POLLS} polls");
            bench.dropped.set(bench.dropped.get() + 1);
        }
        if bench.dropped.get() > 0 {
            return;
        }
    }
}
