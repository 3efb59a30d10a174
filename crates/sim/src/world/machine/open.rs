//! Open files: descriptors, the open file descriptions behind them, and what belongs to those.
//!
//! A descriptor belongs to a process. Several descriptors, rings and requests in flight may refer
//! to one description, which has the direct flag, the lease and the lock. The description ends with
//! its last reference.

use std::ffi::OsStr;
use std::path::Path;

use forebay_block::Errno;
use forebay_uring::{Access, Alignment, Direct, Lock};

use super::inode::Content;
use super::names::Node;
use super::opened::{Description, Descriptor, Directory, Flags, Opening};
use super::state::{Found, Last, Machine};
use crate::world::{self, Process};

/// Why a file is opened without direct I/O.
const NO_DIRECT: &str = "the file system has no direct I/O for this file";

impl Machine {
    /// Opens a file. The lease of another open file is broken.
    pub(crate) fn open(
        &mut self,
        path: &Path,
        flags: Flags,
        process: Process,
    ) -> Result<Opening, Errno> {
        let found = self.resolve(path, flags.last())?;
        self.open_found(&found, flags, process)
    }

    /// Opens the file of a name in an open directory, as [`open`](Self::open) does.
    pub(crate) fn open_at(
        &mut self,
        (directory, name): (u64, &OsStr),
        flags: Flags,
        process: Process,
    ) -> Result<Opening, Errno> {
        let found = self.entry(directory, name, flags.last())?;
        self.open_found(&found, flags, process)
    }

    fn open_found(
        &mut self,
        found: &Found,
        flags: Flags,
        process: Process,
    ) -> Result<Opening, Errno> {
        let node = match found.node {
            Some(_) if flags.is_new => return Err(Errno(libc::EEXIST)),
            Some(node) => node,
            None if flags.is_new || flags.creates => return self.open_new(found, flags, process),
            None => return Err(Errno(libc::ENOENT)),
        };
        if flags.is_directory && !self.names.is_directory(node) {
            return Err(Errno(libc::ENOTDIR));
        }
        let is_for_writing = flags.access == Access::ReadWrite || flags.truncates;
        if is_for_writing && self.inode(node).is_protected {
            return Err(Errno(libc::EACCES));
        }
        match self.inode(node).content {
            Content::Directory if is_for_writing => return Err(Errno(libc::EISDIR)),
            Content::Device(_) if flags.is_exclusive => {
                let inode = self.inode(node);
                if inode.holder.is_some() || inode.is_mounted {
                    return Err(Errno(libc::EBUSY));
                }
            }
            Content::File if is_for_writing && self.volume_of(node).is_read_only => {
                return Err(Errno(libc::EROFS));
            }
            _ => {}
        }
        if self.break_lease(node, is_for_writing) {
            return Ok(Opening::Leased(node));
        }
        if flags.truncates && self.inode(node).content == Content::File {
            let sequence = self.next_sequence();
            self.inode_mut(node).stored.set_size(0, sequence);
        }
        let descriptor = self.enter(node, flags, process);
        Ok(Opening::Open { descriptor, is_new: false })
    }

    fn open_new(
        &mut self,
        found: &Found,
        flags: Flags,
        process: Process,
    ) -> Result<Opening, Errno> {
        let node = self.create(found, Content::File)?;
        let descriptor = self.enter(node, flags, process);
        let directory = Directory::Kept(found.directory);
        self.descriptors.get_mut(&descriptor).expect("just entered").directory = directory;
        Ok(Opening::Open { descriptor, is_new: true })
    }

    /// Makes a description and a descriptor of it.
    fn enter(&mut self, node: Node, flags: Flags, process: Process) -> u64 {
        let (description, descriptor) = (world::number(), world::number());
        let inode = self.inode_mut(node);
        inode.opened.insert(description);
        inode.is_private |= flags.is_private;
        if flags.is_exclusive && inode.is_device() {
            inode.holder = Some(description);
        }
        let errors_seen = inode.errors.start();
        self.descriptions.insert(
            description,
            Description {
                node,
                access: flags.access,
                is_direct: false,
                references: 1,
                errors_seen,
                owner: None,
            },
        );
        self.descriptors.insert(
            descriptor,
            Descriptor {
                description,
                process,
                is_locked: false,
                is_left: false,
                leased: None,
                directory: Directory::NotNeeded,
            },
        );
        descriptor
    }

    /// Makes a descriptor of the same description for a process, as when it is sent there.
    pub(crate) fn duplicate(&mut self, descriptor: u64, process: Process) -> Result<u64, Errno> {
        let description = self.descriptor(descriptor)?.description;
        self.refer(description);
        let copy = Descriptor {
            description,
            process,
            is_locked: false,
            is_left: false,
            leased: None,
            directory: Directory::NotNeeded,
        };
        let number = world::number();
        self.descriptors.insert(number, copy);
        Ok(number)
    }

    /// Returns the descriptor; an error if it was closed, as all of a dead process are.
    pub(crate) fn descriptor(&self, number: u64) -> Result<&Descriptor, Errno> {
        self.descriptors.get(&number).ok_or(Errno(libc::EBADF))
    }

    pub(crate) fn descriptor_mut(&mut self, number: u64) -> Result<&mut Descriptor, Errno> {
        self.descriptors.get_mut(&number).ok_or(Errno(libc::EBADF))
    }

    pub(super) fn description(&self, number: u64) -> &Description {
        self.descriptions.get(&number).expect("what refers to a description keeps it")
    }

    pub(super) fn description_mut(&mut self, number: u64) -> &mut Description {
        self.descriptions.get_mut(&number).expect("what refers to a description keeps it")
    }

    /// Returns the file of a descriptor.
    pub(crate) fn node_of(&self, descriptor: u64) -> Result<Node, Errno> {
        Ok(self.description(self.descriptor(descriptor)?.description).node)
    }

    /// Returns the access mode of a descriptor.
    pub(crate) fn access_of(&self, descriptor: u64) -> Result<Access, Errno> {
        Ok(self.description(self.descriptor(descriptor)?.description).access)
    }

    /// Counts one more reference to a description.
    pub(crate) fn refer(&mut self, description: u64) {
        self.description_mut(description).references += 1;
    }

    /// Ends a reference to a description; the last one ends lease, lock and hold.
    pub(crate) fn release(&mut self, number: u64) {
        let description = self.description_mut(number);
        description.references -= 1;
        if description.references > 0 {
            return;
        }
        let node = description.node;
        self.give_up_lease(number);
        self.descriptions.remove(&number);
        let inode = self.inode_mut(node);
        inode.opened.remove(&number);
        inode.locks.retain(|(by, _)| *by != number);
        inode.holder = inode.holder.filter(|holder| *holder != number);
        inode.cached_by = inode.cached_by.filter(|by| *by != number);
        if inode.opened.is_empty() {
            inode.is_aborted = false;
            inode.is_private = false;
        }
        self.collect();
    }

    /// Closes a descriptor, if it is open.
    pub(crate) fn close(&mut self, descriptor: u64) {
        if let Some(closed) = self.descriptors.remove(&descriptor) {
            self.forget_lease(&closed, descriptor);
            self.release(closed.description);
        }
    }

    /// Makes a descriptor name the description of another one, which is closed.
    pub(crate) fn replace(&mut self, descriptor: u64, by: u64) -> Result<(), Errno> {
        let new = self.descriptor(by)?.clone();
        let old = self.descriptor_mut(descriptor)?;
        let before = std::mem::replace(&mut old.description, new.description);
        old.is_locked |= new.is_locked;
        self.refer(new.description);
        self.close(by);
        self.release(before);
        Ok(())
    }

    /// Closes every descriptor of a process.
    pub(super) fn close_all(&mut self, process: Process) {
        let of_process = |(number, descriptor): (&u64, &Descriptor)| {
            (descriptor.process == process).then_some(*number)
        };
        let open: Vec<u64> = self.descriptors.iter().filter_map(of_process).collect();
        open.into_iter().for_each(|descriptor| self.close(descriptor));
    }

    /// Switches a descriptor to direct I/O, if the file system has it.
    pub(crate) fn go_direct(&mut self, descriptor: u64) -> Result<(Direct, Alignment), Errno> {
        let number = self.descriptor(descriptor)?.description;
        let node = self.description(number).node;
        let refused = |reason: &str| Ok((Direct::Refused(reason.to_owned()), Alignment::NONE));
        let alignment = match self.inode(node).content {
            Content::Device(block) => Alignment { memory: 512, offset: block },
            Content::File => match self.volume_of(node).direct {
                Some(alignment) => alignment,
                None => return refused(NO_DIRECT),
            },
            Content::Directory | Content::Link(_) => {
                return refused("neither a regular file nor a block device");
            }
        };
        self.description_mut(number).is_direct = true;
        Ok((Direct::Yes, alignment))
    }

    /// Switches the direct flag of a description.
    pub(crate) fn set_direct(&mut self, descriptor: u64, is_direct: bool) -> Result<(), Errno> {
        let number = self.descriptor(descriptor)?.description;
        self.description_mut(number).is_direct = is_direct;
        Ok(())
    }

    /// Returns whether requests of a descriptor go past the kernel's cache.
    pub(crate) fn is_direct(&self, descriptor: u64) -> Result<bool, Errno> {
        let number = self.descriptor(descriptor)?.description;
        Ok(self.description(number).is_direct)
    }

    /// Changes the reservation mark of a file.
    pub(crate) fn set_mark(&mut self, node: Node, mark: Option<String>) {
        let sequence = self.next_sequence();
        self.inode_mut(node).metadata.set_mark(mark, sequence);
    }

    /// Locks a whole file for a description, shared among readers.
    pub(crate) fn lock(&mut self, descriptor: u64) -> Result<Lock, Errno> {
        let number = self.descriptor(descriptor)?.description;
        let Description { node, access, .. } = *self.description(number);
        let locks = &mut self.inode_mut(node).locks;
        let conflicts = |&(by, other): &(u64, Access)| {
            by != number && (access == Access::ReadWrite || other == Access::ReadWrite)
        };
        if locks.iter().any(conflicts) {
            return Ok(Lock::HeldElsewhere);
        }
        locks.retain(|(by, _)| *by != number);
        locks.push((number, access));
        self.descriptor_mut(descriptor)?.is_locked = true;
        Ok(Lock::Taken)
    }

    /// Releases the lock of a description.
    pub(crate) fn unlock(&mut self, descriptor: u64) -> Result<(), Errno> {
        let number = self.descriptor(descriptor)?.description;
        let node = self.description(number).node;
        self.inode_mut(node).locks.retain(|(by, _)| *by != number);
        self.descriptor_mut(descriptor)?.is_locked = false;
        Ok(())
    }

    /// Has the flush of a directory make the name at a path durable; of the file system, if that is
    /// not the only name of the file.
    pub(crate) fn keep_directory(&mut self, descriptor: u64, path: &Path) -> Result<(), Errno> {
        let node = self.node_of(descriptor)?;
        let found = self.resolve(path, Last::Follow);
        let directory = match found {
            Ok(Found { directory, node: Some(there), .. })
                if there == node && self.names.links(node) == 1 =>
            {
                Directory::Kept(directory)
            }
            _ => Directory::Unknown,
        };
        self.descriptor_mut(descriptor)?.directory = directory;
        Ok(())
    }
}
