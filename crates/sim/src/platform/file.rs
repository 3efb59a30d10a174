//! Files, with the methods and the behaviour of `forebay_uring::OpenFile`.
//!
//! A call is a point where another task may run. A call that a real kernel may block in takes
//! virtual time. A call of a process that was killed does nothing and fails.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use forebay_block::limits::PAGE;
use forebay_block::{Bio, Errno, Operation};
use forebay_uring::frames::{MOST_PARTS, Part};
use forebay_uring::{
    Access, Alignment, Arena, Direct, Geometry, How, Identity, Kind, LEASE_PATIENCE, Mode, Status,
    Times, Truncate,
};

use crate::world::machine::{self, Content, Machine, Work, call, call_bio, wait_for};
use crate::world::{self, memory};

mod lasting;
mod leases;
mod open;
mod space;

/// An open file or block device of the simulated machine.
#[derive(Debug)]
pub struct OpenFile {
    /// The machine that the descriptor belongs to.
    epoch: u64,
    descriptor: u64,
    kind: Kind,
    identity: Identity,
    direct: Direct,
    alignment: Alignment,
}

/// Result of opening a file.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: OpenFile,
    /// Whether this call created it.
    pub created: bool,
}

impl OpenFile {
    /// Opens a file, and waits for another program to release its lease.
    ///
    /// # Errors
    /// As `forebay_uring::OpenFile::open`.
    pub fn open(path: &Path, how: &How) -> io::Result<Opened> {
        Self::open_within(path, how, LEASE_PATIENCE)
    }

    /// Opens a file as [`OpenFile::open`], and waits up to `patience` for a lease.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn open_within(path: &Path, how: &How, patience: Duration) -> io::Result<Opened> {
        let until = world::after(world::now(), patience);
        let (descriptor, created) = open::descriptor(path, how, until)?;
        let file = Self::of(descriptor)?;
        if how.truncate == Truncate::Cut && file.kind == Kind::Regular && !created {
            file.truncate(0)?;
        }
        Ok(Opened { file, created })
    }

    /// Returns a file of the same open file description in another process, as when the descriptor
    /// is sent there. It is in the mode that the description has.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn sent_to(&self, process: world::Process) -> io::Result<Self> {
        call(|machine| {
            let descriptor = machine.duplicate(self.descriptor, process)?;
            let (direct, alignment) = (self.direct.clone(), self.alignment);
            let Self { epoch, kind, identity, .. } = *self;
            Ok(Self { epoch, descriptor, kind, identity, direct, alignment })
        })
    }

    /// Switches a file that was taken over to direct I/O, if the file system supports it.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn go_direct(&mut self) -> io::Result<()> {
        (self.direct, self.alignment) = call(|machine| machine.go_direct(self.descriptor))?;
        Ok(())
    }

    /// Switches the open file to buffered I/O, in all processes that share it.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn go_buffered(&mut self) -> io::Result<()> {
        call(|machine| machine.set_direct(self.descriptor, false))?;
        (self.direct, self.alignment) = (Direct::Refused("turned off".into()), Alignment::NONE);
        Ok(())
    }

    /// As `forebay_uring::OpenFile::made_at`.
    pub fn made_at(&mut self, path: &Path) {
        // Of a closed descriptor nothing is flushed.
        let _ = call(|machine| machine.keep_directory(self.descriptor, path));
    }

    /// Returns the identity of the directory that `FlushDirectory` of this file flushes, or `None`
    /// if the file keeps no directory.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn kept_directory(&self) -> io::Result<Option<Identity>> {
        call(|machine| machine.kept_directory(self.descriptor))
    }

    /// As `forebay_uring::OpenFile::sync_directory`.
    ///
    /// # Errors
    /// As there.
    pub fn sync_directory(&self) -> io::Result<()> {
        let ticket = call(|machine| machine.begin_directory_flush(self.descriptor))?;
        wait_for(ticket).map(|_| ())
    }

    /// Returns the identity of the file.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the type of the file.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the access mode of the descriptor.
    #[must_use]
    pub fn access(&self) -> Access {
        let access = machine::with(|machine| machine.access_of(self.descriptor));
        access.unwrap_or(Access::Read)
    }

    /// As `forebay_uring::OpenFile::make_writable`.
    ///
    /// # Errors
    /// As there.
    pub fn make_writable(&self, mut other: OpenFile) -> io::Result<()> {
        if other.access() != Access::ReadWrite || other.identity != self.identity {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match (&self.direct, &other.direct) {
            (Direct::Yes, Direct::Refused(_)) => return Err(io::ErrorKind::Unsupported.into()),
            (Direct::Refused(_), Direct::Yes) => other.go_buffered()?,
            (Direct::Yes, Direct::Yes) | (Direct::Refused(_), Direct::Refused(_)) => {}
        }
        self.release_lease();
        call(|machine| machine.replace(self.descriptor, other.descriptor))
    }

    /// Returns whether the file is accessed with direct I/O, or the reason why not.
    #[must_use]
    pub fn direct(&self) -> &Direct {
        &self.direct
    }

    /// Returns the alignment that requests need.
    #[must_use]
    pub fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Returns the logical block size of a block device in bytes.
    ///
    /// # Errors
    /// `Unsupported` if the file is not a block device.
    pub fn logical_block(&self) -> io::Result<u32> {
        let content = self.look(|machine, node| Ok(machine.inode(node).content.clone()))?;
        match content {
            Content::Device(block) => Ok(block),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the size of the file in bytes; of a device, that of its whole blocks.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn length(&self) -> io::Result<u64> {
        self.look(|machine, node| {
            let inode = machine.inode(node);
            let size = inode.stored.size();
            Ok(match inode.content {
                Content::Device(block) => size / u64::from(block) * u64::from(block),
                _ => size,
            })
        })
    }

    /// Returns the allocated bytes of the file, including reserved space.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn allocated_bytes(&self) -> io::Result<u64> {
        let page = PAGE as u64;
        let pages =
            self.look(|machine, node| Ok(machine.inode(node).stored.allocated().len() as u64))?;
        Ok(pages * page)
    }

    /// Returns the attributes of the file. The machine has one user and keeps no times.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn status(&self) -> io::Result<Status> {
        let allocated_bytes = self.allocated_bytes()?;
        let mode = match self.kind {
            Kind::Block => libc::S_IFBLK | 0o600,
            Kind::Regular | Kind::Other => libc::S_IFREG | 0o600,
        };
        let (accessed, modified, changed) = (UNIX_EPOCH, UNIX_EPOCH, UNIX_EPOCH);
        let (user, group, links) = (0, 0, 1);
        Ok(Status { mode, user, group, links, allocated_bytes, accessed, modified, changed })
    }

    /// Sets times of the file, which the machine does not keep.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn set_times(&self, _times: Times) -> io::Result<()> {
        self.look(|_, _| Ok(()))
    }

    /// Returns the bytes that can still be allocated; unlimited for a block device.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn free_bytes(&self) -> io::Result<u64> {
        if self.kind == Kind::Block {
            return Ok(u64::MAX);
        }
        let page = PAGE as u64;
        let pages = self.look(|machine, node| {
            let volume = machine.inode(node).volume;
            Ok(machine.free_pages(volume))
        })?;
        Ok(pages.saturating_mul(page))
    }

    /// Switches the descriptor between direct and buffered I/O for the next requests.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn set_direct(&self, mode: Mode) -> io::Result<()> {
        match &self.direct {
            Direct::Refused(_) => Ok(()),
            Direct::Yes => {
                call(|machine| machine.set_direct(self.descriptor, mode == Mode::Direct))
            }
        }
    }

    /// Writes all of `data` at `offset`, and blocks. Short writes are continued.
    ///
    /// # Errors
    /// The error of the file system; a prefix may have been written.
    pub fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        while !data.is_empty() {
            let written = self.write_once(data.to_vec(), offset)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            data = &data[written as usize..];
            offset += written;
        }
        Ok(())
    }

    /// As `forebay_uring::OpenFile::write_frames_at`.
    ///
    /// # Errors
    /// The error of the file system.
    ///
    /// # Panics
    /// If a part is not within its frame, or there are too many.
    pub fn write_frames_at(&self, arena: &Arena, parts: &[Part], offset: u64) -> io::Result<u64> {
        assert!(parts.len() <= MOST_PARTS, "{} parts in one call", parts.len());
        let mut data = Vec::new();
        for &Part { frame, at, length } in parts {
            assert!(at + length <= PAGE, "no part of a frame");
            memory::gather_part(arena, frame, at, length, &mut data);
        }
        self.write_once(data, offset)
    }

    /// One system call that writes.
    fn write_once(&self, data: Vec<u8>, offset: u64) -> io::Result<u64> {
        let bytes = offset..offset + data.len() as u64;
        self.submit(Operation::Write, bytes, data)
    }

    /// The machine keeps no times.
    pub fn leave_accessed(&self) {}

    /// The machine keeps no times.
    pub fn touch_accessed(&self) {}

    /// Makes everything written to the file durable. Blocks.
    ///
    /// # Errors
    /// The error of the device.
    pub fn sync(&self) -> io::Result<()> {
        self.submit(Operation::FlushAll, 0..0, Vec::new()).map(|_| ())
    }

    /// Makes everything written to its file system durable. Blocks.
    ///
    /// # Errors
    /// The error of a device.
    pub fn sync_file_system(&self) -> io::Result<()> {
        let ticket = self.look(|machine, node| {
            let volume = machine.inode(node).volume;
            Ok(machine.begin_flush(world::process(), Work::Volume(volume), node))
        })?;
        wait_for(ticket).map(|_| ())
    }

    /// Returns the allocation groups of the file system, or `None` if it reports none.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        let groups = self.look(|machine, node| Ok(machine.volume_of(node).groups));
        groups.ok().flatten().filter(|_| self.kind != Kind::Block)
    }

    /// Closes the descriptor, even if this file is still shared.
    ///
    /// # Errors
    /// If the process was killed.
    pub fn close(&self) -> io::Result<()> {
        call(|machine| {
            machine.close(self.descriptor);
            Ok(())
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.descriptor
    }

    /// A call that does not block.
    fn look<T>(
        &self,
        act: impl FnOnce(&mut Machine, machine::Node) -> Result<T, Errno>,
    ) -> io::Result<T> {
        call(|machine| {
            let node = machine.node_of(self.descriptor)?;
            act(machine, node)
        })
    }

    /// A call that blocks until the device has done it.
    fn submit(&self, operation: Operation, bytes: Range<u64>, data: Vec<u8>) -> io::Result<u64> {
        self.submit_work(Work::Bio, call_bio(operation, bytes), data)
    }

    pub(super) fn submit_work(&self, work: Work, bio: Bio, data: Vec<u8>) -> io::Result<u64> {
        wait_for(call(|machine| machine.begin_call(self.descriptor, work, bio, data))?)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if !world::has_world() {
            return;
        }
        machine::with(|machine| {
            if machine.epoch != self.epoch {
                return;
            }
            machine.release_lease(self.descriptor);
            let must_unlock = |found: &machine::Descriptor| found.is_locked && !found.is_left;
            if machine.descriptor(self.descriptor).is_ok_and(must_unlock) {
                machine.unlock(self.descriptor).expect("the descriptor is open");
            }
            machine.close(self.descriptor);
        });
        world::preempt();
    }
}

// The engine shares files between its threads.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<std::sync::Arc<OpenFile>>();
};
