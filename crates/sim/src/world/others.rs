//! Other programs: they open, read, map and write files of the machine as any program does, through
//! the kernel's cache, and break the leases of engines.
//!
//! The calls block the task that makes them. A program belongs to the process of that task.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use forebay_block::{Errno, Operation};
use forebay_uring::Access;

use crate::random::{PerMille, Random};
use crate::world::machine::{
    self, Flags, LEASE, Machine, Node, Opening, Work, call, call_bio, error_of, wait_for,
};
use crate::world::{self, Reason};

/// Reaction of a program to a lease of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Waits until the lease is released or taken away.
    Waits,
    /// Returns `WouldBlock` (`O_NONBLOCK`). The lease is broken all the same.
    NonBlocking,
}

/// How a program opens a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenAs {
    /// Access mode.
    pub access: Access,
    /// Whether it truncates the file.
    pub truncates: bool,
    /// Its reaction to a lease.
    pub patience: Patience,
}

impl OpenAs {
    /// For reading.
    pub const READER: OpenAs =
        OpenAs { access: Access::Read, truncates: false, patience: Patience::Waits };

    /// For reading and writing.
    pub const WRITER: OpenAs = OpenAs { access: Access::ReadWrite, ..Self::READER };
}

/// A program that has a file open.
#[derive(Debug)]
pub struct Program {
    epoch: u64,
    descriptor: u64,
    is_mapped: bool,
}

impl Program {
    /// Opens an existing file.
    ///
    /// # Errors
    /// The error of the file system; `WouldBlock` if a lease is in the way of one that does not
    /// wait.
    pub fn open(path: impl AsRef<Path>, how: OpenAs) -> io::Result<Self> {
        let flags = Flags { access: how.access, truncates: how.truncates, ..Flags::READ };
        loop {
            let opened = call(|machine| machine.open(path.as_ref(), flags, world::process()))?;
            match opened {
                Opening::Open { descriptor, .. } => {
                    let epoch = machine::with(|machine| machine.epoch);
                    return Ok(Self { epoch, descriptor, is_mapped: false });
                }
                Opening::Leased(_) if how.patience == Patience::NonBlocking => {
                    return Err(error_of(Errno::WOULD_BLOCK));
                }
                Opening::Leased(node) => {
                    let until = machine::with(|machine| machine.lease_end(node));
                    world::block(Reason { what: LEASE, number: node.0 as u64 }, until);
                }
            }
        }
    }

    /// Returns the size of the file in bytes.
    ///
    /// # Errors
    /// If the process was killed.
    pub fn length(&self) -> io::Result<u64> {
        self.look(|machine, node| machine.inode(node).stored.size())
    }

    /// Reads a range, as far as the file goes.
    ///
    /// # Errors
    /// As [`Program::length`].
    pub fn read(&self, bytes: Range<u64>) -> io::Result<Vec<u8>> {
        self.look(|machine, node| {
            machine.inode(node).stored.read(bytes.start, bytes.end - bytes.start)
        })
    }

    /// Writes bytes through the kernel's cache. Returns how many were written.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<u64> {
        let bytes = offset..offset + data.len() as u64;
        self.submit(Operation::Write, bytes, data.to_vec())
    }

    /// Sets the size of the file.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn truncate(&self, length: u64) -> io::Result<()> {
        self.submit(Operation::SetLength, length..length, Vec::new()).map(|_| ())
    }

    /// Makes the file durable.
    ///
    /// # Errors
    /// The error of the device.
    pub fn sync(&self) -> io::Result<()> {
        self.submit(Operation::FlushAll, 0..0, Vec::new()).map(|_| ())
    }

    /// Maps the file. While it is mapped, an older page of the mapping may replace a page that was
    /// written past the kernel's cache.
    ///
    /// # Errors
    /// As [`Program::length`].
    pub fn map(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_mapped, true) {
            self.look(|machine, node| machine.inode_mut(node).mappings += 1)?;
        }
        Ok(())
    }

    /// Unmaps the file.
    ///
    /// # Errors
    /// As [`Program::length`].
    pub fn unmap(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_mapped) {
            self.look(|machine, node| machine.inode_mut(node).mappings -= 1)?;
        }
        Ok(())
    }

    fn look<T>(&self, act: impl FnOnce(&mut Machine, Node) -> T) -> io::Result<T> {
        call(|machine| {
            let node = machine.node_of(self.descriptor)?;
            Ok(act(machine, node))
        })
    }

    fn submit(&self, operation: Operation, bytes: Range<u64>, data: Vec<u8>) -> io::Result<u64> {
        let bio = call_bio(operation, bytes);
        let begin =
            |machine: &mut Machine| machine.begin_call(self.descriptor, Work::Bio, bio, data);
        wait_for(call(begin)?)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !world::has_world() {
            return;
        }
        machine::with(|machine| {
            if machine.epoch != self.epoch {
                return;
            }
            if self.is_mapped
                && let Ok(node) = machine.node_of(self.descriptor)
            {
                machine.inode_mut(node).mappings -= 1;
            }
            machine.close(self.descriptor);
        });
    }
}

/// A visit of another program that changes nothing: it opens a file, reads it, keeps it open a
/// while, and closes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// How it opens the file.
    pub how: OpenAs,
    /// Whether it maps the file.
    pub maps: bool,
    /// How long it keeps the file open.
    pub holds: Duration,
}

impl Visit {
    /// Draws a visit: most programs only read, and most close the file soon.
    #[must_use]
    pub fn draw(random: &mut Random) -> Self {
        let access = if random.happens(PerMille(300)) { Access::ReadWrite } else { Access::Read };
        let patience =
            if random.happens(PerMille(250)) { Patience::NonBlocking } else { Patience::Waits };
        let micros = *random.pick(&[0, 50, 2_000, 300_000]);
        Self {
            how: OpenAs { access, truncates: false, patience },
            maps: random.happens(PerMille(300)),
            holds: Duration::from_micros(micros),
        }
    }

    /// Makes the visit on the running task. `look` gets the bytes of the file as read at the
    /// beginning. Returns whether the file could be opened.
    ///
    /// # Errors
    /// The error of the file system, but for a lease in the way.
    pub fn make(&self, path: impl AsRef<Path>, look: impl FnOnce(&[u8])) -> io::Result<bool> {
        let opened = Program::open(path, self.how);
        let mut program = match opened {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(false),
            opened => opened?,
        };
        if self.maps {
            program.map()?;
        }
        let end = program.length()?;
        look(&program.read(0..end)?);
        world::sleep(self.holds);
        Ok(true)
    }
}
