//! A writeback context: one thread, one backend, one set of files. All requests to the device pass
//! through a context.
//!
//! ```text
//! callers --messages--> look at files --> next bios --> queue --one doorbell--> backend
//!    ^                                                                             |
//!    +---- woken once per run <---- settle in order <---- run <---- reap <---------+
//! ```
//!
//! A pass is bounded. It serves first the callers that wait, then pages that are too old, then
//! background writeback, one file after the other. The thread sleeps only in the doorbell. A timer
//! ticks while a file is dirty, and for some ticks after that: so a file that becomes dirty and is
//! synced soon, again and again, wakes no context.

mod agenda;
mod ends;
mod finder;
pub(crate) mod flight;
mod handover;
pub(crate) mod load;
pub(crate) mod placement;
pub(crate) mod senders;
mod serve;
pub(crate) mod start;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::{Bio, Errno, Moment, Wait};
use forebay_block::{Ended, Queue};
use forebay_cache::writeback::pace::Bound;
use forebay_lists::Pop;

use crate::core::context::flight::Flight;
use crate::core::context::senders::{Inbox, Message};
use crate::core::direct::flow::Flow;
use crate::core::error::{Error, ErrorKind};
use crate::core::inode::Inode;
use crate::core::inode::change::After;
use crate::core::limits::{GRANT_PATIENCE, MESSAGES_PER_PASS};
use crate::core::options::ContextPriority;
use crate::core::options::OfContext;
use crate::core::shared::Shared;
use crate::core::table::AnyInode;
use crate::core::threads::ThreadGuard;
use crate::platform::Backend;
use crate::platform::clock;
use agenda::{Agenda, AgendaReason};
use flight::Reservations;
use handover::ContextFile;

/// State of a context.
#[derive(Debug)]
pub(crate) struct Writeback {
    /// Its number in the engine.
    number: usize,
    /// Threads that it starts hold it until they end.
    running: ThreadGuard,
    shared: Arc<Shared>,
    inbox: Inbox,
    backend: Backend,
    queue: Queue,
    knobs: OfContext,
    /// Its files, by the number of their target.
    files: Vec<Option<ContextFile>>,
    /// Files that were opened a moment ago, by the number of their target.
    young: BTreeMap<u32, Arc<Inode>>,
    /// Bios of callers that wait for room in the queue.
    pending: VecDeque<(Arc<Inode>, Bio)>,
    reservations: Reservations,
    /// Direct files: the first context serves all of them.
    direct: Flow,
    /// Files with work to do.
    agenda: Agenda,
    /// Requests in flight and dirty files of each file system, by its number.
    flights: Vec<Flight>,
    /// Earliest deadline of a lease that another program waits for.
    next_break: Option<Instant>,
    next_tick: Option<Instant>,
    /// When it publishes its processor time again.
    next_note: Moment,
    /// Ticks since a file was last dirty.
    clean_ticks: u32,
    ended: Vec<Ended>,
    after: After,
    /// Effects of the steps of other files, during a step of one file.
    after_others: After,
    /// Whether a request is being passed to the queue.
    is_submitting: bool,
    stop: bool,
}

/// Reason for the end of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It was stopped, with no request of its files in flight.
    Stopped,
    /// It cannot continue.
    Broken,
}

impl Writeback {
    pub(crate) fn new(
        number: usize,
        shared: Arc<Shared>,
        inbox: Inbox,
        backend: Backend,
        knobs: OfContext,
        running: ThreadGuard,
    ) -> Self {
        let mut queue = Queue::new();
        queue.set_knobs(knobs.queue);
        Self {
            number,
            running,
            shared,
            inbox,
            backend,
            queue,
            knobs,
            files: Vec::new(),
            young: BTreeMap::new(),
            pending: VecDeque::new(),
            reservations: Reservations::default(),
            direct: Flow::default(),
            agenda: Agenda::default(),
            flights: Vec::new(),
            next_break: None,
            next_tick: None,
            next_note: Moment::default(),
            clean_ticks: 0,
            ended: Vec::new(),
            after: After::default(),
            after_others: After::default(),
            is_submitting: false,
            stop: false,
        }
    }

    /// Runs until it gets the message to stop, or cannot continue.
    pub(crate) fn run(mut self) -> End {
        if self.knobs.priority != ContextPriority::Normal {
            self.knobs.priority.apply();
        }
        loop {
            let mut more = self.take_messages();
            self.attach_young();
            more |= self.hand_over();
            self.direct.take_held(&mut self.backend, &self.shared);
            self.direct.wake();
            self.serve_reservations();
            self.serve_callers();
            // The keeper alone writes data that was left to it.
            if !self.shared.contexts.is_broken() && !self.shared.is_left() {
                self.serve_files();
            }
            self.prepare_reservations();
            let is_idle =
                self.pending.is_empty() && self.reservations.is_idle() && self.direct.is_idle();
            if self.stop && !more && is_idle && self.queue.on_their_way() == 0 {
                return End::Stopped;
            }
            more |= self.inbox.quiet.set_ticking(self.next_tick.is_some());
            let could_make_room = self.could_make_room();
            more |= self.inbox.quiet.set_wanting(could_make_room);
            self.hold_if_throttled();
            self.end_awaited_hold();
            let wait = if more { Wait::Not } else { Wait::Something(self.sleep()) };
            if let Err(errno) = self.queue.dispatch(&mut self.backend, wait) {
                self.report_broken(errno);
                return End::Broken;
            }
            self.direct.end_pass();
            self.end_run();
        }
    }

    /// Takes the messages of one pass. Returns whether more may be left.
    fn take_messages(&mut self) -> bool {
        for _ in 0..MESSAGES_PER_PASS {
            let message = match self.inbox.messages.pop() {
                Pop::Node(message) => message,
                Pop::Empty => return false,
                // A sender is in the middle of a push, and its wake may have come before. Do not
                // sleep until the push has ended.
                Pop::Busy => return true,
            };
            self.attach_for(&message);
            match message {
                Message::Attach(AnyInode::Cached(inode)) => self.announced(inode),
                Message::Renew(AnyInode::Cached(inode)) if self.has(&inode) => self.renew(&inode),
                Message::Inode(inode) | Message::Soon(inode) if self.has(&inode) => {
                    self.look_at(inode);
                }
                // It is looked at when it is attached.
                Message::Soon(inode) if self.is_young(&inode) => {}
                Message::Uncached(inode) if self.has(&inode) => {
                    self.agenda.push(AgendaReason::Uncached, &inode);
                }
                Message::Renew(AnyInode::Cached(inode)) => {
                    self.send_on(inode, |inode| Message::Renew(AnyInode::Cached(inode)));
                }
                Message::Inode(inode) => self.send_on(inode, Message::Inode),
                Message::Soon(inode) => self.send_on(inode, Message::Soon),
                Message::Uncached(inode) => self.send_on(inode, Message::Uncached),
                Message::Submit(inode, bio) => self.pending.push_back((inode, bio)),
                Message::Prepared(inode, bio, prepared) => self.prepared(inode, bio, prepared),
                Message::Moved(inode) if self.has(&inode) => self.place(&inode),
                Message::Moved(inode) => self.send_on(inode, Message::Moved),
                message @ (Message::Attach(AnyInode::Direct(_))
                | Message::Renew(AnyInode::Direct(_))
                | Message::Operation(_)
                | Message::Plugged(_)
                | Message::Leave(..)
                | Message::Lost(_)) => {
                    self.direct.take(message, &mut self.backend, &self.shared);
                }
                Message::Knobs(knobs) => self.set_knobs(knobs),
                Message::Look => {}
                Message::Place => {
                    self.attach_all();
                    self.place_all();
                }
                Message::Stop => self.stop = true,
            }
        }
        true
    }

    fn serve_files(&mut self) {
        self.serve_waited();
        self.give_leases_up();
        // Before pages age: the rest of a file without handles is dropped, not retried for ever.
        self.release();
        self.tick();
        self.serve_uncached();
        self.serve_background();
        self.reclaim_kept();
        self.shared.finish(&mut self.after);
    }

    fn set_knobs(&mut self, knobs: OfContext) {
        let before = std::mem::replace(&mut self.knobs, knobs);
        self.queue.set_knobs(knobs.queue);
        self.set_bound();
        if before.priority != knobs.priority {
            knobs.priority.apply();
        }
        if before.dirty_age != knobs.dirty_age {
            self.next_tick = None;
        }
        // The shared level may have changed.
        self.share_out();
    }

    fn set_bound(&mut self) {
        let bound = self.bound();
        self.flights.iter_mut().for_each(|flight| flight.pace.set_bound(bound));
    }

    /// Returns the part of the bound that applies to this context. A time counts the device's work
    /// for this context, which is its part already. A depth is divided among the contexts.
    fn bound(&self) -> Bound {
        match self.knobs.flight {
            Bound::Time(time) => Bound::Time(time),
            Bound::Depth(depth) => Bound::Depth(depth.div_ceil(self.shared.contexts.active())),
        }
    }

    /// Enters a file for everything that is to be done for it.
    fn look_at(&mut self, inode: Arc<Inode>) {
        debug_assert!(self.has(&inode), "two contexts would write the same file");
        let looked = inode.catch(|| {
            let mut state = inode.lock();
            state.service.looked_at();
            let dirty = state.cache.is_dirty() && state.service.list();
            (state.cache.has_tickets(), dirty, state.ownership.is_breaking())
        });
        if inode.is_interrupted() {
            return self.abandon(&inode);
        }
        let Some((waited, dirty, breaks)) = looked else { return };
        if breaks {
            self.agenda.push(AgendaReason::Breaking, &inode);
        }
        if waited {
            self.agenda.push(AgendaReason::Waited, &inode);
        } else {
            self.agenda.push(AgendaReason::Leaving, &inode);
        }
        if dirty {
            self.flights[inode.volume.number()].dirty.push_back(inode);
            self.share_out();
        }
    }

    /// Updates the parts of the level if the set of written file systems has changed.
    fn share_out(&mut self) {
        let reported = self
            .flights
            .iter_mut()
            .filter_map(|flight| flight.report_written().then_some(()))
            .count();
        if reported > 0 || self.flights.len() > 1 {
            self.shared.share_out();
        }
    }

    /// Returns the longest time to sleep.
    fn sleep(&self) -> Option<Duration> {
        if !self.ended.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = self.next_tick.into_iter().chain(self.next_break).chain(self.direct.due()).min();
        let due = due.map(|due| due.saturating_duration_since(clock::instant()));
        // Another writer may leave its grant unused. The context of the first one that waits is
        // awake now, and stays so.
        let unused = self.shared.level.has_waiters().then_some(GRANT_PATIENCE);
        due.into_iter().chain(unused).min()
    }

    fn report_broken(&self, errno: Errno) {
        let error = Error::new(ErrorKind::Io, "the I/O backend failed; the engine stops")
            .because(std::io::Error::from_raw_os_error(errno.0));
        tracing::error!(%error);
        self.shared.stop();
        self.shared.report(&error);
    }
}

/// Ends direct operations, because no context serves them from now on. Those that have not started
/// end here. The others end when the fields of the context are dropped after this.
impl Drop for Writeback {
    fn drop(&mut self) {
        if self.number == 0 {
            self.shared.mark_orphaned();
        }
        loop {
            match self.inbox.messages.pop() {
                Pop::Node(message) => Flow::refuse(message),
                Pop::Empty => return,
                // A push is in progress. Senders that push later check the mark.
                Pop::Busy => crate::platform::thread::yield_now(),
            }
        }
    }
}
