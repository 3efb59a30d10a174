//! Appends.
//!
//! Under the lease no other program moves the end, and an append is a write at the end that the
//! cache knows. Without it, only the file system knows the end at the moment of a write. Then an
//! append goes past the cache, as a write of the kernel:
//!
//! ```text
//! turn --under the lease--> written at the end of the cache --the lease is broken--+
//!   |                                                                              |
//!   +--shared--> what the cache has at the end is flushed --> by the kernel <------+
//! ```
//!
//! The flush comes first because accepted bytes may end beyond the end that the kernel sees, and
//! because pages that are dirty, or kept for a flush, would hide the new bytes from readers. Nobody
//! writes to the cache during the append, which would make such pages.

use std::borrow::Cow;
use std::future::{Future as _, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use forebay_cache::{CachedFile, Liberties, TicketKind};

use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::Inode;
use crate::core::limits::{APPEND_BYTES, APPEND_ROUNDS};
use crate::core::read::file_length;
use crate::core::slices::Slices;
use crate::core::stats::Counters;
use crate::core::sync::tickets::Ticket;
use crate::core::write::Place;
use crate::core::write::discard::FileHold;
use crate::core::{user_code, wait};

/// Way of the next bytes of an append.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// So many bytes were appended past the cache at this offset.
    Past { offset: u64, accepted: usize },
    /// The bytes are written into the cache.
    Cached(Place),
}

/// Flushes of the cache that an append past it has asked for.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    asked: Option<Ticket>,
    rounds: u32,
}

impl File {
    /// Writes all of `data` at the end of the file and returns its offset. Blocks as
    /// [`File::write_at`].
    ///
    /// Concurrent appends, by any handle of the engine, never overlap or interleave, and
    /// [`File::set_len`] waits for those under way.
    ///
    /// If other programs may have the file open, the kernel appends the data at the end that the
    /// file has at that moment, after bytes that they append. If the process has given up the right
    /// to open the file a second time, the end is looked up when the call starts instead.
    ///
    /// # Errors
    /// As [`File::write_at`] and [`File::len`]; `Unsupported` on a block device. On a file that
    /// other programs may have open, also as [`File::sync_data`] for data that was written before.
    ///
    /// If a prefix of `data` was accepted before an error, it stays, and the next append follows
    /// it. A record needs a checksum, so that a reader can skip such a prefix.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        wait::block_on(self.append_async(data))
    }

    /// Asynchronous form of [`File::append`]. A dropped future has appended a prefix.
    pub(crate) async fn append_async(&self, data: &[u8]) -> Result<u64> {
        let (offset, _, result) = self.append_all(Slices::new(&[IoSlice::new(data)])).await;
        result.map(|()| offset)
    }

    /// Appends several slices as one contiguous record and returns its offset. Blocks as
    /// [`File::append`].
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append_vectored(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        wait::block_on(self.append_vectored_async(data))
    }

    /// Asynchronous form of [`File::append_vectored`].
    pub(crate) async fn append_vectored_async(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let (offset, _, result) = self.append_all(Slices::new(data)).await;
        result.map(|()| offset)
    }

    /// Returns the offset of the append, the number of accepted bytes, and the result.
    pub(crate) async fn append_all(&self, data: Slices<'_>) -> (u64, usize, Result<()>) {
        if let Err(error) = self.may_append() {
            return (0, 0, Err(error));
        }
        let _turn = poll_fn(|context| self.poll_append(context)).await;
        self.append_in_turn(data).await
    }

    /// As [`File::append_all`], by a caller that has the turn.
    pub(crate) async fn append_in_turn(&self, mut data: Slices<'_>) -> (u64, usize, Result<()>) {
        let (mut begin, mut done, mut settling) = match self.len() {
            Ok(end) => (end, 0, Settling::default()),
            Err(error) => return (0, 0, Err(error)),
        };
        if let Err(error) = self.check_end(begin.checked_add(data.len() as u64), begin) {
            return (begin, 0, Err(error));
        }
        while data.len() > 0 {
            let way = poll_fn(|context| self.poll_append_past(context, &data, &mut settling)).await;
            let (offset, accepted, result) = match way {
                Err(error) => return (begin, done, Err(error)),
                Ok(Way::Past { offset, accepted }) => (offset, accepted, Ok(())),
                Ok(Way::Cached(place)) => {
                    let offset = match self.len() {
                        Ok(end) => end,
                        Err(error) => return (begin, done, Err(error)),
                    };
                    let (accepted, result) = self.write_placed(data, offset, place, None).await;
                    (offset, accepted, result)
                }
            };
            if done == 0 {
                begin = offset;
            }
            done += accepted;
            if result.is_err() {
                return (begin, done, result);
            }
            data.advance(accepted);
        }
        (begin, done, Ok(()))
    }

    /// Appends bytes past the cache if other programs may have the file open. The caller has the
    /// turn. The last step is a call of the system on this thread.
    pub(crate) fn poll_append_past(
        &self,
        context: &mut Context<'_>,
        data: &Slices<'_>,
        settling: &mut Settling,
    ) -> Poll<Result<Way>> {
        loop {
            if let Some(ticket) = &settling.asked {
                ready!(ticket.poll_ended(context));
            }
            self.shared.check()?;
            let waker = context.waker().clone();
            let state = self.inode.lock();
            self.inode.check_whole(&state)?;
            if state.cache.liberties() == Liberties::Exclusive {
                return Poll::Ready(Ok(Way::Cached(Place::End)));
            }
            if state.cache.is_breaking() && !state.service.is_orphaned() {
                // Space beyond the end is given back until the lease is released.
                self.shared.wait_for_pages(&self.inode, state, waker);
                return plugged_no_more(Poll::Pending);
            }
            drop(state);
            let data = front(*data);
            // Nobody writes to the cache meanwhile.
            let held = FileHold::new(&self.inode, &self.shared);
            let is_last = settling.rounds == APPEND_ROUNDS;
            if let Some(way) = self.append_past(&data, is_last)? {
                // Only a sync, the close or the program's callback reports a failed flush then.
                settling.asked = None;
                return Poll::Ready(Ok(way));
            }
            drop(held);
            if let Some(mut ticket) = settling.asked.take() {
                ready!(Pin::new(&mut ticket).poll(context))?;
            }
            if is_last {
                // Others write there all the time.
                return Poll::Ready(Ok(Way::Cached(Place::Offset)));
            }
            // No flush of a poisoned file succeeds.
            let is_poisoned = self.inode.lock().cache.poisoned().is_some();
            let request = if is_poisoned { TicketKind::WriteOut } else { TicketKind::FlushData };
            settling.rounds = if is_poisoned { APPEND_ROUNDS } else { settling.rounds + 1 };
            settling.asked = Some(self.ask(request));
        }
    }

    /// Appends bytes past the cache, unless the cache has something that must be written or flushed
    /// before. The caller holds the file.
    fn append_past(&self, data: &[u8], is_last: bool) -> Result<Option<Way>> {
        let failed = |error| {
            Error::new(ErrorKind::at_device(&error), "could not append to the file")
                .at_path(&self.inode.path)
                .because(error)
        };
        if self.inode.lock().cache.poisoned().is_some() {
            self.shared.change(&self.inode, |file| {
                file.apply(CachedFile::uncover_end);
            });
        }
        let end = self.inode.file.length().map_err(failed)?;
        let bytes = end..end.saturating_add(data.len() as u64);
        let state = self.inode.lock();
        if !state.cache.can_append(&bytes) || state.cache.flushes_before_append() && !is_last {
            return Ok(None);
        }
        drop(state);
        let Some(appended) = self.inode.file.append(data) else {
            return Ok(Some(Way::Cached(Place::Offset)));
        };
        let (offset, accepted) = appended.map_err(failed)?;
        assert!(accepted <= data.len(), "bytes behind the caller's memory were appended");
        self.shared.change(&self.inode, |file| file.cache.note_appended());
        // Adopts the new size. The bytes are in the file, even if that fails.
        let _ = file_length(&self.inode, &self.shared);
        Counters::add(&self.shared.counters.accepted_bytes, accepted as u64);
        Ok(Some(Way::Past { offset, accepted }))
    }

    /// Waits for the exclusive right to append.
    pub(crate) fn poll_append(&self, context: &Context<'_>) -> Poll<AppendTurn<'_>> {
        plugged_no_more(poll_turn(&self.inode, context)).map(|()| AppendTurn(&self.inode))
    }

    pub(crate) fn may_append(&self) -> Result<()> {
        self.may_write()?;
        self.may_move_end("cannot append to a block device", "write at an offset")
    }
}

/// Returns the bytes that one call appends. Several slices are joined, so that no append of another
/// program comes between them.
fn front<'a>(mut data: Slices<'a>) -> Cow<'a, [u8]> {
    let first = data.take(data.len().min(APPEND_BYTES));
    let left = data.len().min(APPEND_BYTES - first.len());
    if left == 0 {
        return Cow::Borrowed(first);
    }
    let mut joined = Vec::with_capacity(first.len() + left);
    joined.extend_from_slice(first);
    while joined.len() < first.len() + left {
        joined.extend_from_slice(data.take(first.len() + left - joined.len()));
    }
    assert!(joined.len() <= APPEND_BYTES, "one append would copy without bound");
    Cow::Owned(joined)
}

/// Exclusive right to append, until dropped.
pub(crate) struct AppendTurn<'a>(&'a Inode);

impl AppendTurn<'_> {
    /// Returns the same right, of a job on another thread.
    pub(crate) fn into_owned(self, inode: Arc<Inode>) -> OwnedTurn {
        assert!(std::ptr::eq(self.0, &raw const *inode), "the turn of this file would never end");
        std::mem::forget(self);
        OwnedTurn(inode)
    }
}

/// As [`AppendTurn`], independent of the call that got it.
#[derive(Debug)]
pub(crate) struct OwnedTurn(Arc<Inode>);

impl Drop for OwnedTurn {
    fn drop(&mut self) {
        drop(AppendTurn(&self.0));
    }
}

impl Drop for AppendTurn<'_> {
    fn drop(&mut self) {
        if self.0.is_here() {
            end_append(self.0);
        }
    }
}

/// Takes the exclusive right to append, or to set the length. An append looks up the end and
/// writes there before another one moves it. Also waits for a change of length whose caller was
/// dropped.
fn poll_turn(inode: &Inode, context: &Context<'_>) -> Poll<()> {
    let waker = context.waker().clone();
    let mut state = inode.lock();
    if state.ownership.is_appending() && !state.service.is_orphaned() {
        state.ownership.wait_to_append(waker);
        return Poll::Pending;
    }
    if state.cache.is_being_cut() && !state.service.is_orphaned() {
        state.service.wait_for_turn(waker);
        return Poll::Pending;
    }
    let is_free = !state.ownership.is_appending() || state.service.is_orphaned();
    debug_assert!(is_free, "two appends would write to the same end");
    state.ownership.begin_append();
    Poll::Ready(())
}

/// Gives up the right to append. Wakes only other appends. Otherwise an append that gives up
/// its turn to wait for a page would wake itself, and others like it.
fn end_append(inode: &Inode) {
    let mut state = inode.lock();
    let wakers = state.ownership.end_append();
    drop(state);
    user_code::wake_all(wakers);
}
