//! The agenda of a context: files with work to do, by the reason for the work.
//!
//! Each reason has a list in order of arrival. A file is in each list at most once. Entering a file
//! that is already there costs one look at a bit, however long the list is.
//!
//! Pages that shared files keep for a flush. If no caller syncs them, the context does so when they
//! become many or memory is short.
//!
//! Leases that other programs wait for. Each is released when the work before that is done, or soon
//! after its deadline.
//!
//! Files that were opened a moment ago. A context leaves them alone until its next tick: many are
//! closed before, and their callers can close them only while no context has them.
//!
//! A context that does not tick attaches a file at once. One that ticks does so earlier if the file
//! has work for it, or if writers wait for memory or for the dirty limit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use forebay_cache::Reason;

use crate::core::context::Writeback;
use crate::core::context::senders::Message;
use crate::core::inode::Inode;
use crate::core::inode::settle::Left;
use crate::core::lease::{GivingUp, give_up_lease};
use crate::core::limits::{KEPT_OF_LIMIT, KEPT_OF_LIMIT_WHEN_SHORT, YOUNG_FILES};
use crate::core::table::AnyInode;
use crate::platform::clock;

/// Reason why a file is on the agenda.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AgendaReason {
    /// A caller waits for this file.
    Waited,
    /// The file moves to another context, or its descriptor was replaced.
    Moving,
    /// The file may have lost its last handle, or has errors that no caller waits for.
    Leaving,
    /// Another program waits for the lease of this file.
    Breaking,
    /// The file keeps written pages until a flush.
    Keeping,
    /// The file has many dirty pages that are dropped after their write.
    Uncached,
    /// The file has pages that have been dirty for too long.
    Overdue,
}

impl AgendaReason {
    const ALL: [Self; 7] = [
        Self::Waited,
        Self::Moving,
        Self::Leaving,
        Self::Breaking,
        Self::Keeping,
        Self::Uncached,
        Self::Overdue,
    ];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A file with a small number.
pub(super) trait Numbered {
    /// Returns the number. It is unique among files on the agenda.
    fn number(&self) -> usize;
}

impl Numbered for Inode {
    fn number(&self) -> usize {
        self.target.0 as usize
    }
}

/// The agenda.
#[derive(Debug)]
pub(super) struct Agenda<T = Inode> {
    /// Files by reason.
    lists: [VecDeque<Arc<T>>; AgendaReason::ALL.len()],
    /// Reasons of each file as bits, by its number.
    reasons: Vec<u8>,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { lists: [const { VecDeque::new() }; AgendaReason::ALL.len()], reasons: Vec::new() }
    }
}

impl<T: Numbered> Agenda<T> {
    /// Returns whether no file is here for this reason.
    pub(super) fn is_empty(&self, reason: AgendaReason) -> bool {
        self.lists[reason as usize].is_empty()
    }

    /// Returns the number of files of a reason.
    pub(super) fn count(&self, reason: AgendaReason) -> usize {
        self.lists[reason as usize].len()
    }

    /// Appends a file, unless it is already here for this reason.
    pub(super) fn push(&mut self, reason: AgendaReason, file: &Arc<T>) {
        if self.enter(reason, file) {
            self.lists[reason as usize].push_back(Arc::clone(file));
        }
    }

    /// Puts the first files back that were removed one by one, in their order.
    pub(super) fn put_first(&mut self, reason: AgendaReason, files: Vec<Arc<T>>) {
        for file in files.into_iter().rev() {
            if self.enter(reason, &file) {
                self.lists[reason as usize].push_front(file);
            }
        }
    }

    /// Returns whether a file is new for this reason, and marks it.
    fn enter(&mut self, reason: AgendaReason, file: &Arc<T>) -> bool {
        let number = file.number();
        if self.reasons.len() <= number {
            self.reasons.resize(number + 1, 0);
        }
        let is_new = self.reasons[number] & reason.bit() == 0;
        self.reasons[number] |= reason.bit();
        is_new
    }

    /// Removes and returns the first file of a reason.
    pub(super) fn pop(&mut self, reason: AgendaReason) -> Option<Arc<T>> {
        let file = self.lists[reason as usize].pop_front()?;
        let is_marked = self.reasons[file.number()] & reason.bit() != 0;
        debug_assert!(is_marked, "the file would be listed twice, or never again");
        self.reasons[file.number()] &= !reason.bit();
        Some(file)
    }

    /// Removes and returns all files of a reason.
    pub(super) fn take(&mut self, reason: AgendaReason) -> Vec<Arc<T>> {
        let files = std::mem::take(&mut self.lists[reason as usize]);
        let is_marked = |file: &Arc<T>| self.reasons[file.number()] & reason.bit() != 0;
        debug_assert!(files.iter().all(is_marked), "a file was listed twice, or never would be");
        files.iter().for_each(|file| self.reasons[file.number()] &= !reason.bit());
        files.into()
    }

    /// Puts removed files back, before those that came meanwhile.
    pub(super) fn put_back(&mut self, reason: AgendaReason, files: Vec<Arc<T>>) {
        let new = self.take(reason);
        files.iter().chain(&new).for_each(|file| self.push(reason, file));
        debug_assert!(self.count(reason) >= new.len(), "a file with work to do is forgotten");
    }

    /// Keeps only the files of a reason that `stays` accepts.
    pub(super) fn retain(&mut self, reason: AgendaReason, mut stays: impl FnMut(&Arc<T>) -> bool) {
        let Self { lists, reasons } = self;
        lists[reason as usize].retain(|file| {
            let stays = stays(file);
            if !stays {
                reasons[file.number()] &= !reason.bit();
            }
            stays
        });
    }

    /// Keeps only the files of a reason that `look` is not done with. Returns the earliest time at
    /// which one of them needs another look.
    pub(super) fn look(
        &mut self,
        reason: AgendaReason,
        mut look: impl FnMut(&Arc<T>) -> GivingUp,
    ) -> Option<Instant> {
        let mut next = None;
        self.retain(reason, |file| match look(file) {
            GivingUp::Done => false,
            GivingUp::NotBefore(time) => {
                next = [next, time].into_iter().flatten().min();
                true
            }
        });
        next
    }

    /// Keeps only files that `stays` accepts, for all reasons.
    pub(super) fn retain_all(&mut self, stays: impl Fn(&Arc<T>) -> bool) {
        AgendaReason::ALL.into_iter().for_each(|reason| self.retain(reason, &stays));
    }

    /// Removes one file, for all reasons.
    pub(super) fn remove(&mut self, file: &Arc<T>) {
        let reasons = self.reasons.get(file.number()).copied().unwrap_or_default();
        for reason in AgendaReason::ALL.into_iter().filter(|reason| reasons & reason.bit() != 0) {
            self.retain(reason, |listed| !Arc::ptr_eq(listed, file));
        }
    }
}

impl Writeback {
    /// Notes the work that completed bios have left: pages kept for a flush, and pages to write
    /// again after a failed flush.
    pub(super) fn note_left(&mut self, inode: &Arc<Inode>, left: Left) {
        if left.keeps {
            self.agenda.push(AgendaReason::Keeping, inode);
        }
        if left.is_dirty_again {
            self.flights[inode.volume.number()].dirty.push_back(Arc::clone(inode));
        }
    }

    /// Flushes files that keep many pages.
    pub(super) fn reclaim_kept(&mut self) {
        if self.agenda.is_empty(AgendaReason::Keeping) {
            return;
        }
        let mut kept: Vec<(u64, Arc<Inode>)> = Vec::new();
        self.agenda.retain(AgendaReason::Keeping, |inode| {
            let pages = inode.catch(|| inode.lock().cache.kept_pages()).unwrap_or(0);
            kept.push((pages, Arc::clone(inode)));
            pages > 0
        });
        let total: u64 = kept.iter().map(|(pages, _)| pages).sum();
        let is_short = self.shared.level.has_waiters() || self.shared.pool.has_waiting();
        let is_idle = self.queue.on_their_way() == 0;
        let part = if is_short { KEPT_OF_LIMIT_WHEN_SHORT } else { KEPT_OF_LIMIT };
        // Each context has an equal part.
        let most = self.shared.level.limit() / part / self.shared.contexts.active() as u64;
        // If callers wait and nothing is in flight, they wait for this flush, however little it
        // frees.
        if total < most && !(is_short && is_idle) {
            return;
        }
        kept.sort_by_key(|(pages, _)| std::cmp::Reverse(*pages));
        for (_, inode) in kept {
            if self.queue.room() == 0 {
                break;
            }
            self.step(&inode, (), |context| {
                let mut state = inode.lock();
                if let Some(bio) = context.next_bio(&inode, &mut state, Reason::Reclaim) {
                    context.send(&inode, &mut state, bio);
                }
            });
        }
    }
}

impl Writeback {
    /// Releases leases as far as possible now, and sets the time of the next attempt.
    pub(super) fn give_leases_up(&mut self) {
        // Set even if no file is left: a file that was closed or handed over has left the list, and
        // a time that has passed would keep the context from ever sleeping.
        self.next_break = self.agenda.look(AgendaReason::Breaking, |inode| {
            let given_up = inode.catch(|| give_up_lease(inode, clock::instant()));
            if let (Some(GivingUp::NotBefore(_)), Some(log)) = (given_up, &self.shared.log) {
                log.empty_soon(inode);
            }
            // The context releases the lease of an interrupted file when it abandons that.
            given_up.unwrap_or(GivingUp::Done)
        });
    }
}

impl Writeback {
    /// Takes note of a file that was opened. One that another context has handed over is attached.
    pub(super) fn announced(&mut self, inode: Arc<Inode>) {
        let is_young = inode.catch(|| inode.lock().service.is_young()).unwrap_or(false);
        if !is_young || self.next_tick.is_none() || self.stop {
            return self.attach(inode);
        }
        if self.young.len() >= YOUNG_FILES {
            // Closed files keep the numbers of their descriptors until they are dropped.
            self.young
                .retain(|_, file| file.catch(|| file.lock().service.is_young()).unwrap_or(true));
        }
        if self.young.len() >= YOUNG_FILES {
            self.attach_all();
        }
        // A caller may have closed an older file with the same number.
        self.young.insert(inode.target.0, inode);
    }

    /// Attaches the file of a message, because it has work for the context.
    pub(super) fn attach_for(&mut self, message: &Message) {
        if self.young.is_empty() {
            return;
        }
        let (Message::Renew(AnyInode::Cached(inode))
        | Message::Inode(inode)
        | Message::Uncached(inode)
        | Message::Moved(inode)
        | Message::Submit(inode, _)) = message
        else {
            return;
        };
        if self.is_young(inode) {
            self.young.remove(&inode.target.0);
            self.attach(Arc::clone(inode));
        }
    }

    /// Returns whether the context knows the file, and has not attached it.
    pub(super) fn is_young(&self, inode: &Arc<Inode>) -> bool {
        self.young.get(&inode.target.0).is_some_and(|young| Arc::ptr_eq(young, inode))
    }

    /// Attaches all young files if they may not wait for the tick.
    pub(super) fn attach_young(&mut self) {
        if self.young.is_empty() {
            return;
        }
        let (level, pool) = (&self.shared.level, &self.shared.pool);
        let is_due = self.stop
            || self.next_tick.is_none()
            || level.has_waiters()
            || pool.has_waiting()
            || self.young.values().any(|inode| level.wants_writeback(&inode.volume));
        if is_due {
            self.attach_all();
        }
    }

    /// Attaches all young files that no caller has closed.
    pub(super) fn attach_all(&mut self) {
        for inode in std::mem::take(&mut self.young).into_values() {
            self.attach(inode);
        }
    }
}

#[cfg(test)]
mod tests;
