//! Other programs read, write and cut files while they are open here: nothing hangs, and both see
//! what they may expect.

use std::future::Future as _;
use std::path::Path;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::support::{self, MIB, eventually, how, pattern, process, within};
use forebay::{Engine, Options};
use forebay_block::random::Random;

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(10);

fn small_engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

/// Waits until all is written, as seen by another program.
fn other_program_sees(path: &Path, expected: &[u8]) {
    let (sum, took) = process::shell_timed("cksum <\"$1\"", path);
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(copy.path(), expected).unwrap();
    assert_eq!(
        sum,
        process::shell("cksum <\"$1\"", copy.path()).unwrap(),
        "{path:?} as others see it"
    );
    assert!(took < Duration::from_secs(2), "the other program was held back for {took:?}");
}

#[test]
fn contract_06_another_program_goes_on_soon_and_sees_what_was_written() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = Engine::start(Options {
        cache_bytes: Some(32 << 20),
        dirty_age: SOON,
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    let mut data = pattern(1, 8 << 20);
    file.write_at(&data, 0).unwrap();
    // Opening breaks the lease, which writes out: even without a sync it sees all of it.
    other_program_sees(&path, &data);
    assert!(file.describe().contains("shared"), "{}", file.describe());
    // From then on it sees what was synced.
    file.write_at(&pattern(2, 10_000), 5).unwrap();
    data[5..10_005].copy_from_slice(&pattern(2, 10_000));
    file.sync_data().unwrap();
    other_program_sees(&path, &data);
    // And we see what it wrote, in pages that are not dirty here.
    process::shell(
        "printf changed | dd of=\"$1\" bs=1 seek=4000000 conv=notrunc 2>/dev/null",
        &path,
    )
    .unwrap();
    let mut seen = [0; 7];
    file.read_at(&mut seen, 4_000_000).unwrap();
    assert_eq!(&seen, b"changed");
    file.close().unwrap();
}

#[test]
fn contract_06_a_file_cut_by_another_program() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small_engine();
    let file = engine.open(&path, &how::create()).unwrap();
    file.write_at(&pattern(1, 3 << 20), 0).unwrap();
    let (_, took) =
        process::shell_timed("dd if=/dev/null of=\"$1\" bs=1 seek=10000 2>/dev/null", &path);
    assert!(took < Duration::from_secs(2), "the other program was held back for {took:?}");
    within(SOON, "a file that was cut", move || {
        let mut buffer = vec![7; 20_000];
        assert_eq!(
            file.read_at(&mut buffer, 0).unwrap(),
            10_000,
            "what is not dirty is as on disk"
        );
        assert!(buffer[..10_000] == pattern(1, 10_000));
        // Writing goes on, at either side of the new end.
        file.write_at(&pattern(2, 5000), 8000).unwrap();
        file.sync_data().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 13_000);
        file.write_at(&pattern(3, 5000), 100_000).unwrap();
        file.sync_all().unwrap();
        let found = std::fs::read(&path).unwrap();
        assert_eq!(found.len(), 105_000);
        assert!(found[..8000] == pattern(1, 10_000)[..8000]);
        assert!(found[8000..13_000] == pattern(2, 5000));
        assert!(found[13_000..100_000].iter().all(|byte| *byte == 0));
        assert!(found[100_000..] == pattern(3, 5000));
        file.close().unwrap();
    });
}

/// The same with writes in between all the time: in any order, no call hangs and every sync
/// succeeds.
#[test]
fn contract_06_a_file_cut_again_and_again_while_it_is_written() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = Engine::start(Options {
        cache_bytes: Some(8 << 20),
        dirty_age: Duration::from_millis(3),
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    let writer = std::thread::spawn(move || {
        let (mut random, start) = (Random::new(5), Instant::now());
        while start.elapsed() < Duration::from_millis(1500) {
            let offset = random.below(2 * MIB);
            file.write_at(&pattern(offset, random.below(70_000) as usize), offset).unwrap();
            if random.below(20) == 0 {
                file.sync_data().unwrap();
            }
            let mut buffer = vec![0; 30_000];
            file.read_at(&mut buffer, random.below(2 * MIB)).unwrap();
        }
        file.write_at(&pattern(9, 40_000), MIB).unwrap();
        file.sync_data().unwrap();
        file
    });
    // The program `truncate` does not serve here: it opens without waiting, and fails with `EAGAIN`
    // while the lease is broken.
    let cut = "dd if=/dev/null of=\"$1\" bs=1 seek=300001 2>/dev/null; : >\"$1\"";
    while !writer.is_finished() {
        process::shell(cut, &path).unwrap();
    }
    let file = within(SOON, "a file cut again and again", move || writer.join().unwrap());
    file.write_at(&pattern(9, 40_000), MIB).unwrap();
    file.sync_data().unwrap();
    assert!(std::fs::read(&path).unwrap()[MIB as usize..][..40_000] == pattern(9, 40_000));
    file.close().unwrap();
}

/// The file system has extended the file when the future is dropped. Other handles see that, so
/// the next sync covers it.
#[test]
fn contract_01_a_sync_covers_an_allocation_that_was_given_up() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, 5000)).unwrap();
    let beside = std::fs::File::open(&path).unwrap();
    let engine = small_engine();
    let file = engine.open(&path, &how::write()).unwrap();
    assert!(file.describe().ends_with("shared"), "{}", file.describe());
    file.sync_data().unwrap();
    let before = engine.stats().flushes;
    file.sync_data().unwrap();
    assert_eq!(engine.stats().flushes, before, "nothing has changed");
    let mut is_given_up = false;
    for turn in 1..=100 {
        let end = turn * MIB;
        let mut allocating = Box::pin(file.asynchronous().allocate(0, end));
        let mut context = Context::from_waker(Waker::noop());
        let has_grown = || beside.metadata().unwrap().len() == end;
        while !is_given_up && allocating.as_mut().poll(&mut context).is_pending() {
            // Each step ends without another poll.
            is_given_up = eventually(Duration::from_millis(50), has_grown);
        }
        if is_given_up {
            break;
        }
        file.sync_data().unwrap();
    }
    assert!(is_given_up, "each allocation has ended");
    // The job may still be at its end.
    std::thread::sleep(Duration::from_millis(100));
    let before = engine.stats().flushes;
    file.sync_data().unwrap();
    assert_eq!(engine.stats().flushes, before + 1, "the new size is not durable");
    file.close().unwrap();
}
