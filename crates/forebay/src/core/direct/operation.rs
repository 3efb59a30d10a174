//! Operations of a direct file, and their tickets.
//!
//! An operation has one ticket and ends it exactly once: with its result, or, if it is dropped
//! before, with an error. Then the engine has stopped, or a panic has interrupted the file. The
//! ticket outlives both sides: the future that polls it and the context that ends it.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::core::direct::direct_inode::DirectInode;
use crate::core::direct::handle::Handle;
use crate::core::direct::shape::Span;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::user_code;
use crate::platform::Memory;
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
        let ticket = Arc::new(Ticket { handle, verb, state: Mutex::default() });
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
    state: Mutex<State>,
}

/// A result, and the memory that was lent; `None` if the device still uses it.
pub(crate) type Outcome = (Result<usize>, Option<Memory>);

#[derive(Debug, Default)]
enum State {
    /// Not polled yet.
    #[default]
    Asked,
    Awaited(Waker),
    /// The future was dropped.
    Abandoned,
    Ended(Outcome),
    /// The outcome was returned, or its error was given to the handle.
    Reported,
}

impl Ticket {
    fn end(&self, result: Result<usize>, memory: Option<Memory>) -> Option<Waker> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Reported) {
            State::Asked => {
                *state = State::Ended((result, memory));
                None
            }
            State::Awaited(waker) => {
                *state = State::Ended((result, memory));
                Some(waker)
            }
            State::Abandoned => {
                drop(state);
                self.keep_error(result);
                None
            }
            State::Ended(_) | State::Reported => panic!("an operation ends once"),
        }
    }

    /// Returns the outcome, once. `Pending` registers the waker of the task.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Outcome> {
        let waker = context.waker().clone();
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Reported) {
            State::Ended(outcome) => Poll::Ready(outcome),
            State::Asked => {
                *state = State::Awaited(waker);
                Poll::Pending
            }
            State::Awaited(replaced) => {
                *state = State::Awaited(waker);
                drop(state);
                drop(replaced);
                Poll::Pending
            }
            State::Abandoned | State::Reported => panic!("an operation was polled after its end"),
        }
    }

    /// Notes that the future was dropped. The next sync of the handle reports an error.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Reported) {
            State::Asked => *state = State::Abandoned,
            State::Awaited(waker) => {
                *state = State::Abandoned;
                drop(state);
                drop(waker);
            }
            State::Ended((result, memory)) => {
                drop(state);
                drop(memory);
                self.keep_error(result);
            }
            over @ (State::Abandoned | State::Reported) => *state = over,
        }
    }

    fn keep_error(&self, result: Result<usize>) {
        // A flush that did not fail itself has lost nothing.
        let is_lost = |error: &Error| self.verb.changes() || error.kind() == ErrorKind::Poisoned;
        if let Err(error) = result
            && !matches!(self.verb, Verb::Read(_) | Verb::Settle)
            && is_lost(&error)
        {
            self.handle.keep(error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
