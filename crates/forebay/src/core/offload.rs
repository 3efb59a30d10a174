//! Threads for blocking calls of the program, so that the asynchronous forms of these calls do not
//! block the thread of an executor.
//!
//! ```text
//! future --call--> queue --> a thread: the call --result--> answer --wake--> future
//! ```
//!
//! An open, a shutdown or an allocation blocks in system calls that io_uring does not make here. A
//! thread starts when a call finds none idle, up to a limit; beyond it calls wait in order of
//! arrival. It ends after a while without calls. These threads do not belong to the engine's own:
//! they may wait for the engine, and no context waits for them. (The asides do the work of
//! contexts.)
//!
//! A call whose future was dropped is made all the same, and its result is dropped.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::answer::Answer;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::ASIDE_LINGERS;
use crate::core::user_code;
use crate::platform::clock;
use crate::platform::sync::{Condvar, Mutex};
use crate::platform::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Calls to make, and the threads that make them.
pub(crate) struct Offload {
    /// Maximum of threads.
    most: usize,
    state: Mutex<State>,
    /// Notified when a call is added.
    added: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a call.
    idle: usize,
}

impl Offload {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default(), added: Condvar::new() }
    }

    /// Makes a call on another thread, and returns the future of its result.
    pub(crate) fn call<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Called<T> {
        let answer = Arc::new(Answer::default());
        let mut answering = Answering(Some(Arc::clone(&answer)));
        self.run(Box::new(move || answering.end(call())));
        Called(answer)
    }

    /// Queues a call. A call that no thread can make is dropped, and its future gets an error.
    fn run(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads >= self.most {
            drop(state);
            self.added.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let offload = Arc::clone(self);
        let started = thread::spawn("forebay-call", move || offload.serve());
        if let Err(error) = started {
            tracing::warn!(%error, "could not start a thread for a blocking call");
            let mut state = self.state.lock();
            state.threads -= 1;
            let refused =
                if state.threads == 0 { std::mem::take(&mut state.jobs) } else { VecDeque::new() };
            drop(state);
            // Without the lock: their futures are woken.
            drop(refused);
        }
    }

    /// Makes calls until none came for a while.
    fn serve(&self) {
        while let Some(job) = self.next() {
            // The panic hook has reported a panic; the future gets an error.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                user_code::discard(panic);
            }
        }
    }

    /// Waits for a call. Returns `None` if none came for a while; the thread then ends.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        let deadline = clock::instant() + ASIDE_LINGERS;
        let mut is_late = false;
        state.idle += 1;
        while state.jobs.is_empty() && !is_late {
            (state, is_late) = self.added.wait_until(state, Some(deadline));
        }
        state.idle -= 1;
        let job = state.jobs.pop_front();
        if job.is_none() {
            state.threads -= 1;
        }
        job
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::core::limits::OFFLOAD_THREADS;
    use crate::core::wait;

    #[test]
    fn a_call_that_blocks_does_not_keep_the_next_waiting() {
        let offload = Arc::new(Offload::new(OFFLOAD_THREADS));
        let (go_on, wait_for_it) = mpsc::channel::<()>();
        let blocked = offload.call(move || {
            wait_for_it.recv().unwrap();
            Ok(1)
        });
        assert_eq!(wait::block_on(offload.call(|| Ok(2))).unwrap(), 2);
        go_on.send(()).unwrap();
        assert_eq!(wait::block_on(blocked).unwrap(), 1);
    }

    #[test]
    fn contract_18_no_more_threads_start_than_allowed_and_every_call_is_made() {
        let offload = Arc::new(Offload::new(OFFLOAD_THREADS));
        let (go_on, wait_for_it) = mpsc::channel::<()>();
        let wait_for_it = Arc::new(std::sync::Mutex::new(wait_for_it));
        let calls: Vec<_> = (0..3 * OFFLOAD_THREADS)
            .map(|number| {
                let wait_for_it = Arc::clone(&wait_for_it);
                offload.call(move || {
                    wait_for_it.lock().unwrap().recv().unwrap();
                    Ok(number)
                })
            })
            .collect();
        assert!(offload.state.lock().threads <= OFFLOAD_THREADS);
        (0..calls.len()).for_each(|_| go_on.send(()).unwrap());
        let results = calls.into_iter().map(|call| wait::block_on(call).unwrap());
        assert!(results.eq(0..3 * OFFLOAD_THREADS));
    }

    #[test]
    fn a_call_that_panics_or_is_not_awaited_harms_no_other() {
        let offload = Arc::new(Offload::new(OFFLOAD_THREADS));
        let panicked = offload.call(|| -> Result<()> { panic!("a call that fails") });
        assert_eq!(wait::block_on(panicked).unwrap_err().kind(), ErrorKind::Io);
        let (reported, report) = mpsc::channel();
        drop(offload.call(move || {
            reported.send(thread::is_ours()).unwrap();
            Ok(())
        }));
        assert!(!report.recv().unwrap(), "it may wait for the engine");
    }

    #[test]
    fn contract_16_the_threads_end_without_calls() {
        let offload = Arc::new(Offload::new(OFFLOAD_THREADS));
        wait::block_on(offload.call(|| Ok(()))).unwrap();
        let deadline = clock::instant() + Duration::from_secs(20);
        while Arc::strong_count(&offload) > 1 {
            assert!(clock::instant() < deadline, "the thread did not end");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(offload.state.lock().threads, 0);
    }
}
