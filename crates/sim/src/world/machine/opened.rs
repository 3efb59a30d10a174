//! Open file descriptions, the descriptors that refer to them, and ways to open.

use forebay_uring::Access;

use super::names::Node;
use super::state::Last;
use crate::world::Process;

/// An open file description.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) node: Node,
    pub(super) access: Access,
    /// Requests go past the kernel's cache.
    pub(super) is_direct: bool,
    /// Descriptors, rings and requests in flight that refer to it.
    pub(super) references: u32,
    /// Errors of the file that were reported here.
    pub(super) errors_seen: u64,
    /// Watch and descriptor that hear of a broken lease.
    pub(super) owner: Option<(u64, u64)>,
}

/// The directory whose flush makes a file's name durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Directory {
    /// No flush is needed: the name was there before.
    NotNeeded,
    Kept(Node),
    /// Unknown: the whole file system is flushed.
    Unknown,
}

/// A descriptor of a process.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    pub(crate) description: u64,
    pub(crate) process: Process,
    pub(crate) is_locked: bool,
    /// Lease and lock stay with the description.
    pub(crate) is_left: bool,
    /// Watch of the lease that this descriptor took.
    pub(crate) leased: Option<u64>,
    pub(crate) directory: Directory,
}

/// How to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flags {
    pub(crate) access: Access,
    /// Create the file, and fail if it exists.
    pub(crate) is_new: bool,
    /// Create the file if it is missing.
    pub(crate) creates: bool,
    /// Hold a block device exclusively.
    pub(crate) is_exclusive: bool,
    pub(crate) truncates: bool,
    /// No other program opens the file, so it needs no lease.
    pub(crate) is_private: bool,
    /// Open nothing but a directory.
    pub(crate) is_directory: bool,
}

impl Flags {
    pub(crate) const READ: Flags = Flags {
        access: Access::Read,
        is_new: false,
        creates: false,
        is_exclusive: false,
        truncates: false,
        is_private: false,
        is_directory: false,
    };

    /// Returns whether the open follows a symbolic link at the end of its path.
    pub(super) fn last(self) -> Last {
        if self.is_new { Last::Keep } else { Last::Follow }
    }
}

/// Result of an attempt to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opening {
    /// The number of the descriptor, and whether the file was created.
    Open { descriptor: u64, is_new: bool },
    /// The lease of this file is being broken: try again when it is released.
    Leased(Node),
}
