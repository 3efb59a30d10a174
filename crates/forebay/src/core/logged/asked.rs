//! A call that asks for bytes of several files, all or none: [`Engine::atomic`].
//!
//! [`Engine::atomic`]: crate::core::engine::Engine::atomic

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::IntentLog;
use crate::core::error::Error;
use crate::core::inode::Inode;
use crate::platform::sync::Mutex;

/// New bytes of several files, for one batch.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The files, in the order of their numbers.
    pub(super) parts: Vec<Part>,
    answer: Mutex<(Option<Answer>, Option<Waker>)>,
}

/// New bytes of one file.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) inode: Arc<Inode>,
    /// In the order of the file. They do not overlap.
    pub(super) writes: Vec<Write>,
}

/// Bytes for a place of a file.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) offset: u64,
    pub(super) data: Vec<u8>,
}

/// Its end.
#[derive(Debug)]
pub(super) enum Answer {
    /// The record is durable. Its bytes have to enter the cache.
    Durable,
    /// It is not in the log. Another attempt may succeed.
    Again(Again),
    /// It is not in the log.
    Refused(Error),
    /// The write of the log failed: the record is there or not.
    Unknown(Error),
}

/// A step before another attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Again {
    /// A page has to be in memory: that of this part, at this offset.
    Bring(usize, u64),
    /// A file has to be brought into place: its part.
    Empty(usize),
    /// The log has to get room.
    Room,
}

impl Asked {
    pub(super) fn new(parts: Vec<Part>) -> Self {
        Self { parts, answer: Mutex::default() }
    }

    /// Answers the waiting caller.
    pub(super) fn answer(&self, answer: Answer) {
        let mut state = self.answer.lock();
        let before = state.0.replace(answer);
        let waker = state.1.take();
        drop(state);
        assert!(before.is_none(), "a call is answered twice");
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the answer, or registers the caller.
    pub(super) fn poll(&self, waker: Waker) -> Poll<Answer> {
        let mut state = self.answer.lock();
        if let Some(answer) = state.0.take() {
            return Poll::Ready(answer);
        }
        let before = state.1.replace(waker);
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Returns whether it has bytes of a file.
    pub(super) fn has(&self, inode: &Arc<Inode>) -> bool {
        self.parts.iter().any(|part| Arc::ptr_eq(&part.inode, inode))
    }
}

impl IntentLog {
    /// Enters an atomic write. Returns false if the log takes no more.
    pub(super) fn queue_atomic(&self, asked: &Arc<Asked>) -> bool {
        let mut queues = self.queues.lock();
        if queues.is_closed || queues.is_ending {
            return false;
        }
        queues.atomic.push(Arc::clone(asked));
        drop(queues);
        self.has_work.notify_one();
        true
    }

    /// Enters atomic writes again, in front of those that have come since.
    pub(super) fn queue_atomic_again(&self, asked: Vec<Arc<Asked>>) {
        self.queues.lock().atomic.splice(0..0, asked);
    }
}

impl Part {
    pub(super) fn end(&self) -> u64 {
        self.writes.last().map_or(0, |write| write.bytes().end)
    }
}

impl Write {
    pub(super) fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.data.len() as u64
    }
}
