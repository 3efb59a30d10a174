//! Queues for callers that make their requests themselves, on the calling thread.

use std::sync::Arc;

use forebay_block::knobs::Merging;
use forebay_block::{Bio, Ended, Knobs, Operation, Queue, Wait};

use crate::core::inode::Inode;
use crate::core::limits::{KITS, LEAD_BIOS};
use crate::core::pool::Pool;
use crate::core::stats::Counters;
use crate::platform::sync::Mutex;
use crate::platform::{Alive, Inline};

/// Queue and device for the requests of one caller.
#[derive(Debug)]
pub(crate) struct Kit {
    queue: Queue,
    device: Inline,
}

/// Kits that no caller uses now, kept for the next ones. `None` once no more are kept.
#[derive(Debug)]
pub(crate) struct Kits(Mutex<Option<Vec<Kit>>>);

impl Default for Kits {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl Kits {
    /// Takes a kit that the calling thread may use.
    pub(crate) fn take(&self, pool: &Pool) -> Kit {
        let kept = self.0.lock().as_mut().and_then(|kits| {
            let last = kits.iter().rposition(|kit| kit.device.is_for_this_thread())?;
            Some(kits.remove(last))
        });
        kept.unwrap_or_else(|| {
            let mut queue = Queue::new();
            // Each bio is made by itself.
            queue.set_knobs(Knobs { merging: Merging::Off, ..Knobs::default() });
            Kit { queue, device: Inline::new(Arc::clone(pool.arena()), LEAD_BIOS as u32) }
        })
    }

    /// Keeps a kit, in place of the one that has not been used for the longest time.
    pub(crate) fn put(&self, kit: Kit) {
        let mut kits = self.0.lock();
        let dropped = match &mut *kits {
            Some(kits) => {
                kits.push(kit);
                (kits.len() > KITS).then(|| kits.remove(0))
            }
            None => Some(kit),
        };
        drop(kits);
        drop(dropped);
    }

    /// Drops all kits and keeps no more: a keeper waits for the end of their rings.
    pub(crate) fn close(&self) {
        drop(self.0.lock().take());
    }
}

impl Kit {
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
