//! A lock-free list for many producers and one consumer, last in, first out.
//!
//! It has the interface of [`fifo`](mod@crate::fifo), and exists to measure what order is worth.
//!
//! R. K. Treiber's stack (IBM RJ 5118, 1986). The consumer takes all nodes at once, so no node can
//! be mistaken for another at the same address. It returns these nodes one by one, newest first,
//! and takes the next ones when they are used up. So a bounded pass leaves the rest queued here
//! too.
//!
//! A push retries if another push was faster. Under contention this is a price that the fifo does
//! not pay.

use std::fmt;
use std::ptr;

use crate::outcome::{self, Pop, Rest, WasEmpty};
use crate::sync::{Arc, AtomicPtr, Ordering};

/// Creates a list and returns its two ends.
#[must_use]
pub fn stack<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared { newest: AtomicPtr::new(ptr::null_mut()) });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, taken: ptr::null_mut() })
}

/// The end that pushes. It can be cloned and used by any number of threads.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The end that pops. A list has one.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Nodes taken off the shared list and not returned yet, newest first. Only the receiver knows
    /// them.
    taken: *mut Node<T>,
}

struct Shared<T> {
    newest: AtomicPtr<Node<T>>,
}

struct Node<T> {
    /// The node pushed before it.
    older: *mut Node<T>,
    value: T,
}

// SAFETY: the nodes and their values move from thread to thread and are never shared, so `T: Send`
// suffices.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: only the receiver accesses the nodes in `taken`.
unsafe impl<T: Send> Send for Receiver<T> {}

impl<T> Sender<T> {
    /// Prepends a value. Retries while other producers push.
    ///
    /// If the receiver has been dropped, the value is dropped with the last sender.
    pub fn push(&self, value: T) -> WasEmpty {
        let newest = &self.shared.newest;
        let node = Box::into_raw(Box::new(Node { older: ptr::null_mut(), value }));
        // Relaxed: the address is only compared and stored; the exchange below publishes.
        let mut older = newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is not in the list yet, so only this thread accesses it.
            unsafe { (*node).older = older };
            // Release: pairs with the acquire exchange in `pop`, through any pushes in between.
            match newest.compare_exchange_weak(older, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return if older.is_null() { WasEmpty::Yes } else { WasEmpty::No },
                Err(there) => older = there,
            }
        }
    }
}

impl<T> Receiver<T> {
    /// Removes and returns the newest value of the current batch. When a batch is used up, the next
    /// one is everything pushed since. Never returns [`Pop::Busy`].
    pub fn pop(&mut self) -> Pop<T> {
        if self.taken.is_null() {
            self.taken = self.shared.take_all();
        }
        if self.taken.is_null() {
            return Pop::Empty;
        }
        // SAFETY: the node came from a box, and only this receiver knows it.
        let node = unsafe { Box::from_raw(self.taken) };
        self.taken = node.older;
        Pop::Node(node.value)
    }

    /// Pops up to `limit` values and passes each to `take`, newest first.
    pub fn drain(&mut self, limit: usize, take: impl FnMut(T)) -> Rest {
        outcome::drain(limit, || self.pop(), take)
    }
}

impl<T> Shared<T> {
    fn take_all(&self) -> *mut Node<T> {
        // Acquire: pairs with the release exchange of each push.
        self.newest.swap(ptr::null_mut(), Ordering::Acquire)
    }
}

/// Frees a chain of nodes.
///
/// # Safety
/// The nodes came from boxes, and only the caller knows them.
unsafe fn free<T>(mut newest: *mut Node<T>) {
    while !newest.is_null() {
        // SAFETY: the caller promises this.
        let node = unsafe { Box::from_raw(newest) };
        newest = node.older;
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // SAFETY: the nodes came from boxes, and only this receiver, which took them, knows them.
        unsafe { free(self.taken) };
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the nodes came from boxes, and the last owner drops the list, so no other thread
        // knows them.
        unsafe { free(self.take_all()) };
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Receiver").finish_non_exhaustive()
    }
}
