//! Messages to a context, and their senders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use forebay_block::{Bio, Ended};
use forebay_lists::{WasEmpty, fifo};

use crate::core::direct::message::Message as Direct;
use crate::core::inode::Inode;
use crate::core::inode::after::Effect;
use crate::core::inode::space::Unreserved;
use crate::core::settings::OfContext;
use crate::platform::Waker;

/// Maximum of quiet messages before one wakes the context all the same: each keeps a file.
const UNHEARD: u32 = 64;

/// A message to a context.
#[derive(Debug)]
pub(crate) enum Message {
    /// A file was opened, or another context has handed it over.
    Attach(Arc<Inode>),
    /// The descriptor of this file was replaced.
    Renew(Arc<Inode>),
    /// Look at this file: it became dirty, a caller waits for it, or its last handle was dropped.
    Inode(Arc<Inode>),
    /// This file has many dirty pages that are dropped after their write.
    Uncached(Arc<Inode>),
    /// A bio of a caller for this file.
    Submit(Arc<Inode>, Bio),
    /// A bio that overwrites part of another context's file; that context is too busy.
    Lent(Arc<Inode>, Bio),
    /// A lent bio has ended.
    Returned(Arc<Inode>, Ended),
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
            Effect::LookAt(inode) | Effect::LookSoon(inode) => Self::Inode(inode),
            Effect::Uncached(inode) => Self::Uncached(inode),
            Effect::Submit(inode, bio) => Self::Submit(inode, bio),
        }
    }
}

/// Agreement of a context and its senders on messages that can wait until it wakes by itself.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    /// Whether the context wakes by itself, within the time of a tick.
    is_ticking: AtomicBool,
    /// Quiet messages since the last message that woke the context.
    unheard: AtomicU32,
}

impl Quiet {
    /// Notes whether the context will wake by itself. Returns true if it no longer does: then it
    /// has to take its messages once more before it sleeps.
    pub(crate) fn set_ticking(&self, is_ticking: bool) -> bool {
        if self.is_ticking.load(Ordering::Relaxed) == is_ticking {
            return false;
        }
        self.is_ticking.store(is_ticking, Ordering::Relaxed);
        // Pairs with the fence of a quiet sender: it sees this, or the context sees its message.
        fence(Ordering::SeqCst);
        !is_ticking
    }
}

/// How long a quiet message can wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Until the next tick of the context.
    Tick,
    /// Until another message wakes the context.
    Message,
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
        let was_empty = self.messages.push(message) == WasEmpty::Yes;
        // The message in front may be a quiet one, which woke nobody.
        let is_unheard = self.quiet.unheard.load(Ordering::Relaxed) > 0
            && self.quiet.unheard.swap(0, Ordering::Relaxed) > 0;
        if was_empty || is_unheard {
            self.waker.wake();
        }
    }

    /// Sends a message without a need to wake the context. Many of them wake it all the same.
    /// `Wait::Tick` wakes it if it does not wake by itself.
    pub(crate) fn send_quietly(&self, message: Message, wait: Wait) {
        // Before the push: a sender that finds this message in front has to find it counted.
        let unheard = self.quiet.unheard.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = self.messages.push(message);
        fence(Ordering::SeqCst);
        let is_late = wait == Wait::Tick && !self.quiet.is_ticking.load(Ordering::Relaxed);
        if unheard >= UNHEARD || is_late {
            self.quiet.unheard.store(0, Ordering::Relaxed);
            self.waker.wake();
        }
    }
}
