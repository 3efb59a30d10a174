//! Behaviour of the ring alone: its queues, and when it switches a descriptor. The rest is in
//! `backend.rs`.

mod support;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forebay_block::{Completion, Device, Operation, Refused, Tag, Wait};
use forebay_uring::{Arena, Ring};
use support::{Bench, PAGE_BYTES, frames, moving, still, wait_for};

#[test]
fn the_descriptor_is_direct_again_after_a_buffered_write() {
    let mut bench = Bench::new(8, 8);
    let flags = |bench: &Bench| {
        rustix::fs::fcntl_getfl(&*bench.file).unwrap().contains(rustix::fs::OFlags::DIRECT)
    };
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
fn a_ring_of_no_entries_still_has_one_place() {
    let arena = Arc::new(Arena::new(1).unwrap());
    assert!(Ring::new(arena, 1).is_ok());
}
