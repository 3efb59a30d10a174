//! Writes of a handle: through the cache, and large aligned ones under memory pressure from the
//! caller's memory straight to the device.

use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::Arc;

use forebay_cache::Admission;

use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::Inode;
use crate::core::limits::{BYPASS_BYTES, BYPASS_BYTES_AT_ONCE};
use crate::core::shared::Shared;
use crate::core::slices::Slices;
use crate::core::space::Promise;
use crate::core::space::room::make_room;
use crate::core::space::volume::Pledge;
use crate::core::stats::Counters;
use crate::core::wait;
use crate::core::write::Place;
use crate::platform::Direct;

impl Inode {
    /// Writes from the caller's buffer to the device, on the caller's thread, which may block.
    /// Returns false if the write has to go through the cache.
    ///
    /// # Errors
    /// A part of the data may have been written.
    pub(crate) fn bypass(
        self: &Arc<Self>,
        shared: &Shared,
        data: &[u8],
        offset: u64,
    ) -> Result<bool> {
        let (is_direct, alignment) = (*self.file.direct() == Direct::Yes, self.file.alignment());
        if !is_direct || !(data.as_ptr() as usize).is_multiple_of(alignment.memory as usize) {
            return Ok(false);
        }
        let Some(_held) = shared.hold_off_keeper() else { return Ok(false) };
        let bytes = offset..offset + data.len() as u64;
        let begun = shared.change(self, |file| {
            self.check_whole(file)?;
            Ok::<_, Error>(file.apply(|cache, settled| cache.begin_bypass(bytes, settled)))
        });
        let Some(bypass) = begun? else { return Ok(false) };
        let written = self.file.write_all_at(data, offset);
        shared.change(self, |file| {
            self.check_whole(file)?;
            file.cache.end_bypass(bypass);
            // Callers that wait for the file to become quiet wait for this.
            file.look();
            file.wake();
            Ok::<(), Error>(())
        })?;
        match written {
            Ok(()) => Ok(true),
            // It moved nothing: the file system requires another alignment than it reported.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            Err(error) => {
                let what = "could not write past the cache; a part may have been written";
                Err(Error::new(ErrorKind::at_device(&error), what)
                    .at_path(&self.path)
                    .at_offset(offset)
                    .because(error)
                    .remedy("write the range again"))
            }
        }
    }
}

impl File {
    /// Writes all of `data` at `offset` into the cache. The data is durable after the next sync.
    /// Blocks while the dirty limit is reached.
    ///
    /// While the dirty limit is reached, a write of 1 MiB or more goes straight from `data` to the
    /// device. Its offset and memory must be aligned, and it must lie below the end of the file.
    ///
    /// # Errors
    /// - `InvalidInput` with `EFBIG` if the write ends beyond the largest file size, of the file
    ///   system or of this process (`RLIMIT_FSIZE`). Nothing is written then.
    /// - `NotPermitted` on a handle for reading or appending.
    /// - `NoSpace` if the file system is full, or the block device ends before the write does.
    /// - `Io` or `NoSpace`, with the reason of the device, if too many earlier pages could not be
    ///   written: 1/16 of `dirty_bytes` for this file, or 1/4 for its device. `Io` also if the
    ///   write would wait for the dirty limit while pages of the file cannot be written.
    /// - `Poisoned` after a panic has interrupted a change of the file's state, until all handles
    ///   of the file are closed.
    ///
    /// After an error a prefix may have been accepted.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let done = self.write_front(data, offset)?;
        if done > 0 && done == data.len() {
            return Ok(());
        }
        wait::block_on(self.write_at_async(&data[done..], offset + done as u64))
    }

    /// Writes the front of `data` as far as that needs no wait for the cache, and no future.
    /// Returns its length.
    pub(crate) fn write_front(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.may_write_at()?;
        if data.len() >= BYPASS_BYTES {
            return self.write_past(data, offset);
        }
        let length = data.len() as u64;
        self.check_end(offset.checked_add(length), offset)?;
        if length == 0 {
            return Ok(0);
        }
        let pledge = if self.inode.may_rewrite(&self.shared) {
            None
        } else {
            let Some(pledge) = self.pledge(length) else { return Ok(0) };
            Some(pledge)
        };
        let slices = [IoSlice::new(data)];
        let front = (&Slices::new(&slices), offset, self.caching());
        let accepted = self.inode.write_now(&self.shared, front, pledge.is_some())?;
        drop(pledge);
        Counters::add(&self.shared.counters.accepted_bytes, accepted as u64);
        Ok(accepted)
    }

    /// Writes the front of a large aligned write from the caller's buffer straight to the device,
    /// if the dirty limit is reached. Returns its length.
    pub(crate) fn write_past(&self, data: &[u8], offset: u64) -> Result<usize> {
        if data.len() < BYPASS_BYTES || self.open.append {
            return Ok(0);
        }
        self.may_write()?;
        self.check_end(offset.checked_add(data.len() as u64), offset)?;
        let mut done = 0;
        while data.len() - done >= BYPASS_BYTES
            && self.inode.admission(&self.shared, data.len() - done) == Admission::Wait
        {
            wait::may_block()?;
            let left = data.len() - done;
            let part =
                &data[done..done + left.min(BYPASS_BYTES_AT_ONCE) / BYPASS_BYTES * BYPASS_BYTES];
            if !self.inode.bypass(&self.shared, part, offset + done as u64)? {
                break;
            }
            done += part.len();
        }
        Counters::add(&self.shared.counters.bypassed_bytes, done as u64);
        Counters::add(&self.shared.counters.accepted_bytes, done as u64);
        Ok(done)
    }

    /// Asynchronous form of [`File::write_at`]. The data is copied while the future is polled; a
    /// dropped future has accepted a prefix.
    pub(crate) async fn write_at_async(&self, data: &[u8], offset: u64) -> Result<()> {
        self.may_write_at()?;
        self.write_all(Slices::new(&[IoSlice::new(data)]), offset).await.1
    }

    /// Returns the number of accepted bytes, and the result.
    pub(crate) async fn write_all(&self, data: Slices<'_>, offset: u64) -> (usize, Result<()>) {
        self.write_placed(data, offset, Place::Offset).await
    }

    /// As [`File::write_all`]. A write to the end stops when other programs may move that.
    pub(super) async fn write_placed(
        &self,
        mut data: Slices<'_>,
        offset: u64,
        place: Place,
    ) -> (usize, Result<()>) {
        let length = data.len() as u64;
        if let Err(error) = self.check_end(offset.checked_add(length), offset) {
            return (0, Err(error));
        }
        if length == 0 {
            return (0, Ok(()));
        }
        // By a pledge if there is plenty of space, otherwise by an allocation now.
        let promise = match self.pledge(length) {
            Some(_pledge) => Promise::Plenty { _pledge },
            None => match make_room(&self.shared, &self.inode, offset, length).await {
                Ok(promise) => promise,
                Err(error) => return (0, Err(error)),
            },
        };
        let (mut done, mut queued) = (0, None);
        let result = loop {
            if data.len() == 0 {
                break Ok(());
            }
            let rest = (&data, offset + done as u64, place, self.caching());
            let step = poll_fn(|context| {
                plugged_no_more(self.inode.poll_write(&self.shared, context, rest, &mut queued))
            });
            match step.await {
                Ok(0) => break Ok(()),
                Ok(accepted) => {
                    data.advance(accepted);
                    done += accepted;
                }
                Err(error) => break Err(error),
            }
        };
        drop(promise);
        Counters::add(&self.shared.counters.accepted_bytes, done as u64);
        (done, result)
    }

    pub(crate) fn pledge(&self, length: u64) -> Option<Pledge<'_>> {
        self.inode.pledge(&self.shared, length)
    }
}
