//! The way of a sync in an engine with an intent log. One function, for blocking and asynchronous
//! syncs, decides it under the file's lock.
//!
//! | the file | a sync of its data | a sync of all |
//! |---|---|---|
//! | has live records, and may be logged | record | emptied |
//! | has live records, and may not be logged | emptied | emptied |
//! | has none, and may be logged | record | ordinary |
//! | has none, and may not be logged | ordinary | ordinary |
//!
//! A sync that is alone, and has one write to make, gains nothing by a record: both are a write and
//! a flush, and the file would be written once more later. It is ordinary if it needs no new space.
//!
//! A flush proves nothing to a sync while records are live: a replay would put their bytes over
//! those that the flush made durable. So [`Way::Ordinary`] is taken only without live records.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use forebay_block::Errno;
use forebay_cache::{Loggable, TicketKind};

use super::IntentLog;
use super::logging::{Awaited, Outcome, Stage};
use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;
use crate::core::inode::state::State;
use crate::core::logged::bounds::{LOG_PAGES, LOG_SYNCS};
use crate::core::shared::Shared;
use crate::core::stats::Counters;
use crate::core::sync::SyncCall;

/// Way of a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// A record of the log, or a wait for an emptying that makes one possible.
    Wait(Awaited),
    /// The file is emptied.
    Emptied,
    /// Writes in place and a flush.
    Ordinary,
}

/// Whether a sync may still be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tries {
    First,
    /// After the emptying that was in progress.
    Second,
    /// It was refused.
    Over,
}

/// Syncs a file in an engine with a log.
pub(crate) async fn sync(
    shared: &Arc<Shared>,
    log: &Arc<IntentLog>,
    inode: &Arc<Inode>,
    request: TicketKind,
) -> Result<()> {
    let _syncing = log.begin_syncs(1);
    match try_record(shared, log, inode, request).await {
        Tried::Logged => Ok(()),
        Tried::Failed(error) => Err(error),
        Tried::Emptied => Emptied::ask(shared, log, inode).await,
        Tried::Ordinary => {
            SyncCall::new(inode, shared, request).await?;
            note_ordinary(shared, log, inode);
            Ok(())
        }
    }
}

/// End of an attempt to log a sync.
pub(crate) enum Tried {
    Logged,
    /// The file has to be emptied.
    Emptied,
    /// It has to be synced in the ordinary way.
    Ordinary,
    Failed(Error),
}

/// Logs a sync if that is possible.
pub(crate) async fn try_record(
    shared: &Arc<Shared>,
    log: &Arc<IntentLog>,
    inode: &Arc<Inode>,
    request: TicketKind,
) -> Tried {
    let mut tries = if request == TicketKind::FlushData { Tries::First } else { Tries::Over };
    loop {
        let awaited = match decide(shared, log, inode, tries) {
            Way::Emptied => return Tried::Emptied,
            Way::Ordinary => return Tried::Ordinary,
            Way::Wait(awaited) => awaited,
        };
        let wait = Wait { inode: Arc::clone(inode), awaited };
        match wait.await {
            Err(error) => return Tried::Failed(error),
            Ok(Outcome::Logged) => {
                Counters::add(&log.numbers.syncs, 1);
                // Writes in place share the disk with the log.
                inode.volume.note_small_sync();
                return Tried::Logged;
            }
            Ok(Outcome::Refused) => tries = Tries::Over,
            Ok(Outcome::Emptied | Outcome::NotEmptied(_)) => tries = Tries::Second,
        }
    }
}

/// Decides the way of a sync; see the page above.
fn decide(shared: &Shared, log: &IntentLog, inode: &Arc<Inode>, tries: Tries) -> Way {
    let mut is_new = false;
    let way = shared.change(inode, |file| {
        let may_log = tries != Tries::Over && log.may_log(file);
        if may_log && file.cache.may_log(LOG_PAGES) != Loggable::No && !log.gains_nothing(file) {
            let (awaited, is_first) = file.logging.ask_for_record();
            is_new = is_first;
            return Way::Wait(awaited);
        }
        match file.logging.emptying_in_progress() {
            // Its flush covers what was written without a record.
            Some(awaited) if may_log && tries == Tries::First => Way::Wait(awaited),
            _ if file.logging.is_live() => Way::Emptied,
            _ => Way::Ordinary,
        }
    });
    if is_new {
        log.queue(inode);
    }
    way
}

/// Counts an ordinary sync. A file with some of them gets its mark, if the log is worth it.
pub(crate) fn note_ordinary(shared: &Shared, log: &IntentLog, inode: &Arc<Inode>) {
    let is_worth = || inode.needs_lease && log.is_open() && log.is_worth(&inode.volume);
    let needed = log.syncs_before_mark();
    let marks = shared.change(inode, |file| match file.logging.stage() {
        Stage::Plain(syncs) if syncs + 1 < needed => {
            file.logging.set_stage(Stage::Plain(syncs + 1));
            false
        }
        Stage::Plain(_) if is_worth() => {
            file.logging.set_stage(Stage::Marking);
            file.logging.ask_to_empty().1
        }
        _ => false,
    });
    if marks {
        log.queue_to_empty(inode, false);
    }
}

impl IntentLog {
    /// Returns the number of syncs before a file gets its mark, which costs as much as two.
    fn syncs_before_mark(&self) -> u32 {
        if self.is_forced() { 1 } else { LOG_SYNCS }
    }

    /// Returns whether an ordinary sync of a file costs no more than a record of it.
    fn gains_nothing(&self, file: &State) -> bool {
        !self.is_forced()
            && self.syncs.load(Ordering::Relaxed) <= 1
            && !file.logging.is_live()
            && file.cache.is_one_rewrite()
    }

    /// Counts syncs until the result is dropped.
    pub(crate) fn begin_syncs(&self, count: usize) -> Syncing<'_> {
        self.syncs.fetch_add(count, Ordering::Relaxed);
        Syncing { log: self, count }
    }

    /// Has a file emptied that has live records: no caller waits for that, or its lease is wanted.
    pub(crate) fn empty_soon(&self, inode: &Arc<Inode>) {
        let asked = inode.catch(|| {
            let mut state = inode.lock();
            // The end of one in progress is looked at.
            let is_due = state.logging.is_live() && !state.logging.is_emptying();
            let is_new = is_due && state.logging.ask_to_empty().1;
            (is_new, state.ownership.is_breaking())
        });
        if let Some((true, is_breaking)) = asked {
            self.queue_to_empty(inode, is_breaking);
        }
    }
}

/// Future of a wait for the log.
#[derive(Debug)]
struct Wait {
    inode: Arc<Inode>,
    awaited: Awaited,
}

impl Future for Wait {
    type Output = Result<Outcome>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        let inode = &self.inode;
        let mut state = inode.lock();
        if let Err(error) = inode.check_whole(&state) {
            return Poll::Ready(Err(error));
        }
        let (outcome, dropped) = state.logging.poll(self.awaited, waker);
        let is_served = !inode.is_closed() && !state.service.is_orphaned();
        drop(state);
        drop(dropped);
        // The file may be closed once its wait has ended.
        if outcome.is_none() && !is_served {
            return Poll::Ready(Err(Error::unserved().at_path(&inode.path)));
        }
        outcome.map_or_else(|| plugged_no_more(Poll::Pending), |outcome| Poll::Ready(Ok(outcome)))
    }
}

/// Future of the emptying of a file. If it is dropped, the emptying continues.
#[derive(Debug)]
pub(crate) struct Emptied(Wait);

impl Emptied {
    /// Asks for an emptying that covers everything accepted until now.
    pub(crate) fn ask(shared: &Shared, log: &IntentLog, inode: &Arc<Inode>) -> Self {
        let (awaited, is_new) = shared.change(inode, |file| file.logging.ask_to_empty());
        if is_new {
            log.queue_to_empty(inode, false);
        }
        Self(Wait { inode: Arc::clone(inode), awaited })
    }
}

impl Future for Emptied {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|outcome| match outcome {
            // A file without handles is closed once it is emptied, also before a later request.
            Err(_) if self.0.inode.is_closed() => Ok(()),
            Err(error) => Err(error),
            Ok(Outcome::NotEmptied(errno)) => Err(not_emptied(&self.0.inode, errno)),
            Ok(Outcome::Emptied | Outcome::Logged | Outcome::Refused) => Ok(()),
        })
    }
}

fn not_emptied(inode: &Inode, errno: Errno) -> Error {
    // The error of the file itself says more.
    let mut state = inode.lock();
    if let Some(errno) = state.cache.poisoned() {
        let _ = state.cache.take_unreported_flush();
        return inode.failure(forebay_cache::Failure::Flush(errno));
    }
    if let Some((offset, errno)) = state.cache.failing() {
        return inode.failure(forebay_cache::Failure::Write { offset, errno });
    }
    if state.logging.is_uncertain() {
        return Error::uncertain(&inode.path);
    }
    drop(state);
    let cause = std::io::Error::from_raw_os_error(errno.0);
    let what = "could not bring the file into place; the intent log still has its bytes";
    Error::new(ErrorKind::at_device(&cause), what)
        .at_path(&inode.path)
        .because(cause)
        .remedy("sync again to retry, and keep the log")
}

/// Keeps a file from being logged while a call changes it past the log.
#[derive(Debug)]
pub(crate) struct PastLog {
    inode: Arc<Inode>,
}

impl PastLog {
    /// Empties a file and keeps it from being logged until the result is dropped. Returns `None` in
    /// an engine without a log.
    ///
    /// # Errors
    /// If the file could not be emptied.
    pub(crate) async fn begin(shared: &Arc<Shared>, inode: &Arc<Inode>) -> Result<Option<Self>> {
        let Some(log) = &shared.log else { return Ok(None) };
        let is_live = shared.change(inode, |file| {
            file.logging.hold();
            file.logging.is_live()
        });
        let past = Self { inode: Arc::clone(inode) };
        if is_live {
            Emptied::ask(shared, log, inode).await?;
        }
        Ok(Some(past))
    }
}

impl Drop for PastLog {
    fn drop(&mut self) {
        if self.inode.is_here() {
            self.inode.lock().logging.end_hold();
        }
    }
}

/// Syncs in progress.
pub(crate) struct Syncing<'a> {
    log: &'a IntentLog,
    count: usize,
}

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        self.log.syncs.fetch_sub(self.count, Ordering::Relaxed);
    }
}
