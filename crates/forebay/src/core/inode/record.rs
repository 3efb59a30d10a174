//! The account of a file in the arena, so that another process can finish its writing where this
//! one dies. Only where the engine is to be survived; everywhere else nothing is said. What is said
//! when, the cache decides (`account.rs` there).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use forebay_block::{Bio, Frame};
use forebay_cache::account::{Account, Said};
use forebay_cache::file::Entry;
use forebay_cache::limits::PAGE;
use forebay_cache::{CachedFile, Copy, FrameRuns, Liberties, Settled};

use super::{Inode, State};
use crate::core::base::Base;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::recovery::inherited::Inherited;
use crate::platform::Arena;
use crate::platform::{Access, FILE_RECORDS, FileRecord, FrameState, Header, Kind};

/// What was said of a file.
#[derive(Debug)]
pub(super) struct Record {
    /// By itself, because a panic leaves nothing else to reach it by.
    arena: Arc<Arena>,
    /// By which number, and which of those that had it.
    file: u32,
    generation: u16,
    /// Of the headers published last.
    sequence: u64,
    size: u64,
}

impl Inode {
    /// Enters the file, before anything of it can be published. One that is never written is not
    /// entered.
    ///
    /// # Errors
    /// `NoMemory` where there are as many files as there is room for.
    pub(crate) fn enter_arena(&self, base: &Base) -> Result<()> {
        if !base.pool.is_survived() || self.file.access() == Access::Read {
            return Ok(());
        }
        if self.target.0 >= FILE_RECORDS {
            let full = format!(
                "an engine with a keeper holds at most {FILE_RECORDS} files open for writing"
            );
            return Err(Error::new(ErrorKind::NoMemory, full).remedy("close some files"));
        }
        let path = self.absolute_path();
        let mut state = self.lock();
        let (size, generation) = (state.cache.size(), base.next_generation());
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
            interrupted: false,
            path,
        };
        base.pool.arena().enter_file(self.target.0, &record);
        let arena = Arc::clone(base.pool.arena());
        state.record = Some(Record { arena, file: self.target.0, generation, sequence: 0, size });
        Ok(())
    }
}

impl Inode {
    /// The path with the current directory before it, as another process needs it. As it is if the
    /// current directory was removed, or was changed since the file was opened: then the file
    /// cannot be recovered from a saved image.
    fn absolute_path(&self) -> PathBuf {
        if self.path.is_absolute() {
            return self.path.clone();
        }
        let names_it = |path: &Path| {
            crate::platform::files::identity_of(path)
                .is_ok_and(|identity| identity == self.identity)
        };
        match crate::platform::files::absolute(&self.path) {
            Ok(path) if names_it(&path) => path,
            _ => {
                tracing::warn!(path = %self.path.display(), "a relative path that no longer names the file; not recoverable from a saved image");
                self.path.clone()
            }
        }
    }

    /// What another program said of the file, under the same number, goes on as what is said here.
    pub(crate) fn go_on_in_arena(&self, base: &Base, inherited: &Inherited) {
        if base.pool.is_survived() {
            let Inherited { number: file, record, sequence, .. } = inherited;
            let FileRecord { generation, size, .. } = *record;
            let arena = Arc::clone(base.pool.arena());
            self.lock().record =
                Some(Record { arena, file: *file, generation, sequence: *sequence, size });
        }
    }

    /// Has the keeper hold the file, once it is entered and before anything of it is published.
    ///
    /// # Errors
    /// `Keeper` where it cannot.
    pub(crate) fn have_kept(&self, base: &Base) -> Result<()> {
        let Some(keeper) = &base.keeper else { return Ok(()) };
        let Some(generation) = self.lock().generation() else { return Ok(()) };
        keeper.add(self.target.0, generation, &self.file)
    }
}

impl State {
    /// Which of the files that had its number it is; `None` where nothing is said of it.
    pub(crate) fn generation(&self) -> Option<u16> {
        let record = self.record.as_ref().or(self.marked_record.as_ref());
        record.map(|record| record.generation)
    }

    /// A write is about to be copied into frames, of which some may be clean.
    pub(super) fn tell_touched(&mut self, base: &Base, copies: &[Copy]) {
        if let Some(record) = &mut self.record {
            CachedFile::tell_touched(copies, &mut record.account(base));
            // No byte of the copies before this: the processor does all in order, as seen by who
            // looks afterwards.
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// It is copied, and what the cache told to be zeroed or patched is.
    pub(super) fn tell_copied(&mut self, base: &Base, copies: &[Copy]) {
        if let Some(record) = &mut self.record {
            self.cache.tell_copied(copies, &mut record.account(base));
        }
    }

    /// A page of which bytes were missing has them.
    pub(super) fn tell_filled(&mut self, base: &Base, page: u64, frame: Frame) {
        if let Some(record) = &mut self.record {
            self.cache.tell_filled(page, frame, &mut record.account(base));
        }
    }

    /// What the cache has told of frames, and the size. Under the lock under which it did; what was
    /// zeroed or patched is finished.
    #[inline]
    pub(super) fn tell_arena(
        &mut self,
        base: &Base,
        settled: &mut Settled,
        retired: &mut FrameRuns,
    ) {
        match &mut self.record {
            Some(record) => {
                self.cache.tell_settled(settled, &mut record.account(base));
                retired.append(&mut settled.freed);
            }
            None => {
                settled.written.clear();
                settled.dirty_again.clear();
            }
        }
    }

    /// A bio is sent that may cut the file.
    pub(crate) fn tell_cut_begins(&self, base: &Base, bio: &Bio) {
        if let (Some(record), Some(length)) = (&self.record, CachedFile::cuts_to(bio)) {
            base.pool.arena().set_file_cut(record.file, Some(length));
        }
    }

    /// It has ended, and the size is told.
    pub(super) fn tell_cut_ends(&self, base: &Base, bio: &Bio) {
        if let (Some(record), Some(_)) = (&self.record, CachedFile::cuts_to(bio)) {
            base.pool.arena().set_file_cut(record.file, None);
        }
    }

    /// Nothing of the file is published any more, and nothing will be.
    pub(crate) fn leave_arena(&mut self, base: &Base) {
        if let Some(record) = self.record.take() {
            base.pool.arena().leave_file(record.file);
        }
        if let Some(record) = self.marked_record.take() {
            record.retire_all();
            base.pool.arena().leave_file(record.file);
        }
    }
}

impl Record {
    /// Marks the file: a panic interrupted a change of its state.
    pub(super) fn interrupt(&self) {
        self.arena.interrupt_file(self.file);
    }

    /// Retires every frame of the file. Looks at all headers, because the cache that knew the
    /// file's frames is gone. Otherwise a later file of the same number and generation, which are
    /// used again, would own frames that are leaked.
    fn retire_all(&self) {
        for frame in (0..self.arena.frames()).map(Frame) {
            let is_own =
                |header: &Header| (header.file, header.generation) == (self.file, self.generation);
            if self.arena.header(frame).as_ref().is_some_and(is_own) {
                self.arena.retire(frame);
            }
        }
    }

    /// To say something under the file's lock.
    fn account<'a>(&'a mut self, base: &'a Base) -> Published<'a> {
        self.sequence += 1;
        Published { record: self, arena: base.pool.arena() }
    }
}

/// What the arena says of a file.
struct Published<'a> {
    record: &'a mut Record,
    arena: &'a Arena,
}

impl Account for Published<'_> {
    fn said(&self, frame: Frame) -> Option<Said> {
        self.arena.published(frame).map(|state| match state {
            FrameState::Dirty => Said::Dirty,
            FrameState::Partial => Said::Partial,
            FrameState::Clean => Said::Clean,
        })
    }

    fn publish(&mut self, page: u64, frame: Frame, said: Said) {
        let state = match said {
            Said::Dirty => FrameState::Dirty,
            Said::Partial => FrameState::Partial,
            Said::Clean => FrameState::Clean,
        };
        let Record { file, generation, sequence, .. } = *self.record;
        // How many bytes of it are the file's, its size says.
        let length = PAGE as u16;
        self.arena.publish(frame, Header { file, generation, page, sequence, length, state });
    }

    fn retire(&mut self, frame: Frame) {
        self.arena.retire(frame);
    }

    fn clear_mask(&mut self, frame: Frame) {
        self.arena.clear_mask(frame);
    }

    fn add_to_mask(&mut self, frame: Frame, bytes: Range<usize>) {
        self.arena.add_to_mask(frame, bytes);
    }

    fn set_size(&mut self, bytes: u64) {
        if self.record.size != bytes {
            self.record.size = bytes;
            self.arena.set_file_size(self.record.file, bytes);
        }
    }
}
