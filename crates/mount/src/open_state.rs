//! The open files of a node, and changes that the source does not show yet.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::data::Access;
use crate::limits::KEEP_WRITABLE;
use crate::open_file::OpenFile;

/// Open files of a node, under its lock. No call that waits is made under it.
#[derive(Debug, Default)]
pub(crate) struct OpenState {
    /// One for each open of the kernel.
    pub(crate) open: Vec<Arc<OpenFile>>,
    /// Stays open without an open of the kernel, so that pages and the time of writing stay.
    pub(crate) kept: Option<Arc<OpenFile>>,
    /// Time of the last write, until the source shows it.
    pub(crate) written: Option<SystemTime>,
    /// Time of access that the source gets together with the time of writing.
    pub(crate) accessed: Option<SystemTime>,
    /// Bytes written since the source showed the time: its blocks may not count them.
    pub(crate) written_bytes: u64,
    /// Time of change of the source after its time of writing was set, and what to show instead.
    pub(crate) shown: Option<(SystemTime, SystemTime)>,
    /// Whether it was cut to nothing since the last close: programs replace files in this way.
    pub(crate) is_replaced: bool,
    /// Whether a sync has returned the error of a failed flush. Each later one returns it, too,
    /// until the engine has closed the file.
    pub(crate) is_poisoned: bool,
    /// Whether it was open in a process that died: what that wrote has no time of writing here.
    pub(crate) is_adopted: bool,
    /// Time of change of the source at which it had no capabilities of a program.
    pub(crate) without_capability: Option<SystemTime>,
    /// Size of the file while it is being closed: the source may not have all of its pages.
    pub(crate) closing_size: Option<u64>,
    /// Time of the last close of an open for writing.
    writer_closed: Option<Instant>,
    /// Opens in progress.
    pub(crate) opening: u32,
    /// Opens in progress past the engine.
    pub(crate) passing: u32,
    /// Changes with each use, so that a planned end of use is recognized as outdated.
    uses: u64,
}

/// The file that a node keeps without an open of the kernel.
#[derive(Debug)]
pub(crate) enum Kept {
    Nothing,
    /// No request uses it.
    Idle(OpenFile),
    Used,
}

impl OpenState {
    /// Whether the node can be forgotten.
    pub(crate) fn is_unused(&self) -> bool {
        self.open.is_empty() && self.kept.is_none()
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(crate) fn uses(&self) -> u64 {
        self.uses
    }

    /// Whether the node is open past the engine.
    pub(crate) fn is_open_as_asked(&self) -> bool {
        self.open.iter().any(|file| file.access == Access::AsAsked)
    }

    /// Some open file, one that can be written if there is one. While the node is open past the
    /// engine, a file that is kept does not count.
    pub(crate) fn any(&self) -> Option<&Arc<OpenFile>> {
        if let Some(past) = self.open.iter().find(|file| file.access == Access::AsAsked) {
            return Some(past);
        }
        let mut all = self.open.iter().chain(&self.kept);
        all.find(|file| file.access == Access::ReadWrite)
            .or(self.open.first())
            .or(self.kept.as_ref())
    }

    /// An open file that can be written.
    pub(crate) fn writable(&self) -> Option<&Arc<OpenFile>> {
        self.any().filter(|file| file.access == Access::ReadWrite)
    }

    /// Whether programs that only read it have kept it open for writing long enough.
    pub(crate) fn is_overdue(&self) -> bool {
        let is_long_ago = |closed: Instant| closed.elapsed() >= KEEP_WRITABLE;
        self.writable().is_some() && self.writer_closed.is_some_and(is_long_ago)
    }

    /// The open file that is small. There is no other one then.
    pub(crate) fn small(&self) -> Option<&Arc<OpenFile>> {
        self.open.iter().chain(&self.kept).find(|file| file.data.small().is_some())
    }

    /// Notes a write at this moment, which the source does not show yet.
    pub(crate) fn note_write(&mut self, bytes: u64) {
        self.written = Some(SystemTime::now());
        self.written_bytes = self.written_bytes.saturating_add(bytes);
    }

    /// Notes that the source shows the times of the last write and read.
    pub(crate) fn note_shown(&mut self) {
        self.written = None;
        self.accessed = None;
        self.written_bytes = 0;
    }

    /// Adds an open of the kernel by a file that is kept, if one fits.
    pub(crate) fn reopen(&mut self, access: Access) -> Option<Arc<OpenFile>> {
        self.uses += 1;
        if access == Access::ReadWrite && self.kept.as_ref()?.access == Access::Read {
            return None;
        }
        let file = self.kept.take()?;
        self.open.push(Arc::clone(&file));
        Some(file)
    }

    pub(crate) fn add(&mut self, file: &Arc<OpenFile>) {
        self.uses += 1;
        if file.data.small().is_some() {
            // The source shows all that is written to it.
            self.note_shown();
        }
        self.open.push(Arc::clone(file));
    }

    /// Keeps a file that the last program starts with, such as an adopted one.
    pub(crate) fn keep(&mut self, file: Arc<OpenFile>) {
        self.uses += 1;
        self.writer_closed = Some(Instant::now());
        self.kept = Some(file);
    }

    /// Ends an open of the kernel. Returns a file that is to be dropped once the lock is open.
    pub(crate) fn end_open(&mut self, file: &Arc<OpenFile>) -> Option<Arc<OpenFile>> {
        self.uses += 1;
        if file.is_opened_to_write() {
            self.writer_closed = Some(Instant::now());
        }
        let at = self.open.iter().position(|open| Arc::ptr_eq(open, file))?;
        let ended = self.open.swap_remove(at);
        if ended.access == Access::AsAsked {
            return Some(ended);
        }
        // A writable one is kept even while others are open: it can set the time of writing.
        let is_better = match &self.kept {
            None => true,
            Some(kept) => kept.access == Access::Read && ended.access == Access::ReadWrite,
        };
        if is_better { self.kept.replace(ended) } else { Some(ended) }
    }

    /// Takes the kept file, to close it. Clones of it are made under this lock alone.
    pub(crate) fn take_kept(&mut self) -> Kept {
        match self.kept.take().map(Arc::try_unwrap) {
            None => Kept::Nothing,
            Some(Ok(file)) => Kept::Idle(file),
            Some(Err(used)) => {
                self.kept = Some(used);
                Kept::Used
            }
        }
    }
}
