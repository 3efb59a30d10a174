//! A batch: new files that become durable, and get their names, together.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use crate::engine::path;
use crate::failure::Failure;
use crate::memory::Memory;
use crate::process::{Birth, lock};

/// New files of an engine. `forebay.Batch` is a context manager over it.
#[pyclass(frozen)]
pub(crate) struct Batch {
    birth: Birth,
    /// Calls in progress have a clone. `None` after the end.
    batch: Mutex<Option<Arc<forebay::Batch>>>,
}

impl Batch {
    pub(crate) fn new(batch: forebay::Batch) -> Self {
        Self { birth: Birth::here(), batch: Mutex::new(Some(Arc::new(batch))) }
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&forebay::Batch) -> forebay::Result<T> + Send,
    ) -> Result<T, Failure> {
        self.birth.check()?;
        let batch = lock(&self.batch).clone().ok_or_else(ended)?;
        Ok(py.detach(|| {
            let result = call(&batch);
            drop(batch);
            result
        })?)
    }

    fn take(&self) -> Result<Option<Arc<forebay::Batch>>, Failure> {
        self.birth.check()?;
        Ok(lock(&self.batch).take())
    }
}

fn ended() -> Failure {
    pyo3::exceptions::PyValueError::new_err("the batch has ended").into()
}

#[pymethods]
impl Batch {
    fn create(&self, py: Python<'_>, name: &[u8], is_new: bool) -> Result<BatchFile, Failure> {
        let file = self.call(py, |batch| match is_new {
            true => batch.create_new(path(name)),
            false => batch.create(path(name)),
        })?;
        Ok(BatchFile { birth: self.birth, file: Mutex::new(Some(file)) })
    }

    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> Result<(), Failure> {
        self.call(py, |batch| batch.rename(path(from), path(to)))
    }

    fn remove(&self, py: Python<'_>, name: &[u8]) -> Result<(), Failure> {
        self.call(py, |batch| batch.remove(path(name)))
    }

    fn create_dir(&self, py: Python<'_>, name: &[u8]) -> Result<(), Failure> {
        self.call(py, |batch| batch.create_dir(path(name)))
    }

    fn commit(&self, py: Python<'_>) -> Result<(), Failure> {
        let batch = self.take()?.ok_or_else(ended)?;
        match Arc::try_unwrap(batch) {
            Ok(batch) => py.detach(|| batch.commit()).map_err(Failure::Commit),
            Err(batch) => {
                py.detach(|| drop(batch));
                let text = "another thread uses the batch: nothing was published";
                Err(pyo3::exceptions::PyRuntimeError::new_err(text).into())
            }
        }
    }

    /// Publishes nothing, and removes the files.
    fn discard(&self, py: Python<'_>) -> Result<(), Failure> {
        let batch = self.take()?;
        py.detach(|| drop(batch));
        Ok(())
    }
}

/// New file of a batch. `forebay.BatchFile` is a file object over it.
#[pyclass(frozen)]
pub(crate) struct BatchFile {
    birth: Birth,
    file: Mutex<Option<forebay::BatchFile>>,
}

#[pymethods]
impl BatchFile {
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> Result<usize, Failure> {
        self.birth.check()?;
        let memory = Memory::to_read(data)?;
        py.detach(|| {
            lock(&self.file).as_mut().ok_or(Failure::Closed)?.write_all(memory.bytes())?;
            Ok(memory.bytes().len())
        })
    }

    fn set_mode(&self, py: Python<'_>, mode: u32) -> Result<(), Failure> {
        self.birth.check()?;
        py.detach(|| Ok(lock(&self.file).as_ref().ok_or(Failure::Closed)?.set_mode(mode)?))
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.birth.check()?;
        py.detach(|| match lock(&self.file).take() {
            Some(file) => Ok(file.close()?),
            None => Ok(()),
        })
    }

    /// Drops the file. Its batch can then not be committed.
    fn discard(&self, py: Python<'_>) -> Result<(), Failure> {
        self.birth.check()?;
        py.detach(|| drop(lock(&self.file).take()));
        Ok(())
    }
}
