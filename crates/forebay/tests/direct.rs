//! Direct handles: any offset, length and address, exact ends, owned buffers, errors, and who may
//! open what.

mod support;

use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use forebay::{DirectBuffer, DirectFile, Engine, ErrorKind, Options};
use forebay_block::random::Random;
use support::mount::{FileSystem, Mount};
use support::{MIB, assert_on_disk, eventually, how, kind_of, pattern, process, within};

const SOON: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

fn write(file: &DirectFile, data: &[u8], offset: u64) {
    let (result, back) = file.write_at(data.to_vec(), offset).wait();
    assert_eq!(result.unwrap(), data.len());
    assert!(back == data, "the buffer comes back as it was");
}

fn read(file: &DirectFile, length: usize, offset: u64) -> Vec<u8> {
    let (result, mut back) = file.read_at(vec![0xee; length], offset).wait();
    back.truncate(result.unwrap());
    back
}

#[test]
fn contract_08_any_offset_and_length_with_an_exact_end() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine();
    let file = engine.open_direct(&path, &how::create()).unwrap();
    println!("{}, {}: blocks of {}", engine.describe(), file.describe(), file.alignment());
    let mut model: Vec<u8> = Vec::new();
    let steps: [(u64, usize); 14] = [
        (0, 1),
        (1, 511),
        (512, 512),
        (100, 300),
        (1000, 3000),
        (4096, 4096),
        (8191, 2),
        (8193, 1),
        (20_000, 5_000),
        (24_000, 2_000_003),
        (7, 1_500_000),
        (2_024_003, 1),
        (1_048_575, 2),
        (3_000_000, 96),
    ];
    for (round, (offset, length)) in steps.into_iter().enumerate() {
        let data = pattern(round as u64, length);
        write(&file, &data, offset);
        let end = offset as usize + length;
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(&data);
        assert_eq!(file.len(), model.len() as u64, "round {round}");
        assert_on_disk(&path, &model, "as another program sees it");
        let around = offset.saturating_sub(100);
        assert!(
            read(&file, length + 300, around)
                == model[around as usize..model.len().min(end + 300 - (offset - around) as usize)]
        );
    }
    assert!(read(&file, 10, 3_000_096).is_empty() && read(&file, 10, 1 << 40).is_empty());
    assert_eq!(read(&file, 10, 3_000_090).len(), 6);
    assert!(engine.stats().bounced > 10);
    file.sync_all().wait().unwrap();
    file.close().wait().unwrap();
    assert_on_disk(&path, &model, "closed");
}

#[test]
fn what_is_aligned_is_not_copied() {
    let directory = support::directory();
    let engine = engine();
    let file = engine.open_direct(directory.path().join("file"), &how::create()).unwrap();
    let mut buffer = engine.buffer(3 * MIB as usize).unwrap();
    buffer.copy_from_slice(&pattern(1, 3 * MIB as usize));
    let (result, mut buffer) = file.write_at(buffer, 0).wait();
    assert_eq!(result.unwrap(), 3 * MIB as usize);
    buffer.fill(0);
    let (result, buffer) = file.read_at(buffer, 0).wait();
    assert_eq!(result.unwrap(), 3 * MIB as usize);
    assert!(*buffer == *pattern(1, 3 * MIB as usize));
    assert_eq!(engine.stats().bounced, 0);
    assert!(engine.stats().written_bytes == 3 * MIB && engine.stats().read_bytes == 3 * MIB);
}

#[test]
fn every_kind_of_buffer_comes_back() {
    fn round<B: DirectBuffer + std::ops::DerefMut<Target = [u8]>>(
        file: &DirectFile,
        mut buffer: B,
        offset: u64,
    ) {
        let length = buffer.len();
        buffer.copy_from_slice(&pattern(offset, length));
        let (result, mut buffer) = file.write_at(buffer, offset).wait();
        assert_eq!(result.unwrap(), length);
        assert_eq!(buffer.len(), length);
        buffer.fill(0);
        let (result, buffer) = file.read_at(buffer, offset).wait();
        assert_eq!(result.unwrap(), length);
        assert!(*buffer == *pattern(offset, length));
    }
    let directory = support::directory();
    let engine = engine();
    let file = engine.open_direct(directory.path().join("file"), &how::create()).unwrap();
    for offset in [0, 512, 4097] {
        for length in [0, 1, 512, 4096, 10_000] {
            let mut roomy = Vec::with_capacity(20_000);
            roomy.resize(length, 0);
            round(&file, roomy, offset);
            round(&file, vec![0; length].into_boxed_slice(), offset);
            round(&file, engine.buffer(length).unwrap(), offset);
        }
    }
}

#[test]
fn contract_18_the_pool_of_buffers_is_bounded() {
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        buffer_bytes: 1 << 20,
        ..Options::default()
    })
    .unwrap();
    let buffers: Vec<_> = (0..16).map(|_| engine.buffer(65_536).unwrap()).collect();
    assert_eq!(kind_of(engine.buffer(1)), ErrorKind::NoMemory);
    drop(buffers);
    assert_eq!(engine.buffer(MIB as usize).unwrap().len(), MIB as usize);
}

#[test]
fn one_file_is_open_direct_or_cached() {
    let directory = support::directory();
    let (path, link) = (directory.path().join("file"), directory.path().join("link"));
    std::fs::write(&path, pattern(1, 10_000)).unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    let engine = engine();
    let cached = engine.open(&path, &how::write()).unwrap();
    cached.write_at(b"cached", 0).unwrap();
    assert_eq!(kind_of(engine.open_direct(&link, &how::write())), ErrorKind::Busy);
    cached.close().unwrap();
    let direct = engine.open_direct(&link, &how::write()).unwrap();
    assert_eq!(read(&direct, 6, 0), b"cached");
    assert_eq!(kind_of(engine.open(&path, &how::read())), ErrorKind::Busy);
    let second = engine.open_direct(&path, &how::read()).unwrap();
    write(&direct, b"direct", 0);
    direct.close().wait().unwrap();
    assert_eq!(kind_of(engine.open(&path, &how::read())), ErrorKind::Busy);
    assert_eq!(read(&second, 6, 0), b"direct");
    second.close().wait().unwrap();
    let cached = engine.open(&path, &how::write()).unwrap();
    let mut found = [0; 6];
    cached.read_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"direct");
    assert_eq!(cached.len().unwrap(), 10_000);
}

#[test]
fn contract_06_another_engine_is_kept_off() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let (one, other) = (engine(), engine());
    let file = one.open_direct(&path, &how::create()).unwrap();
    assert_eq!(kind_of(other.open_direct(&path, &how::write())), ErrorKind::Busy);
    assert_eq!(kind_of(other.open(&path, &how::write())), ErrorKind::Busy);
    file.close().wait().unwrap();
    other.open_direct(&path, &how::write()).unwrap().close().wait().unwrap();
}

#[test]
fn what_a_handle_may_not_is_refused_and_the_buffer_comes_back() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, b"ten bytes.").unwrap();
    let engine = engine();
    assert_eq!(kind_of(engine.open_direct(&path, &how::append())), ErrorKind::InvalidInput);
    assert_eq!(kind_of(engine.open_direct(&path, &how::create_new())), ErrorKind::AlreadyExists);
    assert_eq!(kind_of(engine.open_direct(directory.path(), &how::read())), ErrorKind::Unsupported);
    assert_eq!(
        kind_of(engine.open_direct(&path, how::read().truncate(true))),
        ErrorKind::InvalidInput
    );
    let file = engine.open_direct(&path, &how::read()).unwrap();
    let (result, back) = file.write_at(vec![1, 2, 3], 0).wait();
    assert_eq!((kind_of(result), back), (ErrorKind::NotPermitted, vec![1, 2, 3]));
    assert_eq!(kind_of(file.set_len(0).wait()), ErrorKind::NotPermitted);
    let (result, back) = file.read_at(vec![9; 4], u64::MAX - 1).wait();
    assert_eq!((kind_of(result), back), (ErrorKind::InvalidInput, vec![9; 4]));
    assert_eq!(read(&file, 100, 0), b"ten bytes.");
    file.close().wait().unwrap();
    let file = engine.open_direct(&path, how::write().truncate(true)).unwrap();
    assert!(file.len() == 0 && std::fs::metadata(&path).unwrap().len() == 0);
    engine.shutdown(SOON).unwrap();
    let (result, back) = file.write_at(vec![5; 10], 0).wait();
    assert_eq!((kind_of(result), back), (ErrorKind::Shutdown, vec![5; 10]));
    assert_eq!(kind_of(file.sync_data().wait()), ErrorKind::Shutdown);
}

#[test]
fn lengths_are_set_in_order_with_writes() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine();
    let file = engine.open_direct(&path, &how::create()).unwrap();
    let first = file.write_at(pattern(1, 100_003), 0);
    file.set_len(5_000).wait().unwrap();
    assert_eq!(file.len(), 5_000);
    let (result, _) = first.wait();
    assert_eq!(result.unwrap(), 100_003);
    assert_on_disk(&path, &pattern(1, 5_000), "cut");
    write(&file, b"x", 6_001);
    let mut expected = pattern(1, 5_000);
    expected.resize(6_001, 0);
    expected.push(b'x');
    assert_on_disk(&path, &expected, "what was cut is zeroes");
    file.set_len(70_000).wait().unwrap();
    expected.resize(70_000, 0);
    write(&file, b"yy", 69_998);
    expected[69_998..].fill(b'y');
    assert_on_disk(&path, &expected, "grown, and written up to the end");
    assert_eq!(file.len(), 70_000);
}

#[test]
fn contract_13_a_dropped_future_stops_nothing() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine();
    let file = engine.open_direct(&path, &how::create()).unwrap();
    file.set_len(4 * MIB).wait().unwrap();
    for part in 0..64u64 {
        let mut buffer = engine.buffer(65_536 - 7).unwrap();
        buffer.copy_from_slice(&pattern(part, 65_536 - 7));
        drop(file.write_at(buffer, part * 65_536 + 3));
        drop(file.read_at(vec![0; 65_536], part * 65_536));
    }
    file.sync_data().wait().unwrap();
    let found = std::fs::read(&path).unwrap();
    assert_eq!(found.len() as u64, 4 * MIB);
    for part in 0..64 {
        let at = part * 65_536 + 3;
        assert!(found[at..at + 65_536 - 7] == pattern(part as u64, 65_536 - 7), "part {part}");
    }
    assert!(
        eventually(SOON, || engine.buffer(16 * MIB as usize).is_ok()),
        "buffers of dropped futures come back"
    );
}

#[test]
fn contract_05_dropping_the_handle_and_the_engine_loses_no_write() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine();
    let file = engine.open_direct(&path, &how::create()).unwrap();
    let futures: Vec<_> =
        (0..40u64).map(|part| file.write_at(pattern(part, 10_001), part * 10_001)).collect();
    drop(file);
    drop(engine);
    for future in futures {
        let (result, back) = support::block_on(future);
        assert_eq!((result.unwrap(), back.len()), (10_001, 10_001));
    }
    let expected: Vec<u8> = (0..40u64).flat_map(|part| pattern(part, 10_001)).collect();
    assert_on_disk(&path, &expected, "after the engine");
}

/// A shutdown in the middle of submissions: submitted operations end, and later ones return an
/// error and their buffer.
#[test]
fn contract_16_every_operation_ends_whatever_the_shutdown() {
    within(Duration::from_secs(60), "shutting down under load", || {
        for round in 0..40u64 {
            let directory = support::directory();
            let engine = engine();
            let file = engine.open_direct(directory.path().join("file"), &how::create()).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..3u64 {
                    let (engine, file) = (&engine, &file);
                    scope.spawn(move || {
                        let mut random = Random::new(round << 8 | thread);
                        loop {
                            let plug = (random.below(2) == 0).then(|| engine.plug());
                            let writes: Vec<_> = (0..random.below(20))
                                .map(|_| file.write_at(vec![1; 700], random.below(100_000)))
                                .collect();
                            drop(plug);
                            for write in writes {
                                match write.wait() {
                                    (Ok(bytes), buffer) => {
                                        assert_eq!((bytes, buffer.len()), (700, 700));
                                    }
                                    (Err(error), _) => {
                                        assert_eq!(error.kind(), ErrorKind::Shutdown, "{error}");
                                        return;
                                    }
                                }
                            }
                        }
                    });
                }
                std::thread::sleep(Duration::from_micros(500 * (round % 8)));
                engine.shutdown(SOON).unwrap();
            });
            assert_eq!(kind_of(file.sync_data().wait()), ErrorKind::Shutdown);
        }
    });
}

/// Handles that come and go, by turns direct and cached, some dropped and some closed: nothing gets
/// lost between two.
#[test]
fn contract_05_opened_again_and_again_direct_and_cached() {
    within(Duration::from_secs(60), "opening and closing", || {
        let directory = support::directory();
        let engine = engine();
        std::thread::scope(|scope| {
            for number in 0..3u64 {
                let (engine, path) = (&engine, directory.path().join(format!("{number}")));
                scope.spawn(move || {
                    let (mut random, mut model) = (Random::new(number), Vec::new());
                    for round in 0..200u64 {
                        let offset = random.below(model.len() as u64 + 1);
                        let data = pattern(round, 1 + random.below(9_000) as usize);
                        let end = offset as usize + data.len();
                        if random.below(3) == 0 {
                            let file = engine.open(&path, &how::create()).unwrap();
                            file.write_at(&data, offset).unwrap();
                            file.close().unwrap();
                        } else {
                            let file = engine.open_direct(&path, &how::create()).unwrap();
                            assert_eq!(file.len(), model.len() as u64, "round {round}");
                            drop(file.write_at(data.clone(), offset));
                            for _ in 0..random.below(3) {
                                // Let go of before the write has ended, and opened again.
                                drop(engine.open_direct(&path, &how::read()).unwrap());
                            }
                            file.close().wait().unwrap();
                        }
                        model.resize(model.len().max(end), 0);
                        model[offset as usize..end].copy_from_slice(&data);
                    }
                    assert_on_disk(&path, &model, "at the end");
                });
            }
        });
    });
}

#[test]
fn contract_12_a_blocking_call_from_the_callback_is_refused() {
    let Some(mount) = Mount::new("a_blocking_call_from_the_callback", FileSystem::Ext4, 64 * MIB)
    else {
        return;
    };
    within(Duration::from_secs(60), "a call from the callback", move || {
        let (reported, report) = std::sync::mpsc::channel();
        let reported = std::sync::Mutex::new(reported);
        let slot = std::sync::Arc::new(std::sync::Mutex::new(None::<DirectFile>));
        let seen = std::sync::Arc::clone(&slot);
        let answer = move |_: &forebay::Error| {
            let seen = seen.lock().unwrap();
            let Some(file) = &*seen else { return };
            let (result, _) = file.read_at(vec![3; 10], 0).wait();
            let _ = reported.lock().unwrap().send(result.unwrap_err().kind());
        };
        let engine = Engine::builder(Options { cache_bytes: Some(8 << 20), ..Options::default() })
            .on_error(answer)
            .build()
            .unwrap();
        let file = engine.open_direct(mount.path().join("other"), &how::create()).unwrap();
        *slot.lock().unwrap() =
            Some(engine.open_direct(mount.path().join("file"), &how::create()).unwrap());
        process::fill_up(&mount.path());
        drop(file.write_at(vec![1; MIB as usize], 0));
        drop(file);
        assert_eq!(report.recv_timeout(SOON).unwrap(), ErrorKind::WouldDeadlock);
        // The callback would keep the file, and the file the engine that has the callback.
        slot.lock().unwrap().take().unwrap().close().wait().unwrap();
    });
}

/// Errors: told once, by the future, or where that was dropped by the next sync of the handle, or
/// by the callback.
#[test]
fn contract_02_an_error_of_a_dropped_write_is_reported_once() {
    let Some(mount) = Mount::new("an_error_of_a_dropped_write", FileSystem::Ext4, 64 * MIB) else {
        return;
    };
    within(Duration::from_secs(60), "errors", move || {
        let (reported, report) = std::sync::mpsc::channel();
        let reported = std::sync::Mutex::new(reported);
        let engine = Engine::builder(Options { cache_bytes: Some(8 << 20), ..Options::default() })
            .on_error(move |error| reported.lock().unwrap().send(error.kind()).unwrap())
            .build()
            .unwrap();
        let path = mount.path().join("file");
        let file = engine.open_direct(&path, &how::create()).unwrap();
        let other = engine.open_direct(&path, &how::write()).unwrap();
        write(&file, &pattern(1, 8192), 0);
        process::fill_up(&mount.path());
        let (result, back) = file.write_at(vec![1; MIB as usize], MIB).wait();
        assert_eq!((kind_of(result), back.len()), (ErrorKind::NoSpace, MIB as usize));
        file.sync_data().wait().unwrap();
        drop(file.write_at(vec![1; MIB as usize], 4 * MIB));
        drop(file.write_at(vec![1; MIB as usize], 8 * MIB));
        other.sync_data().wait().unwrap();
        assert_eq!(kind_of(file.sync_data().wait()), ErrorKind::NoSpace);
        file.sync_data().wait().unwrap();
        // The size comes from the file system, after failed writes, too.
        assert_eq!(file.len(), std::fs::metadata(&path).unwrap().len());
        write(&file, &pattern(2, 5000), 100);
        drop(file.write_at(vec![1; MIB as usize], 4 * MIB));
        assert_eq!(kind_of(file.close().wait()), ErrorKind::NoSpace);
        drop(other.write_at(vec![1; MIB as usize], 4 * MIB));
        drop(other);
        assert_eq!(report.recv_timeout(SOON).unwrap(), ErrorKind::NoSpace);
        engine.shutdown(SOON).unwrap();
        assert!(report.try_recv().is_err(), "once");
        let found = std::fs::read(&path).unwrap();
        assert!(found[..100] == pattern(1, 100) && found[100..5100] == pattern(2, 5000));
    });
}

#[test]
fn contract_02_a_failed_flush_poisons_the_file() {
    let Some(mount) = Mount::new("a_failed_flush", FileSystem::Ext4, 64 * MIB) else { return };
    within(Duration::from_secs(60), "a file system that was shut down", move || {
        let engine = engine();
        let path = mount.path().join("file");
        let file = engine.open_direct(&path, &how::create()).unwrap();
        write(&file, &pattern(1, 100_000), 0);
        file.sync_data().wait().unwrap();
        write(&file, &pattern(2, 100_000), 0);
        mount.cut_off();
        assert_eq!(kind_of(file.sync_data().wait()), ErrorKind::Poisoned);
        assert_eq!(kind_of(file.sync_all().wait()), ErrorKind::Poisoned);
        let (result, _) = file.write_at(vec![1; 4096], 0).wait();
        assert_eq!(kind_of(result), ErrorKind::Io);
        drop(file);
    });
}

/// The future of the sync is dropped after its flush has failed. Only the close can return that.
#[test]
fn contract_02_a_failed_flush_that_nobody_awaited_is_reported_by_the_close() {
    let Some(mount) = Mount::new("nobody_awaited", FileSystem::Ext4, 64 * MIB) else { return };
    within(Duration::from_secs(60), "a file system that was shut down", move || {
        let engine = engine();
        let file = engine.open_direct(mount.path().join("file"), &how::create()).unwrap();
        write(&file, &pattern(1, 100_000), 0);
        file.sync_data().wait().unwrap();
        write(&file, &pattern(2, 100_000), 0);
        mount.cut_off();
        let sync = file.sync_data();
        // The flush ends.
        std::thread::sleep(Duration::from_secs(1));
        drop(sync);
        assert_eq!(kind_of(file.close().wait()), ErrorKind::Poisoned);
    });
}

/// A file system without direct I/O: the same calls, through the kernel's cache.
#[test]
fn without_direct_io_everything_works_buffered() {
    let Some(mount) = Mount::new("without_direct_io", FileSystem::Ext4Journal, 64 * MIB) else {
        return;
    };
    let engine = engine();
    let path = mount.path().join("file");
    let file = engine.open_direct(&path, &how::create()).unwrap();
    println!("{}", file.describe());
    if file.describe() == "direct" {
        support::skip("without_direct_io", "this kernel has direct I/O with journalled data");
        return;
    }
    assert_eq!(file.alignment(), 1);
    write(&file, &pattern(1, 100_003), 11);
    assert!(read(&file, 200_000, 5)[6..] == pattern(1, 100_003));
    assert_eq!((file.len(), engine.stats().bounced), (100_014, 0));
    file.sync_data().wait().unwrap();
    file.close().wait().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 100_014);
}

/// In a child of [`contract_14_a_direct_call_in_a_forked_child_is_an_error`].
#[test]
fn child_that_forks_with_a_direct_file() {
    let Some(path) = process::task() else { return };
    let engine = engine();
    let file = engine.open_direct(&path, &how::create()).unwrap();
    write(&file, &pattern(1, 10_000), 0);
    let buffer = engine.buffer(4096).unwrap();
    let flying: Vec<_> =
        (1..20u64).map(|part| file.write_at(pattern(part, 10_000), part * 10_000)).collect();
    // SAFETY: the child runs on its copy of this thread, takes no lock another thread may hold, and
    // leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let (written, back) = file.write_at(vec![1; 10], 0).wait();
        let forked = |result: forebay::Result<()>| {
            result.is_err_and(|error| error.kind() == ErrorKind::Forked)
        };
        let mut good = forked(written.map(|_| ())) && back == [1; 10];
        good &= forked(file.sync_data().wait()) && forked(engine.buffer(1).map(|_| ()));
        drop((flying, buffer, file));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = -1;
    // SAFETY: `child` is our child, and the status is written during the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child was served");
    for future in flying {
        assert_eq!(support::block_on(future).0.unwrap(), 10_000);
    }
    file.close().wait().unwrap();
    process::report(format_args!("done"));
}

#[test]
fn contract_14_a_direct_call_in_a_forked_child_is_an_error() {
    if process::task().is_some() {
        return;
    }
    let directory = support::directory();
    let path = directory.path().join("file");
    let child = process::start_child("child_that_forks_with_a_direct_file", path.to_str().unwrap());
    let output = within(Duration::from_secs(30), "the forking child", move || {
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("@ done"), "{said}");
    let mut found = vec![0; 10_000];
    let file = std::fs::File::open(&path).unwrap();
    for part in 0..20 {
        file.read_exact_at(&mut found, part * 10_000).unwrap();
        assert!(found == pattern(part.max(1), 10_000), "part {part}");
    }
}
