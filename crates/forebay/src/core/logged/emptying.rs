//! The thread that brings files into place, so that their records are no longer needed.
//!
//! ```text
//! for some files at a time:
//!   1. FlushData tickets of all: their contexts write the pages and flush
//!   2. each mark moves behind the last record that step 1 covers
//!   3. FlushAll tickets of all: an fdatasync need not cover an attribute
//!   4. the records are dead, and waiting callers continue
//! ```
//!
//! Both flushes are the engine's own. The kernel reports the error of a device once to a
//! descriptor, and this way the file gets it. It stays unreported: the next sync, the close or the
//! callback returns it.
//!
//! A file gets its first mark in the same way: until then it has no records.
//!
//! If a step fails, mark and records stay. The next sync of the file tries again, and returns the
//! error.

use std::sync::Arc;

use forebay_block::Errno;
use forebay_cache::TicketKind;
use forebay_log::{Counts, FileId};

use super::IntentLog;
use super::batches::end_waits;
use super::logging::{Emptying, Stage};
use super::reserving::learn_space;
use crate::core::error::{Error, Result};
use crate::core::inode::Inode;
use crate::core::inode::change::After;
use crate::core::intent_log::marks::file_id;
use crate::core::logged::bounds::{LOG_PAUSE, LOG_SAVE};
use crate::core::shared::Shared;
use crate::core::stats::Counters;
use crate::core::sync::tickets::{Ticket, take_ticket};
use crate::core::wait;
use crate::platform::{Rewrite, clock, files, thread};

/// The identity and the path of a file, for records.
type Name = (FileId, Vec<u8>);

/// Emptying of one file.
struct Job {
    inode: Arc<Inode>,
    emptying: Emptying,
    /// Identity and path; `None` if the file cannot be logged.
    result: std::result::Result<Option<Name>, Errno>,
}

/// Runs the thread until the log ends.
pub(crate) fn run(shared: &Arc<Shared>, log: &Arc<IntentLog>) {
    loop {
        let files = log.wait_to_empty();
        if files.is_empty() {
            return;
        }
        empty(shared, log, files);
    }
}

fn empty(shared: &Arc<Shared>, log: &IntentLog, files: Vec<Arc<Inode>>) {
    let mut jobs = Vec::with_capacity(files.len());
    let mut flushes = Vec::with_capacity(files.len());
    for inode in files {
        let begun = inode.catch(|| begin(shared, log, &inode)).flatten();
        let Some((emptying, flush)) = begun else { continue };
        flushes.push(flush);
        jobs.push(Job { inode, emptying, result: Ok(None) });
    }
    for (job, flush) in jobs.iter_mut().zip(flushes) {
        let flushed = wait::drive(flush.end_quietly());
        let flushed = flushed.map_err(|error| errno_of(&error));
        job.result = flushed.and_then(|()| mark(shared, log, job));
    }
    let is_marked = |job: &Job| matches!(job.result, Ok(Some(_)));
    let all: Vec<_> = jobs
        .iter()
        .map(|job| is_marked(job).then(|| Ticket::ask(&job.inode, shared, TicketKind::FlushAll)))
        .collect();
    for (job, flush) in jobs.into_iter().zip(all) {
        let flushed = flush.map_or(Ok(()), |flush| wait::drive(flush.end_quietly()));
        let flushed = flushed.map_err(|error| errno_of(&error));
        let result = job.result.and_then(|name| flushed.map(|()| name));
        end(shared, log, &job.inode, job.emptying, result);
    }
}

/// Begins to empty a file. Returns `None` if there is nothing to do.
fn begin(shared: &Arc<Shared>, log: &IntentLog, inode: &Arc<Inode>) -> Option<(Emptying, Ticket)> {
    let mut after = After::default();
    // No context closes a file that is in the table and has a ticket.
    let table = shared.table();
    let is_there = table.by_target(inode.target).is_some_and(|found| Arc::ptr_eq(&found, inode));
    let begun = is_there.then(|| {
        inode.change(shared, &mut after, |file| {
            let is_due = file.logging.is_emptying_asked() || file.logging.is_live();
            if file.logging.is_emptying() || !is_due || file.logging.is_pending() {
                return None;
            }
            let emptying = file.logging.begin_emptying(log.next_sequence());
            let id = take_ticket(file, TicketKind::FlushData);
            file.look();
            Some((emptying, id))
        })
    });
    drop(table);
    shared.finish(&mut after);
    begun.flatten().map(|(emptying, id)| (emptying, Ticket::new(Arc::clone(inode), id)))
}

/// Moves the mark of a file whose bytes are in place and flushed. It is not durable yet.
fn mark(shared: &Shared, log: &IntentLog, job: &Job) -> std::result::Result<Option<Name>, Errno> {
    if shared.is_left() {
        // The mark is the keeper's.
        return Err(Errno(libc::EAGAIN));
    }
    let Job { inode, emptying, .. } = job;
    let look = || {
        let state = inode.lock();
        (state.logging.name(), state.logging.stage(), shared.may_change(&state))
    };
    let (known, stage, may_change) = inode.catch(look).ok_or(Errno::IO)?;
    if stage == Stage::Never {
        // It has left the log.
        return Ok(None);
    }
    if !may_change {
        // The next attempt finds a new promise.
        return Err(Errno(libc::EAGAIN));
    }
    let name = match known {
        Some(name) => name,
        None => match log.name_of(inode) {
            Ok(Some(name)) => name,
            _ => return Ok(None),
        },
    };
    if emptying.marks {
        learn_space(shared, inode);
    }
    let marked = inode.catch(|| log.move_mark(inode, name.0, Counts::From(emptying.counts_from)));
    match marked.ok_or(Errno::IO)? {
        Ok(()) => Ok(Some(name)),
        Err(error) if emptying.marks => {
            tracing::debug!(path = %inode.path.display(), %error, "the file cannot be logged");
            Ok(None)
        }
        Err(error) => Err(errno_of_io(&error)),
    }
}

impl IntentLog {
    /// Returns identity and path of a file that may be logged: a regular file below the directory
    /// of the log, under a lease that counts.
    fn name_of(&self, inode: &Inode) -> std::io::Result<Option<Name>> {
        let is_possible = inode.needs_lease
            && inode.fixed_size.is_none()
            && inode.identity.device == self.device
            && inode.file.has_lease()
            // Else each write needs new space.
            && inode.volume.rewrite(&inode.file) != Rewrite::Copies;
        if !is_possible {
            return Ok(None);
        }
        // Recovery finds files by walking the directory, without links.
        let path = files::path_of(&inode.file)?;
        let Ok(hint) = path.strip_prefix(&self.directory) else { return Ok(None) };
        Ok(Some((file_id(&inode.file)?, files::bytes_of_path(hint))))
    }
}

fn end(
    shared: &Arc<Shared>,
    log: &IntentLog,
    inode: &Arc<Inode>,
    emptying: Emptying,
    result: std::result::Result<Option<Name>, Errno>,
) {
    match &result {
        Ok(_) => Counters::add(&log.numbers.emptied, 1),
        Err(errno) => tracing::warn!(
            path = %inode.path.display(),
            errno = errno.0,
            "the file could not be brought into place; its records stay in the intent log"
        ),
    }
    let has_failed = result.is_err();
    let mut is_left = has_failed;
    let breaks = inode.catch(|| {
        shared.change(inode, |file| {
            let before = file.logging.first_live();
            file.logging.end_emptying(emptying, result);
            log.note_emptied(inode, before, file.logging.first_live());
            if !has_failed && !file.logging.is_live() {
                file.cache.end_records();
            }
            is_left |= file.logging.is_uncertain();
            end_waits(file);
            // It may be closed, or its lease released.
            file.look();
            let deadline = file.ownership.deadline().filter(|_| file.logging.is_live());
            deadline.map(|deadline| (deadline, file.cache.poisoned().is_some()))
        })
    });
    if let Some((deadline, is_poisoned)) = breaks.flatten().filter(|_| is_left) {
        if is_poisoned || clock::instant() >= deadline {
            save_only(shared, log, inode);
        } else {
            thread::sleep(LOG_PAUSE);
            log.empty_soon(inode);
        }
    }
}

/// Marks a file that cannot be brought into place, because another program waits for its lease: a
/// recovery never writes it from then on, and only saves its records.
///
/// A mark whose flush fails again and again, because the journal is aborted, counts too: the other
/// program cannot make its changes durable either without the earlier mark.
pub(super) fn save_only(shared: &Arc<Shared>, log: &IntentLog, inode: &Arc<Inode>) {
    if shared.is_left() {
        // The marks are the keeper's.
        return;
    }
    let look = || {
        let state = inode.lock();
        (state.logging.first_live(), state.logging.name(), state.ownership.deadline())
    };
    let Some((Some(first), Some((file, _)), deadline)) = inode.catch(look) else { return };
    let marked = inode.catch(|| log.move_mark(inode, file, Counts::SavedFrom(first)));
    let Some(marked) = marked else { return };
    let is_marked = marked.is_ok();
    if let Err(error) = marked.and_then(|()| flush_mark(shared, inode)) {
        let latest = deadline.map(|deadline| deadline + LOG_SAVE);
        let may_retry = latest.is_some_and(|latest| clock::instant() < latest);
        tracing::error!(
            path = %inode.path.display(),
            %error,
            is_marked,
            "another program waits for the file, and its records can neither be put into it nor \
             durably excluded from recovery"
        );
        if !is_marked || may_retry {
            thread::sleep(LOG_PAUSE);
            return log.empty_soon(inode);
        }
    }
    tracing::error!(
        path = %inode.path.display(),
        "another program opens the file before its records could be put into it; a recovery can \
         save them"
    );
    inode.catch(|| {
        shared.change(inode, |file| {
            let first = file.logging.save_only();
            log.note_saved(inode, first);
            file.look();
        });
    });
}

/// Makes the mark of a file durable. A failure poisons the file: no later flush reports it.
fn flush_mark(shared: &Arc<Shared>, inode: &Arc<Inode>) -> std::io::Result<()> {
    inode.file.sync().inspect_err(|error| {
        let errno = errno_of_io(error);
        inode.catch(|| {
            shared.change(inode, |file| {
                file.apply(|cache, settled| cache.fail_flushes(errno, settled));
            });
        });
    })
}

fn errno_of(error: &Error) -> Errno {
    error.os_error().map_or(Errno::IO, Errno)
}

pub(super) fn errno_of_io(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno)
}

/// Empties all files, and lets nothing be logged from now on. Waits until `deadline`.
///
/// # Errors
/// Of the first file that could not be emptied; its records stay.
pub(crate) fn empty_all(
    shared: &Arc<Shared>,
    log: &Arc<IntentLog>,
    deadline: Option<std::time::Instant>,
) -> Result<()> {
    let files = log.close();
    // All of them are queued before the first wait.
    let waits: Vec<_> =
        files.iter().map(|inode| super::route::Emptied::ask(shared, log, inode)).collect();
    let mut result = Ok(());
    for (inode, wait) in files.iter().zip(waits) {
        let emptied = wait::block_on_until(wait, deadline);
        let emptied = emptied.unwrap_or_else(|| Err(Error::late(&inode.path)));
        result = result.and(emptied);
    }
    result
}
