//! Space for a write on a nearly full file system, and space that a caller asks for.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use forebay_cache::TicketKind;
use forebay_cache::limits::PAGE;

use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;
use crate::core::shared::Shared;
use crate::core::space::volume::{Room, Volume};
use crate::core::space::{
    Allocated, Promise, allocate_for_write, allocate_range, begin_allocated, no_space, pledge,
};
use crate::core::sync::tickets::Ticket;
use crate::core::wait;
use crate::platform::Rewrite;

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
async fn begin_allocating(shared: &Shared, inode: &Arc<Inode>) -> Allocated {
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
