//! The messages to a context, the sender for each context, and how files are spread among them.
//!
//! `start.rs` starts contexts, and enters them here.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use forebay_block::Bio;
use forebay_lists::fifo::{self, fifo};
use forebay_lists::{Quiet, Until};

use crate::core::context::placement::{Affinity, Placement};
use crate::core::direct::direct_inode::{DirectInode, Handle};
use crate::core::direct::operation::{Held, Operation};
use crate::core::inode::Inode;
use crate::core::inode::change::Effect;
use crate::core::limits::CONTEXTS;
use crate::core::options::OfContext;
use crate::core::space::volume::Volume;
use crate::core::table::AnyInode;
use crate::platform::Waker;

/// The contexts as senders of messages see them.
#[derive(Debug)]
pub(crate) struct Senders {
    /// Sender for each context that was ever started, in order.
    senders: [OnceLock<Sender>; CONTEXTS],
    /// Number of contexts that files are spread among; at most those started.
    active: AtomicUsize,
    affinity: AtomicU8,
    /// Whether a context could not continue.
    is_broken: AtomicBool,
}

impl Senders {
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
        assert!(self.started() >= active, "files go to contexts that run");
        if (active, affinity) != (self.active(), self.affinity()) {
            self.active.store(active, Ordering::Release);
            // `Affinity::ALL` has the order of the declaration.
            assert_eq!(Affinity::ALL[affinity as usize], affinity, "files go to their contexts");
            self.affinity.store(affinity as u8, Ordering::Release);
            self.send(Message::Place);
        }
    }

    /// Returns the context that a file belongs to.
    pub(crate) fn place(&self, placement: &Placement, volume: &Volume) -> usize {
        let context = placement.place(self.affinity(), self.active(), volume);
        debug_assert!(context < self.started(), "no context would take the messages of the file");
        context
    }

    /// Sends a message to the context, or contexts, that it concerns.
    pub(crate) fn send(&self, message: Message) {
        match &message {
            Message::Attach(inode) | Message::Renew(inode) => {
                self.send_to(inode.context(), message);
            }
            Message::Inode(inode)
            | Message::Soon(inode)
            | Message::Uncached(inode)
            | Message::Submit(inode, _)
            | Message::Prepared(inode, ..)
            | Message::Moved(inode) => {
                let context = inode.placement.context();
                self.send_to(context, message);
            }
            Message::Operation(_) | Message::Plugged(_) | Message::Leave(..) | Message::Lost(_) => {
                self.send_to(DIRECT, message);
            }
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
        let sender = self.senders[inode.placement.context()].get();
        sender.expect("files belong to started contexts").send_quietly(message, until);
    }

    /// Has the contexts look at the level and the free frames for a caller that waits for them from
    /// now on. Contexts that have nothing to write, or whose flights are full, are not woken for
    /// it. The first that waits wakes the context of its file, which collects unused credit and
    /// frames if nothing else makes room.
    pub(crate) fn look_for_waiter(&self, placement: &Placement, is_first: bool) {
        // Also those that get no new files: one may still have an `Attach` among its messages.
        let started = self.senders.iter().map_while(OnceLock::get);
        for (number, sender) in started.enumerate() {
            if is_first && number == placement.context() || sender.wants_look() {
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

/// The context of all direct files.
const DIRECT: usize = 0;

impl AnyInode {
    /// Returns the context that has the file.
    fn context(&self) -> usize {
        match self {
            Self::Cached(inode) => inode.placement.context(),
            Self::Direct(_) => DIRECT,
        }
    }
}

/// A message to a context.
#[derive(Debug)]
pub(crate) enum Message {
    /// A file was opened, or another context has handed it over.
    Attach(AnyInode),
    /// The descriptor of this file was replaced.
    Renew(AnyInode),
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
    /// Start this operation of a direct file as soon as the order allows.
    Operation(Box<Operation>),
    /// A thread holds operations of direct files back, or releases them.
    Plugged(Arc<Held>),
    /// A handle of this direct file was dropped.
    Leave(Arc<DirectInode>, Arc<Handle>),
    /// A dropped handle has an error that no caller will ask for.
    Lost(Arc<Handle>),
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

/// The messages of a context, as it takes them.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) messages: fifo::Receiver<Message>,
    pub(crate) quiet: Arc<Quiet>,
}

impl Sender {
    /// Creates the sender to a context, which `waker` wakes.
    pub(crate) fn new(waker: Waker) -> (Self, Inbox) {
        let ((sender, messages), quiet) = (fifo(), Arc::new(Quiet::default()));
        (Self { messages: sender, waker, quiet: Arc::clone(&quiet) }, Inbox { messages, quiet })
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
