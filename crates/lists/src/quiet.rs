//! Messages that need not wake their receiver.
//!
//! A receiver that wakes by itself from time to time, because it has a timer, finds such messages
//! then. So their senders save a system call and a switch of threads.
//!
//! ```text
//! send          push --> was the list empty, or has a quiet message come since? --> wake
//! send_quietly  count --> push --> does the receiver tick? --no--> wake
//! receiver      stops its timer: says so --> takes all messages once more --> sleeps
//! ```
//!
//! Two rules make this safe. A quiet message is counted before it is pushed, so a sender behind it
//! that finds the list not empty finds the count. And of a quiet sender and a receiver that stops
//! its timer, at least one sees what the other did: each has a fence between its write and its
//! look.
//!
//! A hint is a message without content: look again. It is not sent to a receiver that has no use
//! for it, because it has nothing to do or wakes soon anyway. The same rule makes that safe.

use crate::fifo;
use crate::outcome::WasEmpty;
use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// Agreement of the receiver of a list and its senders on messages that can wait.
#[derive(Debug)]
pub struct Quiet {
    /// Whether the receiver wakes by itself.
    is_ticking: AtomicBool,
    /// Whether the receiver sleeps although it has work that a hint could let it begin.
    is_wanting: AtomicBool,
    /// Quiet messages since the last message that woke the receiver.
    unheard: AtomicU32,
}

/// How long a quiet message can wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Until the next tick of the receiver.
    Tick,
    /// Until another message wakes the receiver.
    Message,
}

impl Default for Quiet {
    fn default() -> Self {
        Self::new()
    }
}

impl Quiet {
    /// Maximum of quiet messages: the last one wakes the receiver all the same.
    pub const MOST: u32 = 64;

    /// Creates the agreement for a receiver that does not tick.
    #[must_use]
    pub fn new() -> Self {
        Self {
            is_ticking: AtomicBool::new(false),
            is_wanting: AtomicBool::new(false),
            unheard: AtomicU32::new(0),
        }
    }

    /// Notes whether the receiver will wake by itself. Returns true if it no longer does: then it
    /// has to take its messages once more before it sleeps.
    #[must_use = "the receiver takes its messages once more"]
    pub fn set_ticking(&self, is_ticking: bool) -> bool {
        says(&self.is_ticking, is_ticking) && !is_ticking
    }

    /// Notes whether the receiver wants hints. Returns true if it did not before: then it has to
    /// look once more before it sleeps at what the hints are about.
    #[must_use = "the receiver looks once more"]
    pub fn set_wanting(&self, is_wanting: bool) -> bool {
        says(&self.is_wanting, is_wanting) && is_wanting
    }

    /// Returns whether a hint is of use: the receiver wants it, or has quiet messages that it would
    /// take with it. The change that the hint is about comes before.
    #[must_use]
    pub fn wants_hint(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_wanting.load(Ordering::Relaxed) || self.unheard.load(Ordering::Relaxed) > 0
    }

    /// Sends a message. Returns whether the sender must wake the receiver.
    pub fn send<T>(&self, list: &fifo::Sender<T>, message: T) -> bool {
        let was_empty = list.push(message) == WasEmpty::Yes;
        let is_unheard =
            self.unheard.load(Ordering::Relaxed) > 0 && self.unheard.swap(0, Ordering::Relaxed) > 0;
        was_empty || is_unheard
    }

    /// Sends a message that can wait. Returns whether the sender must wake the receiver.
    pub fn send_quietly<T>(&self, list: &fifo::Sender<T>, message: T, until: Until) -> bool {
        let unheard = self.unheard.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = list.push(message);
        fence(Ordering::SeqCst);
        let is_late = until == Until::Tick && !self.is_ticking.load(Ordering::Relaxed);
        let wakes = unheard >= Self::MOST || is_late;
        if wakes {
            self.unheard.store(0, Ordering::Relaxed);
        }
        wakes
    }
}

/// Publishes a new state of the receiver, with a fence before it looks again. Returns whether the
/// state was another one. The receiver alone calls this.
fn says(state: &AtomicBool, now: bool) -> bool {
    let is_new = state.load(Ordering::Relaxed) != now;
    if is_new {
        state.store(now, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
    is_new
}
