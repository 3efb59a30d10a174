//! Messages to a context, and their senders.

use std::sync::Arc;

use forebay_block::Bio;
use forebay_lists::{Quiet, Until, fifo};

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
