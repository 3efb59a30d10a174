//! Registered files change what a request costs, and nothing else.

mod support;

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::{Device, Frame, Operation, Segment, Tag, Target, Wait};
use forebay_uring::probe::{KernelVersion, kernel_version};
use forebay_uring::{Arena, Direct, Feature, Register, Ring};
use support::{Bench, PAGE_BYTES, create, directory, frames, moving, still, wait_for};

const PAGE: u64 = PAGE_BYTES as u64;

const REGISTERED_OR_NOT: [Register; 2] = [Register::No, Register::Yes];

#[test]
fn the_descriptor_is_switched_as_before() {
    for files in REGISTERED_OR_NOT {
        let mut bench = Bench::new(8, 8);
        if *bench.file.direct() != Direct::Yes {
            return println!("skipped: {}", bench.file.direct());
        }
        bench.ring.set_registered(files);
        bench.fill(Frame(0), b'x');
        let length = bench.file.alignment().offset - 1;
        let odd = |operation| moving(operation, 0, &[frames(0, length)]);
        if rustix::io::pwrite(&*bench.file, &bench.bytes(Frame(0))[..length as usize], 0).is_ok() {
            return println!("skipped: direct writes of this file system need no alignment");
        }
        // Refusals show whether the flag counts.
        for _ in 0..3 {
            assert_eq!(bench.ask(&odd(Operation::Write)), Err(libc::EINVAL), "{files:?}");
            assert_eq!(
                bench.ask(&odd(Operation::WriteBuffered)),
                Ok(u64::from(length)),
                "{files:?}"
            );
        }
        assert_eq!(bench.content(), vec![b'x'; length as usize]);
    }
}

#[test]
fn what_is_registered_changes_while_nothing_is_in_flight() {
    let mut bench = Bench::new(64, 8);
    let pieces: Vec<Segment> = (0..16).map(|piece| frames(2 * piece, PAGE_BYTES)).collect();
    for (round, files) in (0..).zip(REGISTERED_OR_NOT.into_iter().cycle().take(8)) {
        bench.ring.set_registered(files);
        println!("{files:?}: {}", bench.ring.describe());
        assert_eq!(bench.ring.offers().had(Feature::RegisteredFiles), files == Register::Yes);
        for frame in 0..32 {
            bench.fill(Frame(frame), round ^ u8::try_from(frame).unwrap());
        }
        assert_eq!(bench.ask(&moving(Operation::WriteFua, 0, &pieces)), Ok(16 * PAGE));
        let content = bench.content();
        assert!(content.chunks(4096).zip(0..).all(|(page, piece)| page[0] == round ^ (2 * piece)));
        let back: Vec<Segment> = (16..32).map(|piece| frames(2 * piece, PAGE_BYTES)).collect();
        assert_eq!(bench.ask(&moving(Operation::Read, 0, &back)), Ok(16 * PAGE));
        assert_eq!(bench.bytes(Frame(62))[9], round ^ 30);
    }
}

#[test]
#[should_panic(expected = "does not change under requests")]
fn what_is_registered_stays_under_requests() {
    let mut bench = Bench::new(8, 8);
    bench.ring.prepare(Tag(0), &still(Operation::FlushData, 0, 0)).unwrap();
    bench.ring.set_registered(Register::Yes);
}

#[test]
fn beyond_the_table_files_go_by_their_descriptors() {
    let mut bench = Bench::new(4, 8);
    bench.fill(Frame(1), b'f');
    let directory = directory();
    // A table has entries for 1024 targets at most.
    for (index, number) in [1023, 1024, 5000].into_iter().enumerate() {
        let path = directory.path().join(format!("{number}"));
        bench.ring.attach(Target(number), Arc::new(create(&path).file));
        let mut request = moving(Operation::Write, 0, &[frames(1, PAGE_BYTES)]);
        request.target = Target(number);
        assert_eq!(bench.ask(&request), Ok(PAGE), "file {index}");
        assert_eq!(std::fs::read(&path).unwrap(), [b'f'; 4096]);
    }
}

#[test]
fn a_detached_file_is_released() {
    let directory = directory();
    let path = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Reading gives nothing when nobody has the pipe open for writing, and would block while
    // somebody has.
    let mut reader =
        std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let mut ring = Ring::new(Arc::new(Arena::new(1).unwrap()), 4).unwrap();
    let is_open = |reader: &mut std::fs::File| match reader.read(&mut [0]) {
        Ok(0) => false,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => true,
        other => panic!("{other:?}"),
    };
    for way in ["detached", "dropped"] {
        ring.attach(Target(3), Arc::new(create(&path).file));
        ring.doorbell(Wait::Not).unwrap();
        assert!(is_open(&mut reader), "{way}");
        if way == "detached" {
            drop(ring.detach(Target(3)));
            // Linux 6.1 releases the file some time later, 6.12 at once.
            let later = Instant::now() + Duration::from_secs(10);
            let waits = kernel_version() < KernelVersion { major: 6, minor: 12 };
            while waits && is_open(&mut reader) && Instant::now() < later {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!is_open(&mut reader), "{way}");
        }
    }
    drop(ring);
    assert!(!is_open(&mut reader), "the ring's end lets go of its files, and not some time later");
}

#[test]
fn a_file_attached_on_another_thread_than_the_rings_is_served() {
    let Bench { mut ring, file, .. } = Bench::new(4, 8);
    ring.attach(Target(1), Arc::clone(&file));
    std::thread::spawn(move || {
        ring.attach(Target(2), Arc::clone(&file));
        for target in [1, 2] {
            let mut request = moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)]);
            request.target = Target(target);
            ring.prepare(Tag(0), &request).unwrap();
            assert_eq!(wait_for(&mut ring, 1)[0].result, Ok(PAGE));
        }
    })
    .join()
    .unwrap();
}

#[test]
fn a_ring_dropped_elsewhere_hurts_nobody() {
    let Bench { ring, arena, file, .. } = Bench::new(4, 8);
    let mut mine = Bench::new(4, 8);
    assert_eq!(mine.ask(&moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])), Ok(PAGE));
    let ring = std::thread::spawn(move || {
        let mut ring = ring;
        ring.prepare(Tag(0), &moving(Operation::Write, 0, &[frames(0, PAGE_BYTES)])).unwrap();
        assert_eq!(wait_for(&mut ring, 1)[0].result, Ok(PAGE));
        ring
    })
    .join()
    .unwrap();
    drop(ring);
    assert_eq!((Arc::strong_count(&arena), Arc::strong_count(&file)), (1, 1), "nothing is leaked");
    assert_eq!(mine.ask(&moving(Operation::Read, 0, &[frames(0, PAGE_BYTES)])), Ok(PAGE));
}

#[test]
fn contract_5_what_is_registered_outlives_what_is_in_flight() {
    let mut bench = Bench::new(1024, 64);
    bench.ring.set_registered(Register::Yes);
    for tag in 0..32 {
        let request = moving(Operation::Write, u64::from(tag) << 17, &[frames(0, 32 * PAGE_BYTES)]);
        bench.ring.prepare(Tag(tag), &request).unwrap();
    }
    bench.ring.doorbell(Wait::Not).unwrap();
    let Bench { ring, arena, file, .. } = bench;
    drop(ring);
    assert_eq!(
        (Arc::strong_count(&arena), Arc::strong_count(&file)),
        (1, 1),
        "neither held nor leaked"
    );
    assert_eq!(file.length().unwrap(), 32 << 17);

    // And what never ends is leaked with its memory and its file.
    let directory = directory();
    let path = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let pipe = Arc::new(create(&path).file);
    let mut ring = Ring::new(Arc::clone(&arena), 8).unwrap();
    ring.attach(Target(0), Arc::clone(&pipe));
    ring.set_registered(Register::Yes);
    ring.prepare(Tag(0), &moving(Operation::Read, 0, &[frames(0, PAGE_BYTES)])).unwrap();
    ring.doorbell(Wait::Not).unwrap();
    drop(ring);
    assert_eq!(
        (Arc::strong_count(&arena), Arc::strong_count(&pipe)),
        (2, 2),
        "one of each is leaked"
    );
}

/// No other test of this program waits for a batch.
#[test]
fn the_minimal_wait_is_tried_when_it_is_first_used() {
    let mut bench = Bench::new(4, 8);
    let listed = |bench: &Bench| {
        bench.ring.offers().0.iter().any(|offer| offer.feature == Feature::MinimalWaitEnds)
    };
    assert_eq!(bench.ask(&still(Operation::FlushData, 0, 0)), Ok(0));
    assert!(!listed(&bench));
    let batch = Wait::Batch { want: 2, within: Duration::from_micros(50), limit: None };
    let mut done = Vec::new();
    bench.ring.prepare(Tag(0), &still(Operation::FlushData, 0, 0)).unwrap();
    bench.ring.prepare(Tag(1), &still(Operation::FlushData, 0, 0)).unwrap();
    while done.len() < 2 {
        bench.ring.doorbell(batch).unwrap();
        bench.ring.reap(&mut done);
    }
    assert_eq!(
        listed(&bench),
        bench.ring.offers().had(Feature::MinimalWait),
        "{}",
        bench.ring.describe()
    );
}
