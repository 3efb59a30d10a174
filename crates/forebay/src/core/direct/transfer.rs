//! The futures of direct operations.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::direct::buffer::DirectBuffer;
use crate::core::direct::operation::{Operation, Outcome, Ticket};
use crate::core::direct::plug;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::shared::Shared;
use crate::core::wait;
use crate::platform::clock;

/// Future of a direct read or write that has been submitted.
///
/// It resolves to the number of bytes read or written, or the error, and the buffer. Dropping it
/// cancels nothing: the operation ends, the buffer is freed then, and the next sync or close of the
/// handle reports the error of a write. If the engine stops while the device still has the buffer,
/// an empty buffer is returned.
///
/// ```
/// use forebay::{Engine, OpenOptions, Transfer};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// # let engine = Engine::new()?;
/// let file = engine.open_direct(&path, OpenOptions::new().read(true).write(true).create(true))?;
/// let write: Transfer<Vec<u8>> = file.write_at(vec![1; 4096], 0);
/// // The write is on its way; here is time for other work.
/// let (result, buffer) = write.wait();
/// assert_eq!((result?, buffer.len()), (4096, 4096));
/// # file.close().wait()
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it holds the result and returns the buffer"]
pub struct Transfer<B: DirectBuffer>(Stage<B>);

#[derive(Debug)]
enum Stage<B> {
    Reported(Result<usize>, B),
    Asked(Asked, Option<Aside<B>>),
    Over,
}

/// The caller's buffer, if the device works on a copy of it.
#[derive(Debug)]
pub(crate) struct Aside<B> {
    pub(crate) buffer: B,
    pub(crate) manner: Copying,
}

/// Bytes to copy back to the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copying {
    /// The bytes read. They follow this number of bytes in the copy.
    After(usize),
    Nothing,
}

impl<B: DirectBuffer> Transfer<B> {
    /// Creates a transfer that has ended.
    pub(crate) fn reported(result: Result<usize>, buffer: B) -> Self {
        Self(Stage::Reported(result, buffer))
    }

    /// Waits for the end of the operation on this thread, for programs without an executor. Blocks.
    ///
    /// Returns the number of bytes read or written, and the buffer.
    ///
    /// # Errors
    /// Those of the operation; `WouldDeadlock` on a thread of the engine: then the operation ends
    /// as if this had been dropped, and the returned buffer may be empty.
    pub fn wait(self) -> (Result<usize>, B) {
        match (wait::may_block(), self.0) {
            (Ok(()), stage) => wait::drive(Self(stage)),
            (_, Stage::Reported(result, buffer)) => (result, buffer),
            (Err(error), Stage::Asked(_, Some(aside))) => (Err(error), aside.buffer),
            (Err(error), _) => (Err(error), B::nothing()),
        }
    }

    pub(crate) fn asked(asked: Asked, aside: Option<Aside<B>>) -> Self {
        Self(Stage::Asked(asked, aside))
    }
}

// No address of it is handed out, so nothing has to be pinned.
impl<B: DirectBuffer> Unpin for Transfer<B> {}

impl<B: DirectBuffer> Future for Transfer<B> {
    type Output = (Result<usize>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match std::mem::replace(&mut self.0, Stage::Over) {
            Stage::Reported(result, buffer) => Poll::Ready((result, buffer)),
            Stage::Asked(mut asked, aside) => match Pin::new(&mut asked).poll(context) {
                Poll::Ready((result, memory)) => Poll::Ready(match aside {
                    Some(aside) => {
                        let copy =
                            memory.as_ref().map(crate::platform::Memory::bytes).unwrap_or_default();
                        aside.give_back(result, copy)
                    }
                    None => (result, memory.map_or_else(B::nothing, B::from_memory)),
                }),
                Poll::Pending => {
                    self.0 = Stage::Asked(asked, aside);
                    Poll::Pending
                }
            },
            Stage::Over => panic!("a transfer was polled after its end"),
        }
    }
}

/// Future of a direct sync, change of length or close that has been submitted.
///
/// Dropping it cancels nothing: the operation ends, and the next sync or close of the handle
/// reports its error.
///
/// ```
/// use forebay::{Engine, OpenOptions, Submitted};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// # let engine = Engine::new()?;
/// let file = engine.open_direct(&path, OpenOptions::new().write(true).create(true))?;
/// let sync: Submitted = file.sync_data();
/// // The sync is on its way; here is time for other work.
/// sync.wait()?;
/// # file.close().wait()
/// # }
/// ```
#[must_use = "it holds the result"]
pub struct Submitted {
    future: Pin<Box<dyn Future<Output = Result<()>> + Send>>,
    /// Of a close.
    closing: Option<(Arc<Shared>, PathBuf)>,
}

impl std::fmt::Debug for Submitted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Submitted").finish_non_exhaustive()
    }
}

impl Submitted {
    pub(crate) fn new(future: impl Future<Output = Result<()>> + Send + 'static) -> Self {
        Self { future: Box::pin(future), closing: None }
    }

    /// Creates an operation that was refused.
    pub(crate) fn failed(error: Error) -> Self {
        Self::new(std::future::ready(Err(error)))
    }

    /// As [`Submitted::new`], for the close of a file at a path.
    pub(crate) fn closing(
        future: impl Future<Output = Result<()>> + Send + 'static,
        shared: Arc<Shared>,
        path: PathBuf,
    ) -> Self {
        Self { closing: Some((shared, path)), ..Self::new(future) }
    }

    /// Waits for the end of the operation on this thread, for programs without an executor. Blocks.
    ///
    /// # Errors
    /// Those of the operation; `WouldDeadlock` on a thread of the engine: then the operation ends
    /// as if this had been dropped.
    pub fn wait(self) -> Result<()> {
        let Some((shared, path)) = self.closing else { return wait::block_on(self.future) };
        let deadline = clock::instant().checked_add(shared.close_timeout());
        wait::block_on_until(self.future, deadline).unwrap_or_else(|| {
            Err(Error::late(&path).remedy(
                "operations in flight continue; Builder::on_error reports writes that fail",
            ))
        })
    }
}

impl Future for Submitted {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.future.as_mut().poll(context)
    }
}

impl<B: DirectBuffer> Aside<B> {
    fn give_back(mut self, result: Result<usize>, copy: &[u8]) -> (Result<usize>, B) {
        if let (Ok(bytes), Copying::After(skew)) = (&result, self.manner) {
            self.buffer.bytes_mut()[..*bytes].copy_from_slice(&copy[skew..skew + bytes]);
        }
        (result, self.buffer)
    }
}

/// Future of a submitted operation. Dropping it does not stop the operation.
#[derive(Debug)]
pub(crate) struct Asked {
    ticket: Arc<Ticket>,
    shared: Arc<Shared>,
}

impl Asked {
    /// Submits an operation, or holds it back if this thread is plugged.
    pub(crate) fn submit(shared: &Arc<Shared>, operation: Operation) -> Self {
        let asked = Self { ticket: operation.ticket(), shared: Arc::clone(shared) };
        plug::submit(shared, operation);
        asked
    }
}

impl Future for Asked {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if !self.shared.is_parent() {
            return Poll::Ready((
                Err(Error::new(
                    ErrorKind::Forked,
                    "cannot use the engine of the parent process in a forked child",
                )),
                None,
            ));
        }
        let polled = self.ticket.poll(context);
        if polled.is_pending() {
            plug::release_here();
            // No context takes an operation that was submitted after the contexts stopped.
            if self.shared.is_orphaned() {
                let ended = Error::new(
                    ErrorKind::Shutdown,
                    "the engine stopped before the operation ended",
                );
                return Poll::Ready((Err(ended), None));
            }
        }
        polled
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // In a forked child, another thread of the parent may have held the lock at the fork.
        if self.shared.is_parent() {
            self.ticket.abandon();
        }
    }
}
