//! Completions, which files settle in runs, and the closing of files without handles.

use std::sync::Arc;

use forebay_block::{Device, Ended, Moment};
use forebay_cache::file::Entry;

use super::Writeback;
use super::agenda::Why;
use crate::core::inode::Inode;
use crate::core::inode::after::After;
use crate::core::inode::settle::Left;

impl Writeback {
    /// Ends completed bios in order, and wakes their callers once. The room of a bio at the device
    /// is free when it is reaped; its pages are when it ends.
    pub(super) fn end_run(&mut self) {
        let reaped = self.queue.reap(&mut self.backend);
        for of_file in reaped.chunk_by(|one, next| one.bio.target == next.bio.target) {
            let target = of_file[0].bio.target;
            if !self.direct.owns(target) {
                let held = self.files[target.0 as usize].as_ref();
                let volume = &held.expect("a file in flight is attached").inode.volume;
                let flight = &mut self.flights[volume.number()];
                of_file.iter().for_each(|reaped| flight.ended(reaped));
            }
        }
        let is_reaped = !reaped.is_empty();
        self.queue.end(&mut self.ended);
        if !is_reaped && self.ended.is_empty() {
            return;
        }
        let now = self.backend.now();
        for flight in &mut self.flights {
            flight.look(now);
        }
        if self.ended.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut self.ended);
        for of_file in ended.chunk_by(|one, next| one.bio.target == next.bio.target) {
            let target = of_file[0].bio.target;
            if self.direct.owns(target) {
                of_file
                    .iter()
                    .for_each(|ended| self.direct.end(ended, &mut self.backend, &self.shared));
                continue;
            }
            let inode = self.settle(of_file, now);
            self.look_where_it_goes(&inode);
        }
        ended.clear();
        self.ended = ended;
        self.share_out();
        self.shared.counters.set_queue(self.number, self.queue.counters(), self.queue.held());
        self.shared.load.note(self.number, now, &mut self.next_note);
        self.shared.follow_load(now, &self.running);
        self.direct.wake();
        self.shared.finish(&mut self.after);
    }

    /// Settles completed bios of a file of this context.
    pub(super) fn settle(&mut self, of_file: &[Ended], now: Moment) -> Arc<Inode> {
        let target = of_file[0].bio.target;
        debug_assert!(
            of_file.iter().all(|ended| ended.bio.target == target),
            "bios of several files"
        );
        let held = self.files[target.0 as usize].as_mut().expect("a file in flight is attached");
        held.end(of_file);
        let inode = Arc::clone(&held.inode);
        let left = self.step(&inode, Left::NOTHING, |context| {
            inode.settle(&context.shared, of_file, now, &mut context.after)
        });
        self.agenda.push(Why::Leaving, &inode);
        self.note_left(&inode, left);
        inode
    }

    /// Reports failures that no caller waits for, and closes files without handles.
    pub(super) fn release(&mut self) {
        for inode in self.agenda.take(Why::Leaving) {
            let looked = inode.catch(|| {
                let mut state = inode.lock();
                (state.cache.take_lost(), state.is_busy())
            });
            // An interrupted file is abandoned first, and comes here again.
            let Some((lost, busy)) = looked else { continue };
            for failure in lost {
                self.shared.report(&inode.failure(failure));
            }
            if !busy && !self.awaits_interrupted(&inode) {
                self.close_unused(&inode);
            }
        }
    }

    /// Detaches a file without handles and has it closed by the aside, because a file system may
    /// block there. Meanwhile the table marks the file as being closed, and opens of the same file
    /// wait.
    fn close_unused(&mut self, inode: &Arc<Inode>) {
        if self.is_leaving(inode) {
            // Its next context checks it.
            return;
        }
        let mut table = self.shared.table();
        if self.shared.is_left() {
            // Its unwritten data is not lost: the keeper writes it.
            return;
        }
        // The last handle may have asked for something between the first check and the drop.
        let is_busy = inode.catch(|| inode.lock().is_busy());
        if is_busy.unwrap_or(true) || !table.begin_closing(inode) {
            return;
        }
        let look = || {
            let state = inode.lock();
            (state.cache.entry(), state.generation(), state.listed)
        };
        // It is closed in any case; a panic leaves these three as they are.
        let (entry, generation, is_listed) = inode.catch(look).unwrap_or_else(look);
        if entry == Entry::New {
            table.unsynced.remember(inode.identity);
        }
        drop(table);
        drop(self.backend.detach(inode.target));
        let held = self.files[inode.target.0 as usize].take();
        debug_assert!(held.is_some_and(|held| held.in_flight == 0), "closed with bios in flight");
        inode.detached(&self.shared, &mut After::default());
        self.unlist(inode, is_listed);
        let (shared, closing) = (Arc::clone(&self.shared), Arc::clone(inode));
        inode.volume.aside.run(move || closing.finish_closing(&shared, generation));
    }
}
