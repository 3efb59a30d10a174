//! Space for a file: promises of space for writes, the reservation mark, and the free space of the
//! file system.
//!
//! Calls of the file system may block, so no context makes them. Callers or the aside do.
//!

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_block::{Bio, Ended, Errno, Operation};
use forebay_cache::Admission;
use forebay_cache::limits::PAGE;

use crate::core::base::Base;
use crate::core::context::senders::Unreserved;
use crate::core::error::{Error, ErrorKind, Result, is_full};
use crate::core::inode::Inode;
use crate::core::space::volume::{Pledge, Room};
use crate::core::stats::Counters;
use crate::platform::Rewrite;

mod allocation;
pub(crate) mod room;
pub(crate) mod volume;

/// A write in progress, with space allocated before.
#[derive(Debug)]
pub(crate) struct Allocated(Arc<Inode>);

impl Drop for Allocated {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if !state.is_interrupted() {
            state.cache.end_allocated_write();
        }
    }
}

/// Reason why there is room for a write, held while it is in progress.
#[derive(Debug)]
pub(crate) enum Promise<'a> {
    /// The file system has plenty of space.
    Plenty { _pledge: Pledge<'a> },
    /// The space was allocated.
    Allocated(#[allow(dead_code, reason = "held until it is dropped")] Allocated),
}

impl Inode {
    /// Returns whether a write of `length` bytes would have to wait for room, at its beginning or
    /// later.
    pub(crate) fn admission(&self, base: &Base, length: usize) -> Admission {
        base.level.admit_all(&self.volume, length as u64 / PAGE)
    }

    /// Returns whether the next write may do without a pledge, provided that its page is dirty: the
    /// last one was so, and there is plenty of space.
    pub(crate) fn may_rewrite(&self, base: &Base) -> bool {
        let unwritten = (base.level.dirty() + 1) * PAGE;
        self.rewrites.load(Ordering::Relaxed) && self.volume.has_plenty(unwritten)
    }

    /// Accepts a write without an allocation, if there is plenty of space.
    pub(crate) fn pledge(&self, base: &Base, length: u64) -> Option<Pledge<'_>> {
        let unwritten = (base.level.dirty() + 1) * PAGE;
        self.volume.pledge(&self.file, length, unwritten)
    }

    /// Allocates space for a write before it is accepted, so that the write reports "no space", not
    /// the writeback.
    pub(crate) fn make_room(
        &self,
        base: &Base,
        allocated: Allocated,
        (offset, length): (u64, u64),
    ) -> Result<Allocated> {
        let bytes = whole_pages(offset, length);
        let end = self.lock().cache.disk_size();
        // The file system zeroes the rest of the block at the present end when a write moves it.
        let tail = (!end.is_multiple_of(PAGE) && end < bytes.start).then(|| whole_pages(end, 0));
        for bytes in tail.into_iter().chain([bytes]) {
            match self.make_room_for(base, bytes, offset + length) {
                Ok(()) => {}
                Err(error) if is_full(&error) => return Err(self.no_space(offset).because(error)),
                // It cannot allocate ahead; the write will show whether there is space.
                Err(_) => break,
            }
        }
        Ok(allocated)
    }

    /// Allocates the space of these pages, unless they have it. `end` as for `allocate_now`.
    fn make_room_for(&self, base: &Base, bytes: Range<u64>, end: u64) -> std::io::Result<()> {
        let rewrite = self.volume.rewrite(&self.file);
        let mut state = self.lock();
        if state.cache.is_allocated(&bytes, rewrite == Rewrite::InPlace) {
            state.cache.note_allocated(bytes);
            return Ok(());
        }
        drop(state);
        self.allocate_now(&bytes, end)?;
        Counters::add(&base.counters.reserved_scarce_bytes, bytes.end - bytes.start);
        Ok(())
    }

    /// Allocates space that belongs to the file from then on. May block.
    pub(crate) fn allocate(
        &self,
        allocated: Allocated,
        (offset, length): (u64, u64),
    ) -> Result<Allocated> {
        let bytes = whole_pages(offset, length);
        self.allocate_now(&bytes, offset + length).map_err(|error| {
            let what = "could not allocate space for the file";
            let kind = match error.kind() {
                std::io::ErrorKind::Unsupported => ErrorKind::Unsupported,
                _ => ErrorKind::at_device(&error),
            };
            Error::new(kind, what).at_path(&self.path).at_offset(offset).because(error)
        })?;
        Ok(allocated)
    }

    /// Makes releases leave space alone that is allocated from here on, until the result is
    /// dropped. Those at the device may still free it, so the caller waits for them.
    pub(crate) fn begin_allocated(self: &Arc<Self>) -> Allocated {
        self.lock().cache.begin_allocated_write();
        Allocated(Arc::clone(self))
    }

    /// Has the file system allocate a range of whole pages, and records the result. `end` is the
    /// end that the caller needs: the largest size may be within the last page.
    fn allocate_now(&self, bytes: &Range<u64>, end: u64) -> std::io::Result<()> {
        self.mark_reserved(bytes.end);
        let end = if self.can_reach(bytes.end) { bytes.end } else { end };
        let result = self.file.allocate_alone(bytes.start, end - bytes.start);
        match &result {
            Ok(()) => {
                self.volume.look(&self.file);
                self.lock().cache.note_allocated(bytes.clone());
            }
            Err(error) if is_full(error) => self.lock().cache.note_litter(bytes.end),
            Err(_) => {}
        }
        result
    }

    /// Creates the error for a write that is refused because the file system is full.
    pub(crate) fn no_space(&self, offset: u64) -> Error {
        Error::new(ErrorKind::NoSpace, "no space for the write; none of it was accepted")
            .at_path(&self.path)
            .at_offset(offset)
            .remedy("free space on the file system and write again")
    }
}

/// Returns the bytes of the pages that contain a range.
fn whole_pages(offset: u64, length: u64) -> Range<u64> {
    offset / PAGE * PAGE..(offset + length).next_multiple_of(PAGE)
}

impl Inode {
    /// Removes the reservation mark if nothing is reserved beyond the end. May block.
    pub(crate) fn unmark(&self) {
        let mut marked = self.marked.lock();
        let state = self.lock();
        // The reservation of an interrupted file is unknown; the next open gives it back.
        let is_clear = !state.is_interrupted() && !state.cache.leaves_space();
        drop(state);
        if *marked && is_clear {
            match self.file.remove_reservation_mark() {
                Ok(()) => *marked = false,
                Err(error) => {
                    tracing::warn!(
                        path = %self.path.display(),
                        %error,
                        "could not remove the reservation mark"
                    );
                }
            }
        }
    }

    /// Sets the mark that shows the next open after a crash that space beyond the end is ours.
    /// Returns false if it is needed and cannot be set. May block.
    fn mark_reserved(&self, end: u64) -> bool {
        let mut marked = self.marked.lock();
        if !*marked && end > self.lock().cache.disk_size() {
            *marked = self.file.set_reservation_mark(end).is_ok();
            return *marked;
        }
        true
    }

    /// Prepares an allocation ahead of data: checks the free space and sets the mark. May block.
    pub(crate) fn prepare_reservation(
        &self,
        base: &Base,
        bio: &Bio,
    ) -> std::result::Result<(), Unreserved> {
        // First: `end_reserving` follows on every path, also after a panic.
        self.volume.begin_reserving(bio.length);
        let state = self.lock();
        if state.is_interrupted() {
            return Err(Unreserved::Interrupted);
        }
        let reservation = state.cache.reserves_for(bio);
        drop(state);
        let (_, whole) = reservation.expect("a bio that allocates has a reservation");
        let unwritten = base.level.dirty() * PAGE;
        if self.volume.room_ahead(&self.file, whole, unwritten) == Room::Scarce {
            return Err(Unreserved::Scarce);
        }
        // Without a mark the space would not be given back after a crash.
        self.mark_reserved(bio.end()).then_some(()).ok_or(Unreserved::Unmarked)
    }

    /// After allocations, has the aside look up the free space and the number of extents of the
    /// allocated range.
    pub(crate) fn look_at_space(&self, base: &Base, ended: &[Ended]) {
        for Ended { bio, result } in
            ended.iter().filter(|ended| ended.bio.operation == Operation::Allocate)
        {
            let bytes = bio.length;
            match result {
                Ok(_) => {}
                Err(Errno::WOULD_BLOCK | Errno::UNSUPPORTED) => {
                    self.volume.end_reserving(bytes);
                    continue;
                }
                Err(_) => Counters::add(&base.counters.unreserved_failed, 1),
            }
            let (volume, file) = (Arc::clone(&self.volume), Arc::clone(&self.file));
            let allocated = result.is_ok().then(|| bio.offset..bio.end());
            self.aside.run(move || {
                volume.look(&file);
                volume.end_reserving(bytes);
                match allocated.map(|bytes| file.pieces_of(bytes)) {
                    None => {}
                    Some(Ok(found)) => volume.note_pieces(found),
                    Some(Err(error)) => {
                        tracing::debug!(%error, "could not look up the extents of the file");
                    }
                }
            });
        }
    }
}
