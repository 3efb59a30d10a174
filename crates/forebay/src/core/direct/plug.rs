//! The explicit plug: operations of one thread are held back and submitted together.
//!
//! ```text
//! let _plug = engine.plug();
//! submit --> held --submit--> held ... --release--> context takes all, one batch
//!             |first: message to the context
//! ```
//!
//! Held operations are in a list that the context shares. The context gets a message about the list
//! with its first operation, so every hold has a deadline in any case.
//!
//! The list is released when:
//!
//! - the outermost guard is dropped,
//! - it holds as many operations as the device takes in one call,
//! - the thread waits for this library, or
//! - its time is over: then the context takes it by itself.
//!
//! The price is one more message per batch. Both messages wake the context once, unless it fell
//! asleep in between.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;

use crate::core::context::senders::Message;
use crate::core::direct::operation::{Held, Operation, Reported};
use crate::core::shared::Shared;
use crate::core::stats::Counters;
use crate::platform::thread::task_local;

task_local! {
    /// Plugs of this thread, one per engine.
    static HERE: RefCell<Vec<Plugging>> = RefCell::new(Vec::new());
}

#[derive(Debug)]
struct Plugging {
    shared: Arc<Shared>,
    depth: usize,
    held: Arc<Held>,
}

/// Guard that holds back the direct operations of this thread, to submit them together.
///
/// [`Engine::plug`](crate::Engine::plug) creates it. Dropping it submits the operations; of nested
/// guards, the outermost does. Operations of other threads are not held back. The operations are
/// submitted earlier
///
/// - when there are 32 of them, or 32 MiB,
/// - when the first is 50 us old,
/// - when this thread waits for the engine, by a blocking call or by polling a future, or
/// - when this thread syncs or closes a file.
///
/// ```
/// use forebay::{Engine, OpenOptions};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// # std::fs::write(&path, vec![0; 65536]).unwrap();
/// let engine = Engine::new()?;
/// let file = engine.open_direct(&path, OpenOptions::new().read(true))?;
/// let plug = engine.plug();
/// let reads: Vec<_> = (0..16).map(|at| file.read_at(vec![0; 4096], at * 4096)).collect();
/// drop(plug);
/// for read in reads {
///     assert_eq!(read.wait().0?, 4096);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "operations are held together only until the guard is dropped"]
pub struct Plug {
    shared: Arc<Shared>,
    /// Keeps the guard on its thread.
    here: PhantomData<*const ()>,
}

impl Plug {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        HERE.with(|here| {
            let mut here = here.borrow_mut();
            match here.iter_mut().find(|plugging| Arc::ptr_eq(&plugging.shared, shared)) {
                Some(plugging) => plugging.depth += 1,
                None => here.push(Plugging {
                    shared: Arc::clone(shared),
                    depth: 1,
                    held: Arc::default(),
                }),
            }
        });
        Self { shared: Arc::clone(shared), here: PhantomData }
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        // If the thread is ending, its plugs are already dropped. Then the deadline releases the
        // list.
        let outermost = HERE.try_with(|here| {
            let mut here = here.borrow_mut();
            let at =
                here.iter().position(|plugging| Arc::ptr_eq(&plugging.shared, &self.shared))?;
            assert!(here[at].depth > 0, "operations would be held until their deadline");
            here[at].depth -= 1;
            (here[at].depth == 0).then(|| here.swap_remove(at))
        });
        match outermost {
            Ok(Some(plugging)) if plugging.shared.is_parent() => {
                release(&plugging.shared, &plugging.held);
            }
            // In a forked child the list may be locked by a context that does not exist here.
            Ok(Some(plugging)) => std::mem::forget(plugging),
            _ => {}
        }
    }
}

/// Submits an operation, or holds it back if this thread is plugged.
pub(crate) fn submit(shared: &Arc<Shared>, operation: Operation) {
    // An ending thread has dropped its plugs.
    let held = HERE.try_with(|here| {
        let here = here.borrow();
        let plugging = here.iter().find(|plugging| Arc::ptr_eq(&plugging.shared, shared));
        plugging.map(|plugging| Arc::clone(&plugging.held))
    });
    match held.ok().flatten() {
        // An operation that waits for all earlier ones follows them at once: its caller must not be
        // held.
        Some(held) if operation.verb.closes() => {
            release(shared, &held);
            send(shared, operation);
        }
        Some(held) => {
            Counters::add(&shared.counters.plugged, 1);
            hold(shared, &held, operation);
        }
        None => send(shared, operation),
    }
}

fn hold(shared: &Shared, held: &Arc<Held>, operation: Operation) {
    if held.hold(operation) == Reported::NotYet {
        report(shared, held);
        // No context takes the list, or the contexts stop before they get the message: end it here.
        if shared.is_orphaned() {
            drop(held.take());
        }
    }
}

fn release(shared: &Shared, held: &Arc<Held>) {
    if held.release() == Reported::NotYet {
        report(shared, held);
    }
}

fn report(shared: &Shared, held: &Arc<Held>) {
    shared.send(Message::Plugged(Arc::clone(held)));
}

fn send(shared: &Shared, operation: Operation) {
    shared.send(Message::Operation(Box::new(operation)));
}

/// Releases the operations held by this thread, because it is about to wait.
pub(crate) fn release_here() {
    let _ = HERE.try_with(|here| {
        let here = here.borrow();
        let ours = here.iter().filter(|plugging| plugging.shared.is_parent());
        ours.for_each(|plugging| release(&plugging.shared, &plugging.held));
    });
}

/// Releases the operations held by this thread if the caller is about to wait, maybe for one of
/// them.
pub(crate) fn plugged_no_more<T>(polled: Poll<T>) -> Poll<T> {
    if polled.is_pending() {
        release_here();
    }
    polled
}
