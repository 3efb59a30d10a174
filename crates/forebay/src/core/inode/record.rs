//! The account of a file in the arena, so that another process can finish its writing if this one
//! dies. Without a keeper nothing is recorded. The cache decides what is recorded when
//! (`account.rs` there).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use forebay_block::{Bio, Frame, Operation};
use forebay_cache::account::{self, Said};
use forebay_cache::file::Entry;
use forebay_cache::limits::PAGE;
use forebay_cache::{CachedFile, Copy, FrameRuns, Liberties, Settled};

use super::Inode;
use crate::core::base::Base;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::recovery::inherited::Inherited;
use crate::platform::Arena;
use crate::platform::{Access, FILE_RECORDS, FileRecord, Flush, FrameState, Header, Kind};

/// Record of a file in the arena.
#[derive(Debug)]
pub(crate) struct Record {
    /// Its own reference, because after a panic there is no other way to the arena.
    arena: Arc<Arena>,
    /// Number of the file in the arena.
    file: u32,
    generation: u16,
    /// Sequence number of the headers published last.
    sequence: u64,
    size: u64,
    /// State of the flushes in the arena.
    flush: Flush,
}

impl Inode {
    /// Enters the file before any of its frames is published. A file open only for reading is not
    /// entered.
    ///
    /// # Errors
    /// `NoMemory` if the arena has no room for another file.
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
            flush: Flush::Well,
            unpublished: None,
            path,
        };
        base.pool.arena().enter_file(self.target.0, &record);
        let arena = Arc::clone(base.pool.arena());
        let file = self.target.0;
        let flush = Flush::Well;
        let record = Record { arena, file, generation, sequence: 0, size, flush };
        state.account.begin(record);
        Ok(())
    }
}

impl Inode {
    /// Returns the path with the current directory before it, as another process needs it. If the
    /// current directory was removed, or changed since the file was opened, returns the path
    /// unchanged: then the file cannot be recovered from a saved image.
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
                tracing::warn!(
                    path = %self.path.display(),
                    "the relative path no longer names the file; it cannot be recovered from a saved image"
                );
                self.path.clone()
            }
        }
    }

    /// Continues the record of a dead program, under the same number.
    pub(crate) fn go_on_in_arena(&self, base: &Base, inherited: &Inherited) {
        if base.pool.is_survived() {
            let Inherited { number: file, record, sequence, .. } = inherited;
            assert_eq!(*file, self.target.0, "frames of another file would be published");
            let FileRecord { generation, size, .. } = *record;
            let arena = Arc::clone(base.pool.arena());
            // Its records were put into the file before.
            arena.set_file_flush(*file, Flush::Well);
            arena.set_file_unpublished(*file, None);
            let (file, sequence, flush) = (*file, *sequence, Flush::Well);
            let record = Record { arena, file, generation, sequence, size, flush };
            self.lock().account.begin(record);
        }
    }

    /// Has the keeper hold the file, after it is entered and before any of its frames is published.
    ///
    /// # Errors
    /// `Keeper` if it cannot hold the file.
    pub(crate) fn have_kept(&self, base: &Base) -> Result<()> {
        let Some(keeper) = &base.keeper else { return Ok(()) };
        let Some(generation) = self.lock().account.generation() else { return Ok(()) };
        keeper.add(self.target.0, generation, &self.file)
    }
}

/// The account of a file in the arena, if the engine has a keeper.
#[derive(Debug, Default)]
pub(crate) struct Account {
    record: Option<Box<Record>>,
    /// The same record once a panic has interrupted a change of the file: another process reads it
    /// as it was then.
    marked: Option<Box<Record>>,
}

impl Account {
    /// Returns whether changes of the file are recorded.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.record.is_some()
    }

    fn begin(&mut self, record: Record) {
        assert!(self.record.is_none(), "two records of a file would describe the same frames");
        self.record = Some(Box::new(record));
    }

    /// Returns the generation, which distinguishes it from other files with its number. `None` if
    /// it has no record.
    pub(crate) fn generation(&self) -> Option<u16> {
        let record = self.record.as_ref().or(self.marked.as_ref());
        record.map(|record| record.generation)
    }

    /// Records that a write is about to be copied into frames, including clean ones.
    pub(crate) fn report_touched(&mut self, copies: &[Copy]) {
        if let Some(record) = &mut self.record {
            CachedFile::report_touched(copies, &mut record.publish());
            // No byte of the copies may come before this. The processor keeps the order as seen by
            // a process that looks after the death.
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// Records that it is copied. Zeroing and patching that the cache asked for is done.
    pub(crate) fn report_copied(&mut self, cache: &CachedFile, copies: &[Copy]) {
        if let Some(record) = &mut self.record {
            cache.report_copied(copies, &mut record.publish());
        }
    }

    /// Records that the missing bytes of a page are filled in.
    pub(crate) fn report_filled(&mut self, cache: &CachedFile, page: u64, frame: Frame) {
        if let Some(record) = &mut self.record {
            cache.report_filled(page, frame, &mut record.publish());
        }
    }

    /// Records the states of frames that the cache reports, and the size. Runs under the same lock
    /// as the change; zeroing and patching is done. Returns freed frames whose headers are removed.
    pub(crate) fn report_settled(
        &mut self,
        cache: &CachedFile,
        settled: &mut Settled,
    ) -> FrameRuns {
        if let Some(record) = &mut self.record {
            cache.report_settled(settled, &mut record.publish());
            if cache.poisoned().is_some() && cache.has_records() {
                record.note_flush(Flush::Failed);
            }
        }
        let Some(lists) = settled.lists() else { return FrameRuns::default() };
        if self.record.is_some() {
            return std::mem::take(&mut lists.freed);
        }
        lists.written.clear();
        lists.dirty_again.clear();
        FrameRuns::default()
    }

    /// Records a bio that removes data of the file, before it is sent.
    pub(crate) fn report_sent(&mut self, cache: &mut CachedFile, bio: &Bio) {
        let Some(record) = &mut self.record else { return };
        if matches!(bio.operation, Operation::FlushData | Operation::FlushAll)
            && cache.has_records()
        {
            record.note_flush(Flush::OnTheWay);
        }
        if let Some(length) = CachedFile::cuts_to(bio) {
            record.arena.set_file_cut(record.file, Some(length));
        }
        if bio.operation == Operation::Discard {
            cache.report_discard(bio, &mut record.publish());
        }
    }

    /// Records that it has ended and that the size is published.
    pub(crate) fn report_cut_ends(&self, bio: &Bio) {
        if let (Some(record), Some(_)) = (&self.record, CachedFile::cuts_to(bio)) {
            record.arena.set_file_cut(record.file, None);
        }
    }

    /// Records the end of a bio. After a flush that failed, pages of records may be missing in the
    /// file.
    pub(crate) fn report_flushed(&mut self, cache: &CachedFile, bio: &Bio, is_good: bool) {
        if let Some(record) = &mut self.record
            && record.flush == Flush::OnTheWay
            && matches!(bio.operation, Operation::FlushData | Operation::FlushAll)
        {
            let is_well = is_good && cache.poisoned().is_none();
            record.note_flush(if is_well { Flush::Well } else { Flush::Failed });
        }
    }

    /// Records a record of the intent log whose bytes are not in the cache yet; `None` once they
    /// are.
    pub(crate) fn report_unpublished(&mut self, sequence: Option<u64>) {
        if let Some(record) = &mut self.record {
            record.arena.set_file_unpublished(record.file, sequence);
        }
    }

    /// Removes the record. No frame of the file is published now or later.
    pub(crate) fn leave_arena(&mut self) {
        if let Some(record) = self.record.take() {
            record.arena.leave_file(record.file);
        }
        if let Some(record) = self.marked.take() {
            record.retire_all();
            record.arena.leave_file(record.file);
        }
    }

    /// Asserts that one record at most describes the frames of the file.
    pub(crate) fn verify(&self) {
        let is_one = self.record.is_none() || self.marked.is_none();
        assert!(is_one, "the keeper would write the frames of a broken state");
    }

    /// Marks the file as interrupted by a panic. Nothing of the empty cache is entered in its
    /// record from now on, above all not its size.
    pub(crate) fn interrupt(&mut self) {
        if let Some(record) = self.record.take() {
            record.arena.interrupt_file(record.file);
            self.marked = Some(record);
        }
    }
}

impl Record {
    /// Retires every frame of the file. Looks at all headers, because the cache that knew the
    /// file's frames is gone. Numbers and generations are used again: otherwise a later file with
    /// the same ones would own leaked frames.
    fn retire_all(&self) {
        for frame in (0..self.arena.frames()).map(Frame) {
            let is_own =
                |header: &Header| (header.file, header.generation) == (self.file, self.generation);
            if self.arena.header(frame).as_ref().is_some_and(is_own) {
                self.arena.retire(frame);
            }
        }
    }

    fn note_flush(&mut self, flush: Flush) {
        // One that failed stays so: a later one proves nothing about its pages.
        if flush != self.flush && self.flush != Flush::Failed {
            self.flush = flush;
            self.arena.set_file_flush(self.file, flush);
        }
    }

    /// Returns access to the arena for one step under the file's lock.
    fn publish(&mut self) -> Published<'_> {
        self.sequence += 1;
        Published(self)
    }
}

/// Access to a file's account in the arena.
struct Published<'a>(&'a mut Record);

impl account::Account for Published<'_> {
    fn said(&self, frame: Frame) -> Option<Said> {
        self.0.arena.published(frame).map(|state| match state {
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
        let Record { file, generation, sequence, .. } = *self.0;
        // The size of the file limits how many bytes of it count.
        let length = PAGE as u16;
        self.0.arena.publish(frame, Header { file, generation, page, sequence, length, state });
    }

    fn retire(&mut self, frame: Frame) {
        self.0.arena.retire(frame);
    }

    fn clear_mask(&mut self, frame: Frame) {
        self.0.arena.clear_mask(frame);
    }

    fn add_to_mask(&mut self, frame: Frame, bytes: Range<usize>) {
        self.0.arena.add_to_mask(frame, bytes);
    }

    fn set_size(&mut self, bytes: u64) {
        if self.0.size != bytes {
            self.0.size = bytes;
            self.0.arena.set_file_size(self.0.file, bytes);
        }
    }
}
