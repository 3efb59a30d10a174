//! Operations held back by a plug, in a list that the filling thread shares with the context.

use std::time::Instant;

use forebay_block::limits::{BATCH_REQUESTS, PLUG_BYTES, PLUG_HOLD};

use crate::core::direct::operation::Operation;
use crate::platform::clock;
use crate::platform::sync::{Mutex, MutexGuard};

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
