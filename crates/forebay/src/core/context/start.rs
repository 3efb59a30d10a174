//! The writeback contexts of an engine: their start, and the end of the last one.
//!
//! The first context runs from the beginning, and serves the direct files. Others start when they
//! are first needed. When they are not needed, they have no files, sleep, and use no CPU.
//!
//! `senders.rs` sends messages to them. Each context checks whether its files still belong to it,
//! and hands over those that do not (`handover.rs`).
//!
//! The number of contexts that files are spread among is that of the knob, or the one that
//! `load.rs` finds. Callers that change it hold the lock `spreading`, so that all contexts see
//! changes in the same order.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_block::Moment;

use crate::core::context::placement::Affinity;
use crate::core::context::senders::Sender;
use crate::core::context::{End, Writeback};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::{CONTEXTS, RING_ENTRIES};
use crate::core::options::{self, OfContext, Options};
use crate::core::shared::{Shared, Start};
use crate::core::threads::{ThreadGuard, ThreadsEnd};
use crate::platform::sync::Mutex;
use crate::platform::{Alive, Arena, Backend, BackendError, Choice, thread};

/// Starts the contexts of an engine, one after the other.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// Number of threads that have not ended.
    living: Arc<AtomicUsize>,
    state: Mutex<State>,
}

/// The arguments of the next start.
#[derive(Debug)]
struct State {
    choice: Choice,
    arena: Arc<Arena>,
    /// Each context holds it, so that another process sees the end of all. `None` once no more may
    /// start.
    alive: Option<Arc<Alive>>,
    /// Dropped with the last thread. `None` once no more may start.
    ended: Option<ThreadGuard>,
}

impl Contexts {
    /// Creates the set without a context. The second value reports the end of the last context.
    pub(crate) fn new(
        choice: Choice,
        arena: Arc<Arena>,
        alive: Option<Arc<Alive>>,
    ) -> (Self, Arc<ThreadsEnd>) {
        let (has_ended, ended) = ThreadsEnd::new();
        let state = Mutex::new(State { choice, arena, alive, ended: Some(ended) });
        (Self { living: Arc::default(), state }, has_ended)
    }
}

impl Start for Contexts {
    fn start(&self, shared: &Arc<Shared>, knobs: OfContext) -> Result<String> {
        let mut state = self.state.lock();
        let Some(ended) = state.ended.clone() else {
            return Err(Error::new(ErrorKind::Shutdown, "the engine is shut down"));
        };
        let number = shared.contexts.started();
        let mut backend = Backend::chosen(state.choice, Arc::clone(&state.arena), RING_ENTRIES)
            .map_err(no_backend)?;
        if let Some(alive) = &state.alive {
            // A failure has been logged. The keeper then waits only for this process.
            let _ = backend.set_alive(alive);
        }
        let description = backend.describe();
        // All contexts use the backend that the first one got.
        state.choice = match backend {
            Backend::Ring(_) => Choice::IoUring,
            Backend::Threads(_) => {
                // Its threads do the work, and each context has all of them.
                shared.load.limit(1);
                Choice::Threads
            }
        };
        let (sender, inbox) = Sender::new(backend.waker());
        let context =
            Writeback::new(number, Arc::clone(shared), inbox, backend, knobs, ended.clone());
        let (orphans, alive) = (Arc::clone(shared), state.alive.clone());
        let living = Arc::clone(&self.living);
        self.living.fetch_add(1, Ordering::AcqRel);
        let run = move || {
            thread::mark_as_ours();
            // After a bug, callers must not wait for ever. The panic hook has reported the panic.
            let run = std::panic::AssertUnwindSafe(|| context.run());
            let how = std::panic::catch_unwind(run).unwrap_or(End::Broken);
            end(&orphans, &living, how);
            drop(alive);
            // Its drop reports the end of the thread.
            drop(ended);
        };
        thread::spawn(&format!("forebay-{number}"), run).map_err(|error| {
            self.living.fetch_sub(1, Ordering::AcqRel);
            Error::new(ErrorKind::Io, "could not start a writeback thread").because(error)
        })?;
        assert_eq!(
            number,
            shared.contexts.started(),
            "files would go to a context without a sender"
        );
        shared.contexts.enter(number, sender);
        Ok(description)
    }

    fn stop(&self) {
        let mut state = self.state.lock();
        (state.ended, state.alive) = (None, None);
    }
}

/// Ends a context. After the last one, or if one is broken, callers no longer wait for the engine.
fn end(shared: &Shared, living: &AtomicUsize, how: End) {
    let were_living = living.fetch_sub(1, Ordering::AcqRel);
    assert!(were_living > 0, "a context ends once");
    let was_last = were_living == 1;
    if was_last || how == End::Broken {
        shared.orphan();
    }
    if how == End::Broken {
        shared.contexts.mark_broken();
        shared.stop_contexts();
    }
    if was_last {
        if shared.contexts.is_broken() {
            shared.leave_to_keeper();
        }
        shared.release_leases();
    }
}

fn no_backend(error: BackendError) -> Error {
    let kind = match error {
        BackendError::Threads(_) => ErrorKind::Io,
        _ => ErrorKind::Unsupported,
    };
    Error::new(kind, error.to_string())
}

/// A change of the number in progress, which ends when this is dropped.
struct Change {
    shared: Arc<Shared>,
    /// The end of the engine waits for it. It is dropped last.
    _running: ThreadGuard,
}

impl Drop for Change {
    fn drop(&mut self) {
        self.shared.load.end_change();
    }
}

impl Shared {
    /// Starts the first contexts. Returns the system calls that they use, in one line.
    ///
    /// # Errors
    /// If a context could not be started, with the reason.
    pub(crate) fn start(self: &Arc<Self>) -> Result<String> {
        let _spreading = self.spreading.lock();
        let settings = self.settings.lock().clone();
        Ok(self.spread(&settings)?.expect("nothing ran before"))
    }

    /// Spreads the files among the number of contexts set by the knob.
    ///
    /// # Errors
    /// If a context could not be started, with the reason.
    pub(crate) fn spread(self: &Arc<Self>, settings: &Options) -> Result<Option<String>> {
        self.spread_among(self.load.begin(settings.contexts), settings)
    }

    /// Changes the number of contexts if a window has ended. A change may start a thread and a
    /// ring, so a short-lived thread makes it, which the end of the engine waits for.
    pub(crate) fn follow_load(self: &Arc<Self>, now: Moment, running: &ThreadGuard) {
        let places = || match self.contexts.affinity() {
            Affinity::Single => Some(1),
            _ => self.table().places(),
        };
        let Some(active) = self.load.look(self, now, places) else { return };
        if active == self.contexts.active() || self.check().is_err() || !self.load.begin_change() {
            return;
        }
        assert!((1..=CONTEXTS).contains(&active), "files would belong to no context: {active}");
        let change = Change { shared: Arc::clone(self), _running: running.clone() };
        let run = move || {
            thread::mark_as_ours();
            if let Err(error) = change.shared.spread_found(active) {
                change.shared.keep_number(&error);
            }
        };
        if let Err(error) = thread::spawn("forebay-spread", run) {
            self.keep_number(&error);
        }
    }

    /// Has no more contexts tried than run, because another one could not be started.
    fn keep_number(&self, error: &dyn Display) {
        tracing::debug!(%error, "the number of contexts stays");
        self.load.limit(self.contexts.started());
    }

    /// Spreads the files among the number of contexts found best, unless the knob was set to a
    /// number meanwhile.
    fn spread_found(self: &Arc<Self>, active: usize) -> Result<()> {
        self.load.count_processors();
        let _spreading = self.spreading.lock();
        // Not locked meanwhile: callers read them.
        let settings = self.settings.lock().clone();
        if settings.contexts == options::Contexts::Adaptive && self.check().is_ok() {
            self.spread_among(active, &settings)?;
        }
        Ok(())
    }

    /// Spreads the files among `active` contexts, and starts missing ones. Returns once each
    /// context has its message, before the files have moved. The result describes the first context
    /// started here.
    ///
    /// # Errors
    /// If a context could not be started, with the reason.
    fn spread_among(self: &Arc<Self>, active: usize, settings: &Options) -> Result<Option<String>> {
        assert!(
            (1..=CONTEXTS).contains(&active),
            "the number of contexts is out of range: {active}"
        );
        let mut first = None;
        while self.contexts.started() < active {
            let description = self.start_context(settings.of_context())?;
            first.get_or_insert(description);
        }
        self.contexts.spread(active, settings.measuring.affinity);
        Ok(first)
    }
}
