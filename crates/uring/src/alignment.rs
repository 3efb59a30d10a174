//! What direct I/O on a file must be aligned to.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags};

use crate::block_device;
use crate::file::Kind;

/// What addresses, offsets and lengths of direct I/O must be multiples of, in bytes; powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alignment {
    /// Addresses in memory.
    pub memory: u32,
    /// Offsets in the file, and lengths.
    pub offset: u32,
}

impl Alignment {
    /// Anything goes: I/O through the kernel's page cache.
    pub const NONE: Alignment = Alignment { memory: 1, offset: 1 };

    /// What is safe where nobody tells: no device in use has larger blocks.
    const UNKNOWN: Alignment = Alignment { memory: 4096, offset: 4096 };
}

/// What the kernel tells: since 6.1 by itself, before that by the size of the device's logical blocks, which
/// `open(2)` says is enough. `None` where direct I/O is impossible.
pub(crate) fn of(descriptor: BorrowedFd<'_>, kind: Kind) -> Option<Alignment> {
    if let Some(told) = told(descriptor) {
        return (told.memory > 0 && told.offset > 0).then_some(told);
    }
    let block = match kind {
        Kind::Block => block_device::logical_block(descriptor).ok(),
        Kind::Regular => {
            let device = rustix::fs::fstat(descriptor).ok().map(|status| status.st_dev);
            device.and_then(crate::probe::device).and_then(|device| device.logical_block())
        }
        Kind::Other => None,
    };
    let aligned = |block: u32| Alignment { memory: block, offset: block };
    Some(block.filter(|block| block.is_power_of_two()).map_or(Alignment::UNKNOWN, aligned))
}

/// What `statx` tells, zeroes included, which mean that direct I/O is impossible.
fn told(descriptor: BorrowedFd<'_>) -> Option<Alignment> {
    let status = rustix::fs::statx(descriptor, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let told = status.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    told.then_some(Alignment { memory: status.stx_dio_mem_align, offset: status.stx_dio_offset_align })
}
