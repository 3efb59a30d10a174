//! The aside: one thread per file system for calls that may block. It sets marks, examines free
//! space, and closes files.
//!
//! A context serves many file systems. On a frozen file system, or a hung device, every call that
//! changes it blocks for as long as that lasts. So a context makes no such call itself: its backend
//! makes those that io_uring supports, and this thread makes the others.
//!
//! ```text
//! context --job--> queue of one file system --> its thread: the calls --message--> context
//!                                                            \--> closed: wakes the waiters
//! ```
//!
//! Jobs of one file system run in order of arrival, so a file is closed after all earlier jobs
//! about it. No lock of the engine is held while a job starts; a job takes the locks it needs
//! between its calls. The thread starts with the first job and ends after a while without jobs. A
//! job that never returns keeps its thread, and everything it holds, for ever.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::core::limits::ASIDE_LINGERS;
use crate::platform::clock;
use crate::platform::sync::{Condvar, Mutex};
use crate::platform::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Starts a thread.
type Start = fn(&str, Job) -> io::Result<()>;

/// Thread of one file system, and its jobs.
#[derive(Default)]
pub(crate) struct Aside {
    state: Mutex<State>,
    /// Notified when a job is added, and when the last one has ended.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Whether a thread runs the jobs: its own one, or that of a caller.
    has_thread: bool,
    /// Whether the thread runs a job.
    is_busy: bool,
    /// Jobs that their callers run themselves.
    here: usize,
    /// Threads that wait until no job is left.
    settling: usize,
}

impl std::fmt::Debug for Aside {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        formatter
            .debug_struct("Aside")
            .field("jobs", &state.jobs.len())
            .field("is_busy", &state.is_busy)
            .finish_non_exhaustive()
    }
}

impl Aside {
    /// Has the thread run a job after the earlier ones. Does not wait for it. The caller holds no
    /// lock: if no thread can be started, the job runs here.
    pub(crate) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        self.run_by(thread::spawn, job);
    }

    fn run_by(self: &Arc<Self>, start: Start, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.has_thread {
            drop(state);
            self.changed.notify_all();
            return;
        }
        state.has_thread = true;
        drop(state);
        let aside = Arc::clone(self);
        let body = move || {
            thread::mark_as_ours();
            while aside.wait_for_job() {
                aside.run_next();
            }
        };
        if let Err(error) = start("forebay-aside", Box::new(body)) {
            tracing::warn!(
                %error,
                "could not start a thread for calls that may block; the caller makes them"
            );
            // Until the queue is empty, no other caller runs jobs or starts a thread for them.
            while self.run_next() {}
        }
    }

    /// Runs a job on the calling thread, which waits for it anyway, unless earlier ones are not
    /// done. It must not depend on others that callers run at the same time.
    pub(crate) fn run_here(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if state.is_busy || !state.jobs.is_empty() {
            drop(state);
            return self.run(job);
        }
        state.here += 1;
        drop(state);
        let ended = catch_unwind(AssertUnwindSafe(job));
        let mut state = self.state.lock();
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
        while state.is_busy || state.here > 0 || !state.jobs.is_empty() {
            state.settling += 1;
            let (guard, is_late) = self.changed.wait_until(state, deadline);
            state = guard;
            state.settling -= 1;
            if is_late {
                return false;
            }
        }
        true
    }

    /// Waits for a job. Returns false if none came for a while; then the thread ends.
    fn wait_for_job(&self) -> bool {
        let mut state = self.state.lock();
        let deadline = clock::instant() + ASIDE_LINGERS;
        let mut is_late = false;
        while state.jobs.is_empty() && !is_late {
            (state, is_late) = self.changed.wait_until(state, Some(deadline));
        }
        state.has_thread = !state.jobs.is_empty();
        state.has_thread
    }

    /// Runs the first job. Returns false if the queue is empty; then no thread runs jobs.
    fn run_next(&self) -> bool {
        let mut state = self.state.lock();
        let Some(job) = state.jobs.pop_front() else {
            state.has_thread = false;
            return false;
        };
        debug_assert!(!state.is_busy, "jobs of one file system run one by one");
        state.is_busy = true;
        drop(state);
        // The panic hook has reported a panic, and other files have to be closed.
        let _ = catch_unwind(AssertUnwindSafe(job));
        let mut state = self.state.lock();
        state.is_busy = false;
        if state.jobs.is_empty() {
            drop(state);
            self.changed.notify_all();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn contract_15_jobs_run_in_order_on_another_thread() {
        let aside = Arc::new(Aside::default());
        let (go_on, wait) = mpsc::channel::<()>();
        let (reported, report) = mpsc::channel();
        aside.run(move || wait.recv().unwrap());
        for number in 0..100 {
            let reported = reported.clone();
            aside.run(move || reported.send((number, thread::is_ours())).unwrap());
        }
        assert!(!aside.settle(Some(clock::instant() + Duration::from_millis(20))));
        assert_eq!(report.try_recv(), Err(mpsc::TryRecvError::Empty));
        go_on.send(()).unwrap();
        assert!(aside.settle(None));
        assert!(report.try_iter().eq((0..100).map(|number| (number, true))));
    }

    #[test]
    fn contract_15_jobs_run_one_by_one_if_no_thread_can_be_started() {
        let fails: Start = |_, _| Err(io::Error::from_raw_os_error(libc::EAGAIN));
        let aside = Arc::new(Aside::default());
        let (go_on, wait) = mpsc::channel::<()>();
        let (reported, report) = mpsc::channel();
        let (first, second) = (reported.clone(), reported.clone());
        let of_first = Arc::clone(&aside);
        let running = std::thread::spawn(move || {
            of_first.run_by(fails, move || {
                first.send("begin").unwrap();
                wait.recv().unwrap();
                first.send("end").unwrap();
            });
        });
        assert_eq!(report.recv(), Ok("begin"));
        aside.run_by(fails, move || second.send("second").unwrap());
        aside.run(move || reported.send("third").unwrap());
        assert!(!aside.settle(Some(clock::instant() + Duration::from_millis(20))));
        assert_eq!(report.try_recv(), Err(mpsc::TryRecvError::Empty));
        go_on.send(()).unwrap();
        running.join().unwrap();
        assert!(aside.settle(None));
        assert!(report.try_iter().eq(["end", "second", "third"]));
        aside.run(|| {});
        assert!(aside.settle(None));
    }

    #[test]
    fn contract_16_the_thread_ends_without_jobs() {
        let aside = Arc::new(Aside::default());
        for _ in 0..2 {
            aside.run(|| panic!("a job that fails; the next one runs all the same"));
            aside.run(|| {});
            assert!(aside.settle(None));
            assert!(aside.state.lock().has_thread);
            let deadline = clock::instant() + Duration::from_secs(20);
            while Arc::strong_count(&aside) > 1 {
                assert!(clock::instant() < deadline, "the thread did not end");
                thread::sleep(Duration::from_millis(20));
            }
            assert!(!aside.state.lock().has_thread);
        }
    }
}
