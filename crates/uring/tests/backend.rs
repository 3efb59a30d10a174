//! Requirements of the ring and the thread pool: each test runs on both.

mod support;

use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_block::{
    Bio, Completion, Device, Frame, Operation, Refused, Segment, Tag, Target, Wait,
};
use forebay_uring::{AlignedMemory, Arena, Backend, Buffers, Choice, Lock, OpenFile};
use support::{FILE, PAGE_BYTES, frames, moving, still, wait_for};
use tempfile::TempDir;

const PAGE: u64 = PAGE_BYTES as u64;

/// Makes of each function a test on the ring and one on the thread pool.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod io_uring {
            $(#[test] fn $name() { super::$name(forebay_uring::Choice::IoUring) })*
        }
        mod threads {
            $(#[test] fn $name() { super::$name(forebay_uring::Choice::Threads) })*
        }
    };
}

on_both!(
    what_is_written_in_pieces_is_read_in_pieces,
    contract_13_lent_memory_is_written_from_and_read_into,
    contract_13_lent_memory_is_the_backends_until_it_is_reaped,
    contract_13_a_read_ends_short_at_the_end_of_the_file,
    contract_08_a_buffered_tail_has_its_exact_size,
    a_buffered_write_beside_another_is_a_bug,
    contract_01_a_durable_write_moves_its_bytes,
    space_is_allocated_and_given_back_and_lengths_are_set,
    zeroes_and_discards_are_done_or_refused,
    an_error_of_the_kernel_comes_as_the_result,
    a_full_queue_refuses_and_takes_again_after_the_doorbell,
    contract_16_each_of_many_ends_once,
    contract_16_a_tag_is_in_one_place,
    another_thread_wakes_a_doorbell_that_waits,
    a_wake_before_the_doorbell_is_not_lost,
    contract_15_no_wake_is_lost_under_a_storm,
    a_wait_ends_with_its_time,
    it_is_made_here_and_used_there,
    contract_05_dropped_in_flight_it_waits,
    contract_05_what_hangs_keeps_its_memory,
    what_was_staged_and_never_rung_is_not_done,
    a_target_is_detached_and_its_number_used_again,
    contract_14_what_a_forked_child_drops_the_parent_keeps,
);

/// A backend with one file attached as target 0.
struct Bench {
    backend: Backend,
    arena: Arc<Arena>,
    file: Arc<OpenFile>,
    path: PathBuf,
    _directory: TempDir,
}

impl Bench {
    fn new(choice: Choice, frames: u32, entries: u32) -> Self {
        let directory = support::directory();
        let path = directory.path().join("file");
        let arena = Arc::new(Arena::new(frames).unwrap());
        let mut backend = Backend::chosen(choice, Arc::clone(&arena), entries).unwrap();
        let file = Arc::new(support::create(&path).file);
        backend.attach(FILE, Arc::clone(&file));
        Self { backend, arena, file, path, _directory: directory }
    }

    fn fill(&self, frame: u32, byte: u8) {
        // SAFETY: the test has one thread and nothing in flight.
        unsafe { self.arena.copy_in(Frame(frame), 0, &[byte; 4096]) };
    }

    fn bytes(&self, frame: u32) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        // SAFETY: as above.
        unsafe { self.arena.copy_out(Frame(frame), 0, &mut bytes) };
        bytes
    }

    /// Does one request and gives its result.
    fn ask(&mut self, request: &Bio) -> Result<u64, i32> {
        self.backend.prepare(Tag(0), request).unwrap();
        let done = wait_for(&mut self.backend, 1);
        assert_eq!(done[0].tag, Tag(0));
        done[0].result.map_err(|error| error.0)
    }

    /// Content of the file, as other programs see it.
    fn content(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    fn is_direct_now(&self) -> bool {
        rustix::fs::fcntl_getfl(&*self.file).unwrap().contains(rustix::fs::OFlags::DIRECT)
    }
}

fn what_is_written_in_pieces_is_read_in_pieces(choice: Choice) {
    let mut bench = Bench::new(choice, 16, 8);
    println!("{}; {}", bench.backend.describe(), bench.file.direct());
    for frame in 0..8 {
        bench.fill(frame, b'a' + u8::try_from(frame).unwrap());
    }
    let pieces = [
        frames(5, PAGE_BYTES),
        frames(0, 2 * PAGE_BYTES),
        Segment::Zeroes { length: 17 * PAGE_BYTES },
        frames(7, PAGE_BYTES),
    ];
    assert_eq!(bench.ask(&moving(Operation::Write, PAGE, &pieces)), Ok(21 * PAGE));
    assert_eq!(bench.ask(&still(Operation::FlushData, 0, 0)), Ok(0));
    let expected: Vec<u8> = [(0, 1), (b'f', 1), (b'a', 1), (b'b', 1), (0, 17), (b'h', 1)]
        .into_iter()
        .flat_map(|(byte, pages): (u8, usize)| vec![byte; pages * 4096])
        .collect();
    assert!(bench.content() == expected, "the file holds what was written");
    let pieces = [frames(12, PAGE_BYTES), frames(10, PAGE_BYTES)];
    assert_eq!(bench.ask(&moving(Operation::Read, 2 * PAGE, &pieces)), Ok(2 * PAGE));
    assert_eq!((bench.bytes(12)[4095], bench.bytes(10)[0]), (b'a', b'b'));
    assert_eq!(bench.ask(&moving(Operation::Read, PAGE, &[frames(11, PAGE_BYTES)])), Ok(PAGE));
    assert_eq!(bench.bytes(11)[7], b'f');
}

fn contract_13_lent_memory_is_written_from_and_read_into(choice: Choice) {
    let mut bench = Bench::new(choice, 4, 8);
    let pool = Buffers::new(1 << 20).unwrap();
    let mut from = AlignedMemory::new(4096);
    from.fill(b'l');
    let from = bench.backend.lend(from.into());
    bench.fill(2, b'f');
    let lent = |buffer, offset, length| Segment::Lent { buffer, offset, length };
    let pieces = [frames(2, PAGE_BYTES), lent(from, 0, PAGE_BYTES)];
    assert_eq!(bench.ask(&moving(Operation::Write, 0, &pieces)), Ok(2 * PAGE));
    assert_eq!(bench.backend.take_back(from).bytes(), [b'l'; 4096]);
    let into = bench.backend.lend(pool.take(4 * 4096).unwrap().into());
    assert_eq!(
        bench.ask(&moving(Operation::Read, 0, &[lent(into, 4096, 2 * PAGE_BYTES)])),
        Ok(2 * PAGE)
    );
    let into = bench.backend.take_back(into);
    let expected: Vec<u8> =
        [0, b'f', b'l', 0].into_iter().flat_map(|byte: u8| vec![byte; 4096]).collect();
    assert!(into.bytes() == expected);
}

fn contract_13_lent_memory_is_the_backends_until_it_is_reaped(choice: Choice) {
    let mut bench = Bench::new(choice, 1, 8);
    let buffer = bench.backend.lend(AlignedMemory::new(4096).into());
    let segment = Segment::Lent { buffer, offset: 0, length: PAGE_BYTES };
    bench.backend.prepare(Tag(0), &moving(Operation::Read, 0, &[segment])).unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| bench.backend.take_back(buffer)));
    let message = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("is at the device"), "{message}");
}

fn contract_13_a_read_ends_short_at_the_end_of_the_file(choice: Choice) {
    let mut bench = Bench::new(choice, 8, 8);
    bench.fill(0, b'x');
    assert_eq!(bench.ask(&moving(Operation::WriteBuffered, 0, &[frames(0, 700)])), Ok(700));
    assert_eq!(bench.ask(&moving(Operation::Read, 0, &[frames(1, 2 * PAGE_BYTES)])), Ok(700));
    assert_eq!(bench.ask(&moving(Operation::Read, PAGE, &[frames(1, PAGE_BYTES)])), Ok(0));
}

fn contract_08_a_buffered_tail_has_its_exact_size(choice: Choice) {
    let mut bench = Bench::new(choice, 8, 8);
    let direct = bench.is_direct_now();
    bench.fill(0, b'p');
    bench.fill(1, b't');
    assert_eq!(bench.ask(&moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])), Ok(PAGE));
    assert_eq!(bench.ask(&moving(Operation::WriteBuffered, PAGE, &[frames(1, 123)])), Ok(123));
    assert_eq!(bench.is_direct_now(), direct, "switched back");
    assert_eq!(bench.file.length().unwrap(), PAGE + 123);
    assert_eq!(bench.ask(&still(Operation::FlushAll, 0, 0)), Ok(0));
    // The block is full now: direct again, over what was written through the page cache.
    assert_eq!(bench.ask(&moving(Operation::Write, PAGE, &[frames(1, PAGE_BYTES)])), Ok(PAGE));
    let content = bench.content();
    assert!(content == [[b'p'; 4096], [b't'; 4096]].concat());
}

fn a_buffered_write_beside_another_is_a_bug(choice: Choice) {
    let mut bench = Bench::new(choice, 8, 8);
    bench.backend.prepare(Tag(0), &moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])).unwrap();
    let second = moving(Operation::WriteBuffered, PAGE, &[frames(1, 9)]);
    let refused = catch_unwind(AssertUnwindSafe(|| bench.backend.prepare(Tag(1), &second)));
    let message = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("a buffered write shares"), "{message}");
}

fn contract_01_a_durable_write_moves_its_bytes(choice: Choice) {
    let mut bench = Bench::new(choice, 8, 8);
    bench.fill(3, b'd');
    assert_eq!(bench.ask(&moving(Operation::WriteFua, PAGE, &[frames(3, PAGE_BYTES)])), Ok(PAGE));
    assert!(bench.content() == [[0; 4096], [b'd'; 4096]].concat());
}

fn space_is_allocated_and_given_back_and_lengths_are_set(choice: Choice) {
    let mut bench = Bench::new(choice, 8, 8);
    match bench.ask(&still(Operation::Allocate, 0, 1 << 20)) {
        Err(libc::EOPNOTSUPP) => {
            return println!("skipped: this file system cannot allocate ahead");
        }
        result => assert_eq!(result, Ok(0)),
    }
    assert_eq!(bench.file.length().unwrap(), 0, "the size stays");
    assert!(bench.file.allocated_bytes().unwrap() >= 1 << 20);
    assert_eq!(bench.ask(&still(Operation::SetLength, 1 << 20, 0)), Ok(0));
    assert_eq!(bench.file.length().unwrap(), 1 << 20);
    assert_eq!(bench.ask(&still(Operation::Punch, 0, 1 << 19)), Ok(0));
    assert!(bench.file.allocated_bytes().unwrap() < 1 << 20);
    assert_eq!(bench.ask(&still(Operation::SetLength, 5, 0)), Ok(0));
    assert_eq!(bench.content(), [0; 5]);
    assert_eq!(bench.ask(&still(Operation::FlushDirectory, 0, 0)), Ok(0));
}

fn zeroes_and_discards_are_done_or_refused(choice: Choice) {
    let mut bench = Bench::new(choice, 8, 8);
    bench.fill(0, b'1');
    bench.fill(1, b'2');
    bench.fill(2, b'3');
    assert_eq!(bench.ask(&moving(Operation::Write, 0, &[frames(0, 3 * PAGE_BYTES)])), Ok(3 * PAGE));
    let mut expected = [[b'1'; 4096], [b'2'; 4096], [b'3'; 4096]].concat();
    match bench.ask(&still(Operation::WriteZeroes, PAGE, PAGE)) {
        Err(error) => assert_eq!(error, libc::EOPNOTSUPP),
        Ok(moved) => {
            assert_eq!(moved, 0);
            expected[4096..8192].fill(0);
        }
    }
    assert!(bench.content() == expected);
    match bench.ask(&still(Operation::Discard, 2 * PAGE, 2 * PAGE)) {
        Err(error) => assert_eq!(error, libc::EOPNOTSUPP),
        Ok(moved) => assert_eq!(moved, 0),
    }
    // Discarded bytes may read as anything; the size and the neighbours stay.
    let content = bench.content();
    assert_eq!(content.len(), expected.len());
    assert!(content[..8192] == expected[..8192]);
}

fn an_error_of_the_kernel_comes_as_the_result(choice: Choice) {
    let mut bench = Bench::new(choice, 8, 8);
    let beyond = u64::MAX >> 1 & !4095;
    assert_eq!(bench.ask(&still(Operation::Allocate, beyond, 1 << 20)), Err(libc::EFBIG));
    // Direct, and not aligned.
    if bench.is_direct_now() {
        assert_eq!(bench.ask(&moving(Operation::Write, 1, &[frames(0, 7)])), Err(libc::EINVAL));
    }
}

fn a_full_queue_refuses_and_takes_again_after_the_doorbell(choice: Choice) {
    let mut bench = Bench::new(choice, 64, 3);
    let mut taken: u16 = 0;
    let write = |tag: u16| {
        moving(Operation::Write, u64::from(tag) * PAGE, &[frames(u32::from(tag), PAGE_BYTES)])
    };
    while bench.backend.prepare(Tag(taken), &write(taken)) == Ok(()) {
        taken += 1;
    }
    // A queue may be larger than asked for.
    assert!(taken >= 3, "{taken}");
    assert_eq!(bench.backend.prepare(Tag(taken), &write(taken)), Err(Refused));
    assert_eq!(bench.backend.in_flight(), u32::from(taken));
    bench.backend.doorbell(Wait::Not).unwrap();
    assert_eq!(bench.backend.prepare(Tag(taken), &write(taken)), Ok(()));
    let mut tags: Vec<u16> = wait_for(&mut bench.backend, usize::from(taken) + 1)
        .iter()
        .map(|done| done.tag.0)
        .collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..=taken));
    assert_eq!(bench.backend.in_flight(), 0);
}

fn contract_16_each_of_many_ends_once(choice: Choice) {
    let mut bench = Bench::new(choice, 4, 2);
    for tag in 0..500 {
        let request = if tag % 2 == 0 {
            still(Operation::Punch, 0, 4096)
        } else {
            moving(Operation::Read, 0, &[frames(0, PAGE_BYTES)])
        };
        while bench.backend.prepare(Tag(tag), &request) == Err(Refused) {
            bench.backend.doorbell(Wait::Not).unwrap();
        }
    }
    bench.backend.doorbell(Wait::Not).unwrap();
    let mut tags: Vec<u16> =
        wait_for(&mut bench.backend, 500).iter().map(|done| done.tag.0).collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..500));
    let mut more = Vec::new();
    bench.backend.doorbell(Wait::Not).unwrap();
    bench.backend.reap(&mut more);
    assert_eq!(more, []);
}

fn contract_16_a_tag_is_in_one_place(choice: Choice) {
    let mut bench = Bench::new(choice, 4, 8);
    let flush = still(Operation::FlushData, 0, 0);
    bench.backend.prepare(Tag(4), &flush).unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| bench.backend.prepare(Tag(4), &flush)));
    let message = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("in flight already"), "{message}");
}

fn another_thread_wakes_a_doorbell_that_waits(choice: Choice) {
    let mut bench = Bench::new(choice, 1, 8);
    for _ in 0..3 {
        let waker = bench.backend.waker();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            waker.wake();
        });
        let start = Instant::now();
        let mut waits = 0;
        while start.elapsed() < Duration::from_millis(30) {
            bench.backend.doorbell(Wait::Something(Some(Duration::from_secs(20)))).unwrap();
            bench.backend.reap(&mut Vec::new());
            waits += 1;
        }
        assert!(start.elapsed() < Duration::from_secs(15));
        assert!(
            waits <= 2,
            "{waits} waits for one wake (and perhaps a late one of the round before)"
        );
        other.join().unwrap();
    }
}

fn a_wake_before_the_doorbell_is_not_lost(choice: Choice) {
    let mut bench = Bench::new(choice, 1, 8);
    bench.backend.waker().wake();
    let start = Instant::now();
    bench.backend.doorbell(Wait::Something(Some(Duration::from_secs(20)))).unwrap();
    assert!(start.elapsed() < Duration::from_secs(15));
}

fn contract_15_no_wake_is_lost_under_a_storm(choice: Choice) {
    let mut bench = Bench::new(choice, 1, 8);
    let pushed = Arc::new(AtomicU64::new(0));
    let waker = bench.backend.waker();
    let pusher = {
        let pushed = Arc::clone(&pushed);
        thread::spawn(move || {
            for round in 0..20_000 {
                pushed.fetch_add(1, Ordering::Relaxed);
                waker.wake();
                if round % 64 == 0 {
                    thread::yield_now();
                }
            }
        })
    };
    let mut tag = 0;
    while pushed.load(Ordering::Relaxed) < 20_000 {
        // Ends and wakes come together now and then.
        if bench.backend.in_flight() == 0 && tag % 3 == 0 {
            bench.backend.prepare(Tag(tag), &still(Operation::Punch, 0, 4096)).unwrap();
        }
        tag = (tag + 1) % 999;
        let before = Instant::now();
        bench.backend.doorbell(Wait::Something(Some(Duration::from_secs(30)))).unwrap();
        bench.backend.reap(&mut Vec::new());
        assert!(before.elapsed() < Duration::from_secs(25), "a wake was lost");
    }
    pusher.join().unwrap();
}

fn a_wait_ends_with_its_time(choice: Choice) {
    let mut bench = Bench::new(choice, 1, 8);
    let start = Instant::now();
    bench.backend.doorbell(Wait::Something(Some(Duration::from_millis(50)))).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(50));
    bench.backend.doorbell(Wait::Something(Some(Duration::ZERO))).unwrap();
    bench.backend.doorbell(Wait::Not).unwrap();
    let limit = Some(Duration::from_millis(20));
    bench
        .backend
        .doorbell(Wait::Batch { want: 4, within: Duration::from_millis(5), limit })
        .unwrap();
    assert!(start.elapsed() >= Duration::from_millis(70));
}

fn it_is_made_here_and_used_there(choice: Choice) {
    let Bench { mut backend, arena, file, _directory, .. } = Bench::new(choice, 4, 8);
    let second = Arc::clone(&file);
    thread::spawn(move || {
        backend.prepare(Tag(9), &moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])).unwrap();
        assert_eq!(wait_for(&mut backend, 1), [Completion { tag: Tag(9), result: Ok(PAGE) }]);
        drop((arena, second));
    })
    .join()
    .unwrap();
    assert_eq!(file.length().unwrap(), PAGE);
}

fn contract_05_dropped_in_flight_it_waits(choice: Choice) {
    let mut bench = Bench::new(choice, 1024, 64);
    bench.fill(0, b'z');
    for tag in 0..32 {
        let request = moving(Operation::Write, u64::from(tag) << 17, &[frames(0, 32 * PAGE_BYTES)]);
        bench.backend.prepare(Tag(tag), &request).unwrap();
    }
    bench.backend.doorbell(Wait::Not).unwrap();
    let Bench { backend, arena, file, _directory, .. } = bench;
    drop(backend);
    assert_eq!(Arc::strong_count(&arena), 1, "neither held nor leaked");
    assert_eq!(file.length().unwrap(), 32 << 17);
}

fn contract_05_what_hangs_keeps_its_memory(choice: Choice) {
    let directory = support::directory();
    let path = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let pipe = Arc::new(support::create(&path).file);
    let arena = Arc::new(Arena::new(1).unwrap());
    let mut backend = Backend::chosen(choice, Arc::clone(&arena), 8).unwrap();
    backend.attach(FILE, Arc::clone(&pipe));
    // Nobody ever writes to it.
    backend.prepare(Tag(0), &moving(Operation::Read, 0, &[frames(0, PAGE_BYTES)])).unwrap();
    backend.doorbell(Wait::Not).unwrap();
    let start = Instant::now();
    drop(backend);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(Arc::strong_count(&arena), 2, "the memory is still there");
    assert_eq!(Arc::strong_count(&pipe), 2, "and the file with it");
}

fn what_was_staged_and_never_rung_is_not_done(choice: Choice) {
    let mut bench = Bench::new(choice, 4, 8);
    bench.backend.prepare(Tag(0), &moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])).unwrap();
    let Bench { backend, arena, file, _directory, .. } = bench;
    drop(backend);
    assert_eq!(Arc::strong_count(&arena), 1);
    assert_eq!(file.length().unwrap(), 0);
}

fn a_target_is_detached_and_its_number_used_again(choice: Choice) {
    let mut bench = Bench::new(choice, 4, 8);
    let file = bench.backend.detach(FILE);
    bench.backend.attach(Target(3), Arc::clone(&file));
    bench.backend.attach(FILE, file);
    assert_eq!(bench.ask(&still(Operation::FlushData, 0, 0)), Ok(0));
}

fn contract_14_what_a_forked_child_drops_the_parent_keeps(choice: Choice) {
    let mut bench = Bench::new(choice, 4, 8);
    bench.fill(0, b'p');
    let watch = forebay_uring::LeaseWatch::new(|_| {}).unwrap();
    let leased = bench.file.try_lease(&watch, 1).is_ok();
    assert_eq!(bench.file.try_ofd_lock().unwrap(), Lock::Taken);
    assert_eq!(bench.ask(&moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])), Ok(PAGE));
    // SAFETY: the child drops what it has a copy of and leaves; the C library makes its allocator
    // usable there.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let Bench { backend, arena, file, .. } = bench;
        drop((backend, arena, file, watch));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: `child` is our child, and the status is written during the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    assert_eq!(bench.ask(&moving(Operation::Write, PAGE, &[frames(0, PAGE_BYTES)])), Ok(PAGE));
    // SAFETY: the command takes no argument.
    let lease = unsafe { libc::fcntl(bench.file.as_fd().as_raw_fd(), libc::F_GETLEASE) };
    assert_eq!(lease == libc::F_WRLCK, leased);
    bench.file.release_lease();
    let second = support::create(&bench.path).file;
    assert_eq!(second.try_ofd_lock().unwrap(), Lock::HeldElsewhere);
}

/// A pipe's writer, so that requests on it end when the test says so.
fn write_to(pipe: &OpenFile, byte: u8) {
    assert_eq!(rustix::io::write(pipe, &[byte; 4096]).unwrap(), 4096);
}

#[test]
fn contract_15_a_batch_is_waited_for_and_a_wake_ends_the_wait() {
    let directory = support::directory();
    let path = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let pipe = Arc::new(support::create(&path).file);
    let arena = Arc::new(Arena::new(8).unwrap());
    let mut backend = Backend::chosen(Choice::Threads, Arc::clone(&arena), 8).unwrap();
    backend.attach(FILE, Arc::clone(&pipe));
    for tag in 0..4 {
        let read = moving(Operation::Read, 0, &[frames(u32::from(tag), PAGE_BYTES)]);
        backend.prepare(Tag(tag), &read).unwrap();
    }
    backend.doorbell(Wait::Not).unwrap();
    let long = Duration::from_secs(60);
    let mut done = Vec::new();
    // Two are wanted and two come, one after the other: one call, both.
    let writer = {
        let pipe = Arc::clone(&pipe);
        thread::spawn(move || {
            write_to(&pipe, b'1');
            thread::sleep(Duration::from_millis(20));
            write_to(&pipe, b'2');
        })
    };
    backend.doorbell(Wait::Batch { want: 2, within: long, limit: None }).unwrap();
    backend.reap(&mut done);
    assert_eq!(done.len(), 2);
    writer.join().unwrap();
    // One is there and more are wanted, but the time for more is over.
    write_to(&pipe, b'3');
    let start = Instant::now();
    backend
        .doorbell(Wait::Batch { want: 2, within: Duration::from_millis(40), limit: None })
        .unwrap();
    backend.reap(&mut done);
    assert!(start.elapsed() >= Duration::from_millis(40));
    assert_eq!(done.len(), 3);
    // Nothing completes: a wake ends any wait.
    let waker = backend.waker();
    let other = thread::spawn(move || waker.wake());
    backend.doorbell(Wait::Batch { want: 2, within: long, limit: None }).unwrap();
    assert!(start.elapsed() < Duration::from_secs(50));
    other.join().unwrap();
    // The last: no more can come, so no more is waited for.
    write_to(&pipe, b'4');
    backend.doorbell(Wait::Batch { want: 2, within: long, limit: None }).unwrap();
    backend.reap(&mut done);
    assert_eq!(done.len(), 4);
    assert!(start.elapsed() < Duration::from_secs(50));
    assert!(done.iter().all(|done| done.result == Ok(PAGE)));
}
