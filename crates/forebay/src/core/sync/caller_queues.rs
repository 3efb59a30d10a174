//! Queues for callers that make their requests themselves, on the calling thread.

use std::sync::Arc;

use forebay_block::knobs::Merging;
use forebay_block::{Bio, Ended, Knobs, Operation, Queue, Wait};

use crate::core::inode::Inode;
use crate::core::limits::{CALLER_QUEUES, LEAD_BIOS};
use crate::core::pool::Pool;
use crate::core::stats::Counters;
use crate::platform::sync::Mutex;
use crate::platform::{Alive, Inline};

/// Queue and device for the requests of one caller.
#[derive(Debug)]
pub(crate) struct CallerQueue {
    queue: Queue,
    device: Inline,
}

/// Queues that no caller uses now, kept for the next ones. `None` once no more are kept.
#[derive(Debug)]
pub(crate) struct CallerQueues(Mutex<Option<Vec<CallerQueue>>>);

impl Default for CallerQueues {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl CallerQueues {
    /// Takes a queue that the calling thread may use.
    pub(crate) fn take(&self, pool: &Pool) -> CallerQueue {
        let kept = self.0.lock().as_mut().and_then(|queues| {
            let last = queues.iter().rposition(|queue| queue.device.is_for_this_thread())?;
            Some(queues.remove(last))
        });
        kept.unwrap_or_else(|| {
            let mut queue = Queue::new();
            // Each bio is made by itself.
            queue.set_knobs(Knobs { merging: Merging::Off, ..Knobs::default() });
            CallerQueue { queue, device: Inline::new(Arc::clone(pool.arena()), LEAD_BIOS as u32) }
        })
    }

    /// Keeps a queue, in place of the one that has not been used for the longest time.
    pub(crate) fn put(&self, queue: CallerQueue) {
        let mut queues = self.0.lock();
        let dropped = match &mut *queues {
            Some(queues) => {
                queues.push(queue);
                (queues.len() > CALLER_QUEUES).then(|| queues.remove(0))
            }
            None => Some(queue),
        };
        drop(queues);
        drop(dropped);
    }

    /// Drops all of them and keeps no more: a keeper waits for the end of their rings.
    pub(crate) fn close(&self) {
        drop(self.0.lock().take());
    }
}

impl CallerQueue {
    /// Makes requests and returns their ends, in the order of completion.
    pub(crate) fn make(
        &mut self,
        inode: &Inode,
        bios: Vec<Bio>,
        counters: &Counters,
        alive: Option<&Alive>,
    ) -> Vec<Ended> {
        let (count, mut ended) = (bios.len(), Vec::with_capacity(bios.len()));
        if bios.iter().all(|bio| bio.operation == Operation::Write) {
            self.device.prepare_writes(count, alive);
        }
        self.device.attach(inode.target, Arc::clone(&inode.file));
        bios.into_iter().for_each(|bio| self.queue.submit(bio));
        while ended.len() < count {
            self.queue
                .dispatch(&mut self.device, Wait::Something(None))
                .expect("calls of this thread need no ring that could break");
            self.queue.run(&mut self.device, &mut ended);
        }
        drop(self.device.detach(inode.target));
        counters.add_of_caller(self.queue.take_counters());
        ended
    }
}
