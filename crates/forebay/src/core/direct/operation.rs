//! Operations of a direct file, and their tickets.
//!
//! An operation has one ticket and ends it exactly once: with its result, or, if it is dropped
//! before, with an error. Then the engine has stopped, or a panic has interrupted the file. The
//! ticket outlives both sides: the future that polls it and the context that ends it.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::core::answer::Answer;
use crate::core::direct::direct_inode::DirectInode;
use crate::core::direct::handle::Handle;
use crate::core::direct::shape::Span;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::user_code;
use crate::platform::Memory;

/// Kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Read(Span),
    Write(Span),
    SetLength(u64),
    /// Makes everything submitted before durable.
    FlushData,
    /// The same, with all metadata.
    FlushAll,
    /// Waits for everything submitted before.
    Settle,
}

impl Verb {
    /// Returns whether it changes the file, so that a sync must cover it and its error must not be
    /// lost.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Verb::Write(_) | Verb::SetLength(_))
    }

    /// Returns whether it waits for earlier operations, instead of having a range.
    pub(crate) fn closes(self) -> bool {
        matches!(self, Verb::FlushData | Verb::FlushAll | Verb::Settle)
    }
}

/// Submitted operation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) inode: Arc<DirectInode>,
    pub(crate) verb: Verb,
    /// Memory of a read or write, until it is lent.
    pub(crate) memory: Option<Memory>,
    /// Number of bytes in the memory before the first one of the operation.
    pub(crate) skew: usize,
    /// Whether the memory is a copy, because the caller's was not aligned.
    pub(crate) is_copy: bool,
    /// Epoch of its lane that counts it, if it is a change.
    pub(crate) epoch: Option<u64>,
    ticket: Arc<Ticket>,
    has_ended: bool,
}

/// Memory of an operation.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    pub(crate) memory: Option<Memory>,
    pub(crate) skew: usize,
    pub(crate) is_copy: bool,
}

impl Operation {
    pub(crate) fn new(
        inode: &Arc<DirectInode>,
        handle: &Arc<Handle>,
        verb: Verb,
        bytes: Bytes,
    ) -> Self {
        let (inode, handle) = (Arc::clone(inode), Arc::clone(handle));
        inode.add_operation();
        let ticket = Arc::new(Ticket { handle, verb, answer: Answer::default() });
        let Bytes { memory, skew, is_copy } = bytes;
        Self { inode, verb, memory, skew, is_copy, epoch: None, ticket, has_ended: false }
    }

    pub(crate) fn ticket(&self) -> Arc<Ticket> {
        Arc::clone(&self.ticket)
    }

    /// Ends the operation. Adds the waker of its future to `wakers`.
    pub(crate) fn end(mut self, result: Result<usize>, wakers: &mut Vec<Waker>) {
        debug_assert!(!self.has_ended, "an operation ends once");
        self.has_ended = true;
        wakers.extend(self.ticket.end(result, self.memory.take()));
    }

    /// Returns the bytes that a plug counts for it.
    pub(crate) fn bytes(&self) -> u64 {
        match self.verb {
            Verb::Read(span) | Verb::Write(span) => span.length,
            _ => 0,
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.inode.remove_operation();
        if self.has_ended {
            return;
        }
        let error = if self.inode.drops_after_panic() {
            self.inode.interrupted()
        } else {
            Error::new(ErrorKind::Shutdown, "the engine stopped before the operation ended")
                .at_path(&self.inode.path)
        };
        let waker = self.ticket.end(Err(error), self.memory.take());
        user_code::wake_all(waker);
    }
}

/// Result of an operation, as its future sees it.
#[derive(Debug)]
pub(crate) struct Ticket {
    handle: Arc<Handle>,
    verb: Verb,
    answer: Answer<Outcome>,
}

/// A result, and the memory that was lent; `None` if the device still uses it.
pub(crate) type Outcome = (Result<usize>, Option<Memory>);

impl Ticket {
    fn end(&self, result: Result<usize>, memory: Option<Memory>) -> Option<Waker> {
        self.answer.end((result, memory)).unwrap_or_else(|outcome| {
            self.keep_error(outcome);
            None
        })
    }

    /// Returns the outcome, once. `Pending` registers the waker of the task.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Outcome> {
        self.answer.poll(context)
    }

    /// Notes that the future was dropped. The next sync of the handle reports an error.
    pub(crate) fn abandon(&self) {
        if let Some(outcome) = self.answer.abandon() {
            self.keep_error(outcome);
        }
    }

    fn keep_error(&self, (result, memory): Outcome) {
        drop(memory);
        // A flush that did not fail itself has lost nothing.
        let is_lost = |error: &Error| self.verb.changes() || error.kind() == ErrorKind::Poisoned;
        if let Err(error) = result
            && !matches!(self.verb, Verb::Read(_) | Verb::Settle)
            && is_lost(&error)
        {
            self.handle.keep(error);
        }
    }
}
