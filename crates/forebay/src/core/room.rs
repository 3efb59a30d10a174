//! Room for a write on a file system that is nearly full.

use std::sync::Arc;

use forebay_cache::TicketKind;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;
use crate::core::inode::space::Promise;
use crate::core::shared::Shared;
use crate::core::ticket::Ticket;

/// Finds room for a write where there is not plenty: writes out what others were promised space
/// for, and then allocates. Before it refuses the write it gives back what is reserved and unused
/// in the files of the file system.
pub(crate) async fn make_room<'a>(
    shared: &Arc<Shared>,
    inode: &'a Arc<Inode>,
    offset: u64,
    length: u64,
) -> Result<Promise<'a>> {
    if inode.volume.unredeemed().is_some() {
        // First, so that accepted bytes have the space that is only reserved.
        give_back(shared, inode).await;
        if !redeem(shared, inode).await {
            // An allocation would take the space of bytes that were accepted before.
            return Err(inode.no_space(offset));
        }
        if let Some(_pledge) = inode.pledge(shared, length) {
            return Ok(Promise::Plenty { _pledge });
        }
    }
    let made = inode.make_room(shared, offset, length);
    let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
    if !made.as_ref().is_err_and(is_full) {
        return made.map(Promise::Allocated);
    }
    // The space that this one took before it failed is given back, too.
    give_back(shared, inode).await;
    let made = inode.make_room(shared, offset, length);
    if made.as_ref().is_err_and(is_full) {
        let _ = Ticket::new(Arc::clone(inode), inode.ask(shared, TicketKind::Release)).await;
    }
    made.map(Promise::Allocated)
}

/// Writes out what was accepted on the strength of there being plenty of space. False if the file
/// system has no space for it; then it is not redeemed.
async fn redeem(shared: &Arc<Shared>, inode: &Arc<Inode>) -> bool {
    let volume = &inode.volume;
    let Some(pledged) = volume.unredeemed() else { return true };
    let mut has_space = true;
    let is_there = |inode: &Inode| Arc::ptr_eq(&inode.volume, volume);
    for ticket in Ticket::of_all(shared, TicketKind::WriteOut, is_there) {
        // Other errors are reported to those who sync the file.
        has_space &= !ticket.await.is_err_and(|error| error.os_error() == Some(libc::ENOSPC));
    }
    if has_space {
        volume.redeem(&inode.file, pledged);
    }
    has_space
}

/// Gives back what is reserved and unused in all files of a file system. A failure to write is
/// reported to those who sync the file.
async fn give_back(shared: &Arc<Shared>, inode: &Arc<Inode>) {
    let has_unused = |other: &Inode| {
        Arc::ptr_eq(&other.volume, &inode.volume) && other.lock().cache.give_back_all()
    };
    for ticket in Ticket::of_all(shared, TicketKind::Release, has_unused) {
        let _ = ticket.await;
    }
}
