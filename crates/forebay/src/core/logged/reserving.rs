//! Space of the pages of a record, before it is written: an emptying must not fail for want of it.
//!
//! ```text
//! first mark --> blocks that the file has: one query
//! a sync with new pages elsewhere --> allocated, and beyond the end as much again as the file has
//! ```

use std::io;
use std::ops::Range;
use std::sync::Arc;

use forebay_cache::limits::PAGE;
use forebay_cache::space::{ReservedFor, ahead};

use crate::core::inode::Inode;
use crate::core::shared::Shared;
use crate::core::space::{allocate_now, begin_allocating};
use crate::core::wait;

/// Notes the blocks that a file has, so that they need not be allocated. Blocks.
pub(super) fn learn_space(shared: &Shared, inode: &Arc<Inode>) {
    // No release frees them between the query and the note.
    let Some(_allocated) = inode.catch(|| wait::drive(begin_allocating(shared, inode))) else {
        return;
    };
    // Some file systems cannot tell, as tmpfs: each page is allocated then.
    let Ok(ranges) = inode.file.own_space() else { return };
    inode.catch(|| {
        let mut state = inode.lock();
        // Space beyond the end may be its user's, and is not given back.
        let end = state.cache.disk_size().next_multiple_of(PAGE);
        for range in ranges {
            let whole = range.start.next_multiple_of(PAGE)..range.end.min(end) / PAGE * PAGE;
            if !whole.is_empty() {
                state.cache.note_allocated(whole);
            }
        }
    });
}

/// Allocates space for the new pages of a file. Blocks.
///
/// # Errors
/// The error of the file system.
pub(super) fn allocate_for_record(shared: &Shared, inode: &Arc<Inode>) -> io::Result<()> {
    let _allocated = wait::drive(begin_allocating(shared, inode));
    let state = inode.lock();
    let (ranges, end) = (state.cache.pages_without_space(), state.cache.size());
    drop(state);
    for range in ranges {
        let more = ahead(end, inode.volume.free_bytes(), None, ReservedFor::Stream);
        let longer = range.start..range.end + if range.end >= end { more } else { 0 };
        allocate(inode, &longer, end).or_else(|_| allocate(inode, &range, end))?;
    }
    Ok(())
}

/// Allocates space for ranges of a file. Blocks.
///
/// # Errors
/// The error of the file system.
pub(super) fn allocate_ranges(
    shared: &Shared,
    inode: &Arc<Inode>,
    ranges: &[Range<u64>],
) -> io::Result<()> {
    let _allocated = wait::drive(begin_allocating(shared, inode));
    ranges.iter().try_for_each(|range| {
        let pages = range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE);
        allocate(inode, &pages, range.end)
    })
}

fn allocate(inode: &Inode, bytes: &Range<u64>, end: u64) -> io::Result<()> {
    allocate_now(inode, bytes, bytes.end.min(end))
}
