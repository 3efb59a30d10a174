//! Open files: reads, writes, syncs and space.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};

use crate::data::{Access, Sync};
use crate::limits::{COPY_BYTES, REQUEST_BYTES};
use crate::mounted::Mount;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::settle;

thread_local! {
    /// Memory for what a request reads. Each serving thread reads for one request at a time.
    static MEMORY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Mount {
    /// Opens a file with the flags of the kernel. Blocks.
    pub(crate) fn open_file(
        &self,
        node: &Arc<Node>,
        flags: OFlags,
        caller: u32,
    ) -> io::Result<Arc<OpenFile>> {
        let cut = flags.contains(OFlags::TRUNC);
        let writes = cut || flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let access = if writes { Access::ReadWrite } else { Access::Read };
        let file = match cut {
            true => OpenFile::open_to_cut(&self.way, node)?,
            false => OpenFile::open(&self.way, node, access)?,
        };
        if cut && let Err(error) = self.cut(&file, caller) {
            self.end_open(file);
            return Err(error);
        }
        Ok(file)
    }

    fn cut(&self, file: &OpenFile, caller: u32) -> io::Result<()> {
        self.drop_privileges(&file.node, caller)?;
        file.data.set_size(0)?;
        file.node.state().is_replaced = true;
        file.note_write(0);
        Ok(())
    }

    /// Ends an open of the kernel.
    pub(crate) fn end_open(&self, file: Arc<OpenFile>) {
        let node = Arc::clone(&file.node);
        file.end();
        let is_poisoned = {
            let state = node.state();
            if state.is_open() {
                return;
            }
            state.is_poisoned
        };
        settle::drop_removed(self, &node);
        if is_poisoned {
            // No program has it open, so the syncs of the next one may succeed.
            settle::close(self, &node);
        }
        if !node.state().is_unused() {
            self.settling.plan(self, &node);
        }
    }

    /// Reads, and passes what was read on.
    pub(crate) fn read_file<T>(
        &self,
        file: &OpenFile,
        offset: u64,
        bytes: usize,
        pass_on: impl FnOnce(io::Result<&[u8]>) -> T,
    ) -> T {
        MEMORY.with_borrow_mut(|memory| {
            let bytes = bytes.min(REQUEST_BYTES as usize);
            if memory.len() < bytes {
                memory.resize(bytes, 0);
            }
            let read = file.data.read(&mut memory[..bytes], offset);
            pass_on(read.map(|read| &memory[..read]))
        })
    }

    /// Writes; durably, if the file was opened so.
    pub(crate) fn write_file(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
        (flags, caller): (i32, u32),
    ) -> io::Result<()> {
        self.drop_privileges(&file.node, caller)?;
        file.data.write(data, offset)?;
        file.note_write(data.len() as u64);
        Sync::of_flags(flags).map_or(Ok(()), |what| file.sync(what))
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
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        file.data.allocate(flags, offset, length)?;
        file.note_write(0);
        Ok(())
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
    ) -> io::Result<u64> {
        let bytes = bytes.min(COPY_BYTES);
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(REQUEST_BYTES.into()) as usize;
            let copied = self.read_file(from, offset_from + done, piece, |read| {
                let read = read?;
                to.data.write(read, offset_to + done)?;
                Ok::<_, io::Error>(read.len() as u64)
            });
            match copied {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        to.note_write(done);
        Ok(done)
    }
}
