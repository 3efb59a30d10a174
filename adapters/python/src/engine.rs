//! The engine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::{Error, File, OpenOptions, Options};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::batch::Batch;
use crate::failure::{Failure, raised};
use crate::file::Handle;
use crate::operation::{Done, Operation};
use crate::process::{Birth, lock};

/// Most late errors that are kept.
const LATE: usize = 64;

/// Memory of a fixed size, and the threads that write it out.
#[pyclass(frozen, subclass)]
pub(crate) struct Engine {
    birth: Birth,
    engine: Mutex<Option<forebay::Engine>>,
    late: Arc<Mutex<Vec<Error>>>,
}

impl Engine {
    fn engine(&self) -> Result<forebay::Engine, Failure> {
        self.birth.check()?;
        Ok(lock(&self.engine).clone().expect("there until it is dropped"))
    }
}

/// Drops the engine without the interpreter, because it waits until everything is written.
impl Drop for Engine {
    fn drop(&mut self) {
        let engine = self.engine.get_mut().map(Option::take);
        if self.birth.check().is_ok() {
            Python::try_attach(|py| py.detach(|| drop(engine)));
        }
    }
}

/// How a file is opened.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Opening {
    path: Vec<u8>,
    mode: String,
    permissions: u32,
    uncached: Option<bool>,
    temporary: bool,
    assume_exclusive: bool,
}

impl Opening {
    fn path(&self) -> PathBuf {
        path(&self.path)
    }

    fn options(&self) -> OpenOptions {
        let is = |letter| self.mode.contains(letter);
        let mut options = OpenOptions::new();
        options.read(is('r') || is('+')).append(is('a')).write(is('w') || is('x') || is('+'));
        options.create(is('w') || is('a')).truncate(is('w')).create_new(is('x'));
        options.mode(self.permissions).temporary(self.temporary);
        options.assume_exclusive(self.assume_exclusive);
        if let Some(uncached) = self.uncached {
            options.uncached(uncached);
        }
        options
    }
}

pub(crate) fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> Result<Self, Failure> {
        let mut set = Options::default();
        for (name, value) in options.into_iter().flatten() {
            let text = match value.cast::<PyBool>() {
                Ok(value) => (if value.is_true() { "on" } else { "off" }).to_owned(),
                Err(_) => value.str()?.to_string(),
            };
            set.set(&name.str()?.to_string(), &text)?;
        }
        let late = Arc::<Mutex<Vec<Error>>>::default();
        let list = Arc::clone(&late);
        let engine = py.detach(|| {
            let builder = forebay::Engine::builder(set).on_error(move |error| {
                // Not all programs ask for late errors.
                eprintln!("forebay: {error}");
                let mut late = lock(&list);
                if late.len() < LATE {
                    late.push(error.clone());
                }
            });
            builder.build()
        })?;
        Ok(Self { birth: Birth::here(), engine: Mutex::new(Some(engine)), late })
    }

    fn open_handle(&self, py: Python<'_>, opening: Opening) -> Result<Handle, Failure> {
        let engine = self.engine()?;
        Ok(Handle::new(py.detach(|| engine.open(opening.path(), &opening.options()))?))
    }

    fn open_async(&self, opening: Opening) -> Result<Operation, Failure> {
        let engine = self.engine()?;
        Ok(Operation::new(async move {
            let opened = engine.asynchronous().open(opening.path(), &opening.options()).await;
            Ok(Done::Opened(opened?))
        }))
    }

    fn batch_handle(&self, is_ordered: bool) -> Result<Batch, Failure> {
        let batch = self.engine()?.batch();
        Ok(Batch::new(if is_ordered { batch.ordered() } else { batch }))
    }

    fn sync_handles(&self, py: Python<'_>, handles: Vec<PyRef<'_, Handle>>) -> Result<(), Failure> {
        let (engine, files) = (self.engine()?, files(&handles)?);
        let files: Vec<&File> = files.iter().map(Arc::as_ref).collect();
        py.detach(|| engine.sync_many(&files)).map_err(Failure::Many)
    }

    fn sync_async(&self, handles: Vec<PyRef<'_, Handle>>) -> Result<Operation, Failure> {
        let (engine, files) = (self.engine()?, files(&handles)?);
        Ok(Operation::new(async move {
            let files: Vec<&File> = files.iter().map(Arc::as_ref).collect();
            engine.asynchronous().sync_many(&files).await.map_err(Failure::Many)?;
            Ok(Done::Nothing)
        }))
    }

    fn copy_handle(&self, py: Python<'_>, from: &Handle, to: &Handle) -> Result<u64, Failure> {
        let (engine, from, to) = (self.engine()?, from.file()?, to.file()?);
        Ok(py.detach(|| engine.copy(&from, &to))?)
    }

    fn copy_async(&self, from: &Handle, to: &Handle) -> Result<Operation, Failure> {
        let (engine, from, to) = (self.engine()?, from.file()?, to.file()?);
        Ok(Operation::new(async move {
            Ok(Done::Number(engine.asynchronous().copy(&from, &to).await?))
        }))
    }

    /// Returns the counters of the engine by name.
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>, Failure> {
        let stats = PyDict::new(py);
        for (name, number) in self.engine()?.stats().named() {
            stats.set_item(name, number)?;
        }
        Ok(stats)
    }

    /// Returns which system calls the engine uses, in one line.
    fn describe(&self) -> Result<String, Failure> {
        Ok(self.engine()?.describe())
    }

    /// Returns the errors that no call could raise, and forgets them: failed writes of files that
    /// were dropped without a close. The first 64 are kept; each is printed to standard error, too.
    fn late_errors(&self, py: Python<'_>) -> Result<Vec<Py<PyAny>>, Failure> {
        self.birth.check()?;
        let errors = std::mem::take(&mut *lock(&self.late));
        Ok(errors.iter().map(|error| raised(error).into_value(py).into_any()).collect())
    }

    fn stop(&self, py: Python<'_>, timeout: f64) -> Result<(), Failure> {
        let engine = self.engine()?;
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
        Ok(py.detach(|| engine.shutdown(timeout))?)
    }

    fn stop_async(&self, timeout: f64) -> Result<Operation, Failure> {
        let engine = self.engine()?;
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
        Ok(Operation::new(async move {
            engine.asynchronous().shutdown(timeout).await?;
            Ok(Done::Nothing)
        }))
    }
}

fn files(handles: &[PyRef<'_, Handle>]) -> Result<Vec<Arc<File>>, Failure> {
    handles.iter().map(|handle| handle.file()).collect()
}
