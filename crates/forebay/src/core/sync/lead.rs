//! The callers that wait for tickets of a file, and the one among them that leads: it makes the
//! requests of all, on its own thread, through a queue and a device of its own.

use std::sync::Arc;
use std::task::Waker;

use forebay_block::knobs::Merging;
use forebay_block::{Bio, Ended, Knobs, Operation, Queue, Target, Wait};
use forebay_cache::{CachedFile, Rare, TicketId};

use crate::core::limits::{CALLER_QUEUES, LEAD_BIOS};
use crate::core::pool::Pool;
use crate::core::stats::Counters;
use crate::platform::sync::Mutex;
use crate::platform::{Alive, Inline, OpenFile, thread};

/// The thread that serves the tickets of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Lead {
    /// Its context.
    #[default]
    Context,
    /// The caller that waits for this ticket.
    Caller(TicketId),
    /// Nobody until the caller that waits for this ticket, which was woken for it, takes the lead.
    Offered(TicketId),
}

/// Whether a caller may make requests on its own thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leads {
    /// It blocks until its request has ended.
    May,
    /// It is a task of an executor.
    Never,
}

impl Leads {
    /// Returns whether the caller of a poll is a blocking call of this library, and not on a thread
    /// of an engine, in a callback: a context must not wait for a device.
    pub(crate) fn of(waker: &Waker) -> Self {
        if thread::is_own_waker(waker) { Self::of_blocking_call() } else { Self::Never }
    }

    /// As [`Leads::of`] for the caller of a blocking call.
    pub(crate) fn of_blocking_call() -> Self {
        if thread::is_ours() { Self::Never } else { Self::May }
    }
}

/// Caller that waits for a ticket.
#[derive(Debug)]
struct Waiter {
    id: TicketId,
    leads: Leads,
    waker: Waker,
}

/// Callers that wait for tickets of a file, in order of arrival, and the lead.
#[derive(Debug, Default)]
pub(crate) struct Syncing {
    lead: Lead,
    waiters: Rare<Vec<Waiter>>,
    /// Ended tickets whose callers are woken.
    reported: u64,
}

impl Syncing {
    /// Returns whether a caller serves the tickets, or is about to.
    pub(crate) fn is_led(&self) -> bool {
        self.lead != Lead::Context
    }

    /// Returns whether the caller of this ticket has the lead, or was offered it.
    pub(crate) fn is_led_by(&self, id: TicketId) -> bool {
        self.lead == Lead::Caller(id) || self.lead == Lead::Offered(id)
    }

    /// Gives the lead to the caller of a ticket, which nobody has.
    pub(crate) fn lead(&mut self, id: TicketId) {
        assert!(!self.is_led(), "two callers would write the same page at the same time");
        self.lead = Lead::Caller(id);
    }

    /// Takes the lead if it was offered to the caller of this ticket, or is its own already.
    pub(crate) fn take_lead(&mut self, id: TicketId) -> bool {
        let is_leader = self.is_led_by(id);
        if is_leader {
            self.lead = Lead::Caller(id);
        }
        is_leader
    }

    /// Gives the lead back to the context.
    pub(crate) fn end_lead(&mut self) {
        debug_assert!(self.is_led(), "the lead would be passed on twice");
        self.lead = Lead::Context;
    }

    /// Returns the ticket of the caller that has waited longest, may lead, and still waits.
    pub(crate) fn next_leader(&self, cache: &CachedFile) -> Option<TicketId> {
        let may_lead = |waiter: &&Waiter| waiter.leads == Leads::May && cache.is_waiting(waiter.id);
        self.waiters.iter().find(may_lead).map(|waiter| waiter.id)
    }

    /// Offers the lead to the caller of a ticket, and returns its waker.
    pub(crate) fn offer(&mut self, id: TicketId) -> Waker {
        assert!(!self.is_led(), "two callers would write the same page at the same time");
        let at = self.waiters.iter().position(|waiter| waiter.id == id);
        let waiter = self.waiters.remove(at.expect("the lead is offered to a caller that waits"));
        self.waiters.tidy();
        self.lead = Lead::Offered(id);
        waiter.waker
    }

    /// Registers a caller that waits for a ticket. Returns its previous waker, to drop without the
    /// lock.
    pub(crate) fn wait(&mut self, id: TicketId, leads: Leads, waker: Waker) -> Option<Waker> {
        if let Some(waiter) = self.waiters.iter_mut().find(|waiter| waiter.id == id) {
            return Some(std::mem::replace(&mut waiter.waker, waker));
        }
        self.waiters.push(Waiter { id, leads, waker });
        None
    }

    /// Removes the caller of a ticket that it no longer waits for.
    pub(crate) fn forget(&mut self, id: TicketId) {
        if !self.waiters.is_empty() {
            self.waiters.retain(|waiter| waiter.id != id);
            self.waiters.tidy();
        }
    }

    /// Returns whether a caller waits for a ticket.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Returns the wakers of all callers, because their tickets will not end.
    pub(crate) fn take_waiters(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.waiters.take().into_iter().map(|waiter| waiter.waker)
    }

    /// Returns whether a ticket has ended whose caller is not woken.
    #[inline]
    pub(crate) fn has_ended(&self, cache: &CachedFile) -> bool {
        self.reported != cache.finished_tickets()
    }

    /// Moves the wakers of callers whose tickets have ended to `wakers`.
    pub(crate) fn take_ended(&mut self, cache: &CachedFile, wakers: &mut Vec<Waker>) {
        self.reported = cache.finished_tickets();
        if !self.waiters.is_empty() {
            let ended = self.waiters.extract_if(.., |waiter| !cache.is_waiting(waiter.id));
            wakers.extend(ended.map(|waiter| waiter.waker));
            self.waiters.tidy();
        }
    }

    /// Gives the lead back: the tickets of the broken cache are gone.
    pub(crate) fn interrupt(&mut self) {
        self.lead = Lead::Context;
    }

    /// Asserts that no caller waits for a wake that never comes.
    pub(crate) fn verify(&self, cache: &CachedFile) {
        if !self.has_ended(cache) {
            let waits = |waiter: &Waiter| cache.is_waiting(waiter.id);
            assert!(self.waiters.iter().all(waits), "a caller waits for a ticket that has ended");
        }
        if let Lead::Offered(id) = self.lead {
            let waits = self.waiters.iter().any(|waiter| waiter.id == id);
            assert!(!waits, "the caller that was offered the lead is not woken for it");
        }
    }
}

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
        assert_eq!(queue.queue.on_their_way(), 0, "the next caller would get ends of this one");
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
        target: Target,
        file: &Arc<OpenFile>,
        bios: Vec<Bio>,
        counters: &Counters,
        alive: Option<&Alive>,
    ) -> Vec<Ended> {
        let (count, mut ended) = (bios.len(), Vec::with_capacity(bios.len()));
        let is_own = |bio: &Bio| bio.target == target;
        debug_assert!(bios.iter().all(is_own), "bytes of another file would be overwritten");
        if bios.iter().all(|bio| bio.operation == Operation::Write) {
            self.device.prepare_writes(count, alive);
        }
        self.device.attach(target, Arc::clone(file));
        bios.into_iter().for_each(|bio| self.queue.submit(bio));
        while ended.len() < count {
            self.queue
                .dispatch(&mut self.device, Wait::Something(None))
                .expect("calls of this thread need no ring that could break");
            self.queue.run(&mut self.device, &mut ended);
        }
        assert_eq!(ended.len(), count, "frames of requests in flight would be used again");
        drop(self.device.detach(target));
        counters.add_of_caller(self.queue.take_counters());
        ended
    }
}

#[cfg(test)]
mod tests {
    use forebay_cache::file::Entry;
    use forebay_cache::{Liberties, Origin, TicketKind};

    use super::*;

    #[test]
    fn contract_15_the_caller_that_has_waited_longest_leads_next() {
        let origin = Origin::Empty { entry: Entry::Old };
        let mut cache = CachedFile::new(Target(0), origin, Liberties::Exclusive);
        let mut syncing = Syncing::default();
        let asked = [Leads::Never, Leads::May, Leads::May, Leads::May].map(|leads| {
            let id = cache.ask(TicketKind::FlushData);
            assert!(syncing.wait(id, leads, Waker::noop().clone()).is_none());
            id
        });
        let [_, second, third, last] = asked;
        assert_eq!(syncing.next_leader(&cache), Some(second), "a task may not block");
        let _ = syncing.offer(second);
        assert!(!syncing.take_lead(third) && syncing.take_lead(second));
        syncing.end_lead();
        assert_eq!(syncing.next_leader(&cache), Some(third), "the others came later");
        syncing.forget(third);
        assert_eq!(syncing.next_leader(&cache), Some(last), "the third does not wait any longer");
        syncing.forget(last);
        assert_eq!(syncing.next_leader(&cache), None);
    }
}
