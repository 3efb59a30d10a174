//! Writing a file out without a flush, and the end of its use without the end of its handle.

use std::sync::Arc;

use forebay_cache::TicketKind;

use super::File;
use crate::core::error::{Error, Result};
use crate::core::table::Last;
use crate::core::wait;
use crate::platform::clock;

impl File {
    /// Writes all data accepted before the call to the file system, without a flush. Blocks until
    /// it is written.
    ///
    /// Afterwards the data survives the death of this process, and other programs see it. It does
    /// not survive a power cut: that takes a sync. A sync that follows soon has less to write.
    ///
    /// # Errors
    /// `Io`, or `NoSpace` if space or quota is missing, while a page cannot be written. The page
    /// stays dirty. An error that was overcome meanwhile is reported once to each handle.
    /// `Poisoned` after a panic has interrupted a change of the file's state.
    pub fn write_out(&self) -> Result<()> {
        wait::block_on(self.write_out_async())
    }

    /// Asynchronous form of [`File::write_out`]. The writing starts with the first poll, and
    /// dropping the future does not stop it.
    ///
    /// # Errors
    /// As [`File::write_out`].
    pub async fn write_out_async(&self) -> Result<()> {
        self.shared.check()?;
        let result = self.ask(TicketKind::WriteOut).await;
        self.and_unreported(result)
    }

    /// Writes the file out and reports the last errors, as [`File::close`] does, but keeps the
    /// handle. Blocks for at most [`Builder::close_timeout`](crate::Builder::close_timeout).
    ///
    /// It is for handles that cannot be closed, because they are behind a reference or shared by an
    /// `Arc`. If nothing is written after it, dropping the handle later loses no error. The last
    /// handle of a file also gives back reserved space. The handle stays usable; a later write
    /// needs another `finish`.
    ///
    /// # Errors
    /// As [`File::close`].
    pub fn finish(&self) -> Result<()> {
        let deadline = clock::instant().checked_add(self.patience);
        wait::block_on_until(self.finish_async(), deadline).unwrap_or_else(|| {
            Err(Error::late(&self.inode.path)
                .remedy("the writing continues; Builder::on_error reports its errors"))
        })
    }

    /// Asynchronous form of [`File::finish`], without a timeout. Dropping the future does not stop
    /// the writing.
    ///
    /// # Errors
    /// As [`File::close`].
    pub async fn finish_async(&self) -> Result<()> {
        self.shared.check()?;
        let is_last = self.shared.table().is_last(self.inode.identity) == Last::Yes;
        let request = if is_last { TicketKind::Release } else { TicketKind::WriteOut };
        let result = self.ask(request).await;
        if is_last && result.is_ok() {
            let inode = Arc::clone(&self.inode);
            self.inode.volume.aside.run(move || inode.unmark());
        }
        // A caller that does not sync gets the error of a failed flush here.
        self.and_unreported(result.and(self.flushed()))
    }
}
