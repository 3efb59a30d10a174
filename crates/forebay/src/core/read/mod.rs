//! Reads through the cache, step by step: plan, fill, copy, release; and the size of a file.
//!
//! ```text
//! File::read_at (reading.rs)       the handle
//!   |
//!   v  start_read, poll_read: as many steps as it takes
//! under the file's lock            plan: pages in memory are pinned
//!                                  fill: reads of missing pages begin, and of those ahead
//! without a lock                   copy: the caller's memory may fault into a file that we serve
//! under the file's lock            release: the pages may be dropped, or written again
//! ```
//!
//! A missing page is read by the caller, if that blocks, by a system call of its own
//! ([`make_here`]): it waits anyway, and the way over the context costs two switches of threads.
//! For a task of an executor the context reads it. The rest of a large read, and pages ahead of a
//! sequential one, are read by the context, too: the device has several requests at a time.
//!
//! On a shared file a read begins with a look at the size ([`file_length`]), and sees the bytes
//! that other programs have written before that.

mod reading;

use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use forebay_block::{Bio, Class, Errno};
use forebay_cache::limits::{FILL_PAGES, PAGE};
use forebay_cache::{Caching, FrameRuns, Liberties, ReadStep, ReadStop, Reader};

use crate::core::base::Base;
use crate::core::error::{Error, Result};
use crate::core::inode::Inode;
use crate::core::inode::change::Changing;
use crate::core::inode::state::State;
use crate::core::lease::check_lease;
use crate::core::limits::READ_REQUESTS;
use crate::core::pool::Plan;
use crate::core::shared::Shared;
use crate::core::slices::SlicesMut;
use crate::core::stats::Counters;
use crate::core::sync::lead::Leads;
use crate::core::sync::make_here;

/// One call of a reader.
#[derive(Debug)]
pub(crate) struct Reading {
    bytes: Range<u64>,
    reader: Reader,
    /// Whether the lease was found to be held at the beginning, or the size was looked up then.
    is_begun: bool,
    /// Whether the cache was asked if the call continues an earlier one.
    advised: bool,
    /// Pages to read ahead of the call, until there is memory for them.
    ahead: Range<u64>,
}

/// Reason why a step of a read ended before it copied anything.
#[derive(Debug)]
enum Stop {
    /// Other programs may have the file open, and the read has just begun.
    Looks,
    /// The engine stops, or a panic has interrupted a change of the file.
    Refused(Error),
    /// The file ends here.
    End,
    /// The device could not be read.
    Failed(Errno),
    /// The read has to wait for a page, and has no waker yet.
    NoWaker,
    /// The read waits for a page.
    Waits,
    /// The caller, which blocks anyway, reads the pages itself.
    Fills(Box<Bio>),
    /// The read needs frames.
    Starved,
}

/// One step of a read.
struct Step<'a> {
    shared: &'a Shared,
    reading: &'a mut Reading,
    offset: u64,
    /// Maximum of bytes in the step.
    length: usize,
    /// Waker of the poll, or `None` in a blocking call.
    caller: Option<&'a Waker>,
    /// Waker of the caller. It is cloned with no lock held once the read has to wait, and then the
    /// page is checked again.
    waker: &'a mut Option<Waker>,
}

/// Starts a read of a range. On a shared file it sees the bytes that other programs have
/// written before its first step.
pub(crate) fn start_read(
    inode: &Arc<Inode>,
    shared: &Shared,
    bytes: Range<u64>,
    caching: Caching,
) -> Reading {
    check_lease(inode, shared);
    let reader = Reader { caching, again: None, first_fill: 0 };
    Reading { bytes, reader, is_begun: false, advised: false, ahead: 0..0 }
}

/// Makes one step of a read. Returns the number of bytes copied; 0 only at the end of the file.
/// Without a waker, which is for blocking calls only, nothing is woken after `Pending`.
pub(crate) fn poll_read(
    inode: &Arc<Inode>,
    shared: &Shared,
    caller: Option<&Waker>,
    reading: &mut Reading,
    buffer: &mut SlicesMut<'_, '_>,
    offset: u64,
) -> Poll<Result<usize>> {
    let mut waker = None;
    loop {
        let length = buffer.len();
        let step =
            Step { shared, reading: &mut *reading, offset, length, caller, waker: &mut waker };
        let read = read_step(inode, step, buffer);
        if !matches!(read, Err(Stop::End | Stop::Looks | Stop::Refused(_))) {
            shared.work_ahead();
        }
        match read {
            Ok(read) => return Poll::Ready(Ok(read)),
            Err(Stop::Looks) => {
                if let Err(error) = file_length(inode, shared) {
                    return Poll::Ready(Err(error));
                }
                reading.reader.first_fill = inode.lock().cache.start_read();
                reading.is_begun = true;
            }
            Err(Stop::Refused(error)) => return Poll::Ready(Err(error)),
            Err(Stop::End) => return Poll::Ready(Ok(0)),
            Err(Stop::Failed(errno)) => {
                return Poll::Ready(Err(inode.io_error("could not read", offset, errno)));
            }
            Err(Stop::NoWaker) => match caller {
                Some(caller) => waker = Some(caller.clone()),
                None => return Poll::Pending,
            },
            Err(Stop::Waits) => return Poll::Pending,
            // A keeper that has taken over may give the frames away.
            Err(Stop::Fills(bio)) => match shared.hold_off_keeper() {
                Some(held) => make_here(inode, shared, vec![*bio], Some(&held)),
                None => shared.change(inode, |file| file.submit([*bio])),
            },
            Err(Stop::Starved) => {
                // A read of any length begins with one frame.
                if caller.is_none_or(|caller| !shared.reclaim_or_wait(&inode.placement, caller, 1))
                {
                    return Poll::Pending;
                }
            }
        }
    }
}

fn read_step(
    inode: &Arc<Inode>,
    mut step: Step<'_>,
    buffer: &mut SlicesMut<'_, '_>,
) -> std::result::Result<usize, Stop> {
    let (mut steps, shared, caching) = (Plan::new(), step.shared, step.reading.reader.caching);
    shared.finishing(|after| {
        let planned = inode.change(shared, after, |file| {
            shared.check().map_err(Stop::Refused)?;
            inode.check_whole(file).map_err(Stop::Refused)?;
            let planned = step.plan(file, &mut steps);
            step.fill(file, &planned);
            planned
        })?;
        inode.copying(|| shared.pool.copy_out(&steps, buffer));
        inode.change(shared, after, |file| {
            inode.check_whole(file).map_err(Stop::Refused)?;
            release(file, shared, &steps, caching);
            Ok::<(), Stop>(())
        })?;
        Ok(planned)
    })
}

/// Returns the number of bytes in the file, with everything accepted so far. If other programs
/// may have it open, asks the file system on the calling thread.
///
/// # Errors
/// The error of the file system.
pub(crate) fn file_length(inode: &Arc<Inode>, shared: &Shared) -> Result<u64> {
    let mut state = inode.lock();
    if state.cache.liberties() == Liberties::Exclusive {
        return Ok(state.cache.size());
    }
    let look = state.cache.look();
    drop(state);
    let length = inode.file.length().map_err(|error| {
        Error::at_open("could not look up the size of the file", &inode.path, error)
    })?;
    Ok(shared.change(inode, |file| {
        file.apply(|cache, settled| cache.observe_disk_size(length, look, settled));
        file.cache.size()
    }))
}

impl Step<'_> {
    /// Plans the copies of this step. Their pages do not change until the step releases them.
    #[inline]
    fn plan(
        &mut self,
        file: &mut Changing<'_>,
        steps: &mut Plan<ReadStep>,
    ) -> std::result::Result<usize, Stop> {
        let is_shared = file.cache.liberties() == Liberties::Shared;
        if is_shared && !self.reading.is_begun {
            return Err(Stop::Looks);
        }
        self.reading.is_begun = true;
        let left = file.cache.size().saturating_sub(self.offset);
        self.length = left.min(self.length as u64) as usize;
        if self.length == 0 {
            return Err(Stop::End);
        }
        if is_shared {
            let rest = self.offset..self.offset + self.length as u64;
            let reader = self.reading.reader;
            file.apply(|cache, settled| cache.drop_stale(&rest, reader, settled));
        }
        advise(file, self.shared, self.reading);
        let State { cache, charges, .. } = &mut **file;
        let stash = &mut charges.stash;
        // Without frames at first: pages in memory need no frame. Pages to be read need frames for
        // the length of the step.
        let (reader, none) = (self.reading.reader, &mut FrameRuns::default());
        let (mut planned, mut stop) =
            cache.begin_read(self.offset, self.length, reader, none, steps);
        if planned > 0 && matches!(stop, ReadStop::Done) {
            return Ok(planned);
        }
        if planned == 0 && stop == ReadStop::NoFrames {
            let wanted = self.length.div_ceil(PAGE as usize).min(FILL_PAGES as usize);
            if stash.len() < wanted {
                self.shared.refill(stash, wanted, u64::MAX);
            }
            (planned, stop) = cache.begin_read(self.offset, self.length, reader, stash, steps);
        }
        debug_assert!(planned <= self.length, "bytes behind the caller's memory would be copied");
        let stop = match stop {
            ReadStop::Fill(bio) if planned == 0 && self.leads() == Leads::May => {
                return Err(Stop::Fills(bio));
            }
            ReadStop::Fill(bio) => {
                file.submit([*bio]);
                ReadStop::Busy
            }
            stop => stop,
        };
        match stop {
            _ if planned > 0 => Ok(planned),
            ReadStop::NoFrames => Err(Stop::Starved),
            ReadStop::Failed(errno) => Err(Stop::Failed(errno)),
            ReadStop::Busy | ReadStop::Fill(_) => Err(self.wait(file)),
            ReadStop::Done => Err(Stop::Waits),
        }
    }

    fn leads(&self) -> Leads {
        self.caller.map_or_else(Leads::of_blocking_call, Leads::of)
    }

    /// Waits for a change of a page. The waker is cloned without the lock, before the next look.
    fn wait(&mut self, file: &mut Changing<'_>) -> Stop {
        match self.waker.take() {
            Some(waker) => {
                file.wait_for_page(waker, self.offset / PAGE);
                Stop::Waits
            }
            None => Stop::NoWaker,
        }
    }

    /// Starts to read the rest of a large read, and the pages ahead of it.
    fn fill(&mut self, file: &mut Changing<'_>, planned: &std::result::Result<usize, Stop>) {
        let (caching, base): (_, &Base) = (self.reading.reader.caching, self.shared);
        let next = self.offset + *planned.as_ref().unwrap_or(&0) as u64;
        match planned {
            Err(Stop::End | Stop::Looks | Stop::Refused(_)) => return,
            Err(Stop::Failed(_) | Stop::Starved) => {}
            Ok(_) | Err(Stop::NoWaker | Stop::Waits | Stop::Fills(_)) => {
                let rest = rest_of(next, self.offset + self.length as u64);
                if !rest.is_empty() {
                    bring_in(file, base, rest, Class::Waited, caching);
                }
            }
        }
        // The pages of the call come first and may use up the memory. The last step takes the rest.
        let ahead = &mut self.reading.ahead;
        let is_last = next >= self.reading.bytes.end.min(file.cache.size());
        if !ahead.is_empty() && (is_last || base.room_ahead() >= ahead.end - ahead.start) {
            bring_in(file, base, std::mem::take(ahead), Class::Background, caching);
        }
    }
}

/// Decides which pages to read ahead of a call, once, at its beginning.
fn advise(file: &mut Changing<'_>, base: &Base, reading: &mut Reading) {
    if std::mem::replace(&mut reading.advised, true) {
        return;
    }
    let bytes = reading.bytes.start..reading.bytes.end.min(file.cache.size());
    (reading.ahead, reading.reader.again) = file.cache.advise(bytes, base.room_ahead());
}

/// Submits reads of missing pages, as far as memory is to spare.
fn bring_in(
    file: &mut Changing<'_>,
    base: &Base,
    pages: Range<u64>,
    class: Class,
    caching: Caching,
) {
    let missing = file.cache.missing(pages.clone());
    if missing == 0 {
        return;
    }
    let (mut frames, mut bios) = (FrameRuns::default(), Vec::<Bio>::new());
    base.pool.take(missing.min(base.room_ahead()) as usize, &mut frames);
    debug_assert!(frames.len() as u64 <= missing, "readahead takes frames that callers need");
    file.cache.fill_ahead(pages, class, caching, &mut frames, &mut bios);
    if class == Class::Background {
        let bytes = bios.iter().map(|bio| bio.length).sum();
        Counters::add(&base.counters.readahead_bytes, bytes);
    }
    file.free(&mut frames);
    file.submit(bios);
}

/// Releases the copied pages.
#[inline]
fn release(file: &mut Changing<'_>, base: &Base, steps: &[ReadStep], caching: Caching) {
    debug_assert!(!steps.is_empty(), "a read of nothing would be taken for the end of the file");
    file.apply(|cache, settled| cache.end_read(steps, caching, settled));
    file.wake();
    if base.pool.has_waiting() {
        base.pool.take_waiting(file.wakers());
    }
    if file.cache.has_tickets() {
        file.look();
    }
}

/// Returns the pages of a large read to read beside the request that contains its first page. They
/// are whole requests, so each step adds one or none.
fn rest_of(start: u64, end: u64) -> Range<u64> {
    let (first, end) = (start / PAGE, end.div_ceil(PAGE));
    let horizon = (first / FILL_PAGES + READ_REQUESTS) * FILL_PAGES;
    if end - first > FILL_PAGES { first..end.min(horizon) } else { 0..0 }
}
