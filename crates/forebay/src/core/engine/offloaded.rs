//! Asynchronous forms of calls of the engine that block in system calls.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::core::error::Result;
use crate::core::file::File;
use crate::core::open::Open;
use crate::core::ticket::Undelivered;
use crate::core::wait;

impl Engine {
    /// Asynchronous form of [`Engine::open`]. The open is made on a thread of the library, so the
    /// executor's thread does not block, and this form may be used on a thread of the engine too.
    ///
    /// The open starts with the first poll. Dropping the future after that does not stop it: the
    /// file may be created, and is closed again at once.
    ///
    /// # Errors
    /// As [`Engine::open`]; `Io` if no thread could be started.
    ///
    /// ```
    /// use forebay::{Engine, Open};
    ///
    /// async fn note(engine: &Engine, path: &std::path::Path) -> forebay::Result<()> {
    ///     let file = engine.open_async(path, Open::append()).await?;
    ///     file.append_async(b"noted\n").await?;
    ///     file.sync_data_async().await?;
    ///     file.close_async().await
    /// }
    /// ```
    pub async fn open_async(&self, path: impl AsRef<Path>, open: Open) -> Result<File> {
        let shared = &self.owner.shared;
        shared.check()?;
        let (engine, path) = (self.clone(), path.as_ref().to_owned());
        wait::offload(shared, move || engine.open(path, open)).await
    }

    /// Asynchronous form of [`Engine::shutdown`]. The shutdown starts with the first poll, on a
    /// thread of the library. Dropping the future after that does not stop it;
    /// [`Builder::on_error`](crate::Builder::on_error) gets its error then.
    ///
    /// # Errors
    /// As [`Engine::shutdown`], without `WouldDeadlock`; `Io` if no thread could be started.
    pub async fn shutdown_async(&self, timeout: Duration) -> Result<()> {
        self.owner.check_parent()?;
        let owner = Arc::clone(&self.owner.0);
        let end = move || Ok(Undelivered::new(&owner.shared, owner.shutdown(timeout)));
        wait::offload(&self.owner.shared, end).await?.deliver()
    }
}
