//! Files that were opened a moment ago. A context leaves them alone until its next tick: many are
//! closed before, and their callers can close them only while no context has them.
//!
//! A context that does not tick attaches a file at once. One that ticks does so earlier if the file
//! has work for it, or if writers wait for memory or for the dirty limit.

use std::sync::Arc;

use super::Writeback;
use crate::core::inode::Inode;
use crate::core::limits::YOUNG_FILES;
use crate::core::message::Message;

impl Writeback {
    /// Takes note of a file that was opened. One that another context has handed over is attached.
    pub(super) fn announced(&mut self, inode: Arc<Inode>) {
        let is_young = inode.catch(|| inode.lock().is_young()).unwrap_or(false);
        if !is_young || self.next_tick.is_none() || self.stop {
            return self.attach(inode);
        }
        if self.young.len() >= YOUNG_FILES {
            // Closed files keep the numbers of their descriptors until they are dropped.
            self.young.retain(|_, file| file.catch(|| file.lock().is_young()).unwrap_or(true));
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
        let (Message::Renew(inode)
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
