//! A lock-free list for many producers and one consumer, first in, first out.
//!
//! D. Vyukov's node-based queue for many producers and one consumer, in its form with a stub that
//! is put back in (1024cores.net, "Intrusive MPSC node-based queue", 2010). The nodes are allocated
//! here, around the values.
//!
//! ```text
//!   oldest --> A --next--> B --next--> C <-- newest
//!   (the consumer's)                         (exchanged by every pusher)
//! ```
//!
//! Why not a stack reversed by the consumer: a bounded pass would have to keep a reversed remainder
//! beside newer work, and that is how order gets lost. Why not a lock: the pusher may be a thread
//! that must never wait.
//!
//! A push is one exchange and one store, whatever the others do; it never tries again. Between the
//! two the list is cut, and the consumer, who cannot pass the cut, says [`Pop::Busy`]: this is the
//! price. The store that links is the pusher's last touch of the list's nodes, so the consumer may
//! free what it popped.
//!
//! The stub stands in the list when the list is empty, and only then is it the newest node. So the
//! pusher who finds it there knows that the list was empty, from the exchange it makes anyway: see
//! [`WasEmpty`].

use std::fmt;
use std::ptr;

use crate::outcome::{self, Pop, Rest, WasEmpty};
use crate::sync::{Arc, AtomicPtr, Ordering, UnsafeCell};

/// Creates a list and returns its two ends.
#[must_use]
pub fn fifo<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared::new());
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

/// The end that pushes. It can be cloned and used by any number of threads.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The end that pops. A list has one.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Appends a value. Never waits.
    ///
    /// If the receiver has been dropped, the value is dropped with the last sender.
    pub fn push(&self, value: T) -> WasEmpty {
        let node = Node::new(Some(value));
        // From here on the node is the list's.
        if self.shared.link(node) == self.shared.stub { WasEmpty::Yes } else { WasEmpty::No }
    }
}

impl<T> Receiver<T> {
    /// Removes and returns the oldest value.
    pub fn pop(&mut self) -> Pop<T> {
        // SAFETY: there is one receiver and it is borrowed mutably, so no other pop runs.
        unsafe { self.shared.pop() }
    }

    /// Pops up to `limit` values and passes each to `take`, oldest first.
    pub fn drain(&mut self, limit: usize, take: impl FnMut(T)) -> Rest {
        outcome::drain(limit, || self.pop(), take)
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

/// Pushers write one line of the cache and the consumer another; two lines each, because the
/// hardware fetches lines in pairs.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared<T> {
    /// The last node exchanged in; its pusher may not have linked it yet.
    newest: Apart<AtomicPtr<Node<T>>>,
    /// The consumer's place; no pusher looks at it.
    oldest: Apart<UnsafeCell<*mut Node<T>>>,
    /// The node without a value.
    stub: *mut Node<T>,
}

struct Node<T> {
    /// Null until the pusher of the next node links it.
    next: AtomicPtr<Node<T>>,
    /// None in the stub alone. Written before the node is pushed, taken by the consumer.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: values go from thread to thread and are never shared, so `T: Send` is what it takes. The
// nodes are reached through atomics, by the protocol above; `oldest` by the one receiver, or by the
// last owner's drop.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Node<T> {
    fn new(value: Option<T>) -> *mut Self {
        Box::into_raw(Box::new(Self {
            next: AtomicPtr::new(ptr::null_mut()),
            value: UnsafeCell::new(value),
        }))
    }
}

impl<T> Shared<T> {
    fn new() -> Self {
        let stub = Node::new(None);
        Self { newest: Apart(AtomicPtr::new(stub)), oldest: Apart(UnsafeCell::new(stub)), stub }
    }

    /// Puts a node (not in the list) last; gives back the node before it, as an address only.
    fn link(&self, node: *mut Node<T>) -> *mut Node<T> {
        // Release: the node's value and its empty link go before it; pairs with the acquire of
        // `next`, by way of the store below, and with the exchange of whoever comes next and writes
        // this node's link. Acquire: pairs with the release half of the exchange that put `before`
        // in, before its link is written.
        let before = self.newest.0.swap(node, Ordering::AcqRel);
        // SAFETY: `before` is a node of this list, and the consumer frees no node whose link is
        // null. Only the one pusher who got `before` from the exchange writes its link, which is
        // here.
        let link = unsafe { &(*before).next };
        // Release: pairs with the acquire loads in `pop`.
        link.store(node, Ordering::Release);
        before
    }

    /// The node behind `node`, null where none is linked.
    ///
    /// # Safety
    /// The caller is the consumer, and `node` is in the list.
    unsafe fn next(&self, node: *mut Node<T>) -> *mut Node<T> {
        // SAFETY: the node is in the list, and only the consumer frees nodes.
        let link = unsafe { &(*node).next };
        // Acquire: pairs with the release store in `link`.
        link.load(Ordering::Acquire)
    }

    /// Takes the oldest value.
    ///
    /// # Safety
    /// No other call is running.
    unsafe fn pop(&self) -> Pop<T> {
        // SAFETY: only the consumer touches `oldest`, and only one pop runs.
        let mut oldest = self.oldest.0.with_mut(|place| unsafe { *place });
        // SAFETY: the caller is the consumer; `oldest` is in the list until moved on.
        let mut next = unsafe { self.next(oldest) };
        if oldest == self.stub {
            if next.is_null() {
                return if self.is_newest(self.stub) { Pop::Empty } else { Pop::Busy };
            }
            self.move_on(next);
            oldest = next;
            // SAFETY: as above.
            next = unsafe { self.next(oldest) };
        }
        if next.is_null() {
            if !self.is_newest(oldest) {
                return Pop::Busy;
            }
            // The last value may not be taken before something is behind it: a pusher may hold its
            // address.
            self.put_stub_back();
            // SAFETY: as above.
            next = unsafe { self.next(oldest) };
            if next.is_null() {
                return Pop::Busy;
            }
        }
        self.move_on(next);
        // SAFETY: the node has a value, since it is not the stub; it is out of the list, and its
        // link is written, so its pusher and the next one have made their last touch.
        Pop::Node(unsafe { take(oldest) })
    }

    fn is_newest(&self, node: *mut Node<T>) -> bool {
        // Acquire, so that a consumer that is told `Empty` sees what was done before the last push
        // it popped. No pairing is needed for `WasEmpty`: a push not seen here has exchanged, or
        // will exchange, with the stub.
        self.newest.0.load(Ordering::Acquire) == node
    }

    fn move_on(&self, to: *mut Node<T>) {
        // SAFETY: only the consumer touches `oldest`, and only one pop runs.
        self.oldest.0.with_mut(|place| unsafe { *place = to });
    }

    /// Called by the consumer when the newest node was not the stub and nothing was behind it: so
    /// the stub was popped, and is not in the list.
    fn put_stub_back(&self) {
        // SAFETY: the stub lives as long as the list.
        let link = unsafe { &(*self.stub).next };
        // Relaxed: `link` publishes it.
        link.store(ptr::null_mut(), Ordering::Relaxed);
        self.link(self.stub);
    }
}

/// Frees a node that has a value, and gives the value.
///
/// # Safety
/// The node came from `Node::new`, is in no list, and nobody else touches it any more.
unsafe fn take<T>(node: *mut Node<T>) -> T {
    // SAFETY: by the caller's promise this is the node's only owner.
    let node = unsafe { Box::from_raw(node) };
    // SAFETY: the cell is reached through the owner alone.
    let value = node.value.with_mut(|value| unsafe { (*value).take() });
    value.expect("only the stub has no value")
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the last owner drops, so nothing runs; and all pushes have ended, so nothing is
        // busy.
        while let Pop::Node(value) = unsafe { self.pop() } {
            drop(value);
        }
        // SAFETY: the stub came from a box, the list is empty, and nobody has its address any more.
        drop(unsafe { Box::from_raw(self.stub) });
    }
}
