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
//! Why not a stack that the consumer reverses: a bounded pass would have to keep a reversed
//! remainder beside newer work, and then order is easily lost. Why not a lock: the pusher may be a
//! thread that must never wait.
//!
//! A push is one exchange and one store, however many others push, and it never retries. Between
//! the two the list is cut. The consumer cannot pass the cut and returns [`Pop::Busy`]: this is the
//! price. The store that links is the pusher's last access to the nodes of the list, so the
//! consumer may free the nodes that it popped.
//!
//! The stub stands in the list when the list is empty, and only then is it the newest node. So the
//! pusher who finds it there knows that the list was empty, from the exchange it makes anyway: see
//! [`WasEmpty`].

use std::fmt;
use std::ptr;

use crate::outcome::{Pop, Rest, WasEmpty};
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
        // From here on the list owns the node.
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
    pub fn drain(&mut self, limit: usize, mut take: impl FnMut(T)) -> Rest {
        for _ in 0..limit {
            match self.pop() {
                Pop::Node(value) => take(value),
                Pop::Empty => return Rest::Empty,
                Pop::Busy => return Rest::Busy,
            }
        }
        Rest::Bounded
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

/// Keeps the cache lines of pushers and consumer apart. Two lines each, because the hardware
/// fetches lines in pairs.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared<T> {
    /// The last node exchanged in. Its pusher may not have linked it yet.
    newest: Apart<AtomicPtr<Node<T>>>,
    /// The consumer's position; pushers do not access it.
    oldest: Apart<UnsafeCell<*mut Node<T>>>,
    /// The node without a value.
    stub: *mut Node<T>,
}

struct Node<T> {
    /// Null until the pusher of the next node links it.
    next: AtomicPtr<Node<T>>,
    /// `None` in the stub only. Written before the node is pushed, and taken by the consumer.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: values move from thread to thread and are never shared, so `T: Send` suffices. The nodes
// are accessed through atomics, by the protocol above; `oldest` only by the one receiver, or by the
// drop of the last owner.
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

    /// Appends a node that is not in the list. Returns the node before it, as an address only.
    fn link(&self, node: *mut Node<T>) -> *mut Node<T> {
        // Release: publishes the node's value and its empty link. It pairs with the acquire of
        // `next`, through the store below, and with the exchange of the next pusher, which then
        // writes this node's link. Acquire: pairs with the release half of the exchange that put
        // `before` in, before its link is written.
        let before = self.newest.0.swap(node, Ordering::AcqRel);
        // SAFETY: `before` is a node of this list, and the consumer frees no node with a null link.
        // Only the one pusher that got `before` from the exchange writes its link, which it does
        // here.
        let link = unsafe { &(*before).next };
        // Release: pairs with the acquire loads in `pop`.
        link.store(node, Ordering::Release);
        before
    }

    /// Returns the node after `node`, or null if none is linked.
    ///
    /// # Safety
    /// The caller is the consumer, and `node` is in the list.
    unsafe fn next(&self, node: *mut Node<T>) -> *mut Node<T> {
        // SAFETY: the node is in the list, and only the consumer frees nodes.
        let link = unsafe { &(*node).next };
        // Acquire: pairs with the release store in `link`.
        link.load(Ordering::Acquire)
    }

    /// Removes and returns the oldest value.
    ///
    /// # Safety
    /// No other call is running.
    unsafe fn pop(&self) -> Pop<T> {
        // SAFETY: only the consumer touches `oldest`, and only one pop runs.
        let mut oldest = self.oldest.0.with_mut(|place| unsafe { *place });
        // SAFETY: the caller is the consumer, and `oldest` is in the list until it moves on.
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
            // The last node may be taken only when another is linked after it: a pusher may hold
            // its address.
            self.put_stub_back();
            // SAFETY: as above.
            next = unsafe { self.next(oldest) };
            if next.is_null() {
                return Pop::Busy;
            }
        }
        self.move_on(next);
        // SAFETY: the node has a value, since it is not the stub. It is out of the list and its
        // link is written, so its pusher and the next one have made their last access.
        Pop::Node(unsafe { take(oldest) })
    }

    fn is_newest(&self, node: *mut Node<T>) -> bool {
        // Acquire: a consumer that gets `Empty` sees all that was done before the last push it
        // popped. `WasEmpty` needs no pairing: a push not seen here has exchanged, or will
        // exchange, with the stub.
        self.newest.0.load(Ordering::Acquire) == node
    }

    fn move_on(&self, to: *mut Node<T>) {
        // SAFETY: only the consumer touches `oldest`, and only one pop runs.
        self.oldest.0.with_mut(|place| unsafe { *place = to });
    }

    /// Appends the stub again. The consumer calls it if the newest node was not the stub and
    /// nothing was linked after it: then the stub was popped and is not in the list.
    fn put_stub_back(&self) {
        // SAFETY: the stub lives as long as the list.
        let link = unsafe { &(*self.stub).next };
        // Relaxed: `link` publishes it.
        link.store(ptr::null_mut(), Ordering::Relaxed);
        self.link(self.stub);
    }
}

/// Frees a node and returns its value.
///
/// # Safety
/// The node came from `Node::new`, has a value, is in no list, and no other thread accesses it.
unsafe fn take<T>(node: *mut Node<T>) -> T {
    // SAFETY: the caller promises that this is the node's only owner.
    let node = unsafe { Box::from_raw(node) };
    // SAFETY: only the owner accesses the cell.
    let value = node.value.with_mut(|value| unsafe { (*value).take() });
    value.expect("only the stub has no value")
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the last owner drops the list, so no pop and no push runs, and no pop returns
        // `Busy`.
        while let Pop::Node(value) = unsafe { self.pop() } {
            drop(value);
        }
        // SAFETY: the stub came from a box, the list is empty, and no thread holds its address.
        drop(unsafe { Box::from_raw(self.stub) });
    }
}
