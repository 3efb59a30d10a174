//! Messages to a context, and the callers' end of the way to it.

use std::sync::Arc;

use forebay_block::{Bio, Ended};
use forebay_lists::{WasEmpty, fifo};

use crate::core::direct::message::Message as Direct;
use crate::core::inode::Inode;
use crate::core::inode::after::Effect;
use crate::core::inode::space::Unreserved;
use crate::core::settings::OfContext;
use crate::platform::Waker;

/// A message to a context.
#[derive(Debug)]
pub(crate) enum Message {
    /// A file was opened, or another context has handed it over.
    Attach(Arc<Inode>),
    /// The descriptor of this file was replaced.
    Renew(Arc<Inode>),
    /// Look at this file: it is dirty now, or a caller waits for it, or its last handle is gone.
    Inode(Arc<Inode>),
    /// Much of this file is dirty that does not stay in memory.
    Uncached(Arc<Inode>),
    /// A bio of a caller, of this file.
    Submit(Arc<Inode>, Bio),
    /// An overwrite of another context's file, which has no room for it.
    Lent(Arc<Inode>, Bio),
    /// A bio that was lent has ended.
    Returned(Arc<Inode>, Ended),
    /// The aside has prepared this reservation, or found that it cannot be made.
    Prepared(Arc<Inode>, Bio, Result<(), Unreserved>),
    /// The file's data was found to lie in another allocation group than was known.
    Moved(Arc<Inode>),
    /// A message about a file that is open past the cache.
    Direct(Direct),
    /// New values of the knobs.
    Knobs(OfContext),
    /// Look at the level.
    Look,
    /// Look which files belong to other contexts now.
    Place,
    /// End, when nothing is in flight.
    Stop,
}

impl From<Effect> for Message {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Look => Self::Look,
            Effect::LookAt(inode) => Self::Inode(inode),
            Effect::Uncached(inode) => Self::Uncached(inode),
            Effect::Submit(inode, bio) => Self::Submit(inode, bio),
        }
    }
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

    /// Sends a message. Never blocks. Only the first message of a batch wakes the context. A
    /// message to a context that has ended is lost.
    pub(crate) fn send(&self, message: Message) {
        if self.messages.push(message) == WasEmpty::Yes {
            self.waker.wake();
        }
    }
}
