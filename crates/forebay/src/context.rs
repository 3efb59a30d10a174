//! A writeback context: one thread, one ring, one set of files. Everything that reaches the device passes here.
//!
//! ```text
//! callers --messages--> look at files --> next bios --> queue --one doorbell--> ring
//!    ^                                                                            |
//!    +---- woken once per run <---- settle in order <---- run <---- reap <--------+
//! ```
//!
//! A pass is bounded: what somebody waits for first, then what is too old, then the background, file by file in
//! turn. The thread sleeps in the doorbell and nowhere else, and without a timer when nothing is dirty.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use forebay_block::{Bio, Class, Errno, Operation, Wait};
use forebay_block::{Ended, Queue};
use forebay_cache::limits::PAGE;
use forebay_cache::{Gaps, Reason};
use forebay_uring::{Ring, Waker};

use crate::counters::Counters;
use crate::inode::{After, Inode, State};
use crate::limits::{BACKGROUND_BYTES, MESSAGES_PER_PASS, RUN_PER_FILE, TICKS_PER_AGE, WAITED_BYTES};
use crate::shared::Shared;
use crate::volume::Room;

/// What threads tell the context.
#[derive(Debug)]
pub(crate) enum Message {
    /// A file was opened.
    Attach(Arc<Inode>),
    /// Look at this file: it is dirty now, or somebody waits for it, or nobody holds it any more.
    Inode(Arc<Inode>),
    /// A bio of a caller.
    Submit(Bio),
    /// Look at the level.
    Look,
    /// End, when nothing is in flight.
    Stop,
}

/// The callers' end of the way to a context.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    messages: mpsc::Sender<Message>,
    waker: Waker,
}

impl Sender {
    pub(crate) fn new(messages: mpsc::Sender<Message>, waker: Waker) -> Self {
        Self { messages, waker }
    }

    /// Never blocks. To a context that has ended the message is dropped.
    pub(crate) fn send(&self, message: Message) {
        if self.messages.send(message).is_ok() {
            self.waker.wake();
        }
    }
}

/// Knobs of a context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knobs {
    /// How long a page may be dirty.
    pub(crate) dirty_age: Duration,
    /// Background requests in flight.
    pub(crate) flight: usize,
}

/// The context's own state.
#[derive(Debug)]
pub(crate) struct Writeback {
    shared: Arc<Shared>,
    messages: mpsc::Receiver<Message>,
    ring: Ring,
    queue: Queue,
    knobs: Knobs,
    /// By target's number.
    inodes: Vec<Option<Arc<Inode>>>,
    /// Bios of callers that the queue has had no room for yet.
    pending: VecDeque<Bio>,
    /// Files somebody waits for.
    waited: Vec<Arc<Inode>>,
    /// Files with something dirty, the next one to write from first.
    dirty: VecDeque<Arc<Inode>>,
    /// Files that may have to be let go of.
    leaving: Vec<Arc<Inode>>,
    /// Files of which something is too old.
    overdue: Vec<Arc<Inode>>,
    next_tick: Option<Instant>,
    /// By class.
    staged_bytes: [u64; 2],
    ended: Vec<Ended>,
    after: After,
    stop: bool,
}

impl Writeback {
    pub(crate) fn new(
        shared: Arc<Shared>,
        messages: mpsc::Receiver<Message>,
        ring: Ring,
        knobs: Knobs,
    ) -> Self {
        Self {
            shared,
            messages,
            ring,
            queue: Queue::new(),
            knobs,
            inodes: Vec::new(),
            pending: VecDeque::new(),
            waited: Vec::new(),
            dirty: VecDeque::new(),
            leaving: Vec::new(),
            overdue: Vec::new(),
            next_tick: None,
            staged_bytes: [0; 2],
            ended: Vec::new(),
            after: After::default(),
            stop: false,
        }
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let more = self.take_messages();
            self.serve_callers();
            self.serve_waited();
            self.tick();
            self.collect_hoarded();
            self.serve_background();
            self.let_go();
            if self.stop && self.queue.in_flight() + self.queue.staged() + self.pending.len() == 0 {
                return;
            }
            let wait = if more { Wait::Not } else { Wait::Something(self.sleep()) };
            self.staged_bytes = [0; 2];
            if let Err(errno) = self.queue.dispatch(&mut self.ring, wait) {
                self.report_broken(errno);
                return;
            }
            self.end_run();
        }
    }

    fn take_messages(&mut self) -> bool {
        for _ in 0..MESSAGES_PER_PASS {
            let Ok(message) = self.messages.try_recv() else { return false };
            match message {
                Message::Attach(inode) => self.attach(inode),
                Message::Inode(inode) => self.look_at(inode),
                Message::Submit(bio) => self.pending.push_back(bio),
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
        self.ring.attach(inode.target, Arc::clone(&inode.file));
        self.inodes[number] = Some(inode);
    }

    fn look_at(&mut self, inode: Arc<Inode>) {
        let state = inode.looked_at();
        let (waited, dirty) = (state.cache.has_tickets(), state.cache.is_dirty());
        drop(state);
        if waited {
            list(&mut self.waited, &inode);
        } else {
            list(&mut self.leaving, &inode);
        }
        if dirty && !self.dirty.iter().any(|listed| Arc::ptr_eq(listed, &inode)) {
            self.dirty.push_back(inode);
        }
    }

    /// Bios that callers made themselves.
    fn serve_callers(&mut self) {
        while self.queue.room() > 0
            && let Some(bio) = self.pending.pop_front()
        {
            self.submit(bio);
        }
    }

    /// What somebody waits for.
    fn serve_waited(&mut self) {
        let mut waited = std::mem::take(&mut self.waited);
        waited.retain(|inode| {
            let gaps = self.gaps(inode);
            let mut state = inode.lock();
            state.cache.set_gaps(gaps);
            // However much one file has to write, each gets something on its way.
            let mut sent = 0;
            while self.queue.room() > 0 && (sent == 0 || self.bytes_of(Class::Waited) < WAITED_BYTES) {
                let Some(bio) = state.cache.next_bio(Reason::Sync) else { break };
                self.send(inode, &mut state, bio);
                sent += 1;
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
        if self.dirty.is_empty() {
            self.next_tick = None;
            return;
        }
        let now = Instant::now();
        let tick = self.knobs.dirty_age / TICKS_PER_AGE;
        if now >= *self.next_tick.get_or_insert(now + tick) {
            self.next_tick = Some(now + tick);
            self.age(now);
        }
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

    fn age(&mut self, now: Instant) {
        self.dirty.retain(|inode| {
            let mut state = inode.lock();
            if !state.cache.is_dirty() {
                state.dirty_since = None;
                return false;
            }
            if state.dirty_since.is_some_and(|since| now - since >= self.knobs.dirty_age) {
                state.cache.age();
                state.dirty_since = Some(now);
                list(&mut self.overdue, inode);
            }
            true
        });
    }

    /// What writers were granted, and went idle on, while others wait for room.
    fn collect_hoarded(&mut self) {
        if !self.shared.level.is_hoarded() {
            return;
        }
        for inode in self.inodes.iter().flatten() {
            let credit = inode.lock().take_credit();
            self.shared.level.give_back(credit, &mut self.after.wakers);
        }
        self.after.finish(&self.shared);
    }

    /// What is more than the background level, from one file after the other.
    fn serve_background(&mut self) {
        let mut idle = 0;
        while idle < self.dirty.len() && self.has_background_room() && self.shared.level.wants_writeback() {
            let Some(inode) = self.dirty.pop_front() else { break };
            let gaps = self.gaps(&inode);
            let mut state = inode.lock();
            state.cache.set_gaps(gaps);
            let sent = self.serve(&inode, &mut state, Reason::Background, RUN_PER_FILE);
            let is_dirty = state.cache.is_dirty();
            if !is_dirty {
                state.dirty_since = None;
            }
            drop(state);
            idle = if sent > 0 { 0 } else { idle + 1 };
            if !is_dirty {
                continue;
            }
            if sent == RUN_PER_FILE || !self.has_background_room() {
                // Its turn goes on: a file swept in one go is as dense as it gets.
                self.dirty.push_front(inode);
            } else {
                self.dirty.push_back(inode);
            }
        }
    }

    fn serve(&mut self, inode: &Inode, state: &mut State, reason: Reason, most: usize) -> usize {
        let mut sent = 0;
        while sent < most && self.has_background_room() {
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

    fn has_background_room(&self) -> bool {
        let requests = self.queue.in_flight_of(Class::Background) + self.queue.staged_of(Class::Background);
        let bytes = self.bytes_of(Class::Background);
        self.queue.room() > 0 && requests < self.knobs.flight && bytes < BACKGROUND_BYTES
    }

    /// Bytes of a class at the device, or staged for it in this pass.
    fn bytes_of(&self, class: Class) -> u64 {
        self.queue.in_flight_bytes_of(class) + self.staged_bytes[class as usize]
    }

    fn send(&mut self, inode: &Inode, state: &mut State, bio: Bio) {
        if bio.operation == Operation::Allocate {
            let room = inode.volume.room_ahead(&inode.file, bio.length);
            state.cache.set_free_bytes(inode.volume.free_bytes());
            // Without a mark nobody would give the space back after a crash.
            if room == Room::Scarce || !inode.mark_reserved(state, bio.offset + bio.length) {
                let refused = Err(Errno(libc::EOPNOTSUPP));
                self.ended.push(Ended { bio, result: refused });
                return;
            }
            Counters::add(&self.shared.counters.reserved_bytes, bio.length);
        }
        if matches!(bio.operation, Operation::FlushData | Operation::FlushAll) {
            Counters::add(&self.shared.counters.flushes, 1);
        }
        self.submit(bio);
    }

    fn submit(&mut self, bio: Bio) {
        self.staged_bytes[bio.class as usize] += bio.length;
        self.queue.submit(bio);
    }

    /// How long to sleep, at most.
    fn sleep(&self) -> Option<Duration> {
        if !self.ended.is_empty() {
            return Some(Duration::ZERO);
        }
        self.next_tick.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Ends what has completed, in order, and wakes once.
    fn end_run(&mut self) {
        self.queue.run(&mut self.ring, &mut self.ended);
        if self.ended.is_empty() {
            return;
        }
        for Ended { bio, result } in std::mem::take(&mut self.ended) {
            let inode = self.inodes[bio.target.0 as usize].as_ref().expect("a file in flight is attached");
            inode.settle(&self.shared, &bio, result, &mut self.after);
            list(&mut self.leaving, inode);
        }
        self.shared.counters.set_queue(self.queue.counters());
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
        drop(self.ring.detach(inode.target));
        self.inodes[inode.target.0 as usize] = None;
        table.free_target(inode.target);
        state.close(&mut self.after);
        self.shared.level.give_back(state.take_credit(), &mut self.after.wakers);
        drop(state);
        drop(table);
        self.dirty.retain(|listed| !Arc::ptr_eq(listed, inode));
        self.overdue.retain(|listed| !Arc::ptr_eq(listed, inode));
        self.after.finish(&self.shared);
    }

    fn report_broken(&self, errno: Errno) {
        let error = crate::Error::new(crate::ErrorKind::Io, "the ring is broken; the engine stops")
            .because(std::io::Error::from_raw_os_error(errno.0));
        tracing::error!(%error);
        self.shared.stop();
        (self.shared.on_error)(&error);
    }
}

fn list(files: &mut Vec<Arc<Inode>>, inode: &Arc<Inode>) {
    if !files.iter().any(|listed| Arc::ptr_eq(listed, inode)) {
        files.push(Arc::clone(inode));
    }
}
