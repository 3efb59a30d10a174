//! An open inode: the one cache of a file that all handles of an engine share, whatever name they
//! came by.
//!
//! Two locks are never held together here but the file's state and then the pool's, and no lock is
//! held across a copy, a system call or a wake.

pub(crate) mod adopt;
pub(crate) mod failing;
mod reading;
mod record;
mod renew;
mod space;

use crate::platform::sync::{Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::platform::{Direct, Identity, Kind, clock};
use forebay_block::{Bio, Ended, Errno, Moment, Operation, Target};
use forebay_cache::discard::DISCARDED;
use forebay_cache::file::Look;
use forebay_cache::limits::{GATHER_PAGES, MAX_OFFSET, PAGE, STEP_PAGES, UNCACHED_PAGES};
use forebay_cache::samples::{Samples, Told};
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{
    Admission, CachedFile, Caching, Candidate, Copy, Failure, FrameRuns, Liberties, Settled,
    TicketId, TicketKind, WriteStop,
};

use crate::core::context::Message;
use crate::core::counters::Counters;
use crate::core::error::{Error, ErrorKind, Result, is_full};
use crate::core::home::Home;
use crate::core::level::Queued;
use crate::core::limits::UNCACHED_DIRTY_PAGES;
use crate::core::share::Crossed;
use crate::core::shared::Shared;
use crate::core::slices::Slices;
use crate::core::user_code;
use crate::core::volume::Volume;
use crate::core::wakers::Wakers;

/// The end every file system's files can have.
const SURE_REACH: u64 = 1 << 31;

/// One inode in the cache.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) target: Target,
    pub(crate) identity: Identity,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<crate::platform::File>,
    pub(crate) volume: Arc<Volume>,
    pub(crate) home: Home,
    /// Bytes of a device, which has no other size.
    pub(crate) fixed_size: Option<u64>,
    /// Ends up to here are known to be possible on its file system.
    reach: AtomicU64,
    /// When it was last seen that its lease is held, in nanoseconds of the clock.
    pub(crate) lease_looked: AtomicU64,
    /// Whether the reservation mark stands on the file. Locked while the file system is asked to
    /// change it, which may block: no context locks it. Taken before the state's lock.
    marked: Mutex<bool>,
    state: Mutex<State>,
}

pub(crate) use reading::Reading;
#[cfg(feature = "tokio")]
pub(crate) use space::Allocated;
pub(crate) use space::{Promise, Unreserved};

/// What the lock of an inode guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cache: CachedFile,
    /// What the arena says of it, where that is to survive.
    record: Option<record::Record>,
    /// Frames taken from the pool and not used yet.
    stash: FrameRuns,
    /// Pages brought in and not read, as the engine knows.
    told_unread: u64,
    /// Pages written that do not stay, since it was looked whether they should go out.
    passing: u64,
    /// Pages charged to the level, and not used yet.
    credit: u64,
    /// What it counts for in its file system's share of the level.
    counted: u64,
    volume: Arc<Volume>,
    page_wakers: Wakers,
    ticket_wakers: Vec<(TicketId, Waker)>,
    told_tickets: u64,
    /// The context has been told to look at this file, and has not looked yet.
    kicked: bool,
    /// The context has it in its list of dirty files.
    pub(crate) listed: bool,
    /// Writes of which it is told how long they take.
    pub(crate) samples: Samples,
    /// Since when it has been dirty.
    pub(crate) dirty_since: Option<Instant>,
    /// Where the next append goes is being decided by somebody.
    appending: bool,
    /// Who waits for that.
    append_wakers: Vec<Waker>,
    /// When its lease goes at the latest, while it is being given up.
    pub(crate) break_deadline: Option<Instant>,
    /// The descriptor was replaced, and the context has not registered the new one yet.
    pub(crate) is_renewing: bool,
    /// Its file is closed.
    is_closed: bool,
    /// There is no context any more.
    is_orphan: bool,
    /// Pages that cannot be written, as counted against the device.
    pub(crate) unwritable: u64,
}

/// What a bio that has ended leaves to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    /// The file is dirty, and was not listed so.
    pub(crate) is_dirty_again: bool,
    /// It keeps pages for a flush.
    pub(crate) keeps: bool,
}

/// What to do once the lock is released.
#[derive(Debug, Default)]
pub(crate) struct After {
    pub(crate) wakers: Vec<Waker>,
    messages: Vec<Message>,
    pub(crate) settled: Settled,
    /// Of what was freed the frames that the arena says nothing of any more.
    retired: FrameRuns,
    told: Told,
}

impl After {
    /// Has bios of a file submitted.
    fn submit(&mut self, inode: &Arc<Inode>, bios: impl IntoIterator<Item = Bio>) {
        self.messages.extend(bios.into_iter().map(|bio| Message::Submit(Arc::clone(inode), bio)));
    }

    /// Hands everything on.
    pub(crate) fn finish(&mut self, shared: &Shared) {
        self.settled.freed.append(&mut self.retired);
        shared.absorb(&mut self.settled, &mut self.wakers);
        if !self.told.is_empty() {
            shared.counters.add_latencies(&mut self.told);
        }
        for message in self.messages.drain(..) {
            shared.send(message);
        }
        user_code::wake_all(self.wakers.drain(..));
    }
}

impl Inode {
    pub(crate) fn new(
        cache: CachedFile,
        file: crate::platform::File,
        volume: Arc<Volume>,
        path: PathBuf,
    ) -> Self {
        let state = State {
            cache,
            record: None,
            stash: FrameRuns::default(),
            told_unread: 0,
            passing: 0,
            credit: 0,
            counted: 0,
            volume: Arc::clone(&volume),
            page_wakers: Wakers::new(Arc::clone(&volume)),
            ticket_wakers: Vec::new(),
            told_tickets: 0,
            kicked: false,
            listed: false,
            samples: Samples::default(),
            dirty_since: None,
            appending: false,
            append_wakers: Vec::new(),
            break_deadline: None,
            is_renewing: false,
            is_closed: false,
            is_orphan: false,
            unwritable: 0,
        };
        let (target, identity) = (state.cache.target(), file.identity());
        let fixed_size = (file.kind() == Kind::Block).then(|| state.cache.size());
        volume.learn(&file);
        let home = Home::new(&file, &path, &volume);
        let (file, reach) = (Arc::new(file), AtomicU64::new(SURE_REACH));
        Self {
            target,
            identity,
            path,
            file,
            volume,
            home,
            fixed_size,
            reach,
            lease_looked: AtomicU64::new(0),
            marked: Mutex::new(false),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether a file of its file system can be `end` bytes long.
    pub(crate) fn can_reach(&self, end: u64) -> bool {
        if end <= self.reach.load(Ordering::Relaxed) {
            return true;
        }
        let roomy = end.saturating_mul(2).min(MAX_OFFSET);
        let reach = [roomy, end].into_iter().find(|end| self.file.can_hold(*end));
        self.reach.fetch_max(reach.unwrap_or(0), Ordering::Relaxed);
        reach.is_some()
    }

    /// One step of a write: `Ready` with the bytes accepted, at least one.
    pub(crate) fn poll_write(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        context: &Context<'_>,
        (data, offset, caching): (Slices<'_>, u64, Caching),
        queued: &mut Option<Queued>,
    ) -> Poll<Result<usize>> {
        let mut after = After::default();
        let mut copies: Vec<Copy> = Vec::new();
        self.check_lease(shared);
        // Cloned once the write has to wait, with no lock held; then it looks again.
        let mut waker = None;
        loop {
            let granted = match queued.as_mut().map(|queued| queued.poll(context)) {
                Some(Poll::Pending) => {
                    shared.check()?;
                    let state = self.lock();
                    // A device that takes nothing makes no room.
                    let failing = state.cache.failing();
                    let failing = failing
                        .map(|(offset, errno)| self.failure(Failure::Write { offset, errno }));
                    return match failing.or_else(|| self.refusal(shared, &state)) {
                        Some(error) => Poll::Ready(Err(error)),
                        None => Poll::Pending,
                    };
                }
                Some(Poll::Ready(pages)) => pages,
                None => 0,
            };
            *queued = None;
            let mut state = self.lock();
            state.credit += granted;
            // Under the lock: what is accepted before a shutdown looks at the file is written out
            // by it.
            if let Err(error) = shared.check().and(self.refusal(shared, &state).map_or(Ok(()), Err))
            {
                state.give_back_unused(&mut after);
                drop(state);
                after.finish(shared);
                return Poll::Ready(Err(error));
            }
            if state.credit == 0
                && shared.level.admit(&self.volume, state.cache.dirty_pages()) == Admission::Wait
            {
                drop(state);
                *queued = Some(shared.level.queue(self.target, &self.volume));
                // Where nothing is on its way to the device, the context finds out who sits on
                // unused credit.
                shared.send(Message::Look);
                continue;
            }
            // Of a shared file more is kept for its next flush than on its way.
            if caching == Caching::Uncached
                && state.cache.liberties() == Liberties::Exclusive
                && state.cache.dirty_pages() >= UNCACHED_DIRTY_PAGES
                && state.cache.in_flight()
            {
                let Some(waker) = waker.take() else {
                    drop(state);
                    waker = Some(context.waker().clone());
                    continue;
                };
                // Any completion for this file wakes this writer.
                state.page_wakers.push(waker);
                drop(state);
                after.finish(shared);
                return Poll::Pending;
            }
            // A page of which a part is written takes two.
            let wanted = data.len().div_ceil(PAGE as usize).clamp(2, STEP_PAGES);
            if state.stash.len() < wanted {
                shared.refill(&mut state.stash, wanted);
            }
            let State { cache, stash, .. } = &mut *state;
            let (planned, charged, stop) =
                cache.begin_write(offset, data.len(), stash, &mut copies);
            let from_credit = charged.min(state.credit);
            state.credit -= from_credit;
            let crossed = [shared.level.add(charged - from_credit), state.recount()];
            if crossed.contains(&Crossed::Background) {
                after.messages.push(Message::Look);
            }
            let (mut starved, mut looks_again) = (false, false);
            match stop {
                WriteStop::Busy if planned == 0 => match waker.take() {
                    Some(waker) => state.page_wakers.push(waker),
                    None => looks_again = true,
                },
                WriteStop::NoFrames => starved = planned == 0,
                WriteStop::Done | WriteStop::Busy => {}
            }
            state.tell_touched(shared, &copies);
            drop(state);
            if planned > 0 {
                shared.pool.copy_in(&copies, data);
                self.publish(shared, &copies, caching, &mut after);
                after.finish(shared);
                shared.make_room_ahead();
                return Poll::Ready(Ok(planned));
            }
            after.finish(shared);
            if looks_again {
                waker = Some(context.waker().clone());
            } else if !starved || !shared.reclaim_or_wait(context.waker()) {
                return Poll::Pending;
            }
        }
    }

    fn publish(
        self: &Arc<Self>,
        shared: &Shared,
        copies: &[Copy],
        caching: Caching,
        after: &mut After,
    ) {
        let mut state = self.lock();
        let published = state.cache.publish(copies, caching, &mut after.settled);
        state.tell_unread(shared);
        state.finish_memory(shared, after);
        state.tell_copied(shared, copies);
        state.tell_arena(shared, after);
        if published.first {
            state.dirty_since = Some(clock::instant());
        }
        if caching == Caching::Uncached {
            state.passing += copies.iter().map(|copy| copy.pages().end - copy.page).sum::<u64>();
            if state.passing >= GATHER_PAGES {
                state.passing = 0;
                if state.cache.unsent_pages() >= UNCACHED_PAGES {
                    after.messages.push(Message::Uncached(Arc::clone(self)));
                }
            }
        }
        if state.samples.is_due(published.first)
            && let Some(page) = copies.first().map(|copy| copy.page)
            && !state.cache.is_page_in_flight(page)
        {
            state.samples.accepted(page, clock::now());
        }
        if published.first || published.awaited {
            self.kick(&mut state, after);
        }
        state.page_wakers.drain_into(&mut after.wakers);
    }

    /// Writes from the caller's buffer to the device, on the caller's thread, which may wait.
    /// `None` where it has to go through the cache; an error where some of it may have been
    /// written.
    pub(crate) fn bypass(
        self: &Arc<Self>,
        shared: &Shared,
        data: &[u8],
        offset: u64,
    ) -> Option<std::io::Result<()>> {
        let (is_direct, alignment) = (*self.file.direct() == Direct::Yes, self.file.alignment());
        if !is_direct || !(data.as_ptr() as usize).is_multiple_of(alignment.memory as usize) {
            return None;
        }
        let mut after = After::default();
        let mut state = self.lock();
        let begun =
            state.cache.begin_bypass(offset..offset + data.len() as u64, &mut after.settled);
        let _ = state.recount();
        state.tell_unread(shared);
        state.tell_arena(shared, &mut after);
        drop(state);
        after.finish(shared);
        let bypass = begun?;
        let written = self.file.write_all_at(data, offset);
        let mut state = self.lock();
        state.cache.end_bypass(bypass);
        // Whoever waits for the file to become quiet waits for this.
        self.kick(&mut state, &mut after);
        state.page_wakers.drain_into(&mut after.wakers);
        drop(state);
        after.finish(shared);
        // Moved nothing: the file system takes other memory, or other lengths, than it said.
        if written.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
            return None;
        }
        Some(written)
    }

    /// Closes the file, which the context has detached. May block.
    pub(crate) fn finish_closing(&self, shared: &Shared, generation: Option<u16>) {
        self.unmark();
        self.file.release_lease();
        if let Err(error) = self.file.ofd_unlock() {
            tracing::debug!(path = %self.path.display(), %error, "could not unlock");
        }
        if let (Some(keeper), Some(generation)) = (&shared.keeper, generation) {
            // Before it is closed here: the last close may block, and must not block the keeper.
            // A caller that waits for the closing finds that the keeper has let go of it, too.
            keeper.remove(self.target.0, generation);
        }
        close(&self.path, &self.file);
        shared.end_closing(self.identity, self.target);
        let mut wakers = Vec::new();
        let mut state = self.lock();
        state.is_closed = true;
        state.page_wakers.drain_into(&mut wakers);
        wakers.extend(state.ticket_wakers.drain(..).map(|(_, waker)| waker));
        drop(state);
        user_code::wake_all(wakers);
    }

    /// Asks the context for something, and returns what to wait for.
    pub(crate) fn ask(self: &Arc<Self>, shared: &Shared, request: TicketKind) -> TicketId {
        let mut after = After::default();
        let id = self.ask_with(request, &mut after);
        after.finish(shared);
        id
    }

    /// As [`Inode::ask`]; the context hears of it when `after` is finished.
    pub(crate) fn ask_with(self: &Arc<Self>, request: TicketKind, after: &mut After) -> TicketId {
        self.ask_locked(&mut self.lock(), request, after)
    }

    fn ask_locked(
        self: &Arc<Self>,
        state: &mut State,
        request: TicketKind,
        after: &mut After,
    ) -> TicketId {
        let id = state.cache.ask(request);
        state.give_back_unused(after);
        self.kick(state, after);
        id
    }

    /// As [`Inode::ask`], with nobody to wait for it: a failure is reported to the engine's
    /// callback. (A ticket that is abandoned later may have failed before, unheard.)
    pub(crate) fn ask_unheard(self: &Arc<Self>, shared: &Shared, request: TicketKind) {
        let mut after = After::default();
        self.ask_unheard_with(request, &mut after);
        after.finish(shared);
    }

    /// As [`Inode::ask_unheard`]; the context hears of it when `after` is finished.
    pub(crate) fn ask_unheard_with(self: &Arc<Self>, request: TicketKind, after: &mut After) {
        let mut state = self.lock();
        let id = self.ask_locked(&mut state, request, after);
        state.cache.abandon(id);
    }

    /// The result of a ticket; `None` if no context will serve it: the file is closed, or the
    /// engine has ended.
    pub(crate) fn poll_ticket(
        &self,
        context: &Context<'_>,
        id: TicketId,
    ) -> Poll<Option<std::result::Result<(), Failure>>> {
        let mut waker = context.waker().clone();
        let mut state = self.lock();
        if let Some(result) = state.cache.fetch(id) {
            return Poll::Ready(Some(result));
        }
        if state.is_closed || state.is_orphan {
            return Poll::Ready(None);
        }
        match state.ticket_wakers.iter_mut().find(|(waiting, _)| *waiting == id) {
            // The one before is dropped once the lock is released.
            Some((_, registered)) => std::mem::swap(registered, &mut waker),
            None => state.ticket_wakers.push((id, waker)),
        }
        Poll::Pending
    }

    /// There is no context any more: whoever waits hears so.
    pub(crate) fn orphan(&self) {
        let mut state = self.lock();
        state.is_orphan = true;
        let mut wakers = std::mem::take(&mut state.append_wakers);
        state.page_wakers.drain_into(&mut wakers);
        wakers.extend(state.ticket_wakers.drain(..).map(|(_, waker)| waker));
        drop(state);
        user_code::wake_all(wakers);
    }

    pub(crate) fn abandon(&self, id: TicketId) {
        self.lock().cache.abandon(id);
    }

    /// The exclusive right to append, or to set the length: an append looks up the end and writes
    /// there before anybody moves it back. Also waits for a change of length whose caller is gone.
    pub(crate) fn poll_append(&self, context: &Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let mut state = self.lock();
        if state.appending && !state.is_orphan {
            state.append_wakers.push(waker);
            return Poll::Pending;
        }
        if state.cache.is_being_cut() && !state.is_orphan {
            state.page_wakers.push(waker);
            return Poll::Pending;
        }
        state.appending = true;
        Poll::Ready(())
    }

    /// Bytes in the file, with everything accepted so far. Where other programs may have it open
    /// the file system is asked, on the calling thread.
    pub(crate) fn length(&self, shared: &Shared) -> u64 {
        let state = self.lock();
        if state.cache.liberties() == Liberties::Exclusive {
            return state.cache.size();
        }
        let look = state.cache.look();
        drop(state);
        let found = self.file.length();
        let mut after = After::default();
        let mut state = self.lock();
        match found {
            Ok(length) => state.cache.observe_disk_size(length, look, &mut after.settled),
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "could not look at the size");
            }
        }
        state.tell_arena(shared, &mut after);
        let size = state.cache.size();
        drop(state);
        after.finish(shared);
        size
    }

    /// Only those who wait for this are woken: whoever gives the turn up because it has to wait for
    /// a page would wake itself, else, and others like it.
    pub(crate) fn end_append(&self) {
        let mut state = self.lock();
        state.appending = false;
        let wakers = std::mem::take(&mut state.append_wakers);
        drop(state);
        user_code::wake_all(wakers);
    }

    /// Wakes whoever waits for a change that is no change of a page.
    pub(crate) fn wake_all(&self) {
        let mut wakers = Vec::new();
        self.lock().page_wakers.drain_into(&mut wakers);
        user_code::wake_all(wakers);
    }

    /// Resolves when the file is closed, or somebody has opened it again.
    pub(crate) fn poll_closed(
        self: &Arc<Self>,
        shared: &Shared,
        context: &Context<'_>,
    ) -> Poll<()> {
        let waker = context.waker().clone();
        let is_held = shared.table().is_held(self);
        let mut state = self.lock();
        if state.is_closed || state.is_orphan || is_held {
            return Poll::Ready(());
        }
        state.page_wakers.push(waker);
        Poll::Pending
    }

    /// The context looks at the file, and who waits for its pages does.
    pub(crate) fn look_again(self: &Arc<Self>, state: &mut State, after: &mut After) {
        state.page_wakers.drain_into(&mut after.wakers);
        self.kick(state, after);
    }

    pub(crate) fn kick(self: &Arc<Self>, state: &mut State, after: &mut After) {
        if !state.kicked {
            state.kicked = true;
            after.messages.push(Message::Inode(Arc::clone(self)));
        }
    }

    // The context's side

    /// The context looks at the file now.
    pub(crate) fn looked_at(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.kicked = false;
        state
    }

    /// Bios of the file have ended, in this order: one lock for all that a run of completions has
    /// of it.
    pub(crate) fn settle(
        &self,
        shared: &Shared,
        ended: &[Ended],
        now: Moment,
        after: &mut After,
    ) -> Left {
        self.look_at_space(shared, ended);
        let mut state = self.lock();
        let rewrites = state.cache.rewrites();
        for Ended { bio, result } in ended {
            if result.is_ok() {
                Counters::add(&shared.counters.given_back_bytes, state.cache.gives_back(bio));
            }
            state.cache.settle(bio, *result, Keep::Clean, &mut after.settled);
            state.finish_memory(shared, after);
            // Once the lock is released a writer may touch the pages.
            state.tell_arena(shared, after);
            state.tell_cut_ends(shared, bio);
            shared.pool.enter_clean(self.target, &mut after.settled.clean);
            if bio.operation == Operation::Allocate && result.is_ok() {
                state.cache.note_reserved(now);
            }
            state.samples.ended(bio, *result, now, &mut after.told);
        }
        let _ = state.recount();
        state.tell_unread(shared);
        self.count_failing(shared, &mut state, after);
        if state.cache.failing().is_some() {
            shared.level.look_again(self.target, &mut after.wakers);
        }
        state.page_wakers.drain_into(&mut after.wakers);
        shared.pool.take_waiting(&mut after.wakers);
        state.tell_tickets(after);
        let is_dirty_again = state.cache.is_dirty() && !state.listed;
        if is_dirty_again {
            state.listed = true;
            state.dirty_since.get_or_insert_with(clock::instant);
        }
        if state.cache.rewrites() > rewrites {
            Counters::add(&shared.counters.rewrites, 1);
            tracing::info!(path = %self.path.display(), "another program has mapped what was written: once more");
        }
        Left { is_dirty_again, keeps: state.cache.kept_pages() > 0 }
    }

    pub(crate) fn io_error(&self, what: &str, offset: u64, errno: Errno) -> Error {
        let cause = std::io::Error::from_raw_os_error(errno.0);
        Error::new(ErrorKind::at_device(&cause), what)
            .at_path(&self.path)
            .at_offset(offset)
            .because(cause)
    }

    /// What a failed ticket means to the caller.
    pub(crate) fn failure(&self, failure: Failure) -> Error {
        match failure {
            Failure::Write { offset, errno: DISCARDED } => self.io_error(
                "what was written here was dropped by `discard_dirty`",
                offset,
                DISCARDED,
            ),
            Failure::Write { offset, errno } => {
                let error =
                    self.io_error("could not write a page out; it stays dirty", offset, errno);
                if is_full(&std::io::Error::from_raw_os_error(errno.0)) {
                    error.remedy("free space on the file system, then sync again")
                } else {
                    error.remedy("sync again to retry, or drop the data with `discard_dirty`")
                }
            }
            Failure::Flush(errno) => Error::poisoned(&self.path, errno),
            Failure::Discard(errno) => {
                let kind = match errno.0 {
                    libc::EOPNOTSUPP => ErrorKind::Unsupported,
                    _ => ErrorKind::Io,
                };
                Error::new(kind, "the device did not discard the range; its data is unchanged")
                    .at_path(&self.path)
                    .because(std::io::Error::from_raw_os_error(errno.0))
            }
            Failure::SetLength(errno) => {
                let cause = std::io::Error::from_raw_os_error(errno.0);
                Error::new(ErrorKind::at_device(&cause), "could not set the length")
                    .at_path(&self.path)
                    .because(cause)
            }
        }
    }
}

/// Closes the descriptor of a file that requests do not name any longer, even if the file is still
/// referred to. May block: it deletes a file without a name, and writes a block device out.
pub(crate) fn close(path: &Path, file: &crate::platform::File) {
    if let Err(error) = file.close() {
        tracing::debug!(path = %path.display(), %error, "the file is open a moment longer");
    }
}

impl State {
    /// Zeroes and copies what the cache tells to, under its lock.
    fn finish_memory(&mut self, shared: &Shared, after: &mut After) {
        for (frame, from) in after.settled.zero.drain(..) {
            shared.pool.zero(frame, from..PAGE as usize);
        }
        for patch in after.settled.patches.drain(..) {
            shared.pool.patch(&patch);
            self.tell_filled(shared, patch.page, patch.to);
        }
    }

    /// Gives back frames and credit that wait in the file for its next write.
    pub(crate) fn give_back_unused(&mut self, after: &mut After) {
        after.settled.freed.append(&mut self.stash);
        after.settled.uncharged += std::mem::take(&mut self.credit);
        let _ = self.recount();
    }

    /// Counts anew what it has of its file system's share of the level. Whatever changed it, the
    /// next count is right.
    pub(crate) fn recount(&mut self) -> Crossed {
        let now = self.cache.dirty_pages() + self.credit;
        let before = std::mem::replace(&mut self.counted, now);
        if now == before { Crossed::Nothing } else { self.volume.share.recount(before, now) }
    }

    /// Its file is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// There is no context any more.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.is_orphan
    }

    /// Wakes somebody when a page of the file, or its size, has changed.
    pub(crate) fn wait_for_pages(&mut self, waker: Waker) {
        self.page_wakers.push(waker);
    }

    /// It is not dirty any more.
    pub(crate) fn unlist(&mut self) {
        self.listed = false;
        self.dirty_since = None;
    }

    /// Judges which of its clean pages may go, and drops those.
    pub(crate) fn evict(
        &mut self,
        shared: &Shared,
        candidates: &mut [Candidate],
        after: &mut After,
    ) {
        self.cache.evict(candidates.iter_mut(), &mut after.settled);
        self.tell_unread(shared);
        self.tell_arena(shared, after);
    }

    /// The engine hears how many pages wait for a reader.
    fn tell_unread(&mut self, shared: &Shared) {
        let unread = self.cache.unread_pages();
        shared.count_unread(std::mem::replace(&mut self.told_unread, unread), unread);
    }

    /// Wakes those whose tickets have ended.
    pub(crate) fn tell_tickets(&mut self, after: &mut After) {
        if self.told_tickets != self.cache.finished_tickets() {
            self.told_tickets = self.cache.finished_tickets();
            after.wakers.extend(self.ticket_wakers.drain(..).map(|(_, waker)| waker));
            // A change of length that has ended lets on those it held.
            self.page_wakers.drain_into(&mut after.wakers);
        }
    }

    /// Somebody waits for it, or something of it is at the device.
    pub(crate) fn is_busy(&self) -> bool {
        self.cache.has_tickets() || self.cache.in_flight()
    }

    /// The context lets go of the file: no handle is left.
    pub(crate) fn close(&mut self, shared: &Shared, after: &mut After) {
        self.cache.discard(&mut after.settled);
        self.tell_unread(shared);
        self.give_back_unused(after);
        self.tell_arena(shared, after);
        self.leave_arena(shared);
    }

    /// The context has registered the new descriptor.
    pub(crate) fn end_renewing(&mut self, after: &mut After) {
        self.is_renewing = false;
        self.page_wakers.drain_into(&mut after.wakers);
    }

    /// Its lease is ours now; false where it has to be let go.
    pub(crate) fn own(
        &mut self,
        shared: &Shared,
        (disk_size, look): (u64, Look),
        after: &mut After,
    ) -> bool {
        let is_owned = self.cache.own(disk_size, look, &mut after.settled);
        self.tell_arena(shared, after);
        is_owned
    }

    /// Somebody else opens it.
    pub(crate) fn begin_break(&mut self, shared: &Shared, deadline: Instant, after: &mut After) {
        self.cache.begin_break(&mut after.settled);
        self.tell_arena(shared, after);
        self.break_deadline.get_or_insert(deadline);
    }

    /// Its lease goes.
    pub(crate) fn end_break(&mut self) {
        self.cache.end_break();
        self.break_deadline = None;
    }
}
