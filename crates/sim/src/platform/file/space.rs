//! Space of a file: its size, allocation, extents, and the mark of reserved space.

use std::io;
use std::ops::Range;

use forebay_block::limits::PAGE;
use forebay_block::{Errno, Operation};
use forebay_uring::{Access, Extents, Kind, Rewrite};

use super::OpenFile;
use crate::marks;
use crate::world::machine::{self, Machine, VolumePlan, error_of};

impl OpenFile {
    /// Returns the space that a write of a page needs that has data already.
    #[must_use]
    pub fn rewrite(&self) -> Rewrite {
        let kind = |volume: &VolumePlan| match () {
            () if volume.copies_on_write => Rewrite::Copies,
            () if volume.extents => Rewrite::InPlace,
            () => Rewrite::Allocates,
        };
        self.look(|machine, node| Ok(kind(machine.volume_of(node)))).unwrap_or(Rewrite::InPlace)
    }

    /// As `forebay_uring::OpenFile::append`.
    pub fn append(&self, data: &[u8]) -> Option<io::Result<(u64, usize)>> {
        let appended = self.look(|machine, node| machine.append(node, data));
        Some(appended.map(|(offset, length)| (offset, length as usize)))
    }

    /// Returns a size that a file can have on every file system.
    #[must_use]
    pub fn sure_end(&self) -> u64 {
        1 << 31
    }

    /// Returns whether a file of this file system can have `end` bytes.
    #[must_use]
    pub fn can_hold(&self, end: u64) -> bool {
        self.look(|machine, node| Ok(end <= machine.volume_of(node).most_bytes)).unwrap_or(false)
    }

    /// Returns the ranges of bytes that have data, in order, or `None` if there are more than
    /// `most`.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn data(&self, most: usize) -> io::Result<Option<Vec<Range<u64>>>> {
        let data = self.look(|machine, node| Ok(machine.inode(node).stored.data()))?;
        marks::hit(match data.len() {
            0 => "no data at open",
            count if count <= most => "data in part at open",
            _ => return Ok(None),
        });
        Ok(Some(data))
    }

    /// Sets the size of the file. Space beyond it is freed.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn truncate(&self, length: u64) -> io::Result<()> {
        if self.kind != Kind::Regular || self.access() == Access::Read {
            return Err(error_of(Errno::INVALID));
        }
        self.submit(Operation::SetLength, length..length, Vec::new()).map(|_| ())
    }

    /// Allocates space for a range without changing the size.
    ///
    /// # Errors
    /// `StorageFull` if there is no space, and others.
    pub fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.submit(Operation::Allocate, offset..offset + length, Vec::new()).map(|_| ())
    }

    /// Allocates space for a range. No file shares its blocks here.
    ///
    /// # Errors
    /// As [`OpenFile::allocate`].
    pub fn allocate_alone(&self, offset: u64, length: u64) -> io::Result<()> {
        self.allocate(offset, length)
    }

    /// Allocates space for a range, and extends the file to its end if it is shorter.
    ///
    /// # Errors
    /// As [`OpenFile::allocate`].
    pub fn extend(&self, offset: u64, length: u64) -> io::Result<()> {
        self.allocate(offset, length)?;
        if self.length()? < offset + length { self.truncate(offset + length) } else { Ok(()) }
    }

    /// Frees the space of a range, which then reads as zeroes.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.submit(Operation::Punch, offset..offset + length, Vec::new()).map(|_| ())
    }

    /// Discards a range of a block device, or frees the space of a range of a file.
    ///
    /// # Errors
    /// The error of the device.
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.submit(Operation::Discard, offset..offset + length, Vec::new()).map(|_| ())
    }

    /// Returns the extents of the file.
    ///
    /// # Errors
    /// `Unsupported` if the file system does not report extents.
    pub fn extents(&self) -> io::Result<Extents> {
        self.pieces_of(0..u64::MAX)
    }

    /// Returns the offset on the device of the byte at `offset`.
    ///
    /// # Errors
    /// As [`OpenFile::extents`].
    pub fn physical_at(&self, offset: u64) -> io::Result<Option<u64>> {
        let page = PAGE as u64;
        self.extents_look(|machine, node| {
            let (plan, inode) = (machine.volume_of(node), machine.inode(node));
            let at = offset / page;
            let is_there = inode.stored.allocated().contains(&at);
            is_there.then(|| inode.place(plan, at) + offset % page)
        })
    }

    /// Returns the number and total length of the contiguous pieces of a range.
    ///
    /// # Errors
    /// As [`OpenFile::extents`].
    pub fn pieces_of(&self, bytes: Range<u64>) -> io::Result<Extents> {
        self.extents_look(|machine, node| {
            machine.inode(node).pieces(machine.volume_of(node), &bytes)
        })
    }

    /// Returns the ranges of the file that have space.
    ///
    /// # Errors
    /// As [`OpenFile::extents`].
    pub fn own_space(&self) -> io::Result<Vec<Range<u64>>> {
        let page = PAGE as u64;
        self.extents_look(|machine, node| {
            let pages = machine.inode(node).stored.allocated().iter();
            pages.map(|at| at * page..(at + 1) * page).collect()
        })
    }

    /// Returns whether space is allocated from `offset` on.
    ///
    /// # Errors
    /// As [`OpenFile::extents`].
    pub fn has_space_from(&self, offset: u64) -> io::Result<bool> {
        Ok(self.pieces_of(offset..u64::MAX)?.count > 0)
    }

    fn extents_look<T>(&self, look: impl FnOnce(&Machine, machine::Node) -> T) -> io::Result<T> {
        let has_extents = |machine: &Machine, node| {
            machine.volume_of(node).extents && !machine.inode(node).is_device()
        };
        self.look(|machine, node| match has_extents(machine, node) {
            true => Ok(look(machine, node)),
            false => Err(Errno::UNSUPPORTED),
        })
    }

    /// Returns the end of the space that an engine reserved and did not give back before a crash.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no extended attributes.
    pub fn reservation_mark(&self) -> io::Result<Option<u64>> {
        self.attributes(|machine, node| {
            let mark = machine.inode(node).metadata.mark();
            mark.and_then(|mark| mark.parse().ok())
        })
    }

    /// Stores the end of the reserved space in an extended attribute of the file.
    ///
    /// # Errors
    /// As [`OpenFile::reservation_mark`].
    pub fn set_reservation_mark(&self, end: u64) -> io::Result<()> {
        self.attributes(|machine, node| machine.set_mark(node, Some(end.to_string())))
    }

    /// Removes the extended attribute that marks reserved space.
    ///
    /// # Errors
    /// As [`OpenFile::reservation_mark`].
    pub fn remove_reservation_mark(&self) -> io::Result<()> {
        self.attributes(|machine, node| machine.set_mark(node, None))
    }

    pub(super) fn attributes<T>(
        &self,
        act: impl FnOnce(&mut Machine, machine::Node) -> T,
    ) -> io::Result<T> {
        self.look(|machine, node| match machine.volume_of(node).attributes {
            true => Ok(act(machine, node)),
            false => Err(Errno::UNSUPPORTED),
        })
    }
}
