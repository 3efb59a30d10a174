//! Calls that an intent log needs, as those of `forebay_uring::OpenFile`.

use std::io;

use forebay_block::{Errno, Operation};
use forebay_uring::Lasting;

use super::OpenFile;
use crate::world::machine::points;

impl OpenFile {
    /// Reads until `into` is full.
    ///
    /// # Errors
    /// The error of the device; `UnexpectedEof` if the file ends before; `InvalidInput` for a
    /// direct read that is not aligned.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let length = into.len() as u64;
        let data = self.look(|machine, node| {
            let is_direct = machine.is_direct(self.descriptor)?;
            let unit = if is_direct { u64::from(self.alignment.offset) } else { 1 };
            if !offset.is_multiple_of(unit) || !length.is_multiple_of(unit) {
                return Err(Errno::INVALID);
            }
            if machine.random.happens(machine.plan.faults.read) {
                return Err(Errno::IO);
            }
            Ok(machine.inode(node).stored.read(offset, length))
        })?;
        if data.len() < into.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        into.copy_from_slice(&data);
        Ok(())
    }

    /// As `forebay_uring::OpenFile::write_all_durably_at`.
    ///
    /// # Errors
    /// Of the device.
    pub fn write_all_durably_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)?;
        self.sync_data()
    }

    /// Makes the data of the file durable, and its mark or not. Blocks.
    ///
    /// # Errors
    /// The error of the device.
    pub fn sync_data(&self) -> io::Result<()> {
        self.submit(Operation::FlushData, 0..0, Vec::new()).map(|_| ())
    }

    /// Returns the attributes that identify the file after a restart.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn lasting(&self) -> io::Result<Lasting> {
        self.look(|machine, node| Ok(machine.lasting(node)))
    }

    /// Returns the mark of the file.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no extended attributes.
    pub fn log_mark(&self) -> io::Result<Option<Vec<u8>>> {
        self.attributes(|machine, node| machine.inode(node).logged.current().mark.clone())
    }

    /// Stores the mark of the file.
    ///
    /// # Errors
    /// As [`OpenFile::log_mark`].
    pub fn set_log_mark(&self, mark: &[u8]) -> io::Result<()> {
        self.attributes(|machine, node| machine.set_log_mark(node, Some(mark.to_vec())))?;
        points::pass();
        Ok(())
    }

    /// Removes the mark of the file.
    ///
    /// # Errors
    /// As [`OpenFile::log_mark`].
    pub fn remove_log_mark(&self) -> io::Result<()> {
        self.attributes(|machine, node| machine.set_log_mark(node, None))?;
        points::pass();
        Ok(())
    }
}
