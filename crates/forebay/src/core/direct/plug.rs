//! The explicit plug: what one thread submits is held back and handed over together.
//!
//! ```text
//! let _plug = engine.plug();
//! submit --> held (first: the context is told) --submit--> held ... --released--> context takes all of it, one batch
//! ```
//!
//! Held operations lie in a list that the context shares, and the context hears of the list with
//! the first of them: so no hold is without a deadline, whatever the thread does next. Released are
//! they when the outermost guard goes, when there are as many as the device takes in one call, when
//! the thread waits for this library, or when their time is over: then the context takes them by
//! itself.
//!
//! The price is one message more per batch; both together wake the context once, unless it fell
//! asleep between.

use crate::platform::clock;
use crate::platform::sync::{Mutex, MutexGuard};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use forebay_block::limits::{BATCH_REQUESTS, PLUG_BYTES, PLUG_HOLD};

use crate::core::context::Message;
use crate::core::counters::Counters;
use crate::core::direct::flow;
use crate::core::direct::operation::Operation;
use crate::core::shared::Shared;
use crate::platform::thread::task_local;

task_local! {
    /// The plugs of this thread, one for each engine.
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
/// guards, the outermost does. They are submitted earlier when there are 32 of them or 32 MiB, when
/// the first is 50 us old, when this thread waits for the engine (by a blocking call, or by polling
/// a future), or when it syncs or closes a file. Operations of other threads are not held back.
///
/// ```
/// use forebay::{Engine, Open};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// # std::fs::write(&path, vec![0; 65536]).unwrap();
/// let engine = Engine::new()?;
/// let file = engine.open_direct(&path, Open::read())?;
/// let plug = engine.plug();
/// let reads: Vec<_> = (0..16).map(|at| file.read_at_async(vec![0; 4096], at * 4096)).collect();
/// drop(plug);
/// for read in reads {
///     assert_eq!(read.wait().0?, 4096);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "operations are held together only while the guard lives"]
pub struct Plug {
    shared: Arc<Shared>,
    /// It is this thread's.
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
        // The thread may be ending, its plugs gone: then the deadline hands over what is held.
        let outermost = HERE.try_with(|here| {
            let mut here = here.borrow_mut();
            let at =
                here.iter().position(|plugging| Arc::ptr_eq(&plugging.shared, &self.shared))?;
            here[at].depth -= 1;
            (here[at].depth == 0).then(|| here.swap_remove(at))
        });
        match outermost {
            Ok(Some(plugging)) if plugging.shared.is_parent() => {
                plugging.held.release(&plugging.shared);
            }
            // In a forked child: the context may have had the list's lock, and nobody here will
            // ever let go of it.
            Ok(Some(plugging)) => std::mem::forget(plugging),
            _ => {}
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
    /// When the first of them came.
    since: Option<Instant>,
    is_released: bool,
}

/// What the context does with a list.
#[derive(Debug)]
pub(crate) enum Due {
    /// Start these now: none where they were taken before. The next one held tells anew.
    Now(Vec<Operation>),
    /// Look again at the deadline.
    Later,
}

impl Held {
    fn hold(self: &Arc<Self>, shared: &Shared, operation: Operation) {
        let mut list = self.lock();
        list.bytes += operation.bytes();
        list.operations.push(operation);
        let is_first = list.operations.len() == 1;
        if is_first {
            list.since = Some(clock::instant());
        }
        let is_full = list.operations.len() >= BATCH_REQUESTS || list.bytes >= PLUG_BYTES;
        list.is_released |= is_full;
        drop(list);
        if is_first || is_full {
            self.tell(shared);
            // Nobody takes it any more, or whoever ended did so before it was told: it ends here.
            if shared.is_orphaned() {
                drop(self.take());
            }
        }
    }

    /// Hands over what is held.
    fn release(self: &Arc<Self>, shared: &Shared) {
        let mut list = self.lock();
        // Released already and not taken yet: the context has been told.
        if list.operations.is_empty() || std::mem::replace(&mut list.is_released, true) {
            return;
        }
        drop(list);
        self.tell(shared);
    }

    fn tell(self: &Arc<Self>, shared: &Shared) {
        shared.send(Message::Direct(flow::Message::Plugged(Arc::clone(self))));
    }

    /// What is to be started by now; the context asks.
    pub(crate) fn take_due(&self) -> Due {
        let mut list = self.lock();
        if !list.is_released && list.since.is_some_and(|since| clock::instant() < since + PLUG_HOLD)
        {
            return Due::Later;
        }
        Due::Now(std::mem::take(&mut *list).operations)
    }

    /// All that is held, due or not: somebody waits for it.
    pub(crate) fn take(&self) -> Vec<Operation> {
        std::mem::take(&mut *self.lock()).operations
    }

    /// When what is held is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock().since.map(|since| since + PLUG_HOLD)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock()
    }
}

/// Submits an operation: held where this thread is plugged, else handed over.
pub(crate) fn submit(shared: &Arc<Shared>, operation: Operation) {
    // A thread that is ending has no plugs any more.
    let held = HERE.try_with(|here| {
        let here = here.borrow();
        let plugging = here.iter().find(|plugging| Arc::ptr_eq(&plugging.shared, shared));
        plugging.map(|plugging| Arc::clone(&plugging.held))
    });
    match held.ok().flatten() {
        // What waits for all before it goes after them, and nobody who waits is held.
        Some(held) if operation.verb.closes() => {
            held.release(shared);
            send(shared, operation);
        }
        Some(held) => {
            Counters::add(&shared.counters.plugged, 1);
            held.hold(shared, operation);
        }
        None => send(shared, operation),
    }
}

fn send(shared: &Shared, operation: Operation) {
    shared.send(Message::Direct(flow::Message::Operation(Box::new(operation))));
}

/// This thread is about to wait: what it holds goes.
pub(crate) fn release_here() {
    let _ = HERE.try_with(|here| {
        let here = here.borrow();
        let ours = here.iter().filter(|plugging| plugging.shared.is_parent());
        ours.for_each(|plugging| plugging.held.release(&plugging.shared));
    });
}
