//! Writer of one new file of a batch.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::core::batch::flushing::Write;
use crate::core::batch::inner::Inner;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::BATCH_BUFFER;
use crate::platform::PrivateFile;

/// New file of a [`Batch`](crate::Batch), written in order. [`Batch::create`](crate::Batch::create)
/// returns it.
///
/// It gathers small writes in 256 KiB of memory. A file must be [closed](BatchFile::close) before
/// the commit. A batch with a file that was dropped before that cannot be committed.
pub struct BatchFile {
    inner: Arc<Inner>,
    file: Arc<PrivateFile>,
    step: usize,
    path: PathBuf,
    /// Bytes given to the kernel.
    written: u64,
    buffer: Vec<u8>,
    has_failed: bool,
}

/// Takes no lock, so it can be used anywhere.
impl std::fmt::Debug for BatchFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("BatchFile");
        shown.field("path", &self.path).field("written", &self.written).finish_non_exhaustive()
    }
}

impl BatchFile {
    pub(super) fn new(inner: Arc<Inner>, file: PrivateFile, step: usize, path: &Path) -> Self {
        let (path, buffer) = (path.to_owned(), Vec::new());
        let file = Arc::new(file);
        Self { inner, file, step, path, written: 0, buffer, has_failed: false }
    }

    /// Writes all of `data` at the end of the file. Blocks, also if the device is slower than the
    /// writer.
    ///
    /// # Errors
    /// `NoSpace` or `Io` with the reason of the system; `InvalidInput` if the batch has ended. The
    /// file cannot be closed after that, and nothing of its batch can be published. A later call
    /// returns the errors of bytes that are only gathered.
    pub fn write_all(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            if self.buffer.is_empty() && data.len() >= BATCH_BUFFER {
                // Large writes need no copy. Each is as large as a buffer: the kernel begins to
                // write the pages of a call out at its end.
                let (now, rest) = data.split_at(BATCH_BUFFER);
                self.write_out(now)?;
                data = rest;
                continue;
            }
            let (now, rest) = data.split_at(data.len().min(BATCH_BUFFER - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            data = rest;
            if self.buffer.len() == BATCH_BUFFER {
                let mut buffer = std::mem::take(&mut self.buffer);
                self.write_out(&buffer)?;
                buffer.clear();
                self.buffer = buffer;
            }
        }
        Ok(())
    }

    fn may_write(&self) -> Result<()> {
        self.inner.may_change()?;
        self.inner.goes_on().map_err(|error| error.at_path(&self.path))?;
        if self.has_failed {
            let what = "an earlier write of the file failed";
            return Err(Error::new(ErrorKind::InvalidInput, what).at_path(&self.path));
        }
        Ok(())
    }

    fn write_out(&mut self, data: &[u8]) -> Result<()> {
        assert!(data.len() <= BATCH_BUFFER, "a call has the pages of a buffer in the page cache");
        let may_write = self.may_write();
        // Also after a refusal: the bytes that were gathered are lost.
        self.has_failed = true;
        may_write?;
        let bytes = self.written..self.written + data.len() as u64;
        self.file.write_all_at(data, bytes.start).map_err(|error| {
            Error::new(ErrorKind::at_device(&error), "could not write the file")
                .at_path(&self.path)
                .at_offset(bytes.start)
                .because(error)
        })?;
        self.inner.flushing.note_written(self.step, &self.file, bytes.clone());
        assert!(bytes.end >= self.written, "bytes of the file would be written over");
        self.written = bytes.end;
        self.has_failed = false;
        Ok(())
    }

    /// Sets the permission bits of the file (`chmod`). The umask does not apply.
    ///
    /// # Errors
    /// `Open` with the reason of the system.
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        let set = self.file.set_mode(mode);
        set.map_err(|error| Error::at_open("could not set the permission bits", &self.path, error))
    }

    /// Declares the file complete. Blocks if writes or flushes of earlier files have to end first.
    ///
    /// # Errors
    /// `InvalidInput` if an earlier write failed or the batch has ended. The commit returns errors
    /// of the last bytes, which are gathered in memory, and of the flush.
    pub fn close(mut self) -> Result<()> {
        self.may_write()?;
        let data = std::mem::take(&mut self.buffer);
        let (number, file, offset) = (self.step, Arc::clone(&self.file), self.written);
        self.inner.flushing.add(Write { number, file, data, offset });
        // After it, so that a commit that finds the file finished finds its write, too.
        self.inner.finished(self.step).map_err(|error| error.at_path(&self.path))
    }
}

/// Writes as [`BatchFile::write_all`] does. `flush` does nothing; the commit makes files durable.
impl std::io::Write for BatchFile {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.write_all(data)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
