//! The native module of the Python package `forebay`: engine, files, batches and asynchronous
//! operations. The Python files in `forebay` make file objects of them.
//!
//! - Every call that may wait detaches from the interpreter, so other threads run.
//! - No thread of the engine ever attaches. A waker writes to an event descriptor (`operation`),
//!   and late errors go to a list (`engine`). So the engine never waits for the interpreter, and an
//!   interpreter that ends meets no thread of ours.
//! - A mutex that is locked by an attached thread is never held by one that attaches.

mod batch;
mod engine;
mod failure;
mod file;
mod memory;
mod operation;
mod process;

/// The native part of `forebay`.
#[pyo3::pymodule]
mod _forebay {
    #[pymodule_export]
    use crate::batch::{Batch, BatchFile};
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::failure::{CommitError, ForkedError, PoisonedError, ShutdownError, SyncManyError};
    #[pymodule_export]
    use crate::file::Handle;
    #[pymodule_export]
    use crate::operation::{Operation, Wakes};
    #[pymodule_export]
    use crate::process::forked;
}
