//! A file: calls with an offset, and those of a position.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use forebay::{AsyncFile, Cursor, File};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::memory::Memory;
use crate::operation::{Done, Operation};
use crate::process::{Birth, lock};

/// An open file of an engine. `forebay.File` is a file object over it.
#[pyclass(frozen)]
pub(crate) struct Handle {
    birth: Birth,
    /// Calls in progress have a clone. `None` once closed.
    file: Mutex<Option<Arc<File>>>,
    /// The calls with a position take turns.
    cursor: Mutex<Option<Cursor<Arc<File>>>>,
}

impl Handle {
    pub(crate) fn new(file: File) -> Self {
        let file = Arc::new(file);
        let cursor = Mutex::new(Some(Cursor::new(Arc::clone(&file))));
        Self { birth: Birth::here(), file: Mutex::new(Some(file)), cursor }
    }

    pub(crate) fn file(&self) -> Result<Arc<File>, Failure> {
        self.birth.check()?;
        lock(&self.file).clone().ok_or(Failure::Closed)
    }

    /// Makes a call with the position.
    fn at_position<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Cursor<Arc<File>>) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        self.birth.check()?;
        py.detach(|| call(lock(&self.cursor).as_mut().ok_or(Failure::Closed)?))
    }

    /// Makes a call without a result that waits.
    fn wait(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&File) -> forebay::Result<()> + Send,
    ) -> Result<(), Failure> {
        let file = self.file()?;
        Ok(py.detach(|| call(&file))?)
    }

    /// Returns such a call as an operation.
    fn later(
        &self,
        call: impl FnOnce(AsyncFile<'_>) -> Waiting<'_> + Send + 'static,
    ) -> Result<Operation, Failure> {
        let file = self.file()?;
        Ok(Operation::new(async move {
            call(file.asynchronous()).await?;
            Ok(Done::Nothing)
        }))
    }
}

type Waiting<'a> = Pin<Box<dyn Future<Output = forebay::Result<()>> + Send + 'a>>;

#[pymethods]
impl Handle {
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> Result<usize, Failure> {
        let mut memory = Memory::to_fill(buffer)?;
        self.at_position(py, |cursor| Ok(cursor.read(memory.bytes_mut())?))
    }

    /// Writes all of the data. After an error the position is that before the call.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> Result<usize, Failure> {
        let memory = Memory::to_read(data)?;
        self.at_position(py, |cursor| {
            let start = cursor.stream_position()?;
            if let Err(error) = cursor.write_all(memory.bytes()) {
                cursor.seek(SeekFrom::Start(start))?;
                return Err(error.into());
            }
            Ok(memory.bytes().len())
        })
    }

    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> Result<u64, Failure> {
        let to = match (whence, u64::try_from(offset)) {
            (0, Ok(offset)) => SeekFrom::Start(offset),
            (0, Err(_)) => {
                let text = format!("negative seek position {offset}");
                return Err(PyValueError::new_err(text).into());
            }
            (1, _) => SeekFrom::Current(offset),
            (2, _) => SeekFrom::End(offset),
            _ => {
                let text = format!("invalid whence ({whence}, should be 0, 1 or 2)");
                return Err(PyValueError::new_err(text).into());
            }
        };
        self.at_position(py, |cursor| Ok(cursor.seek(to)?))
    }

    fn tell(&self, py: Python<'_>) -> Result<u64, Failure> {
        self.at_position(py, |cursor| Ok(cursor.stream_position()?))
    }

    fn len(&self, py: Python<'_>) -> Result<u64, Failure> {
        let file = self.file()?;
        Ok(py.detach(|| file.len())?)
    }

    fn set_len(&self, py: Python<'_>, length: u64) -> Result<(), Failure> {
        self.wait(py, |file| file.set_len(length))
    }

    fn read_at(
        &self,
        py: Python<'_>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> Result<usize, Failure> {
        let (file, mut memory) = (self.file()?, Memory::to_fill(buffer)?);
        Ok(py.detach(|| file.read_at(memory.bytes_mut(), offset))?)
    }

    fn write_at(
        &self,
        py: Python<'_>,
        offset: u64,
        data: &Bound<'_, PyAny>,
    ) -> Result<(), Failure> {
        let memory = Memory::to_read(data)?;
        self.wait(py, |file| file.write_at(memory.bytes(), offset))
    }

    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> Result<u64, Failure> {
        let (file, memory) = (self.file()?, Memory::to_read(data)?);
        Ok(py.detach(|| file.append(memory.bytes()))?)
    }

    fn sync_data(&self, py: Python<'_>) -> Result<(), Failure> {
        self.wait(py, File::sync_data)
    }

    fn sync_all(&self, py: Python<'_>) -> Result<(), Failure> {
        self.wait(py, File::sync_all)
    }

    fn write_out(&self, py: Python<'_>) -> Result<(), Failure> {
        self.wait(py, File::write_out)
    }

    fn describe(&self) -> Result<String, Failure> {
        Ok(self.file()?.describe())
    }

    /// Closes. If a call on another thread is in progress, it only writes out, and the end of that
    /// call closes.
    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.birth.check()?;
        py.detach(|| match self.taken() {
            Some(Ok(file)) => Ok(file.close()?),
            Some(Err(shared)) => Ok(shared.write_out()?),
            None => Ok(()),
        })
    }

    fn read_at_async(&self, offset: u64, buffer: &Bound<'_, PyAny>) -> Result<Operation, Failure> {
        let (file, mut memory) = (self.file()?, Memory::to_fill(buffer)?);
        Ok(Operation::new(async move {
            let read = file.asynchronous().read_at(memory.bytes_mut(), offset).await?;
            Ok(Done::Number(read as u64))
        }))
    }

    fn write_at_async(&self, offset: u64, data: &Bound<'_, PyAny>) -> Result<Operation, Failure> {
        let memory = Memory::to_read(data)?;
        self.later(move |file| Box::pin(async move { file.write_at(memory.bytes(), offset).await }))
    }

    fn append_async(&self, data: &Bound<'_, PyAny>) -> Result<Operation, Failure> {
        let (file, memory) = (self.file()?, Memory::to_read(data)?);
        Ok(Operation::new(async move {
            Ok(Done::Number(file.asynchronous().append(memory.bytes()).await?))
        }))
    }

    fn set_len_async(&self, length: u64) -> Result<Operation, Failure> {
        self.later(move |file| Box::pin(file.set_len(length)))
    }

    fn sync_data_async(&self) -> Result<Operation, Failure> {
        self.later(|file| Box::pin(file.sync_data()))
    }

    fn sync_all_async(&self) -> Result<Operation, Failure> {
        self.later(|file| Box::pin(file.sync_all()))
    }

    fn write_out_async(&self) -> Result<Operation, Failure> {
        self.later(|file| Box::pin(file.write_out()))
    }

    fn close_async(&self, py: Python<'_>) -> Result<Operation, Failure> {
        self.birth.check()?;
        let taken = py.detach(|| self.taken());
        Ok(Operation::new(async move {
            match taken {
                Some(Ok(file)) => AsyncFile::close(file).await?,
                Some(Err(shared)) => shared.asynchronous().write_out().await?,
                None => {}
            }
            Ok(Done::Nothing)
        }))
    }
}

impl Handle {
    /// Takes the file from the handle, shared if a call with an offset is in progress. Waits for
    /// calls with the position.
    fn taken(&self) -> Option<Result<File, Arc<File>>> {
        let file = lock(&self.file).take()?;
        drop(lock(&self.cursor).take());
        Some(Arc::try_unwrap(file))
    }
}
