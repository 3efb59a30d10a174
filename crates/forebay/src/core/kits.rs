//! Queues for callers that make their requests themselves, on the calling thread.

use std::sync::Arc;

use forebay_block::knobs::Merging;
use forebay_block::queue::Awaited;
use forebay_block::{Bio, Ended, Knobs, Queue, Wait};

use crate::core::counters::Counters;
use crate::core::inode::Inode;
use crate::core::limits::{KITS, LEAD_BIOS};
use crate::core::pool::Pool;
use crate::platform::Inline;
use crate::platform::sync::Mutex;

/// Queue and device for the requests of one caller.
#[derive(Debug)]
pub(crate) struct Kit {
    queue: Queue,
    device: Inline,
}

/// Kits that no caller uses now.
#[derive(Debug, Default)]
pub(crate) struct Kits(Mutex<Vec<Kit>>);

impl Kits {
    pub(crate) fn take(&self, pool: &Pool) -> Kit {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(|| {
            let mut queue = Queue::new();
            // The caller waits for each of its bios, and each is made by itself.
            queue.set_awaited(Awaited::Yes);
            queue.set_knobs(Knobs { merging: Merging::Off, ..Knobs::default() });
            Kit { queue, device: Inline::new(Arc::clone(pool.arena()), LEAD_BIOS as u32) }
        })
    }

    pub(crate) fn put(&self, kit: Kit) {
        let mut kits = self.0.lock();
        if kits.len() < KITS {
            kits.push(kit);
        }
    }
}

impl Kit {
    /// Makes requests and returns their ends, in the order of completion.
    pub(crate) fn make(
        &mut self,
        inode: &Inode,
        bios: Vec<Bio>,
        counters: &Counters,
    ) -> Vec<Ended> {
        let (count, mut ended) = (bios.len(), Vec::with_capacity(bios.len()));
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
