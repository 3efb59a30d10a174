//! Asynchronous operations: futures of the library that an event loop of Python polls.
//!
//! ```text
//! engine: waker --key--> due --byte--> socket of the loop: take() --> poll the operation again
//! ```
//!
//! The loop polls on its own thread. So a waker needs no interpreter, and one wake of the loop
//! serves all operations that are due.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::prelude::*;

use crate::failure::Failure;
use crate::file::Handle;
use crate::process::{Birth, lock};

/// Result of an operation.
pub(crate) enum Done {
    Nothing,
    Number(u64),
    Opened(forebay::File),
}

type Work = Pin<Box<dyn Future<Output = Result<Done, Failure>> + Send>>;

/// An asynchronous call. It owns the memory and the files that it uses, and starts with the first
/// poll.
#[pyclass(frozen)]
pub(crate) struct Operation {
    key: u64,
    birth: Birth,
    work: Mutex<Option<Work>>,
}

impl Operation {
    pub(crate) fn new(work: impl Future<Output = Result<Done, Failure>> + Send + 'static) -> Self {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        Self { key, birth: Birth::here(), work: Mutex::new(Some(Box::pin(work))) }
    }
}

#[pymethods]
impl Operation {
    /// Number that `Wakes.take` returns when the operation is to be polled again.
    #[getter]
    fn key(&self) -> u64 {
        self.key
    }

    /// Polls. Returns `None` while the operation runs, then a tuple with its result.
    fn poll(&self, py: Python<'_>, wakes: &Wakes) -> Result<Option<(Py<PyAny>,)>, Failure> {
        self.birth.check()?;
        let waker = Waker::from(Arc::new(Due { key: self.key, loops: Arc::clone(&wakes.0) }));
        let polled = py.detach(|| {
            let mut work = lock(&self.work);
            let polled = work.as_mut()?.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                *work = None;
            }
            Some(polled)
        });
        let done = match polled {
            Some(Poll::Pending) => return Ok(None),
            Some(Poll::Ready(done)) => done?,
            None => return Err(Failure::Closed),
        };
        let value = match done {
            Done::Nothing => py.None(),
            Done::Number(number) => {
                number.into_pyobject(py).map_err(PyErr::from)?.into_any().unbind()
            }
            Done::Opened(file) => Py::new(py, Handle::new(file))?.into_any(),
        };
        Ok(Some((value,)))
    }

    /// Ends an operation that nobody waits for, and releases its memory.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| drop(lock(&self.work).take()));
    }
}

/// Wakes of the operations of one event loop.
#[pyclass(frozen)]
pub(crate) struct Wakes(Arc<Loop>);

struct Loop {
    /// Keys of operations to poll. A byte is in the socket if there are any.
    due: Mutex<Vec<u64>>,
    wake: UnixStream,
    woken: UnixStream,
}

struct Due {
    key: u64,
    loops: Arc<Loop>,
}

impl Wake for Due {
    fn wake(self: Arc<Self>) {
        let mut due = lock(&self.loops.due);
        let is_first = due.is_empty();
        due.push(self.key);
        drop(due);
        if is_first {
            // It fails only if a byte is there already: the loop reads all, then takes the keys.
            let _ = (&self.loops.wake).write(&[0]);
        }
    }
}

#[pymethods]
impl Wakes {
    #[new]
    fn new() -> Result<Self, Failure> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Self(Arc::new(Loop { due: Mutex::default(), wake, woken })))
    }

    /// The descriptor that can be read when an operation is due.
    fn fileno(&self) -> i32 {
        self.0.woken.as_raw_fd()
    }

    /// Returns the keys of the operations that are due.
    fn take(&self) -> Vec<u64> {
        let mut bytes = [0; 64];
        while matches!((&self.0.woken).read(&mut bytes), Ok(64)) {}
        std::mem::take(&mut *lock(&self.0.due))
    }
}
