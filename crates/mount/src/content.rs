//! Open files: reads, writes, syncs and space.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, StatxAttributes};

use crate::caller::Caller;
use crate::data::{Access, Sync};
use crate::limits::{COPY_BYTES, REQUEST_BYTES};
use crate::mounted::Mount;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::passed::{Pass, open_as_asked, open_for};
use crate::settle;
use crate::wire::TO_RUN;

impl Mount {
    /// Opens a file with the flags of the kernel. `pass` gives it to the kernel, if that can read
    /// it. Blocks.
    pub(crate) fn open_file(
        &self,
        node: &Arc<Node>,
        flags: OFlags,
        caller: &Caller,
        pass: Option<Pass<'_>>,
    ) -> io::Result<Arc<OpenFile>> {
        let cut = flags.contains(OFlags::TRUNC);
        let is_for_writing = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if cut && !is_for_writing && node.state().runs > 0 {
            // The kernel refuses it, too, but only after the file was cut here. An open for writing
            // it refuses before.
            return Err(io::Error::from_raw_os_error(libc::ETXTBSY));
        }
        let only_grows = Access::of(flags) == Access::ReadWrite && only_grows(node, flags)?;
        if only_grows {
            // A file that is kept was opened before it got the attribute.
            settle::close(self, node);
        }
        let file = if only_grows && node.state().writable().is_none() {
            open_as_asked(node, flags)?
        } else {
            open_for(&self.way, node, flags, pass)?
        };
        if cut && let Err(error) = self.cut(&file, caller) {
            self.end_open(file);
            return Err(error);
        }
        file.opened_with(flags - OFlags::CREATE);
        if flags.bits() & TO_RUN != 0 {
            node.state().runs += 1;
        }
        Ok(file)
    }

    fn cut(&self, file: &OpenFile, caller: &Caller) -> io::Result<()> {
        self.drop_privileges(file, caller)?;
        file.data.set_size(0)?;
        file.node.state().is_replaced = true;
        file.note_write(0);
        Ok(())
    }

    /// Ends an open of the kernel.
    pub(crate) fn end_open(&self, file: Arc<OpenFile>) {
        let node = Arc::clone(&file.node);
        if file.is_new() {
            // Its close has sent nothing. After an error the file stays dirty, and is tried again.
            let _ = self.flush_file(&file);
        }
        file.end();
        let is_closed_now = {
            let state = node.state();
            if state.is_open() {
                return;
            }
            // No program has it open, so the syncs of the next one may succeed.
            state.is_poisoned || state.is_overdue()
        };
        if node.may_be_removed.load(Ordering::Relaxed) {
            settle::drop_removed(self, &node);
        }
        if is_closed_now {
            settle::close(self, &node);
        }
        if node.state().is_unused() {
            self.nodes.release(&node);
        } else {
            self.settling.plan(self, &node);
        }
    }

    /// Writes, and returns the number of bytes; durably, if the file was opened so. Without a
    /// caller, pages of a map are written.
    pub(crate) fn write_file(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
        (flags, caller): (i32, Option<Caller>),
    ) -> io::Result<usize> {
        caller.as_ref().map_or(Ok(()), |caller| self.drop_privileges(file, caller))?;
        // A page of a map has its place, however the file was opened.
        let flags = caller.map_or(0, |_| flags);
        file.data.append_as(OFlags::from_bits_retain(flags.cast_unsigned()))?;
        let written = match flags & libc::O_APPEND {
            0 => file.write(data, offset)?,
            _ => file.append(data, offset)?,
        };
        Sync::of_flags(flags).map_or(Ok(written), |what| file.sync(what).map(|()| written))
    }

    /// A close of one descriptor. A file whose content was replaced is written out, so that a crash
    /// of the machine long after it does not find it empty.
    pub(crate) fn flush_file(&self, file: &OpenFile) -> io::Result<()> {
        let is_replaced = std::mem::take(&mut file.node.state().is_replaced);
        if is_replaced { file.data.write_out() } else { Ok(()) }
    }

    pub(crate) fn allocate(
        &self,
        file: &OpenFile,
        flags: FallocateFlags,
        (offset, length): (u64, u64),
        caller: &Caller,
    ) -> io::Result<()> {
        self.drop_privileges(file, caller)?;
        let done = file.data.allocate(flags, offset, length);
        let is_supported = !matches!(&done, Err(error) if is_unsupported(error));
        if is_supported {
            // After an error a part of the range may be zero.
            file.note_write(0);
        }
        done?;
        file.sync_as_opened()
    }

    pub(crate) fn seek_file(&self, file: &OpenFile, offset: i64, whence: i32) -> io::Result<u64> {
        let offset = u64::try_from(offset);
        let offset = offset.map_err(|_| io::Error::from_raw_os_error(libc::ENXIO))?;
        match whence {
            libc::SEEK_DATA => file.data.seek(SeekFrom::Data(offset)),
            libc::SEEK_HOLE => file.data.seek(SeekFrom::Hole(offset)),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// Copies a range between files, and returns how much was copied.
    pub(crate) fn copy_range(
        &self,
        (from, offset_from): (&OpenFile, u64),
        (to, offset_to): (&OpenFile, u64),
        bytes: u64,
        caller: &Caller,
    ) -> io::Result<u64> {
        self.drop_privileges(to, caller)?;
        let bytes = bytes.min(COPY_BYTES);
        let mut memory = vec![0; bytes.min(REQUEST_BYTES.into()) as usize];
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(REQUEST_BYTES.into()) as usize;
            let read = from.read(&mut memory[..piece], offset_from + done, 0);
            match read.and_then(|read| to.write(&memory[..read], offset_to + done)) {
                Ok(0) => break,
                Ok(copied) => done += copied as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if done > 0 {
            to.sync_as_opened()?;
        }
        Ok(done)
    }
}

/// Checks an open for writing against the attributes of the file, which the engine may have open
/// already. Returns whether it may only be appended to.
fn only_grows(node: &Node, flags: OFlags) -> io::Result<bool> {
    let protection = node.protection()?;
    let appends = flags.contains(OFlags::APPEND) && !flags.contains(OFlags::TRUNC);
    if protection.is_empty() || protection == StatxAttributes::APPEND && appends {
        return Ok(!protection.is_empty());
    }
    Err(io::Error::from_raw_os_error(libc::EPERM))
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EOPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use forebay::{Engine, Options};
    use rustix::fs::{CWD, Mode, openat};

    use super::*;

    fn mount(directory: &Path) -> (Engine, Mount) {
        let engine = Engine::start(Options {
            cache_bytes: Some(16 << 20),
            dirty_age: Duration::from_secs(60),
            ..Options::default()
        })
        .unwrap();
        (engine.clone(), Mount::unmounted(directory, engine))
    }

    fn open(mount: &Mount, path: &Path, flags: OFlags) -> Arc<OpenFile> {
        std::fs::write(path, b"hello").unwrap();
        let descriptor = openat(CWD, path, OFlags::PATH, Mode::empty()).unwrap();
        let status = rustix::fs::fstat(&descriptor).unwrap();
        let (node, _) = mount.nodes.enter(descriptor, &status, 1);
        mount.open_file(&node, flags, &Caller::here(), None).unwrap()
    }

    /// The end of the mount writes out files with a time of writing alone.
    #[test]
    fn a_write_that_fails_has_a_time_because_a_part_may_have_been_accepted() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let (engine, mount) = mount(directory.path());
        let file = open(&mount, &directory.path().join("file"), OFlags::RDWR);
        let to = open(&mount, &directory.path().join("to"), OFlags::RDWR);
        let mut read = [0; 5];
        assert_eq!((file.read(&mut read, 0, 0).unwrap(), &read), (5, b"hello"));
        engine.shutdown(Duration::from_secs(10)).unwrap();
        assert!(file.node.state().written.is_none());
        mount.write_file(&file, 0, b"world", (0, None)).unwrap_err();
        assert!(file.node.state().written.is_some());
        mount.allocate(&to, FallocateFlags::empty(), (0, 10), &Caller::here()).unwrap_err();
        assert!(to.node.state().written.is_some());
    }

    #[test]
    fn a_copy_to_a_file_for_synchronous_writes_is_durable() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let (engine, mount) = mount(directory.path());
        let file = open(&mount, &directory.path().join("file"), OFlags::RDWR);
        let synchronous = OFlags::from_bits_retain(libc::O_DSYNC.cast_unsigned());
        let to = open(&mount, &directory.path().join("to"), OFlags::RDWR | synchronous);
        let syncs = engine.stats().syncs;
        assert_eq!(mount.copy_range((&file, 0), (&to, 3), 5, &Caller::here()).unwrap(), 5);
        assert_eq!(std::fs::read(directory.path().join("to")).unwrap(), b"helhello");
        assert_eq!(engine.stats().syncs, syncs + 1);
        mount.allocate(&to, FallocateFlags::empty(), (0, 100), &Caller::here()).unwrap();
        assert_eq!(engine.stats().syncs, syncs + 2);
    }
}
