//! The steady path of a request allocates no memory: bios of one segment, submitted, dispatched and
//! ended over and over.
//!
//! The allocator of this program counts per thread, so this file is a test of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use forebay_block::layers::NullLayer;
use forebay_block::limits::PAGE;
use forebay_block::{Bio, Class, Ended, Frame, Operation, Queue, Segment, Source, Target, Wait};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Allocator that counts the calls of each thread and passes them to the system's allocator.
struct Counting;

fn count() {
    // A thread that ends has lost its counter, and no test reads it.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call is passed to the system's allocator unchanged, and its result is returned. The
// count beside it neither allocates nor unwinds: a constant thread-local cell needs no memory of
// its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of this call, which is also that of the inner one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from the system's allocator, as all of it does.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bios per batch.
const BATCH: u64 = 32;

/// Submits a batch that does not merge and ends it.
fn turn(
    queue: &mut Queue,
    device: &mut NullLayer,
    ended: &mut Vec<Ended>,
    operation: Operation,
    class: Class,
) {
    for number in 0..BATCH {
        queue.submit(Bio {
            operation,
            target: Target(number as u32 % 4),
            offset: 2 * number * PAGE as u64,
            length: PAGE as u64,
            segments: [Segment::frames(Frame(2 * number as u32), PAGE as u32)]
                .into_iter()
                .collect(),
            class,
            source: Source(number as u32 % 3),
            owner: number,
        });
    }
    while queue.staged() + queue.in_flight() > 0 {
        queue.dispatch(device, Wait::Something(None)).unwrap();
        queue.run(device, ended);
    }
    assert_eq!(ended.len(), BATCH as usize);
    ended.clear();
}

#[test]
fn the_steady_path_of_a_request_allocates_nothing() {
    let (mut queue, mut device, mut ended) = (Queue::new(), NullLayer::new(), Vec::new());
    for (operation, class) in [
        (Operation::Write, Class::Background),
        (Operation::Read, Class::Waited),
        (Operation::WriteFua, Class::Waited),
    ] {
        // Warm-up: the lists grow to the size that they need.
        (0..64).for_each(|_| turn(&mut queue, &mut device, &mut ended, operation, class));
        let before = ALLOCATIONS.get();
        (0..1000).for_each(|_| turn(&mut queue, &mut device, &mut ended, operation, class));
        let allocations = ALLOCATIONS.get() - before;
        assert_eq!(allocations, 0, "in 1000 batches of {BATCH} of {operation:?}");
    }
}

#[test]
fn an_allocation_is_counted() {
    let before = ALLOCATIONS.get();
    let memory = std::hint::black_box(vec![1_u8; 100]);
    assert_eq!((ALLOCATIONS.get() - before, memory.len()), (1, 100));
}
