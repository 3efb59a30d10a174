//! Blocking calls: asynchronous calls that are driven on the caller's thread. And the other way
//! round: asynchronous forms of calls that block in the kernel, made on another thread.
//!
//! So each operation has one implementation. A blocking call costs a future on the stack, and a
//! park only if it waits. The engine's own threads must never wait for the engine; they are marked,
//! and refused.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use crate::core::direct::plug;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::shared::Shared;
use crate::core::threads::Called;
use crate::platform::clock;
use crate::platform::thread;

/// Checks whether the calling thread may wait for the engine.
pub(crate) fn may_block() -> Result<()> {
    if !thread::is_ours() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::WouldDeadlock,
        "cannot wait for the engine on one of its own threads",
    )
    .remedy("make the call on another thread, or use its asynchronous form"))
}

/// Runs a future to its end on this thread, which may wait.
pub(crate) fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    thread::with_waker(|waker| {
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
        .unwrap_or_else(|| unreachable!("a wait without a deadline ends with the future"))
}

/// Runs a future to its end or until the deadline. At the deadline, drops the future and returns
/// `None`.
pub(crate) fn block_on_until<T>(
    future: impl Future<Output = Result<T>>,
    deadline: Option<Instant>,
) -> Option<Result<T>> {
    let mut future = pin!(future);
    thread::with_waker(|waker| {
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
                    if clock::instant() >= deadline {
                        return None;
                    }
                    thread::park_until(deadline);
                }
            }
        }
    })
}

/// Makes a blocking call on a thread for such calls. The call starts with the first poll, and is
/// made even if the future is dropped then.
pub(crate) async fn offload<T: Send + 'static>(
    shared: &Shared,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    called(shared.offload.call(call)).await
}

/// Waits for a call on another thread.
pub(crate) async fn called<T>(mut called: Called<T>) -> Result<T> {
    poll_fn(|context| plug::plugged_no_more(Pin::new(&mut called).poll(context))).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn contract_12_waiting_on_an_engine_thread_is_refused() {
        let refused = std::thread::spawn(|| {
            thread::mark_as_ours();
            block_on(poll_fn(|_| Poll::<Result<()>>::Pending))
        });
        let error = refused.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldDeadlock);
    }

    #[test]
    fn a_deadline_ends_a_wait() {
        let deadline = clock::instant() + Duration::from_millis(10);
        let never = poll_fn(|_| Poll::<Result<()>>::Pending);
        assert!(block_on_until(never, Some(deadline)).is_none());
    }
}
