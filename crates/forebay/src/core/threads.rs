//! Threads beside the contexts, for calls that may block, and the end of all threads.
//!
//! ```text
//! job --> queue of some workers --> a thread: the call --> a message, a wake, a result
//! ```
//!
//! A thread starts when a job finds none idle, up to a limit, and ends after a while without jobs.
//! Jobs start in order of arrival. No lock of the engine is held while a job starts; a job takes
//! the locks it needs between its calls. There are two kinds of workers:
//!
//! - The **aside** of a file system has one thread for jobs of contexts: marks, free space, closing
//!   of files. A context serves many file systems. On a frozen one, or a hung device, every call
//!   that changes it blocks for as long as that lasts. A file is closed after all earlier jobs
//!   about it. The thread counts as the engine's own and never waits for the engine. If it cannot
//!   be started, the caller runs the jobs.
//! - Workers for **calls** of the program make opens, shutdowns, allocations and flushes of
//!   batches, so that the asynchronous form of a call does not block the thread of an executor.
//!   They have several threads, which may wait for the engine; no context waits for them. If none
//!   can be started, the job is dropped, and its future gets an error.
//!
//! A job that never returns keeps its thread, and everything it holds, for ever. A call whose
//! future was dropped is made all the same, and its result is dropped.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::core::answer::Answer;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::WORKERS_LINGER;
use crate::core::user_code;
use crate::platform::clock;
use crate::platform::sync::{Condvar, Mutex};
use crate::platform::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Starts a thread.
type StartThread = fn(&str, Job) -> io::Result<()>;

/// Owner of the jobs of some workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Kind {
    /// Contexts that serve one file system.
    #[default]
    Aside,
    /// The program. `most` is the limit of threads.
    Calls { most: usize },
}

/// Jobs to run, and the threads that run them. The default is an aside.
#[derive(Default)]
pub(crate) struct Workers {
    kind: Kind,
    state: Mutex<State>,
    /// Notified when a job is added, and when the last one has ended.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that run the jobs: own ones, or that of a caller.
    threads: usize,
    /// Threads among them that wait for a job.
    idle: usize,
    /// Jobs that these threads run.
    running: usize,
    /// Jobs that their callers run themselves.
    here: usize,
    /// Threads that wait until no job is left.
    settling: usize,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        formatter
            .debug_struct("Workers")
            .field("kind", &self.kind)
            .field("jobs", &state.jobs.len())
            .field("running", &state.running)
            .finish_non_exhaustive()
    }
}

impl Workers {
    /// Creates workers for calls of the program, with a limit of threads.
    pub(crate) fn for_calls(most: usize) -> Self {
        Self { kind: Kind::Calls { most }, ..Self::default() }
    }

    /// Has a thread run a job after the earlier ones. Does not wait for it. The caller holds no
    /// lock: if no thread can be started, jobs of an aside run here.
    pub(crate) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        self.run_by(thread::spawn, Box::new(job));
    }

    fn run_by(self: &Arc<Self>, start: StartThread, job: Job) {
        let (most, name) = match self.kind {
            Kind::Aside => (1, "forebay-aside"),
            Kind::Calls { most } => (most, "forebay-call"),
        };
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads >= most {
            drop(state);
            return self.notify();
        }
        state.threads += 1;
        debug_assert!(
            state.threads <= most,
            "files would be closed before earlier jobs about them"
        );
        drop(state);
        let workers = Arc::clone(self);
        let body = move || {
            if workers.kind == Kind::Aside {
                thread::mark_as_ours();
            }
            while let Some(job) = workers.wait_for_job() {
                workers.run_job(job);
            }
        };
        if let Err(error) = start(name, Box::new(body)) {
            tracing::warn!(%error, "could not start a thread for calls that may block");
            self.do_without_thread();
        }
    }

    /// Runs all jobs of an aside here. Until the queue is empty, no other caller runs jobs or
    /// starts a thread for them. Calls of the program are dropped if no thread is left to make
    /// them.
    fn do_without_thread(&self) {
        if self.kind == Kind::Aside {
            while let Some(job) = self.next_job() {
                self.run_job(job);
            }
            return;
        }
        let mut state = self.state.lock();
        state.end_thread();
        let refused = match state.threads {
            0 => std::mem::take(&mut state.jobs),
            _ => VecDeque::new(),
        };
        drop(state);
        // Without the lock: their futures are woken.
        drop(refused);
    }

    fn notify(&self) {
        match self.kind {
            // Others than the thread may wait for a change.
            Kind::Aside => self.changed.notify_all(),
            Kind::Calls { .. } => self.changed.notify_one(),
        }
    }

    /// Runs a job on the calling thread, which waits for it anyway, unless earlier ones are not
    /// done. It must not depend on others that callers run at the same time.
    pub(crate) fn run_here(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if state.running > 0 || !state.jobs.is_empty() {
            drop(state);
            return self.run(job);
        }
        state.here += 1;
        drop(state);
        let ended = catch_unwind(AssertUnwindSafe(job));
        let mut state = self.state.lock();
        assert!(state.here > 0, "a job that its caller runs ends once");
        state.here -= 1;
        let is_settling = state.settling > 0;
        drop(state);
        if is_settling {
            self.changed.notify_all();
        }
        if let Err(panic) = ended {
            resume_unwind(panic);
        }
    }

    /// Waits until no job is left. Returns false if one is left at the deadline.
    pub(crate) fn settle(&self, deadline: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        while state.running > 0 || state.here > 0 || !state.jobs.is_empty() {
            state.settling += 1;
            let (guard, is_late) = self.changed.wait_until(state, deadline);
            state = guard;
            assert!(state.settling > 0, "a thread that waits for the last job is not woken");
            state.settling -= 1;
            if is_late {
                return false;
            }
        }
        true
    }

    /// Waits for a job. Returns `None` if none came for a while; then the thread ends.
    fn wait_for_job(&self) -> Option<Job> {
        let mut state = self.state.lock();
        let deadline = clock::instant() + WORKERS_LINGER;
        let mut is_late = false;
        state.idle += 1;
        while state.jobs.is_empty() && !is_late {
            (state, is_late) = self.changed.wait_until(state, Some(deadline));
        }
        assert!(state.idle > 0, "a thread that waits would be taken for busy");
        state.idle -= 1;
        state.next_job()
    }

    /// Returns the first job. Without one the calling thread is no longer counted: it runs no more.
    fn next_job(&self) -> Option<Job> {
        self.state.lock().next_job()
    }

    fn run_job(&self, job: Job) {
        // The panic hook has reported a panic, and others wait for their jobs.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
            user_code::discard(panic);
        }
        let mut state = self.state.lock();
        assert!(state.running > 0, "a job ends once, or files would be closed before it");
        state.running -= 1;
        let is_settled = state.settling > 0 && state.jobs.is_empty();
        drop(state);
        if is_settled {
            self.changed.notify_all();
        }
    }

    /// Makes a call on another thread, and returns the future of its result.
    pub(crate) fn call<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Called<T> {
        let answer = Arc::new(Answer::default());
        let mut answering = Answering(Some(Arc::clone(&answer)));
        self.run(move || answering.end(call()));
        Called(answer)
    }
}

impl State {
    fn next_job(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front();
        match job {
            Some(_) => self.running += 1,
            None => self.end_thread(),
        }
        job
    }

    fn end_thread(&mut self) {
        assert!(self.threads > 0, "a thread ends once, or no other would ever start");
        self.threads -= 1;
    }
}

/// Future of a call on another thread. If it is dropped, the call is made all the same.
pub(crate) struct Called<T>(Arc<Answer<Result<T>>>);

impl<T> Future for Called<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.0.poll(context)
    }
}

/// Right to answer a call. Dropping it reports that the call was not made.
struct Answering<T>(Option<Arc<Answer<Result<T>>>>);

impl<T> Answering<T> {
    fn end(&mut self, result: Result<T>) {
        if let Some(answer) = self.0.take() {
            user_code::wake_all(answer.end(result).ok().flatten());
        }
    }
}

impl<T> Drop for Answering<T> {
    fn drop(&mut self) {
        let what = "a call panicked, or no thread could be started to make it";
        self.end(Err(Error::new(ErrorKind::Io, what)));
    }
}

/// End of all threads of an engine's contexts: a count of guards, and a wait for zero.
#[derive(Debug, Default)]
pub(crate) struct ThreadsEnd {
    guards: Mutex<usize>,
    changed: Condvar,
}

/// Guard of a thread that has not ended, or of the permission to start one.
#[derive(Debug)]
pub(crate) struct ThreadGuard(Arc<ThreadsEnd>);

impl ThreadsEnd {
    /// Creates the count with its first guard.
    pub(crate) fn new() -> (Arc<Self>, ThreadGuard) {
        let end = Arc::new(Self { guards: Mutex::new(1), changed: Condvar::default() });
        (Arc::clone(&end), ThreadGuard(end))
    }

    /// Waits until the last guard is dropped. Returns false if the deadline comes first.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut guards = self.guards.lock();
        while *guards > 0 {
            let is_late;
            (guards, is_late) = self.changed.wait_until(guards, deadline);
            if is_late {
                return *guards == 0;
            }
        }
        true
    }
}

impl Clone for ThreadGuard {
    fn clone(&self) -> Self {
        *self.0.guards.lock() += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        let mut guards = self.0.guards.lock();
        assert!(*guards > 0, "a guard is dropped once, or the engine would end before its threads");
        *guards -= 1;
        if *guards == 0 {
            drop(guards);
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
