//! Writes of a handle: through the cache, and large aligned ones under memory pressure from the
//! caller's memory straight to the device.

use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_cache::Admission;
use forebay_cache::limits::PAGE;
use forebay_cache::meter::Work;

use crate::core::base::Base;
use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::Inode;
use crate::core::limits::{BYPASS_BYTES, BYPASS_BYTES_AT_ONCE};
use crate::core::shared::Shared;
use crate::core::slices::Slices;
use crate::core::space::volume::Pledge;
use crate::core::space::{Promise, make_room, pledge};
use crate::core::stats::Counters;
use crate::core::wait;
use crate::core::write::{Place, Waiting, WriteRequest, poll_write, write_now};
use crate::platform::{Direct, clock};

/// Writes from the caller's buffer to the device, on the caller's thread, which may block.
/// Returns false if the write has to go through the cache.
///
/// # Errors
/// A part of the data may have been written.
fn bypass(inode: &Arc<Inode>, shared: &Shared, data: &[u8], offset: u64) -> Result<bool> {
    let (is_direct, alignment) = (*inode.file.direct() == Direct::Yes, inode.file.alignment());
    if !is_direct || !(data.as_ptr() as usize).is_multiple_of(alignment.memory as usize) {
        return Ok(false);
    }
    let Some(_held) = shared.hold_off_keeper() else { return Ok(false) };
    debug_assert!(!data.is_empty(), "a write of nothing would wait for the whole file");
    let bytes = offset..offset + data.len() as u64;
    let begun = shared.change(inode, |file| {
        inode.check_whole(file)?;
        // A replay could put older bytes over those of a write past the log.
        if file.logging.is_live() {
            return Ok(None);
        }
        Ok::<_, Error>(file.apply(|cache, settled| cache.begin_bypass(bytes, settled)))
    });
    let Some(bypass) = begun? else { return Ok(false) };
    let written = inode.file.write_all_at(data, offset);
    shared.change(inode, |file| {
        inode.check_whole(file)?;
        file.cache.end_bypass(bypass);
        // Callers that wait for the file to become quiet wait for this.
        file.look();
        file.wake();
        Ok::<(), Error>(())
    })?;
    match written {
        Ok(()) => {
            // The disk did this beside the flights that show its price.
            let requests = data.len().div_ceil(BYPASS_BYTES) as u64;
            let work = Work { requests, bytes: data.len() as u64, full: 0 };
            inode.volume.note_work(work, clock::now());
            Ok(true)
        }
        // It moved nothing: the file system requires another alignment than it reported.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => {
            let what = "could not write past the cache; a part may have been written";
            Err(Error::new(ErrorKind::at_device(&error), what)
                .at_path(&inode.path)
                .at_offset(offset)
                .because(error)
                .remedy("write the range again"))
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
    /// - `InvalidInput` if the write ends beyond the largest file size, of the file system or of
    ///   this process (`RLIMIT_FSIZE`). Nothing is written then.
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
        let (done, pledge) = self.write_front(data, offset)?;
        if done > 0 && done == data.len() {
            return Ok(());
        }
        self.write_rest(&data[done..], offset + done as u64, pledge)
    }

    #[cold]
    fn write_rest(&self, data: &[u8], offset: u64, pledge: Option<Pledge<'_>>) -> Result<()> {
        let data = [IoSlice::new(data)];
        wait::block_on(async {
            self.write_placed(Slices::new(&data), offset, Place::Offset, pledge).await.1
        })
    }

    /// Writes the front of `data` as far as that needs no wait for the cache, and no future.
    /// Returns its length. If there is a rest, the pledge has room for it, too.
    #[inline]
    pub(crate) fn write_front(
        &self,
        data: &[u8],
        offset: u64,
    ) -> Result<(usize, Option<Pledge<'_>>)> {
        self.may_write_at()?;
        if data.len() >= BYPASS_BYTES {
            return Ok((self.write_past(data, offset)?, None));
        }
        let length = data.len() as u64;
        self.check_end(offset.checked_add(length), offset)?;
        if length == 0 {
            return Ok((0, None));
        }
        let pledge = if may_rewrite(&self.inode, &self.shared) {
            None
        } else {
            let Some(pledge) = self.pledge(length) else { return Ok((0, None)) };
            Some(pledge)
        };
        let slices = [IoSlice::new(data)];
        let (data, place, caching) = (&Slices::new(&slices), Place::Offset, self.caching());
        let front = WriteRequest { data, offset, place, caching };
        let accepted = write_now(&self.inode, &self.shared, front, pledge.is_some())?;
        assert!(accepted <= length as usize, "bytes that no caller wrote were accepted");
        Counters::add(&self.shared.counters.accepted_bytes, accepted as u64);
        Ok((accepted, pledge))
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
            && admission(&self.inode, &self.shared, data.len() - done) == Admission::Wait
        {
            wait::may_block()?;
            let left = data.len() - done;
            let part =
                &data[done..done + left.min(BYPASS_BYTES_AT_ONCE) / BYPASS_BYTES * BYPASS_BYTES];
            if !bypass(&self.inode, &self.shared, part, offset + done as u64)? {
                break;
            }
            done += part.len();
        }
        assert!(done <= data.len(), "bytes behind the caller's memory would be written");
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
        self.write_placed(data, offset, Place::Offset, None).await
    }

    /// As [`File::write_all`], with the pledge of the write if there is one already. A write to the
    /// end stops when other programs may move that.
    pub(crate) async fn write_placed<'a>(
        &'a self,
        mut data: Slices<'_>,
        offset: u64,
        place: Place,
        pledge: Option<Pledge<'a>>,
    ) -> (usize, Result<()>) {
        let length = data.len() as u64;
        if let Err(error) = self.check_end(offset.checked_add(length), offset) {
            return (0, Err(error));
        }
        if length == 0 {
            return (0, Ok(()));
        }
        // By a pledge if there is plenty of space, otherwise by an allocation now.
        let promise = match pledge.or_else(|| self.pledge(length)) {
            Some(_pledge) => Promise::Plenty { _pledge },
            None => match make_room(&self.shared, &self.inode, offset, length).await {
                Ok(promise) => promise,
                Err(error) => return (0, Err(error)),
            },
        };
        let (mut done, mut waiting) = (0, Waiting::default());
        let result = loop {
            if data.len() == 0 {
                break Ok(());
            }
            let (offset, caching) = (offset + done as u64, self.caching());
            let rest = WriteRequest { data: &data, offset, place, caching };
            let step = poll_fn(|context| {
                plugged_no_more(poll_write(&self.inode, &self.shared, context, rest, &mut waiting))
            });
            match step.await {
                Ok(0) => break Ok(()),
                Ok(accepted) => {
                    assert!(accepted <= data.len(), "bytes that no caller wrote were accepted");
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
        pledge(&self.inode, &self.shared, length)
    }
}

/// Returns whether a write of `length` bytes would have to wait for room, at its beginning or
/// later.
fn admission(inode: &Inode, base: &Base, length: usize) -> Admission {
    base.level.admit_all(&inode.volume, length as u64 / PAGE)
}

/// Returns whether the next write may do without a pledge, provided that its page is dirty: the
/// last one was so, and there is plenty of space.
fn may_rewrite(inode: &Inode, base: &Base) -> bool {
    let unwritten = (base.level.dirty() + 1) * PAGE;
    inode.rewrites.load(Ordering::Relaxed) && inode.volume.has_plenty(unwritten)
}
