//! Operations from another thread: one thread makes them and hands them over through a list, the
//! context runs queue and device and answers through another. The difference to the loop in one
//! thread is the cost of crossing.
//!
//! ```text
//! submitter --plugs of operations, first in first out--> context: submit, dispatch, run
//!     ^                                                     |
//!     +------------- numbers of those that ended -----------+
//! ```
//!
//! Operations cross in groups: the submitter hands over a plug (a batch, or what it has when no
//! more may be on their way), the context the number of a completion run. A list's node is
//! allocated by one thread and freed by the other, which for each operation alone costs more than
//! all of its way.
//!
//! Both ends look again and again instead of sleeping: the cost of a wake is the scheduler's, not
//! the list's. With one processor that still ends, because a thread that finds nothing for long
//! yields.

use std::hint;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::vec;

use forebay_block::limits::BATCH_REQUESTS;
use forebay_lists::fifo::{Receiver, Sender};
use forebay_lists::{Pop, WasEmpty, fifo};

use super::{Blocks, batch_of};
use crate::load::driver::{Batch, Drive, Source, histogram};
use crate::load::error::CellError;
use crate::load::lane::Lane;
use crate::load::sequence::Operation;
use crate::load::timed::{Counted, SetOnDrop, Spans, count};
use crate::request::RequestSpec;

/// Looks in vain before the processor is given away.
const PATIENCE: u32 = 1000;

/// Counts as [`count`] does, with operations from another thread. Their latencies are not
/// known: the submitter alone knows when it made them.
pub(super) fn count_crossed<L: Lane>(
    spec: &RequestSpec,
    lane: &mut L,
    spans: Spans,
) -> Result<Counted, CellError> {
    let (operations, from_submitter) = fifo();
    let (answers, from_context) = fifo();
    wake_nobody(answers.push(spec.depth as usize));
    let stop = AtomicBool::new(false);
    let most = batch_of(spec).most.min(BATCH_REQUESTS);
    let blocks = Blocks::new(spec);
    thread::scope(|scope| {
        let stop_there = &stop;
        let submitter =
            scope.spawn(move || submit(blocks, most, from_context, &operations, stop_there));
        let source =
            Incoming { list: from_submitter, pending: Vec::new().into_iter(), answers, idle: 0 };
        let any = Batch { least: 0, most: usize::MAX, complete: 1 };
        let mut drive = Drive::new(source, spec.depth as usize, any);
        let counted = {
            // However the counting ends, the submitter hears of it.
            let _stop = SetOnDrop(&stop);
            count(&mut drive, lane, spans)
        };
        submitter.join().expect("the submitter does not panic");
        let mut counted = counted?;
        counted.tally.latencies = histogram();
        Ok(counted)
    })
}

/// The other end looks by itself.
fn wake_nobody(_: WasEmpty) {}

/// Makes an operation for each answer, and hands them over in plugs of at most `most`, until `stop`
/// is set.
fn submit(
    mut blocks: Blocks,
    most: usize,
    mut answers: Receiver<usize>,
    operations: &Sender<Vec<Operation>>,
    stop: &AtomicBool,
) {
    assert!(most > 0, "a plug without room");
    let (mut idle, mut plug) = (0, Vec::with_capacity(most));
    let unplug = |plug: &mut Vec<Operation>| {
        let plug = mem::replace(plug, Vec::with_capacity(most));
        debug_assert!(!plug.is_empty(), "an empty plug is handed over");
        wake_nobody(operations.push(plug));
    };
    while !stop.load(Ordering::Relaxed) {
        match answers.pop() {
            Pop::Node(count) => {
                idle = 0;
                for _ in 0..count {
                    plug.push(blocks.draw());
                    if plug.len() == most {
                        unplug(&mut plug);
                    }
                }
            }
            // The plug gets no more operations.
            Pop::Empty | Pop::Busy if !plug.is_empty() => unplug(&mut plug),
            Pop::Empty | Pop::Busy => look_again(&mut idle),
        }
    }
}

/// The operations that have come to the context.
struct Incoming {
    list: Receiver<Vec<Operation>>,
    /// Operations that wait for room in the queue.
    pending: vec::IntoIter<Operation>,
    answers: Sender<usize>,
    /// Looks in vain.
    idle: u32,
}

impl Source for Incoming {
    #[inline]
    fn next(&mut self) -> Option<Operation> {
        if let Some(operation) = self.pending.next() {
            return Some(operation);
        }
        match self.list.pop() {
            Pop::Node(operations) => self.pending = operations.into_iter(),
            // One in the middle of a push is looked for in the next turn.
            Pop::Empty | Pop::Busy => return None,
        }
        self.pending.next()
    }

    #[inline]
    fn ended(&mut self, count: usize) {
        if count == 0 {
            return look_again(&mut self.idle);
        }
        self.idle = 0;
        wake_nobody(self.answers.push(count));
    }
}

/// Counts a look in vain, and lets another thread run if there were many.
fn look_again(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(PATIENCE) {
        thread::yield_now();
    } else {
        hint::spin_loop();
    }
}
