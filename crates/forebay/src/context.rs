//! A writeback context: one thread, one backend, one set of files. Everything that reaches the device passes here.
//!
//! ```text
//! callers --messages--> look at files --> next bios --> queue --one doorbell--> backend
//!    ^                                                                             |
//!    +---- woken once per run <---- settle in order <---- run <---- reap <---------+
//! ```
//!
//! A pass is bounded: what somebody waits for first, then what is too old, then the background, file by file in
//! turn. The thread sleeps in the doorbell and nowhere else, and without a timer when nothing is dirty.

mod kept;
mod leases;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::queue::Awaited;
use forebay_block::{Bio, Class, Device, Errno, Operation, Target, Wait};
use forebay_block::{Ended, Queue};
use forebay_cache::file::Entry;
use forebay_cache::limits::{PAGE, UNCACHED_PAGES};
use forebay_cache::writeback::pace::Bound;
use forebay_cache::{Gaps, Reason};
use forebay_lists::{Pop, WasEmpty, fifo};
use forebay_uring::{Backend, Waker};

use crate::counters::Counters;
use crate::direct::flow::{self, Flow};
use crate::flight::{Flight, free_slots};
use crate::inode::{After, Inode, State};
use crate::limits::{DIRECT_LEAVES, MESSAGES_PER_PASS, RUN_PER_FILE, TICKS_PER_AGE};
use crate::shared::Shared;
use crate::volume::Room;

/// What threads tell the context.
#[derive(Debug)]
pub(crate) enum Message {
    /// A file was opened.
    Attach(Arc<Inode>),
    /// Look at this file: it is dirty now, or somebody waits for it, or nobody holds it any more.
    Inode(Arc<Inode>),
    /// Much of this file is dirty that does not stay.
    Uncached(Arc<Inode>),
    /// A bio of a caller.
    Submit(Bio),
    /// Something about a file that is open past the cache.
    Direct(flow::Message),
    /// What the knobs stand at from now on.
    Knobs(Knobs),
    /// Look at the level.
    Look,
    /// End, when nothing is in flight.
    Stop,
}

/// The callers' end of the way to a context.
#[derive(Debug)]
pub(crate) struct Sender {
    messages: fifo::Sender<Message>,
    waker: Waker,
}

impl Sender {
    pub(crate) fn new(messages: fifo::Sender<Message>, waker: Waker) -> Self {
        Self { messages, waker }
    }

    /// Never blocks. Only the first message of a batch wakes; to a context that has ended it is lost.
    pub(crate) fn send(&self, message: Message) {
        if self.messages.push(message) == WasEmpty::Yes {
            self.waker.wake();
        }
    }
}

/// Knobs of a context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knobs {
    /// How long a page may be dirty.
    pub(crate) dirty_age: Duration,
    /// How much may be on its way to each file system.
    pub(crate) flight: Bound,
    /// Of the queue.
    pub(crate) queue: forebay_block::Knobs,
}

/// The context's own state.
#[derive(Debug)]
pub(crate) struct Writeback {
    shared: Arc<Shared>,
    messages: fifo::Receiver<Message>,
    backend: Backend,
    queue: Queue,
    knobs: Knobs,
    /// By target's number.
    inodes: Vec<Option<Arc<Inode>>>,
    /// Bios of callers that the queue has had no room for yet.
    pending: VecDeque<Bio>,
    /// Files open past the cache.
    direct: Flow,
    /// Files somebody waits for.
    waited: Vec<Arc<Inode>>,
    /// What is on its way to each file system, by its number, and its dirty files.
    flights: Vec<Flight>,
    /// Files that may have to be let go of.
    leaving: Vec<Arc<Inode>>,
    /// Files whose lease another program waits for.
    breaking: Vec<Arc<Inode>>,
    /// The first moment at which a lease of those has waited long enough.
    next_break: Option<Instant>,
    /// Files that keep what they wrote for a flush.
    keeping: Vec<Arc<Inode>>,
    /// Files of which much is dirty that does not stay.
    uncached: Vec<Arc<Inode>>,
    /// Files of which something is too old.
    overdue: Vec<Arc<Inode>>,
    next_tick: Option<Instant>,
    ended: Vec<Ended>,
    after: After,
    stop: bool,
}

impl Writeback {
    pub(crate) fn new(
        shared: Arc<Shared>,
        messages: fifo::Receiver<Message>,
        backend: Backend,
        knobs: Knobs,
    ) -> Self {
        let mut queue = Queue::new();
        queue.set_knobs(knobs.queue);
        Self {
            shared,
            messages,
            backend,
            queue,
            knobs,
            inodes: Vec::new(),
            pending: VecDeque::new(),
            direct: Flow::default(),
            waited: Vec::new(),
            flights: Vec::new(),
            leaving: Vec::new(),
            breaking: Vec::new(),
            next_break: None,
            keeping: Vec::new(),
            uncached: Vec::new(),
            overdue: Vec::new(),
            next_tick: None,
            ended: Vec::new(),
            after: After::default(),
            stop: false,
        }
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let more = self.take_messages();
            self.direct.take_held(&mut self.backend, &self.shared);
            self.direct.wake();
            self.serve_callers();
            self.serve_waited();
            self.give_leases_up();
            // Before anything ages: what is left of a file without handles is dropped, not tried again for ever.
            self.let_go();
            self.tick();
            self.serve_uncached();
            self.serve_background();
            self.reclaim_kept();
            let is_idle = self.pending.is_empty() && self.direct.is_idle();
            if self.stop && is_idle && self.queue.in_flight() + self.queue.staged() == 0 {
                return;
            }
            self.queue.set_awaited(self.is_awaited());
            let wait = if more { Wait::Not } else { Wait::Something(self.sleep()) };
            if let Err(errno) = self.queue.dispatch(&mut self.backend, wait) {
                self.report_broken(errno);
                return;
            }
            self.direct.end_pass();
            self.end_run();
        }
    }

    /// Takes a pass's worth of messages; whether there are more.
    fn take_messages(&mut self) -> bool {
        for _ in 0..MESSAGES_PER_PASS {
            let message = match self.messages.pop() {
                Pop::Node(message) => message,
                Pop::Empty => return false,
                // Somebody is in the middle of a push, whose wake may be behind us: no sleep before it is through.
                Pop::Busy => return true,
            };
            match message {
                Message::Attach(inode) => self.attach(inode),
                Message::Inode(inode) => self.look_at(inode),
                Message::Uncached(inode) => list(&mut self.uncached, &inode),
                Message::Submit(bio) => self.pending.push_back(bio),
                Message::Direct(message) => self.direct.take(message, &mut self.backend, &self.shared),
                Message::Knobs(knobs) => self.set_knobs(knobs),
                Message::Look => {}
                Message::Stop => self.stop = true,
            }
        }
        true
    }

    fn attach(&mut self, inode: Arc<Inode>) {
        let number = inode.target.0 as usize;
        if self.inodes.len() <= number {
            self.inodes.resize_with(number + 1, || None);
        }
        let volume = inode.volume.number();
        while self.flights.len() <= volume {
            self.flights.push(Flight::new(Arc::clone(&inode.volume), self.knobs.flight));
        }
        // They may be attached in another order than they are numbered in.
        self.flights[volume].volume = Arc::clone(&inode.volume);
        self.backend.attach(inode.target, Arc::clone(&inode.file));
        self.inodes[number] = Some(inode);
    }

    fn set_knobs(&mut self, knobs: Knobs) {
        let before = std::mem::replace(&mut self.knobs, knobs);
        self.queue.set_knobs(knobs.queue);
        if before.flight != knobs.flight {
            self.flights.iter_mut().for_each(|flight| flight.pace.set_bound(knobs.flight));
        }
        if before.dirty_age != knobs.dirty_age {
            self.next_tick = None;
        }
        // The level that they share may be another.
        self.share_out();
    }

    fn look_at(&mut self, inode: Arc<Inode>) {
        let mut state = inode.looked_at();
        let waited = state.cache.has_tickets();
        let dirty = state.cache.is_dirty() && !state.listed;
        state.listed |= dirty;
        if state.break_deadline.is_some() {
            list(&mut self.breaking, &inode);
        }
        drop(state);
        if waited {
            list(&mut self.waited, &inode);
        } else {
            list(&mut self.leaving, &inode);
        }
        if dirty {
            self.flights[inode.volume.number()].dirty.push_back(inode);
            self.share_out();
        }
    }

    /// Says what part of the level each file system has that is being written.
    fn share_out(&self) {
        if self.flights.len() > 1 {
            let written = self.flights.iter().filter(|flight| flight.is_written());
            let written: Vec<_> = written.map(|flight| &*flight.volume).collect();
            self.shared.level.share_out(&written);
        }
    }

    /// Bios that callers made themselves.
    fn serve_callers(&mut self) {
        while self.queue.room() > 0
            && let Some(bio) = self.pending.pop_front()
        {
            let volume = self.inode(bio.target).volume.number();
            self.submit(volume, bio);
        }
        while self.queue.room() > DIRECT_LEAVES
            && let Some(bio) = self.direct.next_bio()
        {
            self.queue.submit(bio);
        }
    }

    /// What somebody waits for: who has least to write first, so that a small sync beside a bulk one stays small.
    fn serve_waited(&mut self) {
        let mut waited = std::mem::take(&mut self.waited);
        waited.sort_by_cached_key(|inode| inode.lock().cache.dirty_pages());
        waited.retain(|inode| {
            let gaps = self.gaps(inode);
            let mut state = inode.lock();
            state.cache.set_gaps(gaps);
            state.cache.set_free_bytes(inode.volume.free_bytes());
            // However much others have to write, each has something on its way.
            let volume = inode.volume.number();
            while self.queue.room() > 0 && (!state.cache.in_flight() || self.has_room(volume, Class::Waited))
            {
                let Some(bio) = state.cache.next_bio(Reason::Sync) else { break };
                self.send(inode, &mut state, bio);
            }
            state.tell_tickets(&mut self.after);
            let waits = state.cache.has_tickets();
            drop(state);
            if !waits {
                list(&mut self.leaving, inode);
            }
            waits
        });
        waited.append(&mut self.waited);
        self.waited = waited;
        self.after.finish(&self.shared);
    }

    /// What is too old, looked for a few times per `dirty_age`.
    fn tick(&mut self) {
        if self.flights.iter().all(|flight| flight.dirty.is_empty()) {
            self.next_tick = None;
            return;
        }
        let now = Instant::now();
        let tick = self.knobs.dirty_age / TICKS_PER_AGE;
        if now >= *self.next_tick.get_or_insert(now + tick) {
            self.next_tick = Some(now + tick);
            self.age(now, self.knobs.dirty_age);
        }
        self.serve_overdue();
    }

    fn serve_overdue(&mut self) {
        let mut overdue = std::mem::take(&mut self.overdue);
        overdue.retain(|inode| {
            let gaps = self.gaps(inode);
            let mut state = inode.lock();
            state.cache.set_gaps(gaps);
            self.serve(inode, &mut state, Reason::Periodic, usize::MAX);
            state.cache.is_overdue()
        });
        self.overdue = overdue;
    }

    /// What does not stay goes out whatever the level, so that it takes little memory.
    fn serve_uncached(&mut self) {
        let mut uncached = std::mem::take(&mut self.uncached);
        uncached.retain(|inode| {
            let gaps = self.gaps(inode);
            let mut state = inode.lock();
            state.cache.set_gaps(gaps);
            while state.cache.unsent_pages() >= UNCACHED_PAGES / 2
                && self.serve(inode, &mut state, Reason::Uncached, 1) > 0
            {}
            // While something of it is on its way it is looked at again when that has ended.
            state.cache.unsent_pages() >= UNCACHED_PAGES / 2 && state.cache.in_flight()
        });
        uncached.append(&mut self.uncached);
        self.uncached = uncached;
    }

    /// What has been dirty for `age` becomes overdue.
    fn age(&mut self, now: Instant, age: Duration) {
        for flight in &mut self.flights {
            flight.dirty.retain(|inode| {
                let mut state = inode.lock();
                if !state.cache.is_dirty() {
                    state.unlist();
                    state.give_back_unused(&mut self.after);
                    return false;
                }
                if state.dirty_since.is_some_and(|since| now - since >= age) {
                    state.cache.age();
                    state.dirty_since = Some(now);
                    list(&mut self.overdue, inode);
                }
                true
            });
        }
    }

    /// What is more than the background level.
    fn serve_background(&mut self) {
        for volume in 0..self.flights.len() {
            self.serve_volume(volume);
        }
        let awaited = self.shared.level.has_waiters() || self.shared.pool.has_waiting();
        if awaited && self.queue.in_flight() + self.queue.staged() == 0 {
            // Nothing to write, and yet the level is up: files that went quiet sit on it, or all that is dirty are the
            // ends of files, which otherwise wait for their age.
            self.shared.collect_unused();
            self.age(Instant::now(), Duration::ZERO);
            self.serve_overdue();
        }
    }

    /// The same for one file system, from one file after the other.
    fn serve_volume(&mut self, volume: usize) {
        // A file answers `None` once at the end of a sweep, so each is asked twice before all count as idle.
        let mut idle = 0;
        while idle < 2 * self.flights[volume].dirty.len()
            && self.shared.level.wants_writeback(&self.flights[volume].volume)
            && self.has_room(volume, Class::Background)
        {
            if idle == 0 && !self.flights[volume].in_turn {
                self.flights[volume].bring_dirtiest_forward();
            }
            let Some(inode) = self.flights[volume].dirty.pop_front() else { break };
            let gaps = self.gaps(&inode);
            let mut state = inode.lock();
            state.cache.set_gaps(gaps);
            let sent = self.serve(&inode, &mut state, Reason::Background, RUN_PER_FILE);
            let is_dirty = state.cache.is_dirty();
            if !is_dirty {
                state.unlist();
            }
            drop(state);
            idle = if sent > 0 { 0 } else { idle + 1 };
            // Its turn goes on: a file swept in one go is as dense as it gets.
            let in_turn = is_dirty && (sent == RUN_PER_FILE || !self.has_room(volume, Class::Background));
            let flight = &mut self.flights[volume];
            flight.in_turn = in_turn;
            match (is_dirty, in_turn) {
                (true, true) => flight.dirty.push_front(inode),
                (true, false) => flight.dirty.push_back(inode),
                (false, _) => {}
            }
        }
    }

    fn serve(&mut self, inode: &Inode, state: &mut State, reason: Reason, most: usize) -> usize {
        state.cache.set_free_bytes(inode.volume.free_bytes());
        let mut sent = 0;
        while sent < most && self.has_room(inode.volume.number(), Class::Background) {
            let Some(bio) = state.cache.next_bio(reason) else { break };
            self.send(inode, state, bio);
            sent += 1;
        }
        sent
    }

    /// Zeroes over holes take space, which on a nearly full file system others were promised.
    fn gaps(&self, inode: &Inode) -> Gaps {
        inode.volume.gaps(&inode.file, self.shared.level.dirty() * PAGE)
    }

    /// Whether more of a class may be on its way to a file system.
    fn has_room(&mut self, volume: usize, class: Class) -> bool {
        let free = free_slots(&self.flights, class);
        self.queue.room() > 0 && self.flights[volume].pace.has_room(class, free)
    }

    fn send(&mut self, inode: &Inode, state: &mut State, bio: Bio) {
        if bio.operation == Operation::Allocate {
            let room = inode.volume.room_ahead(&inode.file, bio.length);
            // Without a mark nobody would give the space back after a crash.
            if room == Room::Scarce || !inode.mark_reserved(state, bio.offset + bio.length) {
                let refused = Err(Errno(libc::EOPNOTSUPP));
                self.ended.push(Ended { bio, result: refused });
                return;
            }
            Counters::add(&self.shared.counters.reserved_bytes, bio.length);
        }
        let gives_back = bio.operation == Operation::Punch
            || bio.operation == Operation::SetLength && bio.class == Class::Background;
        if gives_back && !inode.may_give_back(state) {
            let refused = Err(Errno(libc::EAGAIN));
            self.ended.push(Ended { bio, result: refused });
            return;
        }
        if matches!(bio.operation, Operation::FlushData | Operation::FlushAll) {
            Counters::add(&self.shared.counters.flushes, 1);
            state.samples.flush_begins();
        }
        self.submit(inode.volume.number(), bio);
    }

    fn submit(&mut self, volume: usize, bio: Bio) {
        let flight = &mut self.flights[volume];
        flight.sent(&bio, || self.backend.now());
        self.shared.counters.note_flight(flight.pace.requests_of(Class::Background));
        self.queue.submit(bio);
    }

    fn inode(&self, target: Target) -> &Arc<Inode> {
        self.inodes[target.0 as usize].as_ref().expect("a file in flight is attached")
    }

    /// Whether somebody waits for what is in flight, beside those whose bios say so: a throttled writer, or who needs a
    /// frame, or a page that is being written or read.
    fn is_awaited(&self) -> Awaited {
        let waits_for_pages = || self.flights.iter().any(|flight| flight.volume.has_waiting());
        let is_awaited =
            self.shared.level.has_waiters() || self.shared.pool.has_waiting() || waits_for_pages();
        if is_awaited { Awaited::Yes } else { Awaited::No }
    }

    /// How long to sleep, at most.
    fn sleep(&self) -> Option<Duration> {
        if !self.ended.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = self.next_tick.into_iter().chain(self.next_break).chain(self.direct.due()).min();
        due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Ends what has completed, in order, and wakes once.
    fn end_run(&mut self) {
        // Once more: it has slept, and was perhaps woken by who waits now.
        self.queue.set_awaited(self.is_awaited());
        self.queue.run(&mut self.backend, &mut self.ended);
        if self.ended.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut self.ended);
        let now = self.backend.now();
        for of_file in ended.chunk_by(|one, next| one.bio.target == next.bio.target) {
            let target = of_file[0].bio.target;
            if self.direct.owns(target) {
                of_file.iter().for_each(|ended| self.direct.end(ended, &mut self.backend, &self.shared));
                continue;
            }
            let inode = self.inodes[target.0 as usize].as_ref().expect("a file in flight is attached");
            let flight = &mut self.flights[inode.volume.number()];
            of_file.iter().for_each(|ended| flight.ended(ended));
            let left = inode.settle(&self.shared, of_file, now, &mut self.after);
            list(&mut self.leaving, inode);
            if left.is_dirty_again || left.keeps {
                let inode = Arc::clone(inode);
                self.note_left(&inode, left);
            }
        }
        ended.clear();
        self.ended = ended;
        for flight in &mut self.flights {
            flight.look(now);
        }
        self.share_out();
        self.shared.counters.set_queue(self.queue.counters(), self.queue.held());
        self.direct.wake();
        self.after.finish(&self.shared);
    }

    /// Tells of failures nobody waits for, and lets go of files without handles.
    fn let_go(&mut self) {
        for inode in std::mem::take(&mut self.leaving) {
            let mut state = inode.lock();
            let lost = state.cache.take_lost();
            let busy = state.is_busy();
            drop(state);
            for failure in lost {
                (self.shared.on_error)(&inode.failure(failure));
            }
            if !busy {
                self.close_unused(&inode);
            }
        }
    }

    fn close_unused(&mut self, inode: &Arc<Inode>) {
        let mut table = self.shared.table();
        // What the last handle asked for with its going is on its way; it was not there yet at the first look.
        if inode.lock().is_busy() || !table.remove_unused(inode) {
            return;
        }
        // Under the table's lock, so that an open of the same file finds it gone altogether or there altogether.
        inode.unmark();
        inode.file.release_lease();
        if let Err(error) = inode.file.ofd_unlock() {
            tracing::debug!(path = %inode.path.display(), %error, "could not unlock");
        }
        let mut state = inode.lock();
        if state.cache.entry() == Entry::New {
            table.unsynced.remember(inode.identity);
        }
        drop(self.backend.detach(inode.target));
        let_go_of_device(&inode.path, &inode.file);
        self.inodes[inode.target.0 as usize] = None;
        table.free_target(inode.target);
        state.close(&self.shared, &mut self.after);
        inode.count_failing(&self.shared, &mut state, &mut self.after);
        self.shared.pool.evictor().forget(inode.target);
        drop(state);
        drop(table);
        self.flights[inode.volume.number()].dirty.retain(|listed| !Arc::ptr_eq(listed, inode));
        self.overdue.retain(|listed| !Arc::ptr_eq(listed, inode));
        self.breaking.retain(|listed| !Arc::ptr_eq(listed, inode));
        self.keeping.retain(|listed| !Arc::ptr_eq(listed, inode));
        self.uncached.retain(|listed| !Arc::ptr_eq(listed, inode));
        self.after.finish(&self.shared);
    }

    fn report_broken(&self, errno: Errno) {
        let error = crate::Error::new(crate::ErrorKind::Io, "the backend is broken; the engine stops")
            .because(std::io::Error::from_raw_os_error(errno.0));
        tracing::error!(%error);
        self.shared.stop();
        (self.shared.on_error)(&error);
    }
}

/// Whoever waits for a direct operation hears that there is no context any more: those that never started, here; the
/// others when what the context owns is dropped after this.
impl Drop for Writeback {
    fn drop(&mut self) {
        self.shared.mark_orphaned();
        loop {
            match self.messages.pop() {
                Pop::Node(Message::Direct(message)) => {
                    // What a panic of the callback, which tells itself, must not stop: the others wait.
                    let refuse = std::panic::AssertUnwindSafe(|| Flow::refuse(message));
                    let _ = std::panic::catch_unwind(refuse);
                }
                Pop::Node(message) => drop(message),
                Pop::Empty => return,
                // In the middle of a push. Who pushes later looks at the mark.
                Pop::Busy => std::thread::yield_now(),
            }
        }
    }
}

/// A block device can be mounted, or opened by others, once its last handle is closed, whoever still knows the file.
pub(crate) fn let_go_of_device(path: &Path, file: &forebay_uring::File) {
    if let Err(error) = file.let_go_of_device() {
        tracing::debug!(path = %path.display(), %error, "the device is held a moment longer");
    }
}

fn list(files: &mut Vec<Arc<Inode>>, inode: &Arc<Inode>) {
    if !files.iter().any(|listed| Arc::ptr_eq(listed, inode)) {
        files.push(Arc::clone(inode));
    }
}
