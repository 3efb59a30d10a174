//! Errors of the library as exceptions: `OSError`, with the subclass of its number.

use std::io;

use forebay::{Error, ErrorKind, Outcome};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

pyo3::import_exception!(io, UnsupportedOperation);
pyo3::create_exception!(
    forebay,
    PoisonedError,
    PyOSError,
    "A flush failed, so data since the last successful sync may be lost.\n\nClose all files of the \
     path, open it again, and write that data anew."
);
pyo3::create_exception!(forebay, ShutdownError, PyOSError, "The engine has been shut down.");
pyo3::create_exception!(
    forebay,
    ForkedError,
    PyOSError,
    "The object belongs to the parent of this process. Make an engine in the child."
);
pyo3::create_exception!(
    forebay,
    CommitError,
    PyOSError,
    "A batch could not be committed.\n\n`errors` has an exception for each failure; `targets` has \
     a pair for each path: the path, and 'old', 'new' or 'unsynced' (new, but not durable)."
);
pyo3::create_exception!(
    forebay,
    SyncManyError,
    PyOSError,
    "Files that may not be durable.\n\n`errors` has a pair for each: its index in the call, and \
     the exception."
);

/// Reason why a call has no result.
pub(crate) enum Failure {
    Library(Error),
    Many(forebay::SyncManyError),
    Commit(forebay::CommitError),
    Python(PyErr),
    Closed,
    Forked,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        error.downcast().map_or_else(|error| Self::Python(error.into()), Self::Library)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let made = Python::attach(|py| match failure {
            Failure::Library(error) => Ok(raised(&error)),
            Failure::Many(error) => many(py, &error),
            Failure::Commit(error) => commit(py, &error),
            Failure::Python(error) => Ok(error),
            Failure::Closed => Ok(PyValueError::new_err("I/O operation on closed file")),
            Failure::Forked => {
                let text = "the engine belongs to the parent of this process";
                Ok(ForkedError::new_err((libc::ECHILD, text)))
            }
        });
        made.unwrap_or_else(|error: Self| error)
    }
}

/// Returns the exception of an error.
pub(crate) fn raised(error: &Error) -> PyErr {
    let mut text = error.to_string();
    let path = error.path().map(|path| path.as_os_str().to_owned());
    if let Some(path) = error.path() {
        // The exception shows it, too.
        let start = format!("{}: ", path.display());
        text = text.strip_prefix(&start).unwrap_or(&text).to_owned();
    }
    let code = error.os_error();
    if (error.kind(), code) == (ErrorKind::InvalidInput, None) {
        return PyValueError::new_err(error.to_string());
    }
    let arguments = (code.unwrap_or_else(|| nearest(error.kind())), text, path);
    match error.kind() {
        ErrorKind::Poisoned => PoisonedError::new_err(arguments),
        ErrorKind::Shutdown => ShutdownError::new_err(arguments),
        ErrorKind::Forked => ForkedError::new_err(arguments),
        ErrorKind::NotPermitted | ErrorKind::Unsupported if code.is_none() => {
            UnsupportedOperation::new_err(arguments)
        }
        _ => PyOSError::new_err(arguments),
    }
}

/// Returns the error number for an error that the system has not reported.
fn nearest(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::NotPermitted | ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::NoSpace => libc::ENOSPC,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Forked => libc::ECHILD,
        ErrorKind::Shutdown => libc::ESHUTDOWN,
        ErrorKind::WouldDeadlock => libc::EDEADLK,
        ErrorKind::Busy => libc::EBUSY,
        ErrorKind::NoMemory => libc::ENOMEM,
        _ => libc::EIO,
    }
}

fn many(py: Python<'_>, error: &forebay::SyncManyError) -> PyResult<PyErr> {
    let code = error.errors.first().and_then(|(_, first)| first.os_error()).unwrap_or(libc::EIO);
    let exception = SyncManyError::new_err((code, error.to_string()));
    let errors: Vec<_> =
        error.errors.iter().map(|(index, error)| (index, raised(error).into_value(py))).collect();
    exception.value(py).setattr("errors", errors)?;
    Ok(exception)
}

fn commit(py: Python<'_>, error: &forebay::CommitError) -> PyResult<PyErr> {
    let code = error.errors.first().and_then(Error::os_error).unwrap_or(libc::EIO);
    let exception = CommitError::new_err((code, error.to_string()));
    let errors: Vec<_> = error.errors.iter().map(|error| raised(error).into_value(py)).collect();
    let state = |outcome: &Outcome| match outcome {
        Outcome::Old => "old",
        Outcome::New => "new",
        Outcome::Unsynced => "unsynced",
    };
    let targets: Vec<_> =
        error.targets.iter().map(|(path, outcome)| (path.as_os_str(), state(outcome))).collect();
    exception.value(py).setattr("errors", errors)?;
    exception.value(py).setattr("targets", targets)?;
    Ok(exception)
}
