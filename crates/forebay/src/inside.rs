//! Doors for the lab, the mount and the tests of this repository. They are no part of the
//! interface, and may change with any version.

use std::time::Duration;

pub use crate::core::file::attributes::Layout;

use crate::builder::Builder;
use crate::core::engine::Engine;
use crate::core::error::Result;
use crate::core::file::File;

/// Returns a histogram of how long finished requests waited before their callers were woken, so
/// that several callers are woken together. Does not block.
///
/// Each entry is the lower edge of a bucket and its count, shortest first, with four buckets per
/// doubling; the edge is zero for completions that were not held. Waits inside the kernel
/// (io_uring's `min_wait`) are not included.
#[must_use]
pub fn holds(engine: &Engine) -> Vec<(Duration, u64)> {
    engine.owner.shared.holds()
}

/// Returns the number of the writeback context that a file belongs to now, from 0. The knob
/// `affinity` decides it.
#[must_use]
pub fn context(file: &File) -> usize {
    file.inode.placement.context()
}

/// Returns the extents of a file and the space reserved for it. Blocks: the file system writes out
/// what the page cache of the kernel holds of the file.
///
/// Data that the engine has not written yet is not included.
///
/// # Errors
/// `Unsupported` on a block device, or if the file system does not report extents; `WouldDeadlock`
/// on a thread of the engine.
pub fn layout(file: &File) -> Result<Layout> {
    file.layout()
}

/// Sets `O_NOATIME` for all handles of a file until the last one is closed: reads leave the time of
/// the last access as it is. Otherwise each read that is not served from memory moves it by the
/// rules of the mount, and so does a write of a part of a page, which is read first.
///
/// Does nothing if this process may not set that: it has to own the file or be root.
pub fn leave_accessed(file: &File) {
    file.inode.file.leave_accessed();
}

/// Moves the time of the last access as a read of the file system does, by the rules of its mount
/// (`relatime`, `noatime`). For programs whose reads from memory have to be seen. The time of the
/// last change stays.
pub fn touch_accessed(file: &File) {
    file.inode.file.touch_accessed();
}

/// Keeps the data in shared memory with records of unwritten data, but starts no keeper.
#[must_use]
pub fn survivable(mut builder: Builder) -> Builder {
    builder.is_survived = true;
    builder
}
