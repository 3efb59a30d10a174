//! Opening a file: whether it is made here, and how long a lease is waited for.

use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_block::{Errno, Moment};
use forebay_uring::{Access, Alignment, Create, Direct, How};

use super::OpenFile;
use crate::world;
use crate::world::machine::{Flags, Machine, Opening, call, error_of};

impl OpenFile {
    /// Returns the file of a new descriptor, direct if the file system has that.
    pub(super) fn of(descriptor: u64) -> io::Result<Self> {
        call(|machine| {
            let (direct, alignment) = machine.go_direct(descriptor)?;
            Self::new(machine, descriptor, direct, alignment)
        })
    }

    /// Returns the file of a new descriptor, written through the page cache of the kernel.
    pub(crate) fn buffered(descriptor: u64) -> io::Result<Self> {
        let direct = Direct::Refused("not asked for".to_owned());
        call(|machine| Self::new(machine, descriptor, direct, Alignment::NONE))
    }

    fn new(
        machine: &Machine,
        descriptor: u64,
        direct: Direct,
        alignment: Alignment,
    ) -> Result<Self, Errno> {
        let node = machine.node_of(descriptor)?;
        let (kind, identity) = (machine.kind(node), machine.inode(node).identity);
        Ok(Self { epoch: machine.epoch, descriptor, kind, identity, direct, alignment })
    }
}

/// Returns a new descriptor and whether the file was created.
pub(super) fn descriptor(path: &Path, how: &How, until: Moment) -> io::Result<(u64, bool)> {
    loop {
        if how.create != Create::No {
            let is_private = how.create == Create::Temporary;
            let flags = Flags { access: how.access, is_new: true, is_private, ..Flags::READ };
            match open_once(path, flags) {
                Ok(Some(descriptor)) => return Ok((descriptor, true)),
                Ok(None) => unreachable!("a new file has no lease"),
                Err(error)
                    if how.create == Create::IfMissing
                        && error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(error) => return Err(error),
            }
        }
        match open_existing(path, how.access, until) {
            // A symbolic link to nothing: its target is made through it.
            Err(error) if is_missing(&error) && how.create == Create::IfMissing => {
                let flags = Flags { access: how.access, creates: true, ..Flags::READ };
                if let Some(descriptor) = open_once(path, flags)? {
                    return Ok((descriptor, true));
                }
            }
            result => return Ok((result?, false)),
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOENT)
}

/// One attempt to open; `None` if a lease is in the way, which is being broken now.
fn open_once(path: &Path, flags: Flags) -> io::Result<Option<u64>> {
    let opened = call(|machine| machine.open(path, flags, world::process()))?;
    match opened {
        Opening::Open { descriptor, .. } => Ok(Some(descriptor)),
        Opening::Leased(_) => Ok(None),
    }
}

/// Opens an existing file; asks again, ever more slowly, while another program holds a lease.
fn open_existing(path: &Path, access: Access, until: Moment) -> io::Result<u64> {
    let mut pause = Duration::from_millis(1);
    loop {
        let flags = Flags { access, is_exclusive: true, ..Flags::READ };
        if let Some(descriptor) = open_once(path, flags)? {
            return Ok(descriptor);
        }
        if world::after(world::now(), pause) >= until {
            return Err(error_of(Errno::WOULD_BLOCK));
        }
        world::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
