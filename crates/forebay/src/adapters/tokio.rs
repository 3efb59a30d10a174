//! The I/O traits of tokio for a cursor. They use no part of tokio's runtime, so they work in any
//! executor.

use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut, SeekFrom};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use forebay_cache::{Liberties, TicketKind};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use crate::adapters::cursor::{Ahead, Cursor, serves};
use crate::core::direct::plug::plugged_no_more;
use crate::core::error::Result;
use crate::core::file::File;
use crate::core::limits::CURSOR_AHEAD_FRESH;
use crate::core::read::{Reading, poll_read, start_read};
use crate::core::slices::{Slices, SlicesMut};
use crate::core::space::make_room;
use crate::core::space::{Allocated, Promise};
use crate::core::stats::Counters;
use crate::core::sync::tickets::Ticket;
use crate::core::write::append::{Settling, Way};
use crate::core::write::{Place, Waiting, WriteRequest, poll_write};
use crate::platform::clock;

/// Maximum of bytes accepted or read in one poll. A longer copy would delay other tasks of the
/// thread.
const POLL_BYTES: usize = 1 << 20;

/// State of a call that must be polled again.
#[derive(Default)]
pub(super) struct Polled {
    /// Places of a write that waits for room.
    waiting: Waiting,
    /// Range that space is being allocated for, and the allocation.
    making: Option<(Range<u64>, Making)>,
    /// Range that space was allocated for, and whose bytes are not accepted yet.
    made: Option<(Range<u64>, Allocated)>,
    reading: Option<Started>,
    /// Flush that an append past the cache waits for.
    settling: Settling,
    /// Write-out that a shutdown of the stream waits for.
    writing_out: Option<Ticket>,
}

/// A read in progress.
struct Started {
    position: u64,
    /// Whether it reads into the memory of the cursor.
    is_ahead: bool,
    /// Bytes read so far.
    done: usize,
    reading: Reading,
    began: Instant,
    /// Time after which a shared file is read anew.
    patience: Duration,
}

impl Started {
    /// Returns whether other programs may have changed what it has read so far. A future that was
    /// dropped leaves its read behind, and the next one may come much later.
    fn is_stale(&self, file: &File) -> bool {
        let is_shared = file.inode.lock().cache.liberties() == Liberties::Shared;
        let is_late = clock::instant().saturating_duration_since(self.began) >= self.patience;
        is_shared && is_late || self.is_ahead && !serves(file)
    }

    /// Reads ahead as much as there is memory for, or makes one step of a read into `wanted`.
    fn poll(
        &mut self,
        file: &File,
        context: &mut Context<'_>,
        ahead: &mut Ahead,
        wanted: &mut [u8],
    ) -> Poll<Result<usize>> {
        loop {
            let into = if self.is_ahead { &mut ahead.memory()[self.done..] } else { &mut *wanted };
            if self.is_ahead && into.is_empty() {
                return Poll::Ready(Ok(self.done));
            }
            let into = &mut [IoSliceMut::new(into)];
            let (into, position) = (&mut SlicesMut::new(into), self.position + self.done as u64);
            let (shared, reading) = (&file.shared, &mut self.reading);
            let caller = Some(context.waker());
            let step = poll_read(&file.inode, shared, caller, reading, into, position);
            let read = ready!(plugged_no_more(step))?;
            self.done += read;
            if !self.is_ahead || read == 0 {
                return Poll::Ready(Ok(self.done));
            }
        }
    }
}

/// Allocation in progress. Its result is `None` if the file system has plenty of space again.
type Making = Pin<Box<dyn Future<Output = Result<Option<Allocated>>> + Send + Sync>>;

impl fmt::Debug for Polled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Polled").finish_non_exhaustive()
    }
}

impl Polled {
    /// Waits until space is allocated for bytes that got no pledge.
    fn poll_room(
        &mut self,
        file: &File,
        context: &mut Context<'_>,
        bytes: Range<u64>,
    ) -> Poll<Result<()>> {
        loop {
            if let Some((range, making)) = &mut self.making {
                let result = ready!(plugged_no_more(making.as_mut().poll(context)));
                let range = range.clone();
                self.making = None;
                match result? {
                    Some(allocated) => self.made = Some((range, allocated)),
                    None => return Poll::Ready(Ok(())),
                }
            }
            let covers = |made: &Range<u64>| made.start <= bytes.start && bytes.end <= made.end;
            if self.made.as_ref().is_some_and(|(made, _)| covers(made)) {
                return Poll::Ready(Ok(()));
            }
            let (shared, inode, range) =
                (Arc::clone(&file.shared), Arc::clone(&file.inode), bytes.clone());
            let making = async move {
                let made = make_room(&shared, &inode, range.start, range.end - range.start).await?;
                Ok(match made {
                    Promise::Allocated(allocated) => Some(allocated),
                    Promise::Plenty { .. } => None,
                })
            };
            self.making = Some((bytes.clone(), Box::pin(making)));
        }
    }
}

impl<F: Borrow<File>> Cursor<F> {
    /// Writes as many bytes as can be accepted now.
    fn poll_write_at(
        polled: &mut Polled,
        file: &File,
        context: &mut Context<'_>,
        mut data: Slices<'_>,
        (offset, place): (u64, Place),
    ) -> Poll<Result<usize>> {
        let (shared, inode) = (&file.shared, &file.inode);
        let length = data.len() as u64;
        file.check_end(offset.checked_add(length), offset)?;
        // Nothing is accepted between two polls, so the pledge has to last for one poll only.
        let pledge = file.pledge(length);
        if pledge.is_none() {
            ready!(polled.poll_room(file, context, offset..offset + length))?;
        }
        let mut done = 0;
        while data.len() > 0 {
            let (offset, caching) = (offset + done as u64, file.caching());
            let rest = WriteRequest { data: &data, offset, place, caching };
            match plugged_no_more(poll_write(inode, shared, context, rest, &mut polled.waiting)) {
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(Ok(accepted)) => {
                    data.advance(accepted);
                    done += accepted;
                }
                // Report the accepted bytes first; the next call ends the same way.
                Poll::Pending | Poll::Ready(Err(_)) if done > 0 => break,
                end => return end,
            }
        }
        polled.made = None;
        Counters::add(&shared.counters.accepted_bytes, done as u64);
        Poll::Ready(Ok(done))
    }

    fn poll_write_slices(
        &mut self,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let data = Slices::new(data).cut(POLL_BYTES);
        let fitting = self.fitting(data.len());
        let Self { file, position, polled, .. } = self;
        let file = (*file).borrow();
        if !file.open.append {
            file.may_write_at()?;
            if data.len() == 0 {
                return Poll::Ready(Ok(0));
            }
            let place = (*position, Place::Offset);
            let accepted =
                ready!(Self::poll_write_at(polled, file, context, data.cut(fitting), place))?;
            *position += accepted as u64;
            // A shutdown that was given up does not cover these bytes.
            polled.writing_out = None;
            return Poll::Ready(Ok(accepted));
        }
        file.may_append()?;
        if data.len() == 0 {
            return Poll::Ready(Ok(0));
        }
        // The turn is not kept between polls. A task that never polls again would block all other
        // appends.
        let _turn = ready!(file.poll_append(context));
        let (offset, accepted) = loop {
            let way = ready!(file.poll_append_past(context, &data, &mut polled.settling))?;
            match way {
                Way::Past { offset, accepted } => break (offset, accepted),
                Way::Cached(place) => {
                    let place = (file.len()?, place);
                    let written = Self::poll_write_at(polled, file, context, data, place);
                    let accepted = ready!(written)?;
                    // Otherwise another program has just opened the file.
                    if accepted > 0 {
                        break (place.0, accepted);
                    }
                }
            }
        };
        polled.settling = Settling::default();
        *position = offset + accepted as u64;
        polled.writing_out = None;
        Poll::Ready(Ok(accepted))
    }
}

/// Needs the feature `tokio`.
impl<F: Borrow<File> + Unpin> AsyncRead for Cursor<F> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { file, position, polled, ahead } = self.get_mut();
        let file = (*file).borrow();
        file.may_read()?;
        let length = buffer.remaining().min(POLL_BYTES);
        if length == 0 {
            return Poll::Ready(Ok(()));
        }
        let wanted = buffer.initialize_unfilled_to(length);
        // Once per read: of a shared file it finds the bytes of others up to its beginning.
        let left_behind =
            polled.reading.take_if(|left| left.position != *position || left.is_stale(file));
        if polled.reading.is_none() {
            let taken = ahead.take(file, *position, wanted);
            if taken > 0 {
                buffer.advance(taken);
                *position += taken as u64;
                return Poll::Ready(Ok(()));
            }
            let is_ahead = ahead.begin(file, *position, length);
            let length = if is_ahead { ahead.memory().len() } else { length };
            let bytes = *position..position.saturating_add(length as u64);
            let reading = start_read(&file.inode, &file.shared, bytes, file.caching());
            // Longer each time, so that a slow device is not asked without end.
            let patience = left_behind
                .filter(|left| left.position == *position)
                .map_or(CURSOR_AHEAD_FRESH, |left| 2 * left.patience);
            let began = clock::instant();
            polled.reading =
                Some(Started { position: *position, is_ahead, done: 0, reading, began, patience });
        }
        let started = polled.reading.as_mut().expect("it has started");
        let read = ready!(started.poll(file, context, ahead, wanted));
        let is_ahead = started.is_ahead;
        polled.reading = None;
        let read = read?;
        let read = if is_ahead { ahead.end(read, *position, wanted) } else { read };
        ahead.note(*position + read as u64);
        buffer.advance(read);
        *position += read as u64;
        Poll::Ready(Ok(()))
    }
}

/// Needs the feature `tokio`. `poll_flush` does nothing, as [`std::io::Write::flush`] of a cursor.
/// `poll_shutdown` writes out the dirty pages of the file and reports write errors, but makes
/// nothing durable: call [`AsyncFile::sync_data`](crate::AsyncFile::sync_data).
///
/// On a handle for appending, the bytes accepted by one poll are contiguous. A write that takes
/// several polls may have appends of others in between; use
/// [`AsyncFile::append`](crate::AsyncFile::append) for records.
impl<F: Borrow<File> + Unpin> AsyncWrite for Cursor<F> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_slices(context, &[IoSlice::new(data)]).map_err(io::Error::from)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_slices(context, data).map_err(io::Error::from)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { file, polled, .. } = self.get_mut();
        let file = (*file).borrow();
        file.shared.check()?;
        let ticket = polled.writing_out.get_or_insert_with(|| file.ask(TicketKind::WriteOut));
        let result = ready!(Pin::new(ticket).poll(context));
        polled.writing_out = None;
        Poll::Ready(file.and_unreported(result).map_err(io::Error::from))
    }
}

/// Needs the feature `tokio`. Seeking never waits.
impl<F: Borrow<File> + Unpin> AsyncSeek for Cursor<F> {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let cursor = self.get_mut();
        cursor.position = cursor.sought(to)?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}
