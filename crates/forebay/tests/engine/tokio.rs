//! A cursor by the traits of tokio.

use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice, IoSliceMut, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::positioned::{Positioned, assert_as_over_a_vector};
use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, how, pattern, within};
use forebay::{Cursor, Engine, File, Options};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(60);

fn engine() -> Engine {
    Engine::start(Options {
        cache_bytes: Some(8 * MIB),
        dirty_bytes: Some(4 * MIB),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

struct Tokio<'a>(Cursor<&'a File>, tokio::runtime::Runtime);

impl Positioned for Tokio<'_> {
    /// As many polls as it takes: one may accept a part.
    fn write(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        let Self(cursor, runtime) = self;
        runtime.block_on(async {
            let data: Vec<u8> = data.iter().flat_map(|slice| slice.iter().copied()).collect();
            let mut done = 0;
            while done < data.len() {
                let (one, other) = data[done..].split_at((data.len() - done) / 2);
                done += cursor.write_vectored(&[IoSlice::new(one), IoSlice::new(other)]).await?;
            }
            Ok(done)
        })
    }

    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Self(cursor, runtime) = self;
        runtime.block_on(async {
            let mut read = 0;
            for buffer in buffers {
                let mut at = 0;
                while at < buffer.len() {
                    match cursor.read(&mut buffer[at..]).await? {
                        0 => return Ok(read),
                        more => (at, read) = (at + more, read + more),
                    }
                }
            }
            Ok(read)
        })
    }

    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.1.block_on(self.0.seek(to))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.1.block_on(self.0.flush())
    }
}

#[test]
fn a_cursor_of_tokio_is_as_one_over_a_vector() {
    assert_as_over_a_vector(
        &engine(),
        |file, take| take(&mut Tokio(Cursor::new(file), runtime())),
        "through a cursor of tokio",
    );
}

/// Many times the cache: writers wait for the level, and readers for the device.
#[test]
fn tokio_waits_where_the_cache_is_full() {
    within(SOON, "tokio's writers", || {
        let (engine, directory) = (engine(), support::directory());
        let path = directory.path().join("file");
        let file = Arc::new(engine.open(&path, &how::create()).unwrap());
        let length = 24 * MIB as usize;
        runtime().block_on(async {
            let write = |part: u64| {
                let mut cursor = Cursor::new(Arc::clone(&file));
                async move {
                    cursor.seek(SeekFrom::Start(part * length as u64)).await.unwrap();
                    cursor.write_all(&pattern(part, length)).await.unwrap();
                    cursor.shutdown().await.unwrap();
                }
            };
            tokio::join!(write(0), write(1));
            // Written out: others see it.
            let stored = std::fs::read(&path).unwrap();
            assert!(stored.len() == 2 * length && stored[..length] == pattern(0, length));
            assert!(stored[length..] == pattern(1, length));
            let read = |part: u64| {
                let mut cursor = Cursor::new(Arc::clone(&file));
                async move {
                    cursor.seek(SeekFrom::Start(part * length as u64)).await.unwrap();
                    let mut found = vec![0; length];
                    cursor.read_exact(&mut found).await.unwrap();
                    assert!(found == pattern(part, length));
                }
            };
            tokio::join!(read(1), read(0));
        });
        assert!(engine.stats().throttle_waits > 0);
    });
}

/// A read that was given up is not taken for the next one, which comes later.
#[test]
fn contract_06_a_read_given_up_leaves_no_old_bytes() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, 4096)).unwrap();
    // Open elsewhere for writing, so there is no lease.
    let other = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let file = engine.open(&path, &how::read()).unwrap();
    for round in 2..8 {
        let mut cursor = Cursor::new(&file);
        let mut found = vec![0; 4096];
        let mut reading = Box::pin(cursor.read_exact(&mut found));
        let polled = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(reading);
        if polled.is_ready() {
            continue;
        }
        std::thread::sleep(Duration::from_millis(150));
        other.write_all_at(&pattern(round, 4096), 0).unwrap();
        runtime().block_on(cursor.read_exact(&mut found)).unwrap();
        assert!(found == pattern(round, 4096), "round {round}: older bytes");
    }
}

/// Appends of tasks that take turns, some of them given up while they wait; nobody waits for those.
#[test]
fn tokio_appends_given_up_hold_nobody() {
    within(SOON, "tokio's appends", || {
        let (engine, directory) = (engine(), support::directory());
        let path = directory.path().join("log");
        let file = Arc::new(engine.open(&path, &how::append()).unwrap());
        let mut given_up = Vec::new();
        let accepted: usize = runtime().block_on(async {
            let append = |task: u8| {
                let mut cursor = Cursor::new(Arc::clone(&file));
                async move {
                    let (data, mut accepted, mut waits) = (vec![task; 100_000], 0, 0);
                    while accepted < 20 * MIB as usize {
                        // Polled once: what waits is given up.
                        let mut write = Box::pin(cursor.write(&data));
                        let polled =
                            poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
                        match polled {
                            Poll::Ready(written) => accepted += written.unwrap(),
                            Poll::Pending => {
                                drop(write);
                                waits += 1;
                                tokio::task::yield_now().await;
                            }
                        }
                    }
                    (accepted, waits, cursor)
                }
            };
            let whole = async {
                let mut records = 0;
                for _ in 0..200 {
                    file.asynchronous().append(&[9; 1000]).await.unwrap();
                    records += 1000;
                }
                records
            };
            let (one, other, records) = tokio::join!(append(1), append(2), whole);
            println!("given up {} and {} times", one.1, other.1);
            given_up.extend([one.2, other.2]);
            one.0 + other.0 + records
        });
        // Others append while the cursors that gave up are still there.
        file.append(b"end").unwrap();
        assert_eq!(file.len().unwrap(), accepted as u64 + 3);
        file.sync_data().unwrap();
        let stored = std::fs::read(&path).unwrap();
        assert_eq!(stored.len(), accepted + 3);
        let nines = stored.iter().filter(|byte| **byte == 9).count();
        assert_eq!(nines, 200_000);
        drop(given_up);
    });
}

#[test]
fn contract_09_no_space_is_reported_to_a_cursor_of_tokio() {
    let Some(mount) =
        Mount::new("no_space_is_reported_to_a_cursor_of_tokio", FileSystem::Ext4, 24 * MIB)
    else {
        return;
    };
    let full = |result: io::Result<u64>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    };
    let path = mount.path().join("file");
    let engine = engine();
    let file = engine.open(&path, &how::create()).unwrap();
    let mut cursor = Cursor::new(&file);
    let copied = async { tokio::io::copy(&mut tokio::io::repeat(7), &mut cursor).await };
    full(runtime().block_on(copied));
    // Every accepted byte has space on the disk.
    let accepted = io::Seek::stream_position(&mut cursor).unwrap();
    assert!(accepted > MIB && accepted == file.len().unwrap(), "{accepted}");
    file.sync_data().unwrap();
    file.close().unwrap();
    let stored = std::fs::read(&path).unwrap();
    assert!(stored.len() as u64 == accepted && stored.iter().all(|byte| *byte == 7));
    std::fs::remove_file(&path).unwrap();
}
