//! What the arena says of a file, so that another process can finish its writing where this one dies. Only where the
//! engine is to be survived; everywhere else nothing is said.
//!
//! At whichever instruction that is, the file as the kernel has it, with the youngest frame of each page that is dirty
//! written over it as far as the size goes, and a cut that is under way made, holds every write that has returned, and
//! of one that has not each byte as before it or as after it. So
//!
//! - the bytes are there before the header, and the headers before the size: a write that moves the end is there with
//!   its size or not at all;
//! - the header of a frame that has to be written is not touched until it is written: a page that is touched again in
//!   its place stays published as it is, and one that was partial stays so, with all of its mask;
//! - a clean frame that is written into loses its header before the first byte changes;
//! - what is written, or dropped, is retired under the same lock under which the cache hears of it: nothing newer can
//!   reach the file before;
//! - what is to be cut off says so before the file system is told, and until the size is told.
//!
//! Of pages that touch each other in time the sequences are taken under the lock, so the larger one is younger. Clean
//! frames are for who takes the file over, and only of files that are ours alone.

use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use forebay_block::{Bio, Class, Frame, Operation};
use forebay_cache::file::Entry;
use forebay_cache::limits::PAGE;
use forebay_cache::{Copy, Liberties};
use forebay_uring::arena::Arena;
use forebay_uring::header::{FrameState, Header};
use forebay_uring::records::{FILE_RECORDS, FileRecord};
use forebay_uring::{Access, Kind};

use super::{After, Inode, State};
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::adopt::Account;
use crate::shared::Shared;

/// What was said of a file.
#[derive(Debug)]
pub(super) struct Record {
    /// By which number, and which of those that had it.
    file: u32,
    generation: u16,
    /// Of the last header.
    sequence: u64,
    size: u64,
}

impl Inode {
    /// Enters the file, before anything of it can be published. One that is never written is not entered.
    ///
    /// # Errors
    /// `NoMemory` where there are as many files as there is room for.
    pub(crate) fn enter_arena(&self, shared: &Shared) -> Result<()> {
        if !shared.pool.is_survived() || self.file.access() == Access::Read {
            return Ok(());
        }
        if self.target.0 >= FILE_RECORDS {
            let full = format!("an engine with a keeper has at most {FILE_RECORDS} files open");
            return Err(Error::new(ErrorKind::NoMemory, full).remedy("close some"));
        }
        let mut state = self.lock();
        let (size, generation) = (state.cache.size(), shared.next_generation());
        let device = self.file.kind() == Kind::Block;
        let record = FileRecord {
            generation,
            leased: !device && state.cache.liberties() == Liberties::Exclusive,
            device,
            writable: true,
            created: state.cache.entry() == Entry::New,
            identity: self.identity,
            size,
            cut: None,
            path: self.path.clone(),
        };
        shared.pool.arena().enter_file(self.target.0, &record);
        state.record = Some(Record { file: self.target.0, generation, sequence: 0, size });
        Ok(())
    }
}

impl Inode {
    /// What another program said of the file, under the same number, goes on as what is said here.
    pub(super) fn go_on_in_arena(&self, shared: &Shared, state: &mut State, account: &Account) {
        if shared.pool.is_survived() {
            let Account { number: file, record: FileRecord { generation, size, .. }, sequence, .. } =
                *account;
            state.record = Some(Record { file, generation, sequence, size });
        }
    }

    /// Has the keeper hold the file, once it is entered and before anything of it is published.
    ///
    /// # Errors
    /// `Keeper` where it cannot.
    pub(crate) fn have_kept(&self, shared: &Shared) -> Result<()> {
        let Some(keeper) = &shared.keeper else { return Ok(()) };
        let Some(generation) = self.lock().generation() else { return Ok(()) };
        let kept = keeper.add(self.target.0, generation, &self.file);
        if kept.is_err() {
            self.lock().leave_arena(shared);
        }
        kept
    }
}

impl State {
    /// Which of the files that had its number it is; `None` where nothing is said of it.
    pub(crate) fn generation(&self) -> Option<u16> {
        self.record.as_ref().map(|record| record.generation)
    }

    /// A write is about to be copied into these frames, of which some may be clean.
    pub(super) fn retire_clean(&self, shared: &Shared, copies: &[Copy]) {
        if self.record.is_none() {
            return;
        }
        let arena = shared.pool.arena();
        for frame in copies.iter().flat_map(frames_of) {
            arena.retire_clean(frame);
        }
        // No byte of the copies before this; to who looks when it is over, the processor does all in order.
        compiler_fence(Ordering::SeqCst);
    }

    /// It is copied, and what the cache told to be zeroed or patched is.
    pub(super) fn tell_copies(&mut self, shared: &Shared, copies: &[Copy]) {
        let Some(record) = &mut self.record else { return };
        record.sequence += 1;
        let arena = shared.pool.arena();
        for copy in copies {
            if self.cache.is_partial(copy.page) {
                record.publish_part(arena, copy.page, copy.frame, copy.at..copy.at + copy.length);
                continue;
            }
            for (page, frame) in copy.pages().zip(frames_of(copy)) {
                record.publish_whole(arena, page, frame);
            }
        }
    }

    /// What the cache has told of frames, and the size. Under the lock under which it did; what was zeroed or patched is
    /// finished.
    pub(crate) fn tell_arena(&mut self, shared: &Shared, after: &mut After) {
        let settled = &mut after.settled;
        let Some(record) = &mut self.record else {
            settled.written.clear();
            settled.dirty_again.clear();
            return;
        };
        let arena = shared.pool.arena();
        record.sequence += 1;
        for (page, frame) in settled.dirty_again.drain(..) {
            record.publish_whole(arena, page, frame);
        }
        settled.written.drain(..).for_each(|frame| arena.retire(frame));
        if self.cache.liberties() == Liberties::Exclusive {
            for run in &settled.clean {
                for (page, frame) in (run.page..).zip(run.frames.frames()) {
                    record.publish(arena, page, frame, FrameState::Clean);
                }
            }
        }
        // The younger ones of the same pages are published.
        settled.freed.frames().for_each(|frame| arena.retire(frame));
        after.retired.append(&mut settled.freed);
        let size = self.cache.size();
        if record.size != size {
            record.size = size;
            arena.set_file_size(record.file, size);
        }
    }

    /// A page that was partial is whole, and is not being copied into.
    pub(super) fn tell_filled(&mut self, shared: &Shared, frame: Frame) {
        let arena = shared.pool.arena();
        if self.record.is_some() && arena.published(frame) == Some(FrameState::Partial) {
            arena.add_to_mask(frame, 0..PAGE as usize);
        }
    }

    /// A bio is sent that may cut the file.
    pub(crate) fn tell_cut_begins(&mut self, shared: &Shared, bio: &Bio) {
        if let Some(record) = self.record.as_ref().filter(|_| sets_length(bio)) {
            shared.pool.arena().set_file_cut(record.file, Some(bio.offset));
        }
    }

    /// It has ended, and the size is told.
    pub(super) fn tell_cut_ends(&mut self, shared: &Shared, bio: &Bio) {
        if let Some(record) = self.record.as_ref().filter(|_| sets_length(bio)) {
            shared.pool.arena().set_file_cut(record.file, None);
        }
    }

    /// Nothing of the file is published any more, and nothing will be.
    pub(super) fn leave_arena(&mut self, shared: &Shared) {
        if let Some(record) = self.record.take() {
            shared.pool.arena().leave_file(record.file);
        }
    }
}

impl Record {
    /// The whole of a page has to be written.
    fn publish_whole(&self, arena: &Arena, page: u64, frame: Frame) {
        match arena.published(frame) {
            Some(FrameState::Dirty) => {}
            Some(FrameState::Partial) => arena.add_to_mask(frame, 0..PAGE as usize),
            Some(FrameState::Clean) | None => self.publish(arena, page, frame, FrameState::Dirty),
        }
    }

    /// Some bytes of a page have to be.
    fn publish_part(&self, arena: &Arena, page: u64, frame: Frame, bytes: Range<usize>) {
        if arena.published(frame) == Some(FrameState::Partial) {
            arena.add_to_mask(frame, bytes);
            return;
        }
        arena.clear_mask(frame);
        arena.add_to_mask(frame, bytes);
        self.publish(arena, page, frame, FrameState::Partial);
    }

    /// How many bytes of it are the file's, the size says.
    fn publish(&self, arena: &Arena, page: u64, frame: Frame, state: FrameState) {
        let Self { file, generation, sequence, .. } = *self;
        arena.publish(frame, Header { file, generation, page, sequence, length: PAGE as u16, state });
    }
}

fn frames_of(copy: &Copy) -> impl Iterator<Item = Frame> + use<> {
    let pages = copy.pages();
    (copy.frame.0..).map(Frame).take((pages.end - pages.start) as usize)
}

/// Whether a bio is somebody's change of length. (What gives space back ends where the file does.)
fn sets_length(bio: &Bio) -> bool {
    bio.operation == Operation::SetLength && bio.class == Class::Waited
}
