//! Polling for completions, on any device: where it does not poll, the kernel refuses the first
//! request, and the file goes on without.

use std::sync::atomic::Ordering;

use super::*;

/// Asks again while the answer is "would block", as the queue does.
fn ask_again(bench: &mut Bench, request: &Bio) -> u64 {
    for _ in 0..10 {
        match bench.ask(request) {
            Err(Errno::WOULD_BLOCK) => {}
            result => return result.unwrap(),
        }
    }
    panic!("{request:?} makes no progress");
}

#[test]
fn contract_13_a_file_whose_polling_is_refused_goes_on_without() {
    for fixed in every_fixed() {
        let mut bench = Bench::new(Level::NoArray, fixed);
        let file = Arc::clone(&bench.ring.ledger.targets.attached(FILE).file);
        file.polled.store(1 << 20, Ordering::Relaxed);
        bench.fill(0, 7);
        let frames = |frame, pages| [Segment::frames(Frame(frame), pages * PAGE_BYTES)];
        let bytes = 2 * PAGE as u64;
        let write = moving(Operation::Write, 0, &frames(0, 2));
        assert_eq!(ask_again(&mut bench, &write), bytes);
        bench.ask(&still(Operation::FlushData, 0, 0)).unwrap();
        let mut scattered = frames(8, 1).to_vec();
        scattered.extend(frames(10, 1));
        let read = moving(Operation::Read, 0, &scattered);
        assert_eq!(ask_again(&mut bench, &read), bytes);
        assert_eq!(bench.first_byte(8), 7);
        assert_eq!(bench.ring.in_flight(), 0);
        println!("{fixed:?}: polled to the end: {}", file.is_polled());
        assert!(bench.ring.polled.is_some(), "the first request was polled for");
    }
}

#[test]
fn a_batch_over_the_polled_ring_is_one_call() {
    let mut bench = Bench::new(Level::NoArray, Fixed::default());
    let file = Arc::clone(&bench.ring.ledger.targets.attached(FILE).file);
    bench.ask(&moving(Operation::Write, 0, &[Segment::frames(Frame(0), 4 * PAGE_BYTES)])).unwrap();
    file.polled.store(1 << 20, Ordering::Relaxed);
    for page in 0..4u32 {
        let segment = [Segment::frames(Frame(page), PAGE_BYTES)];
        let read = moving(Operation::Read, u64::from(page * PAGE_BYTES), &segment);
        bench.ring.prepare(Tag(u16::try_from(page).unwrap()), &read).unwrap();
    }
    let before = bench.ring.enters().all;
    bench.ring.doorbell(Wait::Not).unwrap();
    assert_eq!(bench.ring.enters().all, before + 1);
    let done = bench.wait_for(4);
    // All were refused, or none.
    let refused = done.iter().filter(|one| one.result == Err(Errno::WOULD_BLOCK)).count();
    assert!(refused == if file.is_polled() { 0 } else { 4 }, "{done:?}");
}

#[test]
fn a_request_that_the_kernel_would_split_is_not_polled_for() {
    let mut bench = Bench::new(Level::NoArray, Fixed::default());
    let file = Arc::clone(&bench.ring.ledger.targets.attached(FILE).file);
    let mut goes = |operation, segments: &[Segment]| {
        file.polled.store(2 * PAGE as u64, Ordering::Relaxed);
        bench.ring.goes_polled(&moving(operation, 0, segments))
    };
    let pages = |frame, count| Segment::frames(Frame(frame), count * PAGE_BYTES);
    let part = |frame, length| Segment::Frames { first: Frame(frame), offset: 512, length };
    assert!(goes(Operation::Read, &[pages(0, 2)]) && goes(Operation::Write, &[pages(0, 1)]));
    assert!(goes(Operation::Read, &[pages(0, 1), pages(4, 1)]));
    assert!(goes(Operation::Read, &[part(0, 1024)]));
    assert!(!goes(Operation::Read, &[pages(0, 3)]), "larger than the device takes");
    assert!(!goes(Operation::Read, &[part(0, 512), part(2, 512)]), "a gap");
    assert!(!goes(Operation::WriteBuffered, &[pages(0, 1)]));
    assert!(!goes(Operation::WriteFua, &[pages(0, 1)]));
    let memory: Memory = AlignedMemory::new(4 * PAGE).into();
    let buffer = bench.ring.lend(memory);
    let lent = |offset| Segment::Lent { buffer, offset, length: PAGE_BYTES };
    for (offset, is_polled) in [(2 * PAGE_BYTES, true), (2 * PAGE_BYTES + 512, false)] {
        let request = moving(Operation::Read, 0, &[lent(0), lent(offset)]);
        assert_eq!(bench.ring.goes_polled(&request), is_polled);
    }
}

#[test]
fn contract_17_polling_is_refused_with_the_reason() {
    let bench = Bench::new(Level::NoArray, Fixed::default());
    let file = Arc::clone(&bench.ring.ledger.targets.attached(FILE).file);
    match file.poll() {
        Ok(()) => assert!(file.is_polled(), "this device polls"),
        Err(reason) => {
            println!("{reason}");
            assert!(!file.is_polled());
            assert!(["queue", "device", "direct"].iter().any(|word| reason.contains(word)));
        }
    }
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() {
        let directory = tempfile::tempdir_in(memory).unwrap();
        let reason = open(&directory.path().join("file")).poll().unwrap_err();
        assert!(reason.contains("direct I/O") || reason.contains("no block device"), "{reason}");
    }
}
