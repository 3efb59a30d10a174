//! Backends: doorbells, wakes, several of them on one file, and memory that is lent.

use std::rc::Rc;

use super::*;
use crate::world::machine::{in_flight, opened};

#[test]
fn two_backends_write_and_read_one_file() {
    for choice in [Choice::IoUring, Choice::Threads] {
        calm(move || {
            let file = Arc::new(make("/a"));
            let mut one = Rig::new(choice, Arc::clone(&file));
            let mut two = Rig::new(choice, Arc::clone(&file));
            (0..4).for_each(|frame| one.fill(frame, frame as u8 + 1));
            (0..4).for_each(|frame| two.fill(frame, frame as u8 + 5));
            one.file.allocate(0, 8 * 4096).unwrap();
            one.file.truncate(8 * 4096).unwrap();
            one.prepare(&pages(Operation::Write, 0, 0..4));
            two.prepare(&pages(Operation::Write, 4, 0..4));
            assert_eq!(one.wait(1)[0].result, Ok(4 * 4096));
            assert_eq!(two.wait(1)[0].result, Ok(4 * 4096));
            assert_eq!(one.act(&pages(Operation::Read, 0, 8..17)), Ok(8 * 4096));
            for page in 0..8 {
                assert_eq!(one.frame(8 + page), [page as u8 + 1; 4096]);
            }
            assert_eq!(two.backend.in_flight(), 0);
        });
    }
}

#[test]
fn a_doorbell_ends_by_a_wake_or_at_its_time() {
    calm(|| {
        let mut rig = Rig::new(Choice::Auto, Arc::new(make("/a")));
        let begin = world::now();
        let mut tries = 0;
        while world::now() - begin < micros(500) {
            rig.backend.doorbell(Wait::Something(Some(micros(500)))).unwrap();
            tries += 1;
        }
        assert!(tries < 5, "few waits end without a cause");
        let waker = rig.backend.waker();
        waker.wake();
        let begin = world::now();
        rig.backend.doorbell(Wait::Something(None)).unwrap();
        assert!(world::now() - begin < micros(10), "it was rung before");
        let rung = Rc::new(std::cell::Cell::new(false));
        let rings = Rc::clone(&rung);
        world::spawn(world::process(), "ringer", move || {
            world::sleep(micros(300));
            rings.set(true);
            waker.wake();
        });
        while !rung.get() {
            rig.backend.doorbell(Wait::Something(None)).unwrap();
        }
    });
}

#[test]
fn a_batch_is_waited_for_as_long_as_it_may() {
    calm(|| {
        let mut rig = Rig::new(Choice::IoUring, Arc::new(make("/a")));
        rig.write(0, 0..4, 1).unwrap();
        (0..4).for_each(|page| {
            rig.prepare(&pages(Operation::Read, page, page as u32..page as u32 + 1));
        });
        let wait = Wait::Batch { want: 4, within: Duration::from_secs(1), limit: None };
        rig.backend.waker().wake();
        rig.backend.doorbell(wait).unwrap();
        let mut ended = Vec::new();
        rig.backend.reap(&mut ended);
        assert_eq!(ended.len(), 4, "no wake ends the kernel's wait for a batch");
        let wait = Wait::Batch { want: 4, within: micros(1), limit: Some(micros(50)) };
        rig.backend.doorbell(wait).unwrap();
    });
}

#[test]
fn lent_memory_is_written_and_read() {
    calm(|| {
        let mut rig = Rig::new(Choice::Auto, Arc::new(make("/a")));
        let whole = |buffer, offset: u32, length: u32| -> Segments {
            [Segment::Lent { buffer, offset, length }].into_iter().collect()
        };
        let mut memory = forebay_uring::AlignedMemory::new(4096);
        memory.fill(3);
        let buffer = rig.backend.lend(memory.into());
        let request = bio(Operation::Write, 512, 1024, whole(buffer, 512, 1024));
        assert_eq!(rig.act(&request), Ok(1024));
        let misplaced = bio(Operation::Write, 512, 512, whole(buffer, 100, 512));
        assert_eq!(rig.act(&misplaced), Err(Errno::INVALID), "the address is not aligned");
        let memory = rig.backend.take_back(buffer);
        assert_eq!(memory.bytes(), [3; 4096]);
        let buffer = rig.backend.lend(forebay_uring::AlignedMemory::new(4096).into());
        let request = bio(Operation::Read, 0, 4096, whole(buffer, 0, 4096));
        assert_eq!(rig.act(&request), Ok(1536));
        let memory = rig.backend.take_back(buffer);
        assert!(memory.bytes()[..512] == [0; 512] && memory.bytes()[512..1536] == [3; 1024]);
    });
}

#[test]
fn a_dropped_backend_waits_for_its_requests() {
    calm(|| {
        let file = Arc::new(make("/a"));
        let mut rig = Rig::new(Choice::Auto, Arc::clone(&file));
        rig.fill(0, 7);
        rig.prepare(&pages(Operation::Write, 0, 0..1));
        rig.backend.doorbell(Wait::Not).unwrap();
        assert_eq!(in_flight(), 1);
        drop(rig);
        assert_eq!((in_flight(), file.length().unwrap()), (0, 4096));
        assert_eq!(opened("/a"), 1);
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let traced = |seed| {
        let settings = Settings { tracing: Tracing::Kept, ..settings(seed) };
        let run = run(settings, || {
            install(MachinePlan::default());
            let file = Arc::new(make("/a"));
            file.truncate(24 * 4096).unwrap();
            for number in 0..3u64 {
                let file = Arc::clone(&file);
                world::spawn(world::process(), "writer", move || {
                    let mut rig = Rig::new(Choice::Auto, file);
                    (0..5).for_each(|at| {
                        let _ = rig.write(number * 8 + at, 0..1, at as u8);
                    });
                });
            }
            world::sleep(Duration::from_millis(20));
        });
        run.unwrap_or_else(|failure| panic!("{failure}")).1
    };
    let (one, again, other) = (traced(5), traced(5), traced(6));
    assert_eq!((one.fingerprint, &one.trace), (again.fingerprint, &again.trace));
    assert_ne!(one.fingerprint, other.fingerprint);
    assert!(one.trace.len() > 30);
}
