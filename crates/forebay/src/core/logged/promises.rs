//! Marks of files, and promises in them.
//!
//! The log promises until when the engine alone changes its files. If the log cannot be written,
//! the mark of each file with live records gets a promise instead. So a failure of the log holds no
//! file back.
//!
//! ```text
//! log cannot be written --> mark: promise for 30 s --> in place, flush --> mark moves: emptied
//! ```
//!
//! A promise is written only while the lease is held: the file was changed by this engine alone,
//! and no other program gets it before the promise ends. No flush follows. Mark and change time are
//! in one inode, so no change time survives without an earlier mark. If it does, a recovery only
//! saves the records.
//!
//! A file whose mark cannot be written either is poisoned, and is changed without a promise.

use std::io;
use std::sync::Arc;

use forebay_log::{Counts, FileId, Mark, Wall};

use super::IntentLog;
use super::batches::end_waits;
use super::emptying::{errno_of_io, save_only};
use crate::core::inode::Inode;
use crate::core::inode::state::State;
use crate::core::intent_log::marks::promise_of;
use crate::core::lease::holds_lease;
use crate::core::logged::bounds::{LOG_PROMISE, LOG_PROMISE_LEFT, LOG_TRIES};
use crate::core::shared::Shared;

impl IntentLog {
    /// Writes the mark that `choose` returns. It is not durable after that. Both threads write
    /// marks: a mark is chosen and written before the next one is.
    pub(super) fn write_mark(
        &self,
        inode: &Inode,
        choose: impl FnOnce(&State) -> Option<Mark>,
    ) -> io::Result<()> {
        let _one_at_a_time = self.marking.lock();
        let Some(mark) = choose(&inode.lock()) else { return Ok(()) };
        inode.file.set_log_mark(&mark.encode())?;
        inode.lock().logging.note_mark(mark);
        Ok(())
    }

    /// Renews the promises of all files with live records in their marks, if that is due.
    pub(super) fn promise_in_marks(&self, shared: &Arc<Shared>) {
        if shared.is_left() {
            return;
        }
        for inode in self.live_files() {
            inode.catch(|| self.promise_in_mark(shared, &inode));
        }
    }

    fn promise_in_mark(&self, shared: &Arc<Shared>, inode: &Arc<Inode>) {
        let later = promise_of(LOG_PROMISE_LEFT);
        let (mut is_due, mut is_alone) = (false, false);
        let written = self.write_mark(inode, |state| {
            is_due = state.logging.is_live() && !state.logging.may_change(later);
            is_alone = holds_lease(inode, state);
            let promise = promise_of(LOG_PROMISE);
            state.logging.mark().filter(|_| is_due && is_alone).map(|mark| Mark { promise, ..mark })
        });
        if !is_due {
            return;
        }
        if !is_alone {
            return save_only(shared, self, inode);
        }
        shared.change(inode, |file| {
            if let Err(error) = &written {
                let tries = file.logging.note_unrenewed();
                if tries < LOG_TRIES || shared.may_change(file) {
                    return;
                }
                tracing::error!(
                    path = %inode.path.display(),
                    %error,
                    "neither the intent log nor the mark of the file can be written"
                );
                let errno = errno_of_io(error);
                file.logging.need_no_promise();
                file.apply(|cache, settled| cache.fail_flushes(errno, settled));
                end_waits(file);
            }
            file.look();
        });
    }

    /// Marks a file: its records count from a sequence number on, or are only saved. The mark has a
    /// promise, so that no write waits if the first batch after that fails.
    pub(super) fn move_mark(&self, inode: &Inode, file: FileId, counts: Counts) -> io::Result<()> {
        self.write_mark(inode, |state| {
            let is_alone = holds_lease(inode, state) && !state.ownership.is_breaking();
            let promise = match counts {
                Counts::From(_) if is_alone => promise_of(LOG_PROMISE),
                _ => state.logging.mark().map_or(Wall::default(), |mark| mark.promise),
            };
            Some(Mark { log: self.id, file, counts, promise })
        })
    }
}
