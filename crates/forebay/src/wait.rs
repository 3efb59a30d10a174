//! Waiting: blocking calls are the asynchronous ones, driven on the caller's thread.
//!
//! So there is one implementation of every verb, and a blocking call costs a future on the stack
//! and, only where it really waits, a park. The engine's own threads must never wait for the
//! engine; they are marked, and refused.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::direct::plug;
use crate::error::{Error, ErrorKind, Result};

thread_local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
    static UNPARK: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Marks the calling thread as one of the engine's own.
pub(crate) fn mark_as_ours() {
    OURS.with(|ours| ours.set(true));
}

/// Whether the calling thread is one of the engine's own.
pub(crate) fn is_ours() -> bool {
    OURS.with(Cell::get)
}

/// Whether the calling thread may wait for the engine.
pub(crate) fn may_block() -> Result<()> {
    if !is_ours() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::WouldDeadlock,
        "cannot wait for the engine on one of its own threads",
    )
    .remedy("make the call on another thread, or use its asynchronous form"))
}

/// Runs something with a waker that unparks this thread. The thread's own waker is gone when the
/// destructor of another thread-local value waits: an engine, or a file, may be such a value.
fn with_unpark<T>(run: impl FnOnce(&Waker) -> T) -> T {
    let mut run = Some(run);
    let mut once = |waker: &Waker| run.take().map(|run| run(waker));
    let done = UNPARK
        .try_with(|waker| once(waker))
        .unwrap_or_else(|_| once(&Waker::from(Arc::new(Unpark(thread::current())))));
    done.expect("it runs once")
}

/// Runs a future to its end on this thread, which may wait.
pub(crate) fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    with_unpark(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return done;
            }
            plug::release_here();
            thread::park();
        }
    })
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    block_on_until(future, None)
        .unwrap_or_else(|| unreachable!("without a deadline there is an end"))
}

/// Runs a future to its end, or until the deadline: then `None`, and the future is dropped.
pub(crate) fn block_on_until<T>(
    future: impl Future<Output = Result<T>>,
    deadline: Option<Instant>,
) -> Option<Result<T>> {
    let mut future = pin!(future);
    with_unpark(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return Some(done);
            }
            if let Err(refused) = may_block() {
                return Some(Err(refused));
            }
            plug::release_here();
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    thread::park_timeout(left);
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    #[test]
    fn contract_12_waiting_on_an_engine_thread_is_refused() {
        let refused = thread::spawn(|| {
            mark_as_ours();
            block_on(poll_fn(|_| Poll::<Result<()>>::Pending))
        });
        let error = refused.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldDeadlock);
    }

    #[test]
    fn a_deadline_ends_a_wait() {
        let deadline = Instant::now() + Duration::from_millis(10);
        let never = poll_fn(|_| Poll::<Result<()>>::Pending);
        assert!(block_on_until(never, Some(deadline)).is_none());
    }
}
