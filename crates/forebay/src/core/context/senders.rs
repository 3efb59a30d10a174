//! The messages to a context, the sender for each context, and how files are spread among them.
//!
//! `start.rs` starts contexts, and enters them here.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use forebay_block::Bio;
use forebay_lists::{Quiet, Until, fifo};

use crate::core::context::home::{Affinity, Home};
use crate::core::direct::direct_message::Message as Direct;
use crate::core::inode::Inode;
use crate::core::inode::change::Effect;
use crate::core::limits::CONTEXTS;
use crate::core::options::OfContext;
use crate::core::space::volume::Volume;
use crate::platform::Waker;

/// The contexts as senders of messages see them.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Sender for each context that was ever started, in order.
    senders: [OnceLock<Sender>; CONTEXTS],
    /// Number of contexts that files are spread among; at most those started.
    active: AtomicUsize,
    affinity: AtomicU8,
    /// Whether a context could not continue.
    is_broken: AtomicBool,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            senders: [const { OnceLock::new() }; CONTEXTS],
            active: AtomicUsize::new(1),
            affinity: AtomicU8::new(Affinity::default() as u8),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Enters a started context. Contexts start one at a time.
    pub(crate) fn enter(&self, number: usize, sender: Sender) {
        self.senders[number].set(sender).expect("contexts start one at a time");
    }

    /// Returns the number of contexts that files are spread among.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    /// Returns the number of contexts that were ever started.
    pub(crate) fn started(&self) -> usize {
        self.senders.iter().take_while(|sender| sender.get().is_some()).count()
    }

    pub(crate) fn affinity(&self) -> Affinity {
        Affinity::ALL[usize::from(self.affinity.load(Ordering::Acquire))]
    }

    /// Spreads files among `active` contexts from now on, and informs the contexts.
    pub(crate) fn spread(&self, active: usize, affinity: Affinity) {
        debug_assert!(self.started() >= active, "files go to contexts that run");
        if (active, affinity) != (self.active(), self.affinity()) {
            self.active.store(active, Ordering::Release);
            // `Affinity::ALL` has the order of the declaration.
            debug_assert_eq!(Affinity::ALL[affinity as usize], affinity);
            self.affinity.store(affinity as u8, Ordering::Release);
            self.send(Message::Place);
        }
    }

    /// Returns the context that a file belongs to.
    pub(crate) fn place(&self, home: &Home, volume: &Volume) -> usize {
        home.place(self.affinity(), self.active(), volume)
    }

    /// Sends a message to the context, or contexts, that it concerns.
    pub(crate) fn send(&self, message: Message) {
        match &message {
            Message::Inode(inode)
            | Message::Soon(inode)
            | Message::Uncached(inode)
            | Message::Attach(inode)
            | Message::Renew(inode)
            | Message::Submit(inode, _)
            | Message::Prepared(inode, ..)
            | Message::Moved(inode) => {
                let context = inode.home.context();
                self.send_to(context, message);
            }
            Message::Direct(_) => self.send_to(0, message),
            // Idle contexts have handed their files over and have none to look at.
            Message::Look => self.send_to_first(self.active(), || Message::Look),
            Message::Place => self.send_to_all(|| Message::Place),
            Message::Stop => self.send_to_all(|| Message::Stop),
            Message::Knobs(knobs) => self.send_to_all(|| Message::Knobs(*knobs)),
        }
    }

    /// Sends a message to one context, which must be started.
    pub(crate) fn send_to(&self, context: usize, message: Message) {
        self.senders[context].get().expect("files belong to started contexts").send(message);
    }

    /// Sends a message to the context of a file, without a need to wake it.
    pub(crate) fn send_quietly(&self, inode: &Inode, message: Message, until: Until) {
        let sender = self.senders[inode.home.context()].get();
        sender.expect("files belong to started contexts").send_quietly(message, until);
    }

    /// Has the contexts look at the level and the free frames for a caller that waits for them from
    /// now on. Contexts that have nothing to write, or whose flights are full, are not woken for
    /// it. The first that waits wakes the context of its file, which collects unused credit and
    /// frames if nothing else makes room.
    pub(crate) fn look_for_waiter(&self, home: &Home, is_first: bool) {
        // Also those that get no new files: one may still have an `Attach` among its messages.
        let started = self.senders.iter().map_while(OnceLock::get);
        for (number, sender) in started.enumerate() {
            if is_first && number == home.context() || sender.wants_look() {
                sender.send(Message::Look);
            }
        }
    }

    /// Returns whether a context could not continue. Then the others only end the work they have
    /// begun.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Notes that a context could not continue.
    pub(crate) fn mark_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    fn send_to_all(&self, message: impl Fn() -> Message) {
        self.send_to_first(CONTEXTS, message);
    }

    /// Sends a message to the first `most` contexts, as far as they are started.
    fn send_to_first(&self, most: usize, message: impl Fn() -> Message) {
        let started = self.senders[..most].iter().map_while(OnceLock::get);
        started.for_each(|sender| sender.send(message()));
    }
}

/// A message to a context.
#[derive(Debug)]
pub(crate) enum Message {
    /// A file was opened, or another context has handed it over.
    Attach(Arc<Inode>),
    /// The descriptor of this file was replaced.
    Renew(Arc<Inode>),
    /// Look at this file: a caller waits for it, or its last handle was dropped.
    Inode(Arc<Inode>),
    /// Look at this file at the next tick: it became dirty.
    Soon(Arc<Inode>),
    /// This file has many dirty pages that are dropped after their write.
    Uncached(Arc<Inode>),
    /// A bio of a caller for this file.
    Submit(Arc<Inode>, Bio),
    /// The aside has prepared this reservation, or found that it is not possible.
    Prepared(Arc<Inode>, Bio, Result<(), Unreserved>),
    /// The data of this file is in another allocation group than was known.
    Moved(Arc<Inode>),
    /// A message about a direct file.
    Direct(Direct),
    /// New values of the knobs.
    Knobs(OfContext),
    /// Look at the level.
    Look,
    /// Look which files belong to other contexts now.
    Place,
    /// End once nothing is in flight.
    Stop,
}

impl From<Effect> for Message {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Look => Self::Look,
            Effect::LookAt(inode) => Self::Inode(inode),
            Effect::LookSoon(inode) => Self::Soon(inode),
            Effect::Uncached(inode) => Self::Uncached(inode),
            Effect::Submit(inode, bio) => Self::Submit(inode, bio),
        }
    }
}

/// Sender of messages to a context.
#[derive(Debug)]
pub(crate) struct Sender {
    messages: fifo::Sender<Message>,
    waker: Waker,
    quiet: Arc<Quiet>,
}

impl Sender {
    pub(crate) fn new(messages: fifo::Sender<Message>, waker: Waker, quiet: Arc<Quiet>) -> Self {
        Self { messages, waker, quiet }
    }

    /// Sends a message. Never blocks. Only the first message of a batch wakes the context. A
    /// message to a context that has ended is lost.
    pub(crate) fn send(&self, message: Message) {
        if self.quiet.send(&self.messages, message) {
            self.waker.wake();
        }
    }

    /// Returns whether the context has a use for [`Message::Look`].
    pub(crate) fn wants_look(&self) -> bool {
        self.quiet.wants_hint()
    }

    /// Sends a message without a need to wake the context.
    pub(crate) fn send_quietly(&self, message: Message, until: Until) {
        if self.quiet.send_quietly(&self.messages, message, until) {
            self.waker.wake();
        }
    }
}

/// Reason why no space is reserved ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unreserved {
    /// The file system has little space left.
    Scarce,
    /// The file cannot be marked.
    Unmarked,
    /// A panic has interrupted a change of the file.
    Interrupted,
}
