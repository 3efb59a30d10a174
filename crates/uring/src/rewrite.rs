//! The space that a write of a page needs if the page has data already.
//!
//! A cache accepts bytes before they have space. Whether a page has data says enough on a file
//! system that writes each block where it is. A page of several blocks can lack some, at the end of
//! the file and around holes. Blocks that two files share (XFS) are copied by a write. A file
//! system that copies on write needs new space for every write, and allocating ahead does not help.

use std::os::fd::BorrowedFd;

use forebay_block::limits::PAGE;

use crate::probe;

/// The space that a write of a page needs if the page has data already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewrite {
    /// None.
    InPlace,
    /// Perhaps some, which can be allocated ahead.
    Allocates,
    /// As much again, which cannot be allocated ahead.
    Copies,
}

impl Rewrite {
    /// Returns the kind of the file system of an open file.
    pub(crate) fn of(descriptor: BorrowedFd<'_>) -> Self {
        let Ok(found) = rustix::fs::fstatfs(descriptor) else { return Self::Allocates };
        match probe::known_file_system(found.f_type) {
            Some("ext4" | "tmpfs") if found.f_bsize >= PAGE as rustix::fs::FsWord => Self::InPlace,
            Some("btrfs" | "bcachefs" | "zfs") => Self::Copies,
            _ => Self::Allocates,
        }
    }
}
