//! Space of a file: a write is accepted only if there is room for it.
//!
//! ```text
//! write --plenty of space--> pledge (volume.rs): counted, not allocated; the usual way
//!   |
//!   +----nearly full-------> make_room, on the thread of the caller or beside it:
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

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use forebay_block::{Bio, Ended, Errno, Operation};
use forebay_cache::TicketKind;
use forebay_cache::file::Reserving;
use forebay_cache::limits::PAGE;

use crate::core::base::Base;
use crate::core::context::senders::Unreserved;
use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, ErrorKind, Result, is_full};
use crate::core::inode::Inode;
use crate::core::shared::Shared;
use crate::core::space::volume::{Pledge, Room, Volume};
use crate::core::stats::Counters;
use crate::core::sync::tickets::Ticket;
use crate::core::wait;
use crate::platform::{OpenFile, Rewrite};

mod allocation;
pub(crate) mod volume;

/// A write in progress, with space allocated before.
#[derive(Debug)]
pub(crate) struct Allocated(Arc<Inode>);

impl Drop for Allocated {
    fn drop(&mut self) {
        if !self.0.is_here() {
            return;
        }
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
pub(crate) fn allocate_now(inode: &Inode, bytes: &Range<u64>, end: u64) -> std::io::Result<()> {
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
    Error::new(ErrorKind::NoSpace, "no space for the write; nothing was accepted from here on")
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
        inode.aside.run(move || {
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

/// Allocates space for a write on a nearly full file system. First it writes out data that was
/// accepted on a promise of space. Before it refuses the write, it gives back reserved and unused
/// space of all files of the file system. On a file system that copies on write, it refuses the
/// write as long as there is not plenty of space.
pub(crate) async fn make_room<'a>(
    shared: &Arc<Shared>,
    inode: &'a Arc<Inode>,
    offset: u64,
    length: u64,
) -> Result<Promise<'a>> {
    let bytes = offset..offset + length;
    if inode.volume.unredeemed().is_some() {
        keep_promises(shared, inode, offset).await?;
        if let Some(_pledge) = pledge(inode, shared, length) {
            return Ok(Promise::Plenty { _pledge });
        }
    }
    if inode.volume.rewrite(&inode.file) == Rewrite::Copies {
        // Space that is allocated for a page serves its first write alone.
        give_back(shared, inode).await;
        let pledge = pledge(inode, shared, length).map(|_pledge| Promise::Plenty { _pledge });
        return pledge.ok_or_else(|| no_space(inode, offset));
    }
    let made =
        allocate_for_write(inode, shared, begin_allocating(shared, inode).await, bytes.clone());
    let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
    if !made.as_ref().is_err_and(is_full) {
        return made.map(Promise::Allocated);
    }
    // This also gives back the space that this allocation took before it failed.
    give_back(shared, inode).await;
    let made =
        allocate_for_write(inode, shared, begin_allocating(shared, inode).await, bytes.clone());
    if made.as_ref().is_err_and(is_full) {
        let _ = Ticket::ask(inode, shared, TicketKind::Release).await;
    }
    made.map(Promise::Allocated)
}

/// Allocates space that belongs to the file from then on, and leaves enough for the data that was
/// accepted before. Until the result is dropped, no release gives back the part beyond the end.
pub(crate) async fn allocate(
    shared: &Arc<Shared>,
    inode: &Arc<Inode>,
    offset: u64,
    length: u64,
) -> Result<Allocated> {
    // Writes from here on find the space taken. Those before have a promise that is kept first.
    let _taking = Taking::new(&inode.volume, length);
    let (looked_at, unwritten) = (Arc::clone(inode), shared.level.dirty() * PAGE);
    let look = move || Ok(looked_at.volume.room_ahead(&looked_at.file, 0, unwritten));
    if wait::offload(shared, look).await? == Room::Scarce {
        keep_promises(shared, inode, offset).await?;
    }
    let (inode, allocated) = (Arc::clone(inode), begin_allocating(shared, inode).await);
    let bytes = offset..offset + length;
    wait::offload(shared, move || allocate_range(&inode, allocated, bytes)).await
}

/// Makes releases leave space alone that is allocated from here on, and waits for those at the
/// device: they might free it.
pub(crate) async fn begin_allocating(shared: &Shared, inode: &Arc<Inode>) -> Allocated {
    let allocated = begin_allocated(inode);
    poll_fn(|context| {
        let waker = context.waker().clone();
        let state = inode.lock();
        if state.service.is_orphaned() || !state.cache.is_giving_back() {
            return Poll::Ready(());
        }
        shared.wait_for_pages(inode, state, waker);
        plugged_no_more(Poll::Pending)
    })
    .await;
    allocated
}

/// Bytes that count as taken while they are being allocated.
struct Taking<'a>(&'a Volume, u64);

impl<'a> Taking<'a> {
    fn new(volume: &'a Volume, bytes: u64) -> Self {
        volume.begin_reserving(bytes);
        Self(volume, bytes)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.end_reserving(self.1);
    }
}

/// Writes out all data that was accepted on a promise of space.
///
/// # Errors
/// `NoSpace` if the file system is full: an allocation would take the space of accepted bytes.
async fn keep_promises(shared: &Arc<Shared>, inode: &Arc<Inode>, offset: u64) -> Result<()> {
    // This comes first, so that accepted bytes can use space that is only reserved.
    give_back(shared, inode).await;
    if redeem(shared, inode).await { Ok(()) } else { Err(no_space(inode, offset)) }
}

/// Writes out data that was accepted while there was plenty of space. Returns false if the file
/// system is full; then the promises stay open.
async fn redeem(shared: &Arc<Shared>, inode: &Arc<Inode>) -> bool {
    let volume = &inode.volume;
    let Some(pledged) = volume.unredeemed() else { return true };
    let mut has_space = true;
    let is_there = |inode: &Inode| Arc::ptr_eq(&inode.volume, volume);
    for ticket in Ticket::of_all(shared, TicketKind::WriteOut, is_there) {
        // Syncs of the file report other errors.
        has_space &= !ticket.await.is_err_and(|error| error.os_error() == Some(libc::ENOSPC));
    }
    if has_space {
        volume.redeem(&inode.file, pledged);
    }
    has_space
}

/// Gives back reserved and unused space in all files of a file system. Syncs of a file report a
/// failed write.
async fn give_back(shared: &Arc<Shared>, inode: &Arc<Inode>) {
    let has_unused = |other: &Inode| {
        Arc::ptr_eq(&other.volume, &inode.volume) && other.lock().cache.give_back_all()
    };
    for ticket in Ticket::of_all(shared, TicketKind::Release, has_unused) {
        let _ = ticket.await;
    }
}
