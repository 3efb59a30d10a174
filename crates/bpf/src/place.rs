//! The disk and the file system to count for.

use std::path::Path;

/// Whether the process uses io_uring. If it does not, task work and system calls are not counted,
/// because that costs time in every system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ring {
    /// It does, or may.
    Used,
    /// It does not.
    Unused,
}

/// Where to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'a> {
    /// File, directory or device, for messages.
    pub path: &'a Path,
    /// The disk below it; `None` if it has none of its own.
    pub disk: Option<Disk>,
    /// The file system that it is on.
    pub file_system: FileSystem,
}

/// A whole disk, by its device number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// A mounted file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// Its device number, as `/proc/self/mountinfo` has it.
    pub device: Disk,
    /// Its kind, if it is counted in a way of its own.
    pub kind: Kind,
}

/// Kind of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Any other.
    Other,
}
