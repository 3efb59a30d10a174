//! Writes through the cache, step by step: admit, plan, copy, publish.
//!
//! ```text
//! File::write_at (write_at.rs)     the handle: may it write there?  a pledge of space (space/)
//!   |                              at the dirty limit and large: straight to the device, no cache
//!   v  write_now, poll_write: as many steps as it takes
//! under the file's lock            admit: may the write continue?  plan: which bytes go into which
//!                                  frames; the pages are busy from here on
//! without a lock                   copy: the caller's memory may fault into a file that we serve
//! under the file's lock            publish: the pages are dirty from here on
//!   |
//!   v  effects, without a lock     the context looks: soon for a first dirty page, or at the level
//! ```
//!
//! A step that may not continue waits, and begins again: for room below the dirty limit
//! (`level.rs`), for frames (`evict.rs`), or for a page that is written, read or dropped. So a
//! write of any length takes little memory at a time, and a dropped future leaves a prefix.
//!
//! - `append`: writes at the end. `discard`: unwritten data is dropped.

pub(crate) mod append;
pub(crate) mod discard;
mod write_at;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use forebay_cache::limits::{PAGE, STEP_PAGES, UNCACHED_PAGES};
use forebay_cache::{Admission, Caching, Copy, Failure, Liberties, WriteStop};

use crate::core::error::{Error, Result};
use crate::core::inode::Inode;
use crate::core::inode::change::Changing;
use crate::core::inode::state::State;
use crate::core::lease::check_lease;
use crate::core::level::{Queued, Writer};
use crate::core::limits::{GRANT_PATIENCE, UNCACHED_DIRTY_PAGES};
use crate::core::pool::Plan;
use crate::core::share::Crossed;
use crate::core::shared::Shared;
use crate::core::slices::Slices;
use crate::platform::clock;

/// Reason why a step of a write ended before it copied anything.
#[derive(Debug)]
enum Stop {
    /// The write fails.
    Refused(Error),
    /// The write needs a pledge of space.
    Unpledged,
    /// The dirty limit is reached. Dirty pages of the file.
    Full(u64),
    /// The write has to wait for a page, and has no waker yet.
    NoWaker,
    /// The write waits for a page.
    Waits,
    /// The write goes to the end, which other programs may move.
    Shared,
    /// The write needs this many frames.
    Starved(u32),
}

/// Place of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// An offset, also if other programs move the end.
    Offset,
    /// The end of the file, as long as no other program may move it.
    End,
}

/// Places of a waiting write.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// In the queue for room below the dirty limit.
    queued: Option<Queued>,
    /// In the line for an uncached file.
    number: Option<u64>,
}

/// Bytes to write, and their place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteRequest<'a> {
    pub(crate) data: &'a Slices<'a>,
    pub(crate) offset: u64,
    pub(crate) place: Place,
    pub(crate) caching: Caching,
}

/// One step of a write.
struct Step<'a> {
    shared: &'a Shared,
    request: WriteRequest<'a>,
    /// Whether it has space. Without, it may only replace a dirty page.
    is_pledged: bool,
    /// Pages that the level has granted to the writer.
    granted: u64,
    /// Number of the writer in the line for an uncached file.
    number: &'a mut Option<u64>,
    /// Waker of the caller. It is cloned with no lock held once the write has to wait, and then the
    /// page is checked again.
    waker: &'a mut Option<Waker>,
}

/// Makes one step of a write if it need not wait. Returns the number of bytes accepted, or 0 if it
/// has to wait.
#[inline]
pub(crate) fn write_now(
    inode: &Arc<Inode>,
    shared: &Shared,
    request: WriteRequest<'_>,
    is_pledged: bool,
) -> Result<usize> {
    check_lease(inode, shared);
    let (number, waker) = (&mut None, &mut None);
    let step = Step { shared, request, is_pledged, granted: 0, number, waker };
    match write_step(inode, step) {
        Ok(accepted) => {
            shared.work_ahead();
            Ok(accepted)
        }
        Err(Stop::Refused(error)) => Err(error),
        Err(_) => Ok(0),
    }
}

/// Makes one step of a write. Returns the number of bytes accepted: at least one, and 0 if the
/// place is the end and other programs may move that.
pub(crate) fn poll_write(
    inode: &Arc<Inode>,
    shared: &Shared,
    context: &Context<'_>,
    request: WriteRequest<'_>,
    Waiting { queued, number }: &mut Waiting,
) -> Poll<Result<usize>> {
    check_lease(inode, shared);
    let (mut waker, mut patience) = (None, GRANT_PATIENCE);
    loop {
        let granted = match queued.as_mut().map(|queued| (queued.poll(context), &*queued)) {
            Some((Poll::Pending, _)) => return poll_queued(inode, shared),
            Some((Poll::Ready(0), queued)) => {
                patience = queued.next_patience();
                0
            }
            Some((Poll::Ready(pages), _)) => pages,
            None => 0,
        };
        *queued = None;
        let (is_pledged, waker_of_step) = (true, &mut waker);
        let step = Step { shared, request, is_pledged, granted, number, waker: waker_of_step };
        match write_step(inode, step) {
            Ok(accepted) => {
                *number = None;
                shared.work_ahead();
                return Poll::Ready(Ok(accepted));
            }
            Err(Stop::Refused(error)) => return Poll::Ready(Err(error)),
            Err(Stop::Full(of_file)) => {
                let (target, volume) = (inode.target, &inode.volume);
                let queue = shared.level.queue(&Writer { target, volume, of_file, patience });
                let is_first = queue.is_first();
                *queued = Some(queue);
                shared.contexts.look_for_waiter(&inode.placement, is_first);
            }
            Err(Stop::NoWaker) => waker = Some(context.waker().clone()),
            Err(Stop::Shared) => return Poll::Ready(Ok(0)),
            Err(Stop::Unpledged) => unreachable!("the step has a pledge"),
            Err(Stop::Waits) => return Poll::Pending,
            Err(Stop::Starved(needed)) => {
                if !shared.reclaim_or_wait(&inode.placement, context.waker(), needed) {
                    return Poll::Pending;
                }
            }
        }
    }
}

fn write_step(inode: &Arc<Inode>, mut step: Step<'_>) -> std::result::Result<usize, Stop> {
    let (mut copies, shared, request) = (Plan::new(), step.shared, step.request);
    shared.finishing(|after| {
        let planned = inode.change(shared, after, |file| {
            step.admit(file)?;
            let planned = step.plan(file, &mut copies)?;
            if request.place == Place::End {
                file.ownership.hold_end();
            }
            Ok(planned)
        })?;
        inode.copying(|| shared.pool.copy_in(&copies, *request.data));
        inode.change(shared, after, |file| {
            inode.check_whole(file).map_err(Stop::Refused)?;
            publish(file, &copies, request.caching);
            if request.place == Place::End {
                let_end_go(file);
            }
            Ok(planned)
        })
    })
}

/// Checks whether a write that waits for room may still succeed.
fn poll_queued(inode: &Inode, shared: &Shared) -> Poll<Result<usize>> {
    shared.check()?;
    let state = inode.lock();
    // A failing device makes no room.
    let failing = state.cache.failing();
    let failing = failing.map(|(offset, errno)| inode.failure(Failure::Write { offset, errno }));
    match failing.or_else(|| inode.refusal(shared, &state)) {
        Some(error) => Poll::Ready(Err(error)),
        None => Poll::Pending,
    }
}

impl Step<'_> {
    /// Decides whether the write may continue now.
    fn admit(&mut self, file: &mut Changing<'_>) -> std::result::Result<(), Stop> {
        let Self { shared, granted, request: WriteRequest { place, caching, .. }, .. } = *self;
        if granted > 0 {
            // The level counts them already, so they are counted for the file before it may fail.
            file.charges.take_grant(granted);
            file.count();
        }
        // Under the lock: a shutdown looks at the file later, and writes out all bytes accepted
        // before.
        let refused = shared.check().err().or_else(|| file.inode().refusal(shared, &*file));
        if let Some(error) = refused {
            file.give_back_unused();
            return Err(Stop::Refused(error));
        }
        if place == Place::End && file.cache.liberties() == Liberties::Shared {
            file.give_back_unused();
            return Err(Stop::Shared);
        }
        let admission = || shared.level.admit(&file.inode().volume, file.cache.dirty_pages());
        if !file.charges.has_credit() && admission() == Admission::Wait {
            return Err(Stop::Full(file.cache.dirty_pages()));
        }
        // A shared file keeps pages for its next flush, so this limit does not apply to it.
        let passes_too_fast = caching == Caching::Uncached
            && file.cache.liberties() == Liberties::Exclusive
            && file.cache.in_flight()
            && (file.cache.dirty_pages() >= UNCACHED_DIRTY_PAGES
                || file.service.page_wakers.has_line_before(*self.number));
        if passes_too_fast {
            // A completion wakes the first in line.
            let Some(waker) = self.waker.take() else { return Err(Stop::NoWaker) };
            let pages = self.pages().min(STEP_PAGES) as u64;
            *self.number = Some(file.service.page_wakers.stand_in_line(*self.number, pages, waker));
            return Err(Stop::Waits);
        }
        if let Some(number) = *self.number {
            file.service.page_wakers.leave_line(number);
        }
        Ok(())
    }

    /// Returns the number of pages that the bytes of the write fill.
    fn pages(&self) -> usize {
        self.request.data.len().div_ceil(PAGE as usize)
    }

    /// Plans the copies of this step. No other task uses their pages until they are published.
    fn plan(
        &mut self,
        file: &mut Changing<'_>,
        copies: &mut Plan<Copy>,
    ) -> std::result::Result<usize, Stop> {
        let (offset, length) = (self.request.offset, self.request.data.len());
        if !self.is_pledged {
            let copy = file.cache.begin_in_place(offset, length);
            copies.extend([copy.ok_or(Stop::Unpledged)?]);
            file.touch(copies);
            return Ok(length);
        }
        // A partly written page takes two frames.
        let is_whole = offset.is_multiple_of(PAGE) && length >= PAGE as usize;
        let least = if is_whole { 1 } else { 2 };
        let wanted = self.pages().clamp(least, STEP_PAGES);
        let State { cache, charges, .. } = &mut **file;
        if charges.stash.len() < wanted {
            self.shared.refill(&mut charges.stash, wanted, cache.dirty_pages());
        }
        let (planned, charged, stop) =
            cache.begin_write(offset, length, &mut charges.stash, copies);
        if charged > 0 {
            let beyond_credit = charges.spend(charged);
            file.inode().volume.accept(charged * PAGE);
            if self.shared.level.add(beyond_credit) == Crossed::Background {
                file.look_at_level();
            }
            file.count();
        }
        file.touch(copies);
        file.inode().rewrites.store(file.cache.writes_in_place(), Ordering::Relaxed);
        debug_assert!(planned <= length, "bytes that no caller wrote would become dirty");
        match stop {
            _ if planned > 0 => Ok(planned),
            WriteStop::Busy => Err(self.wait(file, offset / PAGE)),
            // One more than there was: the frames that are left did not suffice.
            WriteStop::NoFrames => Err(Stop::Starved(file.charges.stash.len() as u32 + 1)),
            WriteStop::Done => Err(Stop::Waits),
        }
    }

    /// Waits for a change of a page. The waker is cloned without the lock, before the next look.
    fn wait(&mut self, file: &mut Changing<'_>, page: u64) -> Stop {
        let Some(waker) = self.waker.take() else { return Stop::NoWaker };
        file.wait_for_page(waker, page);
        Stop::Waits
    }
}

/// Lets other programs move the end, once the bytes are written that this step put there.
fn let_end_go(file: &mut Changing<'_>) {
    debug_assert!(file.ownership.holds_end(), "the lease went while bytes were copied to the end");
    file.ownership.let_end_go();
    if file.cache.is_breaking() {
        file.cache.extend_break();
        file.look();
    }
}

/// Makes the copied pages dirty.
fn publish(file: &mut Changing<'_>, copies: &[Copy], caching: Caching) {
    debug_assert!(!copies.is_empty(), "a write without pages would be accepted");
    let published = file.apply(|cache, settled| cache.publish(copies, caching, settled));
    file.copied(copies);
    if published.first {
        file.service.became_dirty(clock::instant());
    }
    if caching == Caching::Uncached {
        let pages = copies.iter().map(|copy| copy.pages().end - copy.page).sum::<u64>();
        if file.charges.pass(pages) && file.cache.unsent_pages() >= UNCACHED_PAGES {
            file.write_uncached();
        }
    }
    if file.samples.is_due(published.first)
        && let Some(page) = copies.first().map(|copy| copy.page)
        && !file.cache.is_page_in_flight(page)
    {
        file.samples.accepted(page, clock::now());
    }
    // A file that was clean for a moment is still in the context's list.
    if published.awaited {
        file.look();
    } else if published.first && !file.service.is_listed() {
        file.look_soon();
    }
    file.wake();
}
