//! In the steady state a request allocates nothing: the allocator of this program counts, thread by
//! thread.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use forebay_block::{Device, Operation, Tag, Wait};
use support::{Bench, PAGE_BYTES, frames, moving, still};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is done by the system's allocator, as its caller promises; counting touches no memory
// of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_request_allocates_nothing() {
    let mut bench = Bench::new(256, 32);
    let page = |frame: u32| frames(frame, PAGE_BYTES);
    let requests: Vec<_> = (0..24)
        .map(|tag| match tag % 4 {
            0 => moving(Operation::Write, u64::from(tag) << 16, &[page(tag)]),
            1 => {
                moving(Operation::Write, u64::from(tag) << 16, &[page(tag * 8), page(tag * 8 + 2)])
            }
            2 => moving(Operation::Read, 0, &[page(tag * 8 + 4)]),
            _ => still(Operation::FlushDirectory, 0, 0),
        })
        .collect();
    let mut done = Vec::with_capacity(64);
    let waits = [
        Wait::Not,
        Wait::Something(None),
        Wait::Batch { want: 8, within: Duration::from_micros(50), limit: None },
    ];
    let mut round = |wait: Wait| {
        for (tag, request) in (0..).map(Tag).zip(&requests) {
            bench.ring.prepare(tag, request).unwrap();
        }
        bench.ring.doorbell(wait).unwrap();
        while bench.ring.in_flight() > 0 {
            bench.ring.doorbell(Wait::Something(None)).unwrap();
            bench.ring.reap(&mut done);
        }
        done.clear();
    };
    for wait in waits.into_iter().cycle().take(9) {
        round(wait);
    }
    let before = ALLOCATIONS.get();
    for wait in waits.into_iter().cycle().take(60) {
        round(wait);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
