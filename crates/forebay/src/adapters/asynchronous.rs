//! The calls that wait, as futures.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::core::answer::Undelivered;
use crate::core::direct::direct_file::DirectFile;
use crate::core::engine::Engine;
use crate::core::error::Result;
use crate::core::file::File;
use crate::core::open::open_options::OpenOptions;
use crate::core::sync::together::SyncManyError;
use crate::core::wait;
use crate::platform::Times;

/// The calls of a [`File`] that wait, as futures with the same names, arguments and errors.
/// [`File::asynchronous`] returns it.
///
/// ```
/// use forebay::{AsyncFile, Engine, OpenOptions};
///
/// async fn note(engine: &Engine, path: &std::path::Path) -> forebay::Result<()> {
///     let options = OpenOptions::new().append(true).create(true).clone();
///     let file = engine.asynchronous().open(path, &options).await?;
///     file.asynchronous().append(b"noted\n").await?;
///     file.asynchronous().sync_data().await?;
///     AsyncFile::close(file).await
/// }
/// ```
///
/// The futures are `Send` and run on any executor. A call starts with the first poll of its future.
/// A future that is dropped after that, as by a timeout, leaves this behind:
///
/// | call | effect of a dropped future |
/// |---|---|
/// | `write_at`, `append`, `append_vectored` | a prefix of the data is accepted |
/// | `read_at`, `read_exact_at` | none |
/// | `sync_data`, `sync_all`, `write_out`, `discard` | the call is carried out |
/// | `set_len`, `allocate`, `set_times` | the call may be carried out; `allocate` in part |
/// | `punch_hole` | any part of the range may be zero |
/// | `abandon_unwritten` | no data is dropped |
/// | `close` | the handle is closed, and [`on_error`](crate::Builder::on_error) gets its errors |
///
/// A record of a log must not end as a prefix: append it in a task of its own, which no timeout
/// drops. One poll copies all that there is room for: split large writes, so that other tasks run.
#[derive(Clone, Copy, Debug)]
pub struct AsyncFile<'a>(&'a File);

impl File {
    /// Returns the calls that wait, as futures.
    #[must_use]
    pub fn asynchronous(&self) -> AsyncFile<'_> {
        AsyncFile(self)
    }
}

impl AsyncFile<'_> {
    /// As [`File::read_at`].
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn read_at(self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.0.read_at_async(buffer, offset).await
    }

    /// As [`File::read_exact_at`].
    ///
    /// # Errors
    /// As [`File::read_exact_at`].
    pub async fn read_exact_at(self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_exact_at_async(buffer, offset).await
    }

    /// As [`File::write_at`]. The data is copied while the future is polled.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_at(self, data: &[u8], offset: u64) -> Result<()> {
        self.0.write_at_async(data, offset).await
    }

    /// As [`File::append`]. The data is copied while the future is polled.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn append(self, data: &[u8]) -> Result<u64> {
        self.0.append_async(data).await
    }

    /// As [`File::append_vectored`]. The data is copied while the future is polled.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn append_vectored(self, data: &[IoSlice<'_>]) -> Result<u64> {
        self.0.append_vectored_async(data).await
    }

    /// As [`File::set_len`].
    ///
    /// # Errors
    /// As [`File::set_len`].
    pub async fn set_len(self, length: u64) -> Result<()> {
        self.0.set_len_async(length).await
    }

    /// As [`File::allocate`].
    ///
    /// # Errors
    /// As [`File::allocate`]; `Io` if no thread could be started.
    pub async fn allocate(self, offset: u64, length: u64) -> Result<()> {
        self.0.allocate_async(offset, length).await
    }

    /// As [`File::punch_hole`].
    ///
    /// # Errors
    /// As [`File::punch_hole`].
    pub async fn punch_hole(self, offset: u64, length: u64) -> Result<()> {
        self.0.punch_hole_async(offset, length).await
    }

    /// As [`File::discard`].
    ///
    /// # Errors
    /// As [`File::discard`].
    pub async fn discard(self, offset: u64, length: u64) -> Result<()> {
        self.0.discard_async(offset, length).await
    }

    /// As [`File::sync_data`].
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub async fn sync_data(self) -> Result<()> {
        self.0.sync_data_async().await
    }

    /// As [`File::sync_all`].
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub async fn sync_all(self) -> Result<()> {
        self.0.sync_all_async().await
    }

    /// As [`File::write_out`].
    ///
    /// # Errors
    /// As [`File::write_out`].
    pub async fn write_out(self) -> Result<()> {
        self.0.write_out_async().await
    }

    /// As [`File::abandon_unwritten`].
    ///
    /// # Errors
    /// As [`File::abandon_unwritten`].
    pub async fn abandon_unwritten(self) -> Result<u64> {
        self.0.abandon_unwritten_async().await
    }

    /// As [`File::set_times`].
    ///
    /// # Errors
    /// As [`File::set_times`]; `Io` if no thread could be started.
    pub async fn set_times(self, times: Times) -> Result<()> {
        self.0.set_times_async(times).await
    }

    /// As [`File::close`], without a timeout. It takes the file itself: `AsyncFile::close(file)`.
    ///
    /// # Errors
    /// As [`File::close`], without `TimedOut`.
    pub async fn close(file: File) -> Result<()> {
        file.close_async().await
    }
}

/// The calls of an [`Engine`] that wait, as futures with the same names, arguments and errors.
/// [`Engine::asynchronous`] returns it; [`AsyncFile`] has an example.
///
/// The futures are `Send` and run on any executor, and also on a thread of the engine. A call
/// starts with the first poll of its future. A future that is dropped after that leaves this
/// behind:
///
/// | call | effect of a dropped future |
/// |---|---|
/// | `open`, `open_direct`, `open_fd` | the file is opened, and closed again at once |
/// | `sync_many` | the files are written out, and may not be flushed |
/// | `copy` | the target has unspecified content |
/// | `shutdown` | it goes on, and [`on_error`](crate::Builder::on_error) gets its error |
#[derive(Clone, Copy, Debug)]
pub struct AsyncEngine<'a>(&'a Engine);

impl Engine {
    /// Returns the calls that wait, as futures.
    #[must_use]
    pub fn asynchronous(&self) -> AsyncEngine<'_> {
        AsyncEngine(self)
    }
}

impl AsyncEngine<'_> {
    /// As [`Engine::open`]. A thread of the library makes the blocking calls.
    ///
    /// # Errors
    /// As [`Engine::open`]; `Io` if no thread could be started.
    pub async fn open(self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        self.offload(move |engine| engine.open(path, &options)).await
    }

    /// As [`Engine::open_direct`]. A thread of the library makes the blocking calls.
    ///
    /// # Errors
    /// As [`Engine::open_direct`]; `Io` if no thread could be started.
    pub async fn open_direct(
        self,
        path: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<DirectFile> {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        self.offload(move |engine| engine.open_direct(path, &options)).await
    }

    /// As [`Engine::open_fd`]. A thread of the library makes the blocking calls.
    ///
    /// # Errors
    /// As [`Engine::open_fd`]; `Io` if no thread could be started.
    pub async fn open_fd(
        self,
        descriptor: impl Into<OwnedFd>,
        options: &OpenOptions,
    ) -> Result<File> {
        let (descriptor, options) = (descriptor.into(), options.clone());
        self.offload(move |engine| engine.open_fd(descriptor, &options)).await
    }

    /// As [`Engine::sync_many`].
    ///
    /// # Errors
    /// As [`Engine::sync_many`].
    pub async fn sync_many(self, files: &[&File]) -> std::result::Result<(), SyncManyError> {
        self.0.sync_many_async(files).await
    }

    /// As [`Engine::copy`]. The data is copied while the future is polled.
    ///
    /// # Errors
    /// As [`Engine::copy`].
    pub async fn copy(self, from: &File, to: &File) -> Result<u64> {
        self.0.copy_async(from, to).await
    }

    /// As [`Engine::shutdown`]. A thread of the library makes the blocking calls.
    ///
    /// # Errors
    /// As [`Engine::shutdown`], without `WouldDeadlock`; `Io` if no thread could be started.
    pub async fn shutdown(self, timeout: Duration) -> Result<()> {
        self.0.owner.check_parent()?;
        let owner = Arc::clone(&self.0.owner.0);
        let end = move || Ok(Undelivered::new(Arc::clone(&owner.shared), owner.shutdown(timeout)));
        wait::offload(&self.0.owner.shared, end).await?.deliver()
    }

    async fn offload<T: Send + 'static>(
        self,
        call: impl FnOnce(Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = &self.0.owner.shared;
        shared.check()?;
        let engine = self.0.clone();
        wait::offload(shared, move || call(engine)).await
    }
}
