//! The ring from inside: every level it can be set up at.

use std::fs;

use forebay_block::{Class, Frame, Operation, Segment, Segments, Source};

use super::*;
use crate::{Access, Create, How, Truncate};

/// On one kernel all that older kernels have can be tried, for each is asked for by name.
#[test]
fn every_level_does_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for level in Level::ALL {
        let path = directory.path().join(format!("{level:?}"));
        let how =
            How { access: Access::ReadWrite, create: Create::New, truncate: Truncate::Keep, mode: 0o600 };
        let file = Arc::new(File::open(&path, &how).unwrap().file);
        let arena = Arc::new(Arena::new(4).unwrap());
        let mut ring = Ring::with_level(Arc::clone(&arena), 4, level).unwrap();
        ring.setup.has.set_length = level < Level::SubmitAll;
        println!("{level:?}: {}", ring.describe());
        ring.attach(Target(0), Arc::clone(&file));
        let segments = [Segment::frames(Frame(2), 4096)].into();
        let mut request = Bio {
            operation: Operation::Write,
            target: Target(0),
            offset: 4096,
            length: 4096,
            segments,
            class: Class::Waited,
            source: Source(0),
            owner: 0,
        };
        // SAFETY: nothing is in flight, and this thread alone knows the arena.
        unsafe { arena.copy_in(Frame(2), 0, &[7; 4096]) };
        assert_eq!(ask(&mut ring, &request), Ok(4096));
        request = Bio {
            operation: Operation::SetLength,
            offset: 10_000,
            length: 0,
            segments: Segments::new(),
            ..request
        };
        assert_eq!(ask(&mut ring, &request), Ok(0));
        let mut expected = vec![0; 10_000];
        expected[4096..8192].fill(7);
        assert!(fs::read(&path).unwrap() == expected);
        let start = Instant::now();
        let waker = ring.waker();
        let other = thread::spawn(move || waker.wake());
        ring.doorbell(Wait::Something(Some(Duration::from_secs(20)))).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10));
        other.join().unwrap();
    }
}

fn ask(ring: &mut Ring, request: &Bio) -> Result<u64, Errno> {
    ring.prepare(Tag(3), request).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        ring.doorbell(Wait::Something(None)).unwrap();
        ring.reap(&mut done);
    }
    assert_eq!(done.len(), 1);
    done[0].result
}

#[test]
fn contract_13_a_completion_nobody_waits_for_is_dropped() {
    let mut ring = Ring::new(Arc::new(Arena::new(1).unwrap()), 4).unwrap();
    for ticket in [Ticket::Request { tag: Tag(900), generation: 1 }, Ticket::Unknown] {
        ring.push(&opcode::Nop::new().build().user_data(ticket.word()));
    }
    ring.doorbell(Wait::Something(None)).unwrap();
    let mut done = Vec::new();
    ring.reap(&mut done);
    assert_eq!(done, []);
    assert_eq!(ring.in_flight(), 0);
}
