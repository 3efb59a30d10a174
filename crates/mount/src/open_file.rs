//! The open files of a node, and changes that the source does not show yet.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Instant, SystemTime};

use forebay_uring::fuse::Backing;
use rustix::fs::OFlags;

use crate::appends::Appends;
use crate::data::{Access, OpenData, Sync, Way};
use crate::limits::KEEP_WRITABLE;
use crate::node::Node;
use crate::plain::plain;
use crate::small::Small;

/// A file that is open in the engine, for one or more opens of the kernel in turn.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) node: Arc<Node>,
    pub(crate) data: OpenData,
    pub(crate) access: Access,
    /// The backing file, if the kernel reads it itself.
    pub(crate) backing: Option<Arc<Backing>>,
    /// Flags of its last open of the kernel.
    flags: AtomicI32,
    appends: Appends,
}

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
    /// Whether it has no name, and can get one as long as the kernel knows it (`O_TMPFILE`).
    pub(crate) is_linkable: bool,
    /// Opens of the kernel that run it as a program.
    pub(crate) runs: u32,
    /// Opens in progress.
    pub(crate) opening: u32,
    /// Whether it is being opened past the engine.
    pub(crate) is_passing: bool,
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

impl OpenFile {
    pub(crate) fn new(node: &Arc<Node>, data: OpenData, access: Access) -> Arc<Self> {
        Self::with(node, data, access, (None, OFlags::empty()))
    }

    /// A file that is open past the engine with these flags.
    pub(crate) fn past(
        node: &Arc<Node>,
        data: OpenData,
        backing: Option<Arc<Backing>>,
        flags: OFlags,
    ) -> Arc<Self> {
        Self::with(node, data, Access::AsAsked, (backing, flags))
    }

    fn with(
        node: &Arc<Node>,
        data: OpenData,
        access: Access,
        (backing, flags): (Option<Arc<Backing>>, OFlags),
    ) -> Arc<Self> {
        let flags = AtomicI32::new(flags.bits().cast_signed());
        let (node, appends) = (Arc::clone(node), Appends::default());
        Arc::new(Self { node, data, access, backing, flags, appends })
    }

    /// Opens the file of a node. `None` if it was opened past the engine meanwhile. Blocks.
    pub(crate) fn open(
        way: &Way,
        node: &Arc<Node>,
        access: Access,
    ) -> io::Result<Option<Arc<Self>>> {
        // During a close, the engine would keep the file open for writing, for this handle.
        drop(node.closing());
        Self::opening(node, access, || way.open(node.as_fd(), access))
    }

    /// Opens the file of a node, which the caller cuts to nothing next. Blocks.
    pub(crate) fn open_to_cut(way: &Way, node: &Arc<Node>) -> io::Result<Option<Arc<Self>>> {
        // Pages of the old content would be written over the new one.
        let closing = node.closing();
        let is_unused = node.state().is_unused();
        match way {
            Way::Engine(stack) if is_unused => {
                let access = Access::ReadWrite;
                Self::opening(node, access, || {
                    let file = plain(node.as_fd(), true)?;
                    Ok(OpenData::Small(Small::new(stack, file)))
                })
            }
            way => {
                drop(closing);
                Self::open(way, node, Access::ReadWrite)
            }
        }
    }

    pub(crate) fn opening(
        node: &Arc<Node>,
        access: Access,
        open: impl FnOnce() -> io::Result<OpenData>,
    ) -> io::Result<Option<Arc<Self>>> {
        let small = {
            let mut state = node.state();
            if state.is_past() {
                return Ok(None);
            }
            if let Some(kept) = state.reopen(access) {
                return Ok(Some(kept));
            }
            state.opening += 1;
            state.small().cloned()
        };
        // The engine shows each of several open files what is written to the others.
        let grown = small.as_ref().and_then(|file| file.data.small()).map_or(Ok(()), Small::grow);
        let opened = grown.and_then(|()| open());
        let mut state = node.state();
        let is_only = state.opening == 1 && state.is_unused();
        let opened = match opened {
            Ok(data) if data.small().is_some() && !is_only => {
                drop(state);
                let grown = data.small().map_or(Ok(()), Small::grow);
                state = node.state();
                grown.map(|()| data)
            }
            opened => opened,
        };
        state.opening -= 1;
        let file = Self::new(node, opened?, access);
        state.add(&file);
        Ok(Some(file))
    }

    /// Writes, and notes the time: also after an error, because a part may have been accepted.
    pub(crate) fn write(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.data.write(data, offset);
        self.note_write(*written.as_ref().unwrap_or(&0) as u64);
        written
    }

    /// Appends, and notes the time. The kernel believes that the end is at this offset.
    pub(crate) fn append(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        let written =
            self.appends.in_turn(offset, || self.data.end(), |end| self.data.append(data, end));
        self.note_write(*written.as_ref().unwrap_or(&0) as u64);
        written
    }

    /// Notes a write at this moment, unless the source shows it and its time.
    pub(crate) fn note_write(&self, bytes: u64) {
        let mut state = self.node.state();
        if self.data.is_in_engine() || state.written.is_some() {
            state.note_write(bytes);
        }
        self.node.note_changed();
    }

    /// Notes the flags of an open of the kernel.
    pub(crate) fn opened_with(&self, flags: OFlags) {
        self.flags.store(flags.bits().cast_signed(), Ordering::Relaxed);
    }

    fn last_flags(&self) -> OFlags {
        OFlags::from_bits_retain(self.flags.load(Ordering::Relaxed).cast_unsigned())
    }

    pub(crate) fn is_opened_to_write(&self) -> bool {
        self.last_flags().intersects(OFlags::WRONLY | OFlags::RDWR)
    }

    /// Whether its last open of the kernel made the file.
    pub(crate) fn is_new(&self) -> bool {
        self.last_flags().contains(OFlags::CREATE)
    }

    /// Syncs if it was opened for synchronous writes. For changes by requests without flags.
    pub(crate) fn sync_as_opened(&self) -> io::Result<()> {
        let flags = self.flags.load(Ordering::Relaxed);
        Sync::of_flags(flags).map_or(Ok(()), |what| self.sync(what))
    }

    /// Makes everything durable that was written before. Blocks.
    pub(crate) fn sync(&self, what: Sync) -> io::Result<()> {
        let is_poisoned = Cell::new(false);
        let done = self.data.sync(what, &is_poisoned);
        if is_poisoned.get() {
            self.node.state().is_poisoned = true;
        }
        done
    }

    /// Ends an open of the kernel. The file may stay open, kept by its node.
    pub(crate) fn end(self: Arc<Self>) {
        let ended = self.node.state().end_open(&self);
        // Starts the writing of its data, without waiting.
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_can_be_written_is_kept_and_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"text").unwrap();
        let open = |path: &std::path::Path| {
            use rustix::fs::{CWD, Mode, OFlags, openat};
            openat(CWD, path, OFlags::PATH, Mode::empty()).unwrap()
        };
        let nodes = crate::node::Nodes::new(open(directory.path())).unwrap();
        let descriptor = open(&path);
        let status = rustix::fs::fstat(&descriptor).unwrap();
        let (node, _) = nodes.enter(descriptor, &status, 1);
        let opened = |flags| crate::passed::open_for(&Way::Plain, &node, flags, None).unwrap();
        let read = opened(OFlags::RDONLY);
        let write = opened(OFlags::RDWR);
        let number = Arc::as_ptr(&write);
        assert!(Arc::ptr_eq(node.state().any().unwrap(), &write));
        write.end();
        assert!(node.state().writable().is_some(), "it sets the time while another is open");
        read.end();
        assert!(!node.state().is_open() && !node.state().is_unused());
        let again = opened(OFlags::RDONLY);
        assert_eq!(Arc::as_ptr(&again), number);
        again.end();
        assert!(matches!(node.state().take_kept(), Kept::Idle(_)));
        assert!(node.state().is_unused());
    }
}
