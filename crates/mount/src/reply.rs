//! Replies: results are put together as `linux/fuse.h` lays them out.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use rustix::fs::{FileType, StatVfs};

use crate::limits::ATTRIBUTES_KEPT;
use crate::times::timespec;
use crate::wire::{Attributes, opened};

/// Bytes of an entry of a directory without its name.
const ENTRY_BYTES: usize = 24;

/// Bytes of a reply to LOOKUP.
const FOUND_BYTES: usize = 128;

/// A node keeps its inode until the kernel has forgotten the number, so one generation is enough.
const GENERATION: u64 = 0;

/// The result of a request, in memory that is sent to the kernel.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    memory: &'a mut [u8],
    length: usize,
}

impl<'a> Reply<'a> {
    /// A reply without a result.
    pub(crate) fn new(memory: &'a mut [u8]) -> Self {
        Self { memory, length: 0 }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// `ERANGE` if there is no room for them.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn room(&mut self, bytes: usize) -> io::Result<&mut [u8]> {
        let no_room = || io::Error::from_raw_os_error(libc::ERANGE);
        let end = self.length.saturating_add(bytes);
        let room = self.memory.get_mut(self.length..end).ok_or_else(no_room)?;
        self.length = end;
        Ok(room)
    }

    fn words<const COUNT: usize>(&mut self, words: [u32; COUNT]) -> io::Result<()> {
        words.into_iter().try_for_each(|word| self.bytes(&word.to_ne_bytes()))
    }

    pub(crate) fn longs<const COUNT: usize>(&mut self, longs: [u64; COUNT]) -> io::Result<()> {
        longs.into_iter().try_for_each(|long| self.bytes(&long.to_ne_bytes()))
    }

    /// Takes what a call puts into at most this many bytes.
    pub(crate) fn filled(
        &mut self,
        most: u32,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let most = self.memory.len().min(most as usize);
        self.length = fill(&mut self.memory[..most])?;
        Ok(())
    }

    /// Attributes, and how long the kernel may keep them.
    pub(crate) fn attributes(&mut self, attributes: &Attributes) -> io::Result<()> {
        self.longs([ATTRIBUTES_KEPT.as_secs()])?;
        self.words([ATTRIBUTES_KEPT.subsec_nanos(), 0])?;
        self.bare_attributes(attributes)
    }

    fn bare_attributes(&mut self, of: &Attributes) -> io::Result<()> {
        let times = [of.accessed, of.modified, of.changed].map(|time| timespec(Some(time)));
        self.longs([of.number, of.size, of.blocks])?;
        self.longs(times.map(|time| time.tv_sec.cast_unsigned()))?;
        self.words(times.map(|time| time.tv_nsec as u32))?;
        let mode = of.kind.as_raw_mode() | of.permissions;
        self.words([mode, of.links, of.user, of.group, of.device, of.block_bytes, 0])
    }

    /// An object that was looked up.
    pub(crate) fn found(&mut self, attributes: &Attributes) -> io::Result<()> {
        self.found_for(attributes, ATTRIBUTES_KEPT)
    }

    fn found_for(&mut self, attributes: &Attributes, kept: Duration) -> io::Result<()> {
        let seconds = kept.as_secs();
        self.longs([attributes.number, GENERATION, seconds, seconds])?;
        self.words([kept.subsec_nanos(); 2])?;
        self.bare_attributes(attributes)
    }

    /// An open file or directory: its number, how the kernel uses it, and its backing file.
    pub(crate) fn opened(&mut self, handle: u64, how: u32, backing: Option<u32>) -> io::Result<()> {
        let passes = backing.map_or(0, |_| opened::PASSTHROUGH);
        self.longs([handle])?;
        self.words([how | passes, backing.unwrap_or(0)])
    }

    /// A number of bytes, such as those written.
    pub(crate) fn count(&mut self, count: u64) -> io::Result<()> {
        self.words([u32::try_from(count).unwrap_or(u32::MAX), 0])
    }

    /// The value of an attribute, or its size if none is asked for.
    pub(crate) fn value(&mut self, size: u32, value: &[u8]) -> io::Result<()> {
        match size {
            0 => self.count(value.len() as u64),
            _ if value.len() > size as usize => Err(io::Error::from_raw_os_error(libc::ERANGE)),
            _ => self.bytes(value),
        }
    }

    /// The space of a file system.
    pub(crate) fn space(&mut self, of: &StatVfs) -> io::Result<()> {
        self.longs([of.f_blocks, of.f_bfree, of.f_bavail, of.f_files, of.f_ffree])?;
        self.words([of.f_bsize as u32, of.f_namemax as u32, of.f_frsize as u32])?;
        self.words([0; 7])
    }

    /// Adds an entry of a directory to at most this many bytes. Returns false if it has no room.
    pub(crate) fn entry(
        &mut self,
        most: u32,
        (inode, next): (u64, u64),
        kind: FileType,
        name: &OsStr,
    ) -> io::Result<bool> {
        if !self.has_room(most, ENTRY_BYTES, name) {
            return Ok(false);
        }
        self.longs([inode, next])?;
        self.words([name.len() as u32, kind.as_raw_mode() >> 12])?;
        self.bytes(name.as_bytes())?;
        self.room(self.length.next_multiple_of(8) - self.length)?.fill(0);
        Ok(true)
    }

    /// Adds an entry with attributes that the kernel may keep for a while.
    pub(crate) fn entry_with(
        &mut self,
        most: u32,
        (next, name): (u64, &OsStr),
        attributes: &Attributes,
        kept: Duration,
    ) -> io::Result<bool> {
        if !self.has_room(most, FOUND_BYTES + ENTRY_BYTES, name) {
            return Ok(false);
        }
        self.found_for(attributes, kept)?;
        self.entry(u32::MAX, (attributes.number, next), attributes.kind, name)
    }

    fn has_room(&self, most: u32, fixed: usize, name: &OsStr) -> bool {
        let bytes = (fixed + name.len()).next_multiple_of(8);
        self.length + bytes <= self.memory.len().min(most as usize)
    }
}
