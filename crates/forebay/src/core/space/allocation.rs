//! Space of a file: allocated before it is written, and freed below the end.

use std::future::poll_fn;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use forebay_cache::TicketKind;
use forebay_cache::limits::PAGE;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::{File, check_device_end};
use crate::core::logged::route::PastLog;
use crate::core::read::file_length;
use crate::core::slices::Slices;
use crate::core::wait;
use crate::core::write::append::AppendTurn;

/// Zeroes to write over parts of pages.
static ZEROES: [u8; PAGE as usize] = [0; PAGE as usize];

impl File {
    /// Allocates space for a range, so that writes there cannot run out of space. Extends the file
    /// to the end of the range if that is larger. Blocks while the file system allocates.
    ///
    /// Bytes of the range that were never written read as zeroes. The space belongs to the file: a
    /// close does not give it back. The new size is durable after the next sync. Other programs
    /// that write to the same file system cannot take the space.
    ///
    /// On XFS, blocks that the file shares with another file are copied. A file system that copies
    /// on write (btrfs) may need more space for a second write of the same range.
    ///
    /// # Errors
    /// - `NoSpace` if the file system or quota is full. The size is unchanged. A part of the space
    ///   may be allocated below the end; space beyond it is given back.
    /// - `Unsupported` on a block device, or if the file system does not allocate ahead.
    /// - `InvalidInput` if the range ends beyond the largest file size.
    /// - `NotPermitted` on a handle for reading; `Io` with the reason of the system; as
    ///   [`File::len`].
    pub fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        wait::block_on(self.allocate_async(offset, length))
    }

    /// Asynchronous form of [`File::allocate`]. Dropping the future does not stop the allocation,
    /// but may leave the size as it was; space beyond the end is then given back at the close.
    pub(crate) async fn allocate_async(&self, offset: u64, length: u64) -> Result<()> {
        self.may_write()?;
        self.may_move_end("cannot allocate space on a block device", "all of its space is there")?;
        let end = offset.checked_add(length);
        self.check_end(end, offset)?;
        if length == 0 {
            return Ok(());
        }
        // No append looks up the end before the size changes.
        let turn = poll_fn(|context| self.poll_append(context)).await;
        let _past = PastLog::begin(&self.shared, &self.inode).await?;
        let allocated = super::allocate(&self.shared, &self.inode, offset, length).await;
        match allocated.and_then(|allocated| Ok((allocated, self.len()?))) {
            Ok((_allocated, size)) => match end.filter(|end| *end > size) {
                None => Ok(()),
                Some(end) => match self.ask(TicketKind::Extend(end)).await {
                    // Other programs may extend the file at the same time: its length is not set.
                    Err(error) if error.os_error() == Some(libc::EAGAIN) => {
                        self.extend(turn, offset, length).await
                    }
                    extended => extended,
                },
            },
            Err(error) => {
                // Gives back what was allocated beyond the end. A sync reports a failure of it.
                let _ = self.ask(TicketKind::Release).await;
                Err(error)
            }
        }
    }

    /// Extends a shared file to the end of a range. The turn ends with the request, also if the
    /// future is dropped before: no later change of the end may overtake it.
    async fn extend(&self, turn: AppendTurn<'_>, offset: u64, length: u64) -> Result<()> {
        let (inode, shared) = (Arc::clone(&self.inode), Arc::clone(&self.shared));
        let turn = turn.into_owned(Arc::clone(&inode));
        let extended = wait::offload(&self.shared, move || {
            let _turn = turn;
            let extended = inode.file.extend(offset, length);
            if extended.is_ok() {
                // Also if the future is dropped: the next sync makes the new size durable.
                shared.change(&inode, |file| file.cache.note_extended());
            }
            extended.map_err(|error| {
                Error::new(ErrorKind::at_device(&error), "could not extend the file")
                    .because(error)
                    .at_path(&inode.path)
            })
        });
        extended.await?;
        // Adopts the new size.
        file_length(&self.inode, &self.shared).map(drop)
    }

    /// Frees the space of a range below the end of the file, which then reads as zeroes. The size
    /// does not change. Blocks until the file system has done it.
    ///
    /// Whole pages of 4 KiB are freed, and dirty pages among them are dropped. At the edges of the
    /// range, zeroes are written into parts of pages. Reads and writes of the range that started
    /// before end first, and later ones wait. The hole is durable after the next sync.
    ///
    /// # Errors
    /// - `Unsupported` on a block device ([`File::discard`] is for those), or if the file system
    ///   has no holes.
    /// - `NotPermitted` on a handle for reading; as [`File::len`].
    /// - As [`File::write_at`] for the edges, and as [`File::write_out`] if the end of the range
    ///   has not been written yet.
    /// - `Io` or `NoSpace` with the reason of the system. The edges may then be zero, and the rest
    ///   is unchanged.
    pub fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        wait::block_on(self.punch_hole_async(offset, length))
    }

    /// Asynchronous form of [`File::punch_hole`]. If the future is dropped, any part of the range
    /// may be zero.
    pub(crate) async fn punch_hole_async(&self, offset: u64, length: u64) -> Result<()> {
        self.may_write()?;
        if self.inode.fixed_size.is_some() {
            let what = "cannot punch a hole into a block device";
            return Err(Error::new(ErrorKind::Unsupported, what)
                .at_path(&self.inode.path)
                .remedy("use File::discard, or write zeroes"));
        }
        // The end is not moved back meanwhile.
        let _turn = poll_fn(|context| self.poll_append(context)).await;
        let _past = PastLog::begin(&self.shared, &self.inode).await?;
        let end = offset.saturating_add(length).min(self.len()?);
        let whole = offset.next_multiple_of(PAGE)..end / PAGE * PAGE;
        if whole.is_empty() {
            return self.write_zeroes(offset..end).await;
        }
        self.write_zeroes(offset..whole.start).await?;
        self.write_zeroes(whole.end..end).await?;
        if whole.end > self.inode.lock().cache.disk_size() {
            // The write of the last page moves the end, so that page must not be dropped before it.
            let written = self.ask(TicketKind::WriteOut).await;
            self.and_unreported(written)?;
        }
        let (first, pages) = (whole.start / PAGE, (whole.end - whole.start) / PAGE);
        self.ask(TicketKind::Discard { first, pages }).await
    }

    /// Writes zeroes over parts of one or two pages.
    async fn write_zeroes(&self, bytes: Range<u64>) -> Result<()> {
        let mut offset = bytes.start;
        while offset < bytes.end {
            let length = (bytes.end - offset).min(PAGE - offset % PAGE);
            let zeroes = [IoSlice::new(&ZEROES[..length as usize])];
            self.write_all(Slices::new(&zeroes), offset).await.1?;
            offset += length;
        }
        Ok(())
    }
}

impl File {
    /// Truncates or extends the file. Blocks until the file system has done it.
    ///
    /// For a new file of known size, setting the length first is fastest: no write then moves the
    /// end of the file.
    ///
    /// # Errors
    /// `InvalidInput` for a length beyond the largest file size; `NotPermitted` on a handle for
    /// reading; `Unsupported` on a block device; `Io` with the reason of the system.
    pub fn set_len(&self, length: u64) -> Result<()> {
        wait::block_on(self.set_len_async(length))
    }

    /// Asynchronous form of [`File::set_len`]. Dropping the future stops it only while it waits for
    /// an append.
    pub(crate) async fn set_len_async(&self, length: u64) -> Result<()> {
        self.may_write()?;
        self.may_move_end("cannot change the size of a block device", "its size is fixed")?;
        self.check_end(Some(length), length)?;
        self.set_len_in_turn(length).await
    }

    pub(crate) fn set_len_unchecked(&self, length: u64) -> Result<()> {
        wait::block_on(self.set_len_in_turn(length))
    }

    /// Waits for appends: one that has looked up the end writes there before the length changes.
    async fn set_len_in_turn(&self, length: u64) -> Result<()> {
        let _turn = poll_fn(|context| self.poll_append(context)).await;
        let _past = PastLog::begin(&self.shared, &self.inode).await?;
        self.ask(TicketKind::SetLength(length)).await
    }

    /// Tells a block device that a range is no longer needed (discard, or TRIM). Blocks until the
    /// device has done it.
    ///
    /// **Reads of a discarded range return unspecified data**, until it is written again. Only
    /// whole pages of 4 KiB are discarded; dirty pages among them are dropped. Reads and writes of
    /// the range that started before end first, and later ones wait. The discard is durable after
    /// the next sync.
    ///
    /// # Errors
    /// `Unsupported` on a regular file, or if the device cannot discard; `NotPermitted` on a handle
    /// for reading; `NoSpace` if the device ends before the range does; `Io` with the reason of the
    /// system. After an error nothing has changed.
    pub fn discard(&self, offset: u64, length: u64) -> Result<()> {
        wait::block_on(self.discard_async(offset, length))
    }

    /// Asynchronous form of [`File::discard`]. Dropping the future does not stop it.
    pub(crate) async fn discard_async(&self, offset: u64, length: u64) -> Result<()> {
        self.may_write()?;
        let Some(size) = self.inode.fixed_size else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "cannot discard a range of a regular file",
            )
            .at_path(&self.inode.path)
            .remedy("use File::punch_hole, or File::set_len to free space at the end"));
        };
        let end = offset.checked_add(length);
        check_device_end(&self.inode.path, size, end, offset)?;
        let pages = self.inode.lock().cache.whole_pages(&(offset..offset + length));
        if pages.is_empty() {
            return Ok(());
        }
        self.ask(TicketKind::Discard { first: pages.start, pages: pages.end - pages.start }).await
    }
}
