//! Operations of a direct file, their tickets, and the lists that plugs hold.
//!
//! An operation has one ticket and ends it exactly once: with its result, or, if it is dropped
//! before, with an error. Then the engine has stopped, or a panic has interrupted the file. The
//! ticket outlives both sides: the future that polls it and the context that ends it.
//!
//! A plug holds operations back in a list, which the filling thread shares with the context.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use forebay_block::limits::{BATCH_REQUESTS, PLUG_BYTES, PLUG_HOLD};

use crate::core::answer::Answer;
use crate::core::direct::direct_inode::{DirectInode, Handle};
use crate::core::direct::shape::Span;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::user_code;
use crate::platform::Memory;
use crate::platform::clock;
use crate::platform::sync::{Mutex, MutexGuard};

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

/// Operations held by one thread.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    operations: Vec<Operation>,
    bytes: u64,
    /// When the first operation was added.
    since: Option<Instant>,
    is_released: bool,
}

/// Whether the context has a message about a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reported {
    /// A message is on its way.
    Already,
    /// The caller has to send it a message.
    NotYet,
}

/// Whether the operations of a list are due.
#[derive(Debug)]
pub(crate) enum Due {
    /// Start these now; empty if they were taken before. The next operation needs a new message.
    Now(Vec<Operation>),
    /// Look again at the deadline.
    Later,
}

impl Held {
    /// Adds an operation. The context needs a message for the first one, and when the list is full.
    pub(crate) fn hold(&self, operation: Operation) -> Reported {
        let mut list = self.lock();
        list.bytes += operation.bytes();
        list.operations.push(operation);
        let is_first = list.operations.len() == 1;
        if is_first {
            list.since = Some(clock::instant());
        }
        let is_full = list.operations.len() >= BATCH_REQUESTS || list.bytes >= PLUG_BYTES;
        list.is_released |= is_full;
        if is_first || is_full { Reported::NotYet } else { Reported::Already }
    }

    /// Makes all operations due. The context needs a message, unless it got one before and has not
    /// taken them yet.
    pub(crate) fn release(&self) -> Reported {
        let mut list = self.lock();
        let is_reported =
            list.operations.is_empty() || std::mem::replace(&mut list.is_released, true);
        if is_reported { Reported::Already } else { Reported::NotYet }
    }

    /// Takes the operations if they are due; called by the context.
    pub(crate) fn take_due(&self) -> Due {
        let mut list = self.lock();
        if !list.is_released && list.since.is_some_and(|since| clock::instant() < since + PLUG_HOLD)
        {
            return Due::Later;
        }
        Due::Now(std::mem::take(&mut *list).operations)
    }

    /// Takes all operations, due or not: a caller waits for them.
    pub(crate) fn take(&self) -> Vec<Operation> {
        std::mem::take(&mut *self.lock()).operations
    }

    /// Returns when the operations are due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock().since.map(|since| since + PLUG_HOLD)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock()
    }
}
