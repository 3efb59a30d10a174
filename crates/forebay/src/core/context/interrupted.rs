//! Interrupted files: a panic ended a change of their state (contract 21). The context continues
//! without them.
//!
//! A step that serves one file runs in [`Writeback::step`]. A panic under that file's lock ends the
//! step and takes that file out of service. Any other panic continues and ends the engine. That
//! includes a panic while a request was passed to the queue, because all files share the queue.
//!
//! The file stays attached until its requests have ended and its last handle is closed.

use std::sync::Arc;

use super::Writeback;
use super::agenda::Why;
use crate::core::inode::{Heard, Inode};

impl Writeback {
    /// Runs a step of one file. Returns its result, or `otherwise` if a panic under the file's lock
    /// ended it.
    pub(super) fn step<T>(
        &mut self,
        inode: &Inode,
        otherwise: T,
        run: impl FnOnce(&mut Self) -> T,
    ) -> T {
        // Effects of other files' steps are set aside: they are complete. Both keep their memory,
        // so nothing is allocated here.
        std::mem::swap(&mut self.after, &mut self.after_others);
        let ran = inode.catch(|| run(self));
        assert!(!self.is_submitting, "a panic interrupted a change of the queue");
        std::mem::swap(&mut self.after, &mut self.after_others);
        if ran.is_none() {
            self.after_others.forget_frames();
        }
        self.after.append(&mut self.after_others);
        ran.unwrap_or(otherwise)
    }

    /// Takes an interrupted file out of service: gives up its counts, wakes its callers, and
    /// reports it if none of them waits for a sync.
    pub(super) fn abandon(&mut self, inode: &Arc<Inode>) {
        let heard = inode.give_up(&self.shared, &mut self.after);
        if heard.is_some() {
            self.unlist(inode, true);
            if self.is_leaving(inode) {
                // Its next context closes it.
                self.agenda.push(Why::Moving, inode);
            }
            // The file counts as shared from now on: nothing is written under the lease.
            inode.file.release_lease();
        }
        self.shared.finish(&mut self.after);
        if heard == Some(Heard::No) {
            self.shared.report(&inode.interrupted());
        }
        self.agenda.push(Why::Leaving, inode);
    }

    /// Returns whether requests of an interrupted file are still at the device.
    pub(super) fn awaits_interrupted(&self, inode: &Inode) -> bool {
        let held = self.files.get(inode.target.0 as usize).and_then(Option::as_ref);
        inode.is_interrupted() && held.is_some_and(|held| held.in_flight > 0)
    }
}
