//! Space of a file: a write is accepted only if there is room for it.
//!
//! ```text
//! write --plenty of space--> pledge (volume.rs): counted, not allocated; the usual way
//!   |
//!   +----nearly full-------> make_room (room.rs), on the thread of the caller or beside it:
//!                              pledges of others are written out -> space is allocated
//!                              -> none? unused space of all files is given back, and once more
//!                              -> none? the write fails with "no space"; nothing was accepted
//! writeback ---------------> reservation ahead of data (context/flight.rs), prepared here by the
//!                              aside: is there space? -> mark -> the context allocates
//! File::allocate, punch_hole (allocation.rs): what a caller asks for
//! ```
//!
//! Calls of the file system may block, so no context makes them. Callers or the aside of the file
//! system do.
//!
//! The *mark* is an attribute of the file. It shows the next open after a crash that space beyond
//! the end is ours, and may be given back.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_block::{Bio, Ended, Errno, Operation};
use forebay_cache::Admission;
use forebay_cache::file::Reserving;
use forebay_cache::limits::PAGE;

use crate::core::base::Base;
use crate::core::context::senders::Unreserved;
use crate::core::error::{Error, ErrorKind, Result, is_full};
use crate::core::inode::Inode;
use crate::core::space::volume::{Pledge, Room};
use crate::core::stats::Counters;
use crate::platform::{OpenFile, Rewrite};

mod allocation;
pub(crate) mod room;
pub(crate) mod volume;

/// A write in progress, with space allocated before.
#[derive(Debug)]
pub(crate) struct Allocated(Arc<Inode>);

impl Drop for Allocated {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if !state.failures.is_interrupted() {
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

/// Returns whether a write of `length` bytes would have to wait for room, at its beginning or
/// later.
pub(crate) fn admission(inode: &Inode, base: &Base, length: usize) -> Admission {
    base.level.admit_all(&inode.volume, length as u64 / PAGE)
}

/// Returns whether the next write may do without a pledge, provided that its page is dirty: the
/// last one was so, and there is plenty of space.
pub(crate) fn may_rewrite(inode: &Inode, base: &Base) -> bool {
    let unwritten = (base.level.dirty() + 1) * PAGE;
    inode.rewrites.load(Ordering::Relaxed) && inode.volume.has_plenty(unwritten)
}

/// Accepts a write without an allocation, if there is plenty of space.
pub(crate) fn pledge<'a>(inode: &'a Inode, base: &Base, length: u64) -> Option<Pledge<'a>> {
    let unwritten = (base.level.dirty() + 1) * PAGE;
    inode.volume.pledge(&inode.file, length, unwritten)
}

/// Allocates space for a write before it is accepted, so that the write reports "no space", not
/// the writeback.
fn allocate_for_write(
    inode: &Inode,
    base: &Base,
    allocated: Allocated,
    bytes: Range<u64>,
) -> Result<Allocated> {
    let (pages, offset) = (whole_pages(&bytes), bytes.start);
    let end = inode.lock().cache.disk_size();
    // The file system zeroes the rest of the block at the present end when a write moves it.
    let tail = (!end.is_multiple_of(PAGE) && end < pages.start).then(|| whole_pages(&(end..end)));
    for pages in tail.into_iter().chain([pages]) {
        match allocate_missing(inode, base, pages, bytes.end) {
            Ok(()) => {}
            Err(error) if is_full(&error) => return Err(no_space(inode, offset).because(error)),
            // It cannot allocate ahead; the write will show whether there is space.
            Err(_) => break,
        }
    }
    Ok(allocated)
}

/// Allocates the space of these pages, unless they have it. `end` as for `allocate_now`.
fn allocate_missing(
    inode: &Inode,
    base: &Base,
    bytes: Range<u64>,
    end: u64,
) -> std::io::Result<()> {
    let rewrite = inode.volume.rewrite(&inode.file);
    let mut state = inode.lock();
    if state.cache.is_allocated(&bytes, rewrite == Rewrite::InPlace) {
        state.cache.note_allocated(bytes);
        return Ok(());
    }
    drop(state);
    allocate_now(inode, &bytes, end)?;
    Counters::add(&base.counters.reserved_scarce_bytes, bytes.end - bytes.start);
    Ok(())
}

/// Allocates space that belongs to the file from then on. May block.
fn allocate_range(inode: &Inode, allocated: Allocated, bytes: Range<u64>) -> Result<Allocated> {
    let offset = bytes.start;
    allocate_now(inode, &whole_pages(&bytes), bytes.end).map_err(|error| {
        let what = "could not allocate space for the file";
        let kind = match error.kind() {
            std::io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::at_device(&error),
        };
        Error::new(kind, what).at_path(&inode.path).at_offset(offset).because(error)
    })?;
    Ok(allocated)
}

/// Makes releases leave space alone that is allocated from here on, until the result is
/// dropped. Those at the device may still free it, so the caller waits for them.
fn begin_allocated(inode: &Arc<Inode>) -> Allocated {
    inode.lock().cache.begin_allocated_write();
    Allocated(Arc::clone(inode))
}

/// Has the file system allocate a range of whole pages, and records the result. `end` is the
/// end that the caller needs: the largest size may be within the last page.
fn allocate_now(inode: &Inode, bytes: &Range<u64>, end: u64) -> std::io::Result<()> {
    let is_whole = bytes.start.is_multiple_of(PAGE) && bytes.end.is_multiple_of(PAGE);
    assert!(is_whole, "a page without space of its own would count as allocated");
    mark_reserved(inode, bytes.end);
    let end = if inode.can_reach(bytes.end) { bytes.end } else { end };
    let result = inode.file.allocate_alone(bytes.start, end - bytes.start);
    match &result {
        Ok(()) => {
            inode.volume.look(&inode.file);
            inode.lock().cache.note_allocated(bytes.clone());
        }
        Err(error) if is_full(error) => inode.lock().cache.note_litter(bytes.end),
        Err(_) => {}
    }
    result
}

/// Creates the error for a write that is refused because the file system is full.
fn no_space(inode: &Inode, offset: u64) -> Error {
    Error::new(ErrorKind::NoSpace, "no space for the write; none of it was accepted")
        .at_path(&inode.path)
        .at_offset(offset)
        .remedy("free space on the file system and write again")
}

/// Returns the bytes of the pages that contain a range.
fn whole_pages(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE * PAGE..bytes.end.next_multiple_of(PAGE)
}

/// Removes the reservation mark if nothing is reserved beyond the end. May block.
pub(crate) fn unmark(inode: &Inode) {
    let mut marked = inode.marked.lock();
    let state = inode.lock();
    // The reservation of an interrupted file is unknown; the next open gives it back.
    let is_clear = !state.failures.is_interrupted() && !state.cache.leaves_space();
    drop(state);
    if *marked && is_clear {
        match inode.file.remove_reservation_mark() {
            Ok(()) => *marked = false,
            Err(error) => {
                tracing::warn!(
                    path = %inode.path.display(),
                    %error,
                    "could not remove the reservation mark"
                );
            }
        }
    }
}

/// Sets the mark that shows the next open after a crash that space beyond the end is ours.
/// Returns false if it is needed and cannot be set. May block.
fn mark_reserved(inode: &Inode, end: u64) -> bool {
    let mut marked = inode.marked.lock();
    if !*marked && end > inode.lock().cache.disk_size() {
        *marked = inode.file.set_reservation_mark(end).is_ok();
        return *marked;
    }
    true
}

/// Prepares an allocation ahead of data: checks the free space and sets the mark. May block.
pub(crate) fn prepare_reservation(
    inode: &Inode,
    base: &Base,
    bio: &Bio,
) -> std::result::Result<(), Unreserved> {
    assert_eq!(bio.target, inode.target, "the space of another file would be reserved");
    // First: `end_reserving` follows on every path, also after a panic.
    inode.volume.begin_reserving(bio.length);
    let state = inode.lock();
    if state.failures.is_interrupted() {
        return Err(Unreserved::Interrupted);
    }
    let reservation = state.cache.reserves_for(bio);
    drop(state);
    let (_, whole) = reservation.expect("a bio that allocates has a reservation");
    let unwritten = base.level.dirty() * PAGE;
    if inode.volume.room_ahead(&inode.file, whole, unwritten) == Room::Scarce {
        return Err(Unreserved::Scarce);
    }
    // Without a mark the space would not be given back after a crash.
    mark_reserved(inode, bio.end()).then_some(()).ok_or(Unreserved::Unmarked)
}

/// After allocations, has the aside look up the free space and the number of extents of the
/// allocated range.
pub(crate) fn look_after_allocations(inode: &Inode, base: &Base, ended: &[Ended]) {
    for Ended { bio, result } in
        ended.iter().filter(|ended| ended.bio.operation == Operation::Allocate)
    {
        let bytes = bio.length;
        debug_assert_eq!(bio.target, inode.target, "the mark of another file would be looked at");
        match result {
            Ok(_) => {}
            Err(Errno::WOULD_BLOCK | Errno::UNSUPPORTED) => {
                inode.volume.end_reserving(bytes);
                continue;
            }
            Err(_) => Counters::add(&base.counters.unreserved_failed, 1),
        }
        let (volume, file) = (Arc::clone(&inode.volume), Arc::clone(&inode.file));
        let allocated = result.is_ok().then(|| bio.offset..bio.end());
        inode.volume.aside.run(move || {
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

/// Returns how space may be reserved in an existing file. Space beyond its end belongs to the
/// user, and could not be distinguished from ours when that is given back.
pub(crate) fn reserving(base: &Base, file: &OpenFile, length: u64) -> Reserving {
    let beyond = length.next_multiple_of(PAGE);
    match file.has_space_from(beyond) {
        Ok(false) => base.reserving(),
        _ => Reserving::Off,
    }
}
