//! The writeback contexts of an engine: how many there are, who has which files, and the way to
//! each.
//!
//! The first one is there from the beginning, and has the files that are open past the cache. The
//! others are started when they are first wanted, and stand by once they are not: without files
//! they sleep, and cost no processor.
//!
//! The number and the affinity say where a file belongs; each context looks whether what it has is
//! its own, and hands over what is not (`context/handover.rs`).

pub(crate) mod auto;
mod finder;
pub(crate) mod wanted;

use crate::platform::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::platform::{Alive, Arena, Backend, BackendError, Choice};
use forebay_lists::fifo::fifo;

use auto::Auto;

use crate::core::context::{Message, Sender, Writeback};
use crate::core::ended::{Ended, Running};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::home::{Affinity, Home};
use crate::core::limits::{CONTEXTS, LENT, RING_ENTRIES};
use crate::core::settings::OfContext;
use crate::core::shared::Shared;
use crate::core::volume::Volume;
use crate::platform::thread;

/// The contexts.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// The way to each that was ever started, in order.
    senders: [OnceLock<Sender>; CONTEXTS],
    /// Among how many files are spread; no more than are started.
    active: AtomicUsize,
    affinity: AtomicU8,
    /// Of each: nothing of its own is dirty, and how many bios of others it has.
    idle: [AtomicBool; CONTEXTS],
    lent: [AtomicUsize; CONTEXTS],
    /// Threads that have not ended.
    living: AtomicUsize,
    /// One of them could not go on.
    is_broken: AtomicBool,
    /// How many there should be, where nobody says.
    pub(crate) auto: Auto,
    state: Mutex<State>,
}

/// What changes one at a time.
#[derive(Debug)]
struct State {
    /// By which system calls; and the memory.
    choice: Choice,
    arena: Arc<Arena>,
    /// What each has to hold, so that another process knows when all are gone; `None` once no more
    /// may start.
    alive: Option<Arc<Alive>>,
    /// Goes with the last thread; `None` once no more may start.
    ended: Option<Running>,
}

impl Contexts {
    /// None started. The other end hears, by being disconnected, that the last one has ended.
    pub(crate) fn new(
        choice: Choice,
        arena: Arc<Arena>,
        alive: Option<Arc<Alive>>,
    ) -> (Self, Arc<Ended>) {
        let (has_ended, ended) = Ended::new();
        let contexts = Self {
            senders: [const { OnceLock::new() }; CONTEXTS],
            active: AtomicUsize::new(1),
            affinity: AtomicU8::new(Affinity::default() as u8),
            idle: [const { AtomicBool::new(false) }; CONTEXTS],
            lent: [const { AtomicUsize::new(0) }; CONTEXTS],
            living: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
            auto: Auto::new(),
            state: Mutex::new(State { choice, arena, alive, ended: Some(ended) }),
        };
        (contexts, has_ended)
    }

    /// Without a thread: what is sent to the first one arrives here.
    #[cfg(test)]
    pub(crate) fn with_first(arena: Arc<Arena>, sender: Sender) -> Self {
        let (contexts, _) = Self::new(Choice::Auto, arena, None);
        contexts.senders[0].set(sender).expect("nothing was started");
        contexts
    }

    /// Among how many the files are spread.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    /// How many were ever started.
    pub(crate) fn started(&self) -> usize {
        self.senders.iter().take_while(|sender| sender.get().is_some()).count()
    }

    pub(crate) fn affinity(&self) -> Affinity {
        Affinity::ALL[usize::from(self.affinity.load(Ordering::Acquire))]
    }

    fn set_affinity(&self, affinity: Affinity) {
        // They are listed in the order in which they are declared.
        self.affinity.store(affinity as u8, Ordering::Release);
    }

    /// The context a file belongs to.
    pub(crate) fn place(&self, home: &Home, volume: &Volume) -> usize {
        home.place(self.affinity(), self.active(), volume)
    }

    /// Sends a message to whom it concerns.
    pub(crate) fn send(&self, message: Message) {
        match &message {
            Message::Inode(inode)
            | Message::Uncached(inode)
            | Message::Attach(inode)
            | Message::Renew(inode)
            | Message::Submit(inode, _)
            | Message::Prepared(inode, ..)
            | Message::Moved(inode)
            | Message::Returned(inode, _) => {
                let context = inode.home.context();
                self.send_to(context, message);
            }
            Message::Lent(..) => unreachable!("it is lent to one that was chosen"),
            Message::Direct(_) => self.send_to(0, message),
            // Those that stand by have nothing to look at, once they have handed over what they
            // had.
            Message::Look => self.tell(self.active(), || Message::Look),
            Message::Place => self.tell_all(|| Message::Place),
            Message::Stop => self.tell_all(|| Message::Stop),
            Message::Knobs(knobs) => self.tell_all(|| Message::Knobs(*knobs)),
        }
    }

    /// Sends a message to one that is started.
    pub(crate) fn send_to(&self, context: usize, message: Message) {
        self.senders[context]
            .get()
            .expect("files are given to contexts that are started")
            .send(message);
    }

    /// A context says whether something of its own is dirty.
    pub(crate) fn set_idle(&self, context: usize, is_idle: bool) {
        if self.idle[context].load(Ordering::Relaxed) != is_idle {
            self.idle[context].store(is_idle, Ordering::Relaxed);
        }
    }

    /// One beside this one that has nothing to do, and not yet all that may be lent to it.
    pub(crate) fn idle_beside(&self, context: usize) -> Option<usize> {
        (0..self.active()).find(|other| {
            *other != context
                && self.idle[*other].load(Ordering::Relaxed)
                && self.lent[*other].load(Ordering::Relaxed) < LENT
        })
    }

    /// It has one more of another's.
    pub(crate) fn lend(&self, context: usize) {
        self.lent[context].fetch_add(1, Ordering::Relaxed);
    }

    /// One has ended.
    pub(crate) fn take_back(&self, context: usize) {
        self.lent[context].fetch_sub(1, Ordering::Relaxed);
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        self.tell(CONTEXTS, message);
    }

    /// So many at most, of those that are started.
    fn tell(&self, most: usize, message: impl Fn() -> Message) {
        let started = self.senders[..most].iter().map_while(OnceLock::get);
        started.for_each(|sender| sender.send(message()));
    }

    /// Spreads the files among so many from now on, by this affinity; those that there are not yet
    /// are started, with these knobs. Returns when they have been told, not when the files are
    /// where they belong. What the first one runs on, in one line, where it was started by this.
    ///
    /// Whoever calls holds the lock of the settings, so that all hear of changes in their order.
    ///
    /// # Errors
    /// Why one could not be started: then nothing is changed, but that there are those that could.
    pub(crate) fn spread(
        &self,
        shared: &Arc<Shared>,
        knobs: OfContext,
        (active, affinity): (usize, Affinity),
    ) -> Result<Option<String>> {
        assert!((1..=CONTEXTS).contains(&active), "checked where it was asked for");
        let mut first = None;
        while self.started() < active {
            let description = self.start(shared, knobs)?;
            first.get_or_insert(description);
        }
        if (active, affinity) != (self.active(), self.affinity()) {
            self.active.store(active, Ordering::Release);
            self.set_affinity(affinity);
            self.send(Message::Place);
        }
        Ok(first)
    }

    fn start(&self, shared: &Arc<Shared>, knobs: OfContext) -> Result<String> {
        let mut state = self.lock();
        let Some(ended) = state.ended.clone() else {
            return Err(Error::new(ErrorKind::Shutdown, "the engine is shut down"));
        };
        let number = self.started();
        let mut backend = Backend::chosen(state.choice, Arc::clone(&state.arena), RING_ENTRIES)
            .map_err(no_backend)?;
        if let Some(alive) = &state.alive {
            // Where it cannot, that has been logged: the keeper waits for this process alone then.
            let _ = backend.set_alive(alive);
        }
        let description = backend.describe();
        // All run on what the first one got.
        state.choice = match backend {
            Backend::Ring(_) => Choice::IoUring,
            Backend::Threads(_) => Choice::Threads,
        };
        let (messages, receiver) = fifo();
        let sender = Sender::new(messages, backend.waker());
        let context = Writeback::new(number, Arc::clone(shared), receiver, backend, knobs);
        let (orphans, alive) = (Arc::clone(shared), state.alive.clone());
        self.living.fetch_add(1, Ordering::AcqRel);
        let run = move || {
            thread::mark_as_ours();
            // A bug of ours must not leave callers waiting for ever; the panic itself has been
            // reported.
            let run = std::panic::AssertUnwindSafe(|| context.run());
            let how = std::panic::catch_unwind(run).unwrap_or(End::Broken);
            orphans.contexts.end(&orphans, how);
            drop(alive);
            // Tells by being dropped that the thread is done.
            drop(ended);
        };
        thread::spawn(&format!("forebay-{number}"), run).map_err(|error| {
            self.living.fetch_sub(1, Ordering::AcqRel);
            Error::new(ErrorKind::Io, "could not start a writeback thread").because(error)
        })?;
        self.senders[number].set(sender).expect("one starts at a time");
        Ok(description)
    }

    /// One has ended: with the last one, or when one is broken, nobody may wait for the engine any
    /// more.
    fn end(&self, shared: &Shared, how: End) {
        let was_last = self.living.fetch_sub(1, Ordering::AcqRel) == 1;
        if was_last || how == End::Broken {
            shared.orphan();
        }
        if how == End::Broken {
            self.is_broken.store(true, Ordering::Release);
            self.stop();
        }
        if was_last {
            if self.is_broken() {
                shared.leave_to_keeper();
            }
            shared.release_leases();
        }
    }

    /// Whether one could not go on: then the others end what they have begun, and begin nothing.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Has all of them end, when nothing of theirs is in flight; no more may start.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        (state.ended, state.alive) = (None, None);
        drop(state);
        self.send(Message::Stop);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// How a context ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It was told to, and nothing of its was in flight.
    Stopped,
    /// It cannot go on.
    Broken,
}

fn no_backend(error: BackendError) -> Error {
    let kind = match error {
        BackendError::Threads(_) => ErrorKind::Io,
        _ => ErrorKind::Unsupported,
    };
    Error::new(kind, error.to_string())
}
