//! Waiting for batches, by one call and by two: pipes play the device, so that a test decides what
//! completes when.

use std::io::Write as _;

use super::*;
use crate::probe::{KernelVersion, kernel_version};

/// Longer than any test takes: a wait that is not ended by what should end it fails on this.
const FOR_EVER: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_secs(10);

const PIPE: Target = Target(1);
const OTHER: Target = Target(2);

/// Does a test with the kernel's minimal wait if possible, and with two calls; each on a thread of
/// its own, because the end of a ring interrupts any wait of the thread that used it.
fn both_ways(test: impl Fn(&mut Bench) + Sync) {
    for level in Level::ALL {
        for min_wait in [true, false] {
            println!("{level:?}, minimally: {min_wait}");
            let run = || {
                let mut bench = Bench::new(level, Register::Yes);
                bench.ring.setup.has.min_wait &= min_wait;
                let start = Instant::now();
                test(&mut bench);
                assert!(start.elapsed() < SOON, "waited for what does not come");
            };
            thread::scope(|scope| scope.spawn(run).join().unwrap());
        }
    }
}

fn read_byte(target: Target, frame: u32) -> Bio {
    Bio { target, ..moving(Operation::Read, 0, &[Segment::frames(Frame(frame), 1)]) }
}

fn batch(want: u32, within: Duration, limit: Option<Duration>) -> Wait {
    Wait::Batch { want, within, limit }
}

/// Ends the reads that a test left hanging, so that the ring's drop need not wait for them.
fn end_reads(bench: &mut Bench, pipes: &mut [fs::File]) {
    for pipe in pipes.iter_mut() {
        pipe.write_all(b"-").unwrap();
    }
    let hanging = bench.ring.in_flight() as usize;
    bench.wait_for(hanging);
}

/// Rings until `count` have completed, and returns their tags. A wait may end early: now and then,
/// not each time.
fn ring_for(bench: &mut Bench, wait: Wait, count: usize) -> Vec<u16> {
    let mut tags = Vec::new();
    for _ in 0..4 {
        bench.ring.doorbell(wait).unwrap();
        tags.extend(reaped(bench));
        if tags.len() >= count {
            break;
        }
    }
    tags.sort_unstable();
    tags
}

fn reaped(bench: &mut Bench) -> Vec<u16> {
    let mut done = Vec::new();
    bench.ring.reap(&mut done);
    let mut tags: Vec<u16> = done.iter().map(|done| done.tag.0).collect();
    tags.sort_unstable();
    tags
}

#[test]
fn a_batch_is_all_there_when_its_wait_ends() {
    both_ways(|bench| {
        let mut pipe = bench.pipe(PIPE);
        for tag in 0..6 {
            bench.ring.prepare(Tag(tag), &read_byte(PIPE, u32::from(tag))).unwrap();
        }
        bench.ring.doorbell(Wait::Not).unwrap();
        let writer = thread::spawn(move || {
            for byte in b"abcdef" {
                thread::sleep(Duration::from_millis(1));
                pipe.write_all(&[*byte]).unwrap();
            }
            pipe
        });
        assert_eq!(ring_for(bench, batch(6, FOR_EVER, None), 6), [0, 1, 2, 3, 4, 5]);
        drop(writer.join().unwrap());
    });
}

#[test]
fn more_than_is_in_flight_is_not_waited_for() {
    both_ways(|bench| {
        for tag in 0..3 {
            bench.ring.prepare(Tag(tag), &still(Operation::FlushData, 0, 0)).unwrap();
        }
        assert_eq!(ring_for(bench, batch(100, FOR_EVER, None), 3), [0, 1, 2]);
    });
}

#[test]
fn a_batch_that_does_not_fill_ends_with_its_time() {
    both_ways(|bench| {
        let pipe = bench.pipe(PIPE);
        bench.ring.prepare(Tag(0), &read_byte(PIPE, 0)).unwrap();
        bench.ring.prepare(Tag(1), &still(Operation::FlushData, 0, 0)).unwrap();
        // Returned for the flush alone; nothing else ever comes.
        assert_eq!(ring_for(bench, batch(2, Duration::from_millis(2), Some(FOR_EVER)), 1), [1]);
        end_reads(bench, &mut [pipe]);
    });
}

#[test]
fn a_batch_without_time_is_the_first_completion() {
    both_ways(|bench| {
        let pipe = bench.pipe(PIPE);
        bench.ring.prepare(Tag(0), &read_byte(PIPE, 0)).unwrap();
        bench.ring.prepare(Tag(1), &still(Operation::FlushData, 0, 0)).unwrap();
        assert_eq!(ring_for(bench, batch(2, Duration::from_nanos(999), None), 1), [1]);
        end_reads(bench, &mut [pipe]);
    });
}

#[test]
fn one_that_comes_late_ends_the_wait() {
    for limit in [Some(FOR_EVER), None] {
        both_ways(|bench| {
            let mut pipe = bench.pipe(PIPE);
            let other = bench.pipe(OTHER);
            bench.ring.prepare(Tag(0), &read_byte(PIPE, 0)).unwrap();
            bench.ring.prepare(Tag(1), &read_byte(OTHER, 1)).unwrap();
            let writer = thread::spawn(move || {
                thread::sleep(Duration::from_millis(10));
                pipe.write_all(b"x").unwrap();
                pipe
            });
            assert_eq!(ring_for(bench, batch(2, Duration::from_micros(50), limit), 1), [0]);
            drop(writer.join().unwrap());
            end_reads(bench, &mut [other]);
        });
    }
}

#[test]
fn nothing_ends_the_wait_with_its_limit() {
    both_ways(|bench| {
        let pipe = bench.pipe(PIPE);
        bench.ring.prepare(Tag(0), &read_byte(PIPE, 0)).unwrap();
        let limit = Duration::from_millis(3);
        let lasts = |bench: &mut Bench| {
            let start = Instant::now();
            bench.ring.doorbell(batch(1, Duration::from_micros(50), Some(limit))).unwrap();
            start.elapsed() >= limit
        };
        assert!((0..4).any(|_| lasts(bench)), "it ends before its time each time");
        bench.ring.doorbell(batch(9, Duration::from_micros(50), Some(Duration::ZERO))).unwrap();
        assert_eq!(reaped(bench), []);
        end_reads(bench, &mut [pipe]);
    });
}

#[test]
fn a_wake_ends_a_wait_for_a_batch() {
    both_ways(|bench| {
        let mut pipes = [bench.pipe(PIPE), bench.pipe(OTHER)];
        bench.ring.prepare(Tag(0), &read_byte(PIPE, 0)).unwrap();
        bench.ring.prepare(Tag(1), &read_byte(OTHER, 1)).unwrap();
        let waker = bench.ring.waker();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            waker.wake();
        });
        bench.ring.doorbell(batch(2, Duration::from_micros(50), Some(FOR_EVER))).unwrap();
        assert_eq!(reaped(bench), []);
        other.join().unwrap();
        end_reads(bench, &mut pipes);
    });
}

/// The wait of a context that holds completed writes: as long as the hold, in one call, unless it
/// is woken.
#[test]
fn a_wake_ends_a_long_wait_for_a_batch() {
    both_ways(|bench| {
        let mut pipes = [bench.pipe(PIPE), bench.pipe(OTHER)];
        for tag in 0..2 {
            let target = if tag == 0 { PIPE } else { OTHER };
            bench.ring.prepare(Tag(tag), &read_byte(target, u32::from(tag))).unwrap();
        }
        // Leaves a read of the waker behind that ends a wait for one completion alone.
        bench.ring.doorbell(Wait::Something(Some(Duration::from_millis(1)))).unwrap();
        assert_eq!(reaped(bench), []);
        for _ in 0..3 {
            let waker = bench.ring.waker();
            let start = Instant::now();
            let other = thread::spawn(move || {
                thread::sleep(Duration::from_millis(10));
                waker.wake();
            });
            // It may return early now and then, not each time.
            while start.elapsed() < Duration::from_millis(5) {
                bench.ring.doorbell(batch(2, FOR_EVER, Some(FOR_EVER))).unwrap();
                assert_eq!(reaped(bench), []);
            }
            other.join().unwrap();
        }
        end_reads(bench, &mut pipes);
    });
}

#[test]
fn a_long_wait_for_a_batch_is_one_call() {
    let limit = Duration::from_millis(20);
    both_ways(|bench| {
        let mut pipe = bench.pipe(PIPE);
        for tag in 0..4 {
            bench.ring.prepare(Tag(tag), &read_byte(PIPE, u32::from(tag))).unwrap();
        }
        // Settles the waker's entries.
        let short = Duration::from_millis(1);
        bench.ring.doorbell(batch(4, short, Some(short))).unwrap();
        assert_eq!(reaped(bench), []);
        pipe.write_all(b"ab").unwrap();
        let (before, start) = (bench.ring.enters(), Instant::now());
        bench.ring.doorbell(batch(4, limit, Some(limit))).unwrap();
        assert!(start.elapsed() >= limit, "half of the batch ends the wait");
        let calls = bench.ring.enters().all - before.all;
        assert_eq!((reaped(bench).len(), calls), (2, 1));
        pipe.write_all(b"cd").unwrap();
        bench.wait_for(2);
    });
}

#[test]
fn what_is_here_already_counts() {
    both_ways(|bench| {
        let pipe = bench.pipe(PIPE);
        bench.ring.prepare(Tag(0), &read_byte(PIPE, 0)).unwrap();
        // Of a file that was there before, there is no directory to sync: it ends at the doorbell
        // itself.
        let path = bench.path.clone();
        bench.ring.attach(Target(7), open(&path));
        let here = Bio { target: Target(7), ..still(Operation::FlushDirectory, 0, 0) };
        bench.ring.prepare(Tag(1), &here).unwrap();
        bench.ring.doorbell(batch(1, FOR_EVER, None)).unwrap();
        assert_eq!(reaped(bench), [1]);
        bench.ring.prepare(Tag(1), &here).unwrap();
        // One more is wanted, which does not come: only the time of those that did counts.
        assert_eq!(ring_for(bench, batch(2, Duration::from_millis(1), None), 1), [1]);
        end_reads(bench, &mut [pipe]);
    });
}

/// Kernels without a minimal wait refuse one.
#[test]
fn a_wait_for_one_completion_has_no_minimal_time() {
    let mut bench = Bench::new(Level::NoArray, Register::Yes);
    let sleep = bench.ring.sleep_for(batch(4, Duration::from_millis(5), None)).unwrap();
    assert_eq!((sleep.want, sleep.within), (1, Duration::ZERO), "nothing is in flight");
}

/// The kernel works at most 20 completions off in a call that waits for one; more are fetched by
/// another call, and without more there is no call.
#[test]
fn reap_finds_all_that_has_completed() {
    // On Linux 6.1 the reads of a pipe end one by one, in several calls; on 6.12 together.
    if kernel_version() < (KernelVersion { major: 6, minor: 12 }) {
        return;
    }
    for level in Level::ALL {
        for count in [10u16, 64] {
            let mut bench = Bench::new(level, Register::Yes);
            let mut pipe = bench.pipe(PIPE);
            for tag in 0..count {
                while bench.ring.prepare(Tag(tag), &read_byte(PIPE, 0)) == Err(Refused) {
                    bench.ring.doorbell(Wait::Not).unwrap();
                }
            }
            bench.ring.doorbell(Wait::Not).unwrap();
            // From here on each byte ends one read, by work for this thread that is queued before
            // the write returns.
            pipe.write_all(&vec![b'x'; usize::from(count)]).unwrap();
            let before = bench.ring.enters();
            let mut done = Vec::new();
            while done.is_empty() {
                bench.ring.doorbell(Wait::Something(None)).unwrap();
                done = reaped(&mut bench);
            }
            let calls = bench.ring.enters().all - before.all;
            println!("{level:?}: {} of {count} in {calls} calls", done.len());
            assert!(done.into_iter().eq(0..count), "{level:?}");
            assert!(
                calls <= 1 + u64::from(count) / TASK_WORK as u64 + 1,
                "{level:?}: {calls} calls"
            );
            if count < 20 {
                assert!(calls <= 1, "{level:?}: {calls} calls");
            }
        }
    }
}

#[test]
fn calls_are_counted() {
    let mut bench = Bench::new(Level::NoArray, Register::Yes);
    assert_eq!(bench.ring.enters(), Enters::default());
    bench.ring.doorbell(Wait::Not).unwrap();
    assert_eq!(bench.ring.enters(), Enters::default(), "there was nothing to do");
    bench.ring.prepare(Tag(0), &still(Operation::FlushData, 0, 0)).unwrap();
    let mut rung = 0;
    while bench.ring.in_flight() > 0 {
        bench.ring.doorbell(Wait::Something(None)).unwrap();
        assert!(reaped(&mut bench).into_iter().eq((bench.ring.in_flight() == 0).then_some(0)));
        rung += 1;
    }
    assert_eq!(bench.ring.enters(), Enters { all: rung, waits: rung });
}
