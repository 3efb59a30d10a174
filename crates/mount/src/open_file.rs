//! The open files of a node.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use fuser::BackingId;
use rustix::fs::OFlags;

use crate::appends::Appends;
use crate::data::{Access, OpenData, Sync, Way};
use crate::node::Node;
use crate::passed::{Pass, open_as_asked, open_passed};
use crate::plain::plain;
use crate::small::Small;

/// A file that is open in the engine, for one or more opens of the kernel in turn.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) node: Arc<Node>,
    pub(crate) data: OpenData,
    pub(crate) access: Access,
    /// The backing file, if the kernel reads it itself.
    pub(crate) backing: Option<Arc<BackingId>>,
    /// Flags of its last open of the kernel.
    flags: AtomicI32,
    appends: Appends,
}

impl OpenFile {
    pub(crate) fn new(node: &Arc<Node>, data: OpenData, access: Access) -> Arc<Self> {
        Self::with_backing(node, data, access, None)
    }

    /// A file that is open past the engine.
    pub(crate) fn past(
        node: &Arc<Node>,
        data: OpenData,
        backing: Option<Arc<BackingId>>,
    ) -> Arc<Self> {
        Self::with_backing(node, data, Access::AsAsked, backing)
    }

    fn with_backing(
        node: &Arc<Node>,
        data: OpenData,
        access: Access,
        backing: Option<Arc<BackingId>>,
    ) -> Arc<Self> {
        let (flags, appends) = (AtomicI32::new(0), Appends::default());
        Arc::new(Self { node: Arc::clone(node), data, access, backing, flags, appends })
    }

    /// Opens the file of a node for a caller with these flags. `pass` gives it to the kernel, if
    /// that can read it. Blocks.
    pub(crate) fn open_for(
        way: &Way,
        node: &Arc<Node>,
        flags: OFlags,
        mut pass: Option<Pass<'_>>,
    ) -> io::Result<Arc<Self>> {
        let access = Access::of(flags);
        loop {
            if let Some(file) = open_passed(node, flags, pass.take())? {
                return Ok(file);
            }
            let opened = match flags.contains(OFlags::TRUNC) {
                true => Self::open_to_cut(way, node),
                false => Self::open(way, node, access),
            };
            match opened {
                Ok(Some(file)) => return Ok(file),
                Ok(None) => {}
                Err(error) if access == Access::ReadWrite && is_refused(&error) => {
                    return open_as_asked(node, flags);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the file of a node. `None` if it was opened past the engine meanwhile. Blocks.
    fn open(way: &Way, node: &Arc<Node>, access: Access) -> io::Result<Option<Arc<Self>>> {
        Self::opening(node, access, || way.open(&node.path(), access))
    }

    /// Opens the file of a node, which the caller cuts to nothing next. Blocks.
    fn open_to_cut(way: &Way, node: &Arc<Node>) -> io::Result<Option<Arc<Self>>> {
        // Pages of the old content would be written over the new one.
        let closing = node.closing();
        let is_unused = node.state().is_unused();
        match way {
            Way::Engine(stack) if is_unused => {
                let access = Access::ReadWrite;
                Self::opening(node, access, || {
                    let file = plain(&node.path(), access == Access::ReadWrite)?;
                    Ok(OpenData::Small(Small::new(stack, file)))
                })
            }
            way => {
                drop(closing);
                Self::open(way, node, Access::ReadWrite)
            }
        }
    }

    /// Opens a new file of a node, which is open already. Blocks.
    pub(crate) fn take(way: &Way, node: &Arc<Node>, file: OwnedFd) -> io::Result<Arc<Self>> {
        let opened = Self::opening(node, Access::ReadWrite, || {
            Ok(match way {
                Way::Engine(stack) => OpenData::Small(Small::new(stack, file.into())),
                Way::Plain => OpenData::Plain(file.into()),
            })
        });
        // A program may have found it by another name.
        opened?.map_or_else(|| open_as_asked(node, OFlags::RDWR), Ok)
    }

    fn opening(
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

/// Whether this process may not open a file in this way.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_state::Kept;

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
        let node = nodes.enter(descriptor, &status, 1);
        let open_for = |flags| OpenFile::open_for(&Way::Plain, &node, flags, None).unwrap();
        let read = open_for(OFlags::RDONLY);
        let write = open_for(OFlags::RDWR);
        let number = Arc::as_ptr(&write);
        assert!(Arc::ptr_eq(node.state().any().unwrap(), &write));
        write.end();
        assert!(node.state().writable().is_some(), "it sets the time while another is open");
        read.end();
        assert!(!node.state().is_open() && !node.state().is_unused());
        let again = open_for(OFlags::RDONLY);
        assert_eq!(Arc::as_ptr(&again), number);
        again.end();
        assert!(matches!(node.state().take_kept(), Kept::Idle(_)));
        assert!(node.state().is_unused());
    }
}
