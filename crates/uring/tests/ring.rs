//! The ring over real files.

mod support;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use forebay_block::{Completion, Device, Frame, Operation, Refused, Segment, Tag, Target, Wait};
use forebay_uring::{AlignedMemory, Arena, Buffers, Lock, Ring};
use support::{Bench, FILE, PAGE_BYTES, frames, moving, still, wait_for};

const PAGE: u64 = PAGE_BYTES as u64;

#[test]
fn what_is_written_in_pieces_is_read_in_pieces() {
    let mut bench = Bench::new(16, 8);
    println!("{}; {}", bench.ring.describe(), bench.file.direct());
    for frame in 0..8 {
        bench.fill(Frame(frame), b'a' + u8::try_from(frame).unwrap());
    }
    let pieces = [
        frames(5, PAGE_BYTES),
        frames(0, 2 * PAGE_BYTES),
        Segment::Zeroes { length: 17 * PAGE_BYTES },
        frames(7, PAGE_BYTES),
    ];
    assert_eq!(bench.ask(&moving(Operation::Write, PAGE, &pieces)), Ok(21 * PAGE));
    assert_eq!(bench.ask(&still(Operation::FlushData, 0, 0)), Ok(0));

    let content = bench.content();
    let expected: Vec<u8> = [(0, 1), (b'f', 1), (b'a', 1), (b'b', 1), (0, 17), (b'h', 1)]
        .into_iter()
        .flat_map(|(byte, pages): (u8, usize)| vec![byte; pages * 4096])
        .collect();
    assert!(content == expected, "the file holds what was written");

    let pieces = [frames(12, PAGE_BYTES), frames(10, PAGE_BYTES)];
    assert_eq!(bench.ask(&moving(Operation::Read, 2 * PAGE, &pieces)), Ok(2 * PAGE));
    assert_eq!(bench.bytes(Frame(12))[4095], b'a');
    assert_eq!(bench.bytes(Frame(10))[0], b'b');
    assert_eq!(bench.ask(&moving(Operation::Read, PAGE, &[frames(11, PAGE_BYTES)])), Ok(PAGE));
    assert_eq!(bench.bytes(Frame(11))[7], b'f');
}

#[test]
fn contract_13_lent_memory_is_written_from_and_read_into() {
    let mut bench = Bench::new(4, 8);
    let pool = Buffers::new(1 << 20).unwrap();
    let mut from = AlignedMemory::new(4096);
    from.fill(b'l');
    let from = bench.ring.lend(from.into());
    bench.fill(Frame(2), b'f');
    let lent = |buffer, offset, length| Segment::Lent { buffer, offset, length };
    let pieces = [frames(2, PAGE_BYTES), lent(from, 0, PAGE_BYTES)];
    assert_eq!(bench.ask(&moving(Operation::Write, 0, &pieces)), Ok(2 * PAGE));
    assert_eq!(bench.ring.take_back(from).bytes(), [b'l'; 4096]);
    let into = bench.ring.lend(pool.take(4 * 4096).unwrap().into());
    assert_eq!(bench.ask(&moving(Operation::Read, 0, &[lent(into, 4096, 2 * PAGE_BYTES)])), Ok(2 * PAGE));
    let into = bench.ring.take_back(into);
    let expected: Vec<u8> = [0, b'f', b'l', 0].into_iter().flat_map(|byte: u8| vec![byte; 4096]).collect();
    assert!(into.bytes() == expected);
}

#[test]
#[should_panic(expected = "is at the device")]
fn contract_13_lent_memory_is_the_rings_until_it_is_reaped() {
    let mut bench = Bench::new(1, 8);
    let buffer = bench.ring.lend(AlignedMemory::new(4096).into());
    let segment = Segment::Lent { buffer, offset: 0, length: PAGE_BYTES };
    bench.ring.prepare(Tag(0), &moving(Operation::Read, 0, &[segment])).unwrap();
    bench.ring.take_back(buffer);
}

#[test]
fn a_read_ends_short_at_the_end_of_the_file() {
    let mut bench = Bench::new(8, 8);
    bench.fill(Frame(0), b'x');
    assert_eq!(bench.ask(&moving(Operation::WriteBuffered, 0, &[frames(0, 700)])), Ok(700));
    assert_eq!(bench.ask(&moving(Operation::Read, 0, &[frames(1, 2 * PAGE_BYTES)])), Ok(700));
    assert_eq!(bench.ask(&moving(Operation::Read, PAGE, &[frames(1, PAGE_BYTES)])), Ok(0));
}

#[test]
fn contract_8_a_buffered_tail_has_its_exact_size() {
    let mut bench = Bench::new(8, 8);
    bench.fill(Frame(0), b'p');
    bench.fill(Frame(1), b't');
    assert_eq!(bench.ask(&moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])), Ok(PAGE));
    assert_eq!(bench.ask(&moving(Operation::WriteBuffered, PAGE, &[frames(1, 123)])), Ok(123));
    assert_eq!(bench.file.length().unwrap(), PAGE + 123);
    assert_eq!(bench.ask(&still(Operation::FlushAll, 0, 0)), Ok(0));
    // The block is full now: direct again, over what was written through the page cache.
    assert_eq!(bench.ask(&moving(Operation::Write, PAGE, &[frames(1, PAGE_BYTES)])), Ok(PAGE));
    let content = bench.content();
    assert_eq!(content.len(), 8192);
    assert!(content[..4096].iter().all(|&byte| byte == b'p'));
    assert!(content[4096..].iter().all(|&byte| byte == b't'));
}

#[test]
fn the_descriptor_is_direct_again_after_a_buffered_write() {
    let mut bench = Bench::new(8, 8);
    let flags =
        |bench: &Bench| rustix::fs::fcntl_getfl(&*bench.file).unwrap().contains(rustix::fs::OFlags::DIRECT);
    if !flags(&bench) {
        println!("skipped: {}", bench.file.direct());
        return;
    }
    bench.ring.prepare(Tag(0), &moving(Operation::WriteBuffered, 0, &[frames(1, 123)])).unwrap();
    assert!(!flags(&bench));
    wait_for(&mut bench.ring, 1);
    assert!(flags(&bench));
}

#[test]
#[should_panic(expected = "a buffered write shares")]
fn a_buffered_write_beside_another_is_a_bug() {
    let mut bench = Bench::new(8, 8);
    bench.ring.prepare(Tag(0), &moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])).unwrap();
    let _ = bench.ring.prepare(Tag(1), &moving(Operation::WriteBuffered, PAGE, &[frames(1, 9)]));
}

#[test]
fn space_is_allocated_and_given_back_and_lengths_are_set() {
    let mut bench = Bench::new(8, 8);
    match bench.ask(&still(Operation::Allocate, 0, 1 << 20)) {
        Err(libc::EOPNOTSUPP) => return println!("skipped: this file system cannot allocate ahead"),
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

#[test]
fn an_error_of_the_kernel_comes_as_the_result() {
    let mut bench = Bench::new(8, 8);
    let beyond = u64::MAX >> 1 & !4095;
    assert_eq!(bench.ask(&still(Operation::Allocate, beyond, 1 << 20)), Err(libc::EFBIG));
}

#[test]
fn a_full_queue_refuses_and_takes_again_after_the_doorbell() {
    let mut bench = Bench::new(64, 3);
    let mut taken: u16 = 0;
    let write =
        |tag: u16| moving(Operation::Write, u64::from(tag) * PAGE, &[frames(u32::from(tag), PAGE_BYTES)]);
    while bench.ring.prepare(Tag(taken), &write(taken)) == Ok(()) {
        taken += 1;
    }
    assert_eq!(taken, 3);
    assert_eq!(bench.ring.prepare(Tag(taken), &write(taken)), Err(Refused));
    assert_eq!(bench.ring.in_flight(), 3);
    bench.ring.doorbell(Wait::Not).unwrap();
    assert_eq!(bench.ring.prepare(Tag(taken), &write(taken)), Ok(()));
    let mut tags: Vec<u16> = wait_for(&mut bench.ring, 4).iter().map(|done| done.tag.0).collect();
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3]);
    assert_eq!(bench.ring.in_flight(), 0);
}

#[test]
fn contract_16_an_overflowed_completion_queue_loses_nothing() {
    let mut bench = Bench::new(4, 2);
    // A completion queue of 8 places, and 500 completions that nobody reaps meanwhile.
    let mut done: Vec<Completion> = Vec::new();
    for tag in 0..500 {
        let request = if tag % 2 == 0 {
            still(Operation::Punch, 0, 4096)
        } else {
            moving(Operation::Read, 0, &[frames(0, PAGE_BYTES)])
        };
        while bench.ring.prepare(Tag(tag), &request) == Err(Refused) {
            bench.ring.doorbell(Wait::Not).unwrap();
        }
    }
    bench.ring.doorbell(Wait::Not).unwrap();
    thread::sleep(Duration::from_millis(100));
    done.extend(wait_for(&mut bench.ring, 500));
    let mut tags: Vec<u16> = done.iter().map(|done| done.tag.0).collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..500));
}

#[test]
fn another_thread_wakes_a_doorbell_that_waits() {
    let mut bench = Bench::new(1, 8);
    for _ in 0..3 {
        let waker = bench.ring.waker();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            waker.wake();
        });
        let start = Instant::now();
        let mut waits = 0;
        while start.elapsed() < Duration::from_millis(30) {
            bench.ring.doorbell(Wait::Something(Some(Duration::from_secs(20)))).unwrap();
            bench.ring.reap(&mut Vec::new());
            waits += 1;
        }
        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(waits <= 2, "{waits} waits for one wake (and perhaps a late one of the round before)");
        other.join().unwrap();
    }
}

#[test]
fn a_wake_before_the_doorbell_is_not_lost() {
    let mut bench = Bench::new(1, 8);
    bench.ring.waker().wake();
    let start = Instant::now();
    bench.ring.doorbell(Wait::Something(Some(Duration::from_secs(20)))).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn contract_15_no_wake_is_lost_under_a_storm() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let mut bench = Bench::new(1, 8);
    let pushed = Arc::new(AtomicU64::new(0));
    let waker = bench.ring.waker();
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
    let start = Instant::now();
    while pushed.load(Ordering::Relaxed) < 20_000 {
        let before = Instant::now();
        bench.ring.doorbell(Wait::Something(Some(Duration::from_secs(10)))).unwrap();
        bench.ring.reap(&mut Vec::new());
        assert!(before.elapsed() < Duration::from_secs(9), "a wake was lost");
    }
    pusher.join().unwrap();
    println!("20000 wakes in {:?}", start.elapsed());
}

#[test]
fn a_wait_ends_with_its_time() {
    let mut bench = Bench::new(1, 8);
    let start = Instant::now();
    bench.ring.doorbell(Wait::Something(Some(Duration::from_millis(50)))).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(50));
    bench.ring.doorbell(Wait::Something(Some(Duration::ZERO))).unwrap();
    bench.ring.doorbell(Wait::Not).unwrap();
}

#[test]
fn a_ring_is_made_here_and_used_there() {
    let Bench { mut ring, arena, file, .. } = Bench::new(4, 8);
    let _second = Arc::clone(&file);
    thread::spawn(move || {
        ring.prepare(Tag(9), &moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])).unwrap();
        assert_eq!(wait_for(&mut ring, 1), [Completion { tag: Tag(9), result: Ok(PAGE) }]);
        drop(arena);
    })
    .join()
    .unwrap();
    assert_eq!(file.length().unwrap(), PAGE);
}

#[test]
fn contract_5_a_ring_dropped_in_flight_waits_for_it() {
    let mut bench = Bench::new(1024, 64);
    bench.fill(Frame(0), b'z');
    for tag in 0..32 {
        let request = moving(Operation::Write, u64::from(tag) << 17, &[frames(0, 32 * PAGE_BYTES)]);
        bench.ring.prepare(Tag(tag), &request).unwrap();
    }
    bench.ring.doorbell(Wait::Not).unwrap();
    let Bench { ring, arena, file, .. } = bench;
    drop(ring);
    assert_eq!(Arc::strong_count(&arena), 1, "neither held nor leaked");
    assert_eq!(file.length().unwrap(), 32 << 17);
}

#[test]
fn contract_5_what_hangs_leaks_its_memory() {
    let directory = support::directory();
    let path = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let pipe = Arc::new(support::create(&path).file);
    let arena = Arc::new(Arena::new(1).unwrap());
    let mut ring = Ring::new(Arc::clone(&arena), 8).unwrap();
    ring.attach(FILE, Arc::clone(&pipe));
    // Nobody ever writes to it.
    ring.prepare(Tag(0), &moving(Operation::Read, 0, &[frames(0, PAGE_BYTES)])).unwrap();
    ring.doorbell(Wait::Not).unwrap();
    let start = Instant::now();
    drop(ring);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(Arc::strong_count(&arena), 2, "one is leaked");
    assert_eq!(Arc::strong_count(&pipe), 2, "and the file with it");
}

#[test]
fn what_was_staged_and_never_rung_is_not_done() {
    let mut bench = Bench::new(4, 8);
    bench.ring.prepare(Tag(0), &moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])).unwrap();
    let Bench { ring, arena, file, .. } = bench;
    drop(ring);
    assert_eq!(Arc::strong_count(&arena), 1);
    assert_eq!(file.length().unwrap(), 0);
}

#[test]
fn a_target_is_detached_and_its_number_used_again() {
    let mut bench = Bench::new(4, 8);
    let file = bench.ring.detach(FILE);
    bench.ring.attach(Target(3), Arc::clone(&file));
    bench.ring.attach(FILE, file);
    assert_eq!(bench.ask(&still(Operation::FlushData, 0, 0)), Ok(0));
}

#[test]
fn a_ring_of_no_entries_still_has_one_place() {
    let arena = Arc::new(Arena::new(1).unwrap());
    assert!(Ring::new(arena, 1).is_ok());
}

#[test]
fn contract_14_what_a_forked_child_drops_the_parent_keeps() {
    let mut bench = Bench::new(4, 8);
    bench.fill(Frame(0), b'p');
    let watch = forebay_uring::LeaseWatch::new(|_| {}).unwrap();
    let leased = bench.file.try_lease(&watch, 1).is_ok();
    assert_eq!(bench.file.try_ofd_lock().unwrap(), Lock::Taken);
    assert_eq!(bench.ask(&moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])), Ok(PAGE));
    // SAFETY: the child drops what it has a copy of and leaves; the C library makes its allocator usable there.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let Bench { ring, arena, file, .. } = bench;
        drop((ring, arena, file, watch));
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
