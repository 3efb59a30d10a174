//! How a file system divides its space, if it reports it: XFS's allocation groups.
//!
//! A group is XFS's unit of parallel allocation: an allocation, or the conversion of an older one,
//! holds the group's lock. An inode lies in a group, and its number says which; its blocks usually
//! lie there too, but need not (a full group, or a mount with `inode32`, sends them elsewhere), so
//! their place is returned by [`OpenFile::physical_at`](crate::OpenFile::physical_at).

use std::os::fd::{AsRawFd, BorrowedFd};

/// Allocation groups of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Number of groups, at least 1.
    pub groups: u32,
    /// Bytes per group; the last one may be smaller.
    pub group_bytes: u64,
    /// Bits of an inode's number below those that say its group.
    inode_bits: u32,
}

/// `XFS_IOC_FSGEOMETRY_V1`: read 112 bytes, type `X`, number 100. The first form of the call, which
/// every kernel has.
const XFS_IOC_FSGEOMETRY_V1: libc::Ioctl = 0x8070_5864;

/// Used part of the answer; the rest is room.
#[repr(C)]
#[derive(Default)]
struct Answer {
    block_bytes: u32,
    realtime_extent: u32,
    group_blocks: u32,
    groups: u32,
    log_blocks: u32,
    sector_bytes: u32,
    inode_bytes: u32,
    inode_percent: u32,
    rest: [u64; 10],
}

const _: () = assert!(size_of::<Answer>() == 112);

impl Geometry {
    /// Returns a geometry whose inode numbers have `inode_bits` bits below those of the group.
    ///
    /// # Panics
    /// If there are no groups, a group has no bytes, or the bits leave none for the group.
    #[must_use]
    pub const fn new(groups: u32, group_bytes: u64, inode_bits: u32) -> Self {
        assert!(groups > 0 && group_bytes > 0 && inode_bits < u64::BITS);
        Self { groups, group_bytes, inode_bits }
    }

    /// Returns the geometry of the file system that a file lies on, or `None` where it has no
    /// groups or does not report them.
    #[must_use]
    pub fn of(descriptor: BorrowedFd<'_>) -> Option<Self> {
        let mut answer = Answer::default();
        // SAFETY: the descriptor is open for the length of the call, and the kernel writes no more
        // than the 112 bytes that the call's number says and the structure has. Other file systems
        // refuse the number.
        let result =
            unsafe { libc::ioctl(descriptor.as_raw_fd(), XFS_IOC_FSGEOMETRY_V1, &raw mut answer) };
        (result == 0).then(|| Self::checked(&answer)).flatten()
    }

    /// Rejects impossible values: others are divided by them.
    fn checked(answer: &Answer) -> Option<Self> {
        let Answer { block_bytes, group_blocks, groups, inode_bytes, .. } = *answer;
        let is_possible = block_bytes.is_power_of_two()
            && inode_bytes.is_power_of_two()
            && inode_bytes <= block_bytes
            && group_blocks > 0
            && groups > 0;
        let inode_bits = || {
            let of_block = block_bytes.trailing_zeros() - inode_bytes.trailing_zeros();
            u64::from(group_blocks).next_power_of_two().trailing_zeros() + of_block
        };
        is_possible.then(|| Self {
            groups,
            group_bytes: u64::from(group_blocks) * u64::from(block_bytes),
            inode_bits: inode_bits(),
        })
    }

    /// Returns the group of an inode, or `None` for an invalid number.
    #[must_use]
    pub fn group_of_inode(&self, inode: u64) -> Option<u32> {
        self.existing(inode >> self.inode_bits)
    }

    /// Returns the group of a byte of the device, or `None` beyond the last group.
    #[must_use]
    pub fn group_of_byte(&self, physical: u64) -> Option<u32> {
        self.existing(physical / self.group_bytes)
    }

    fn existing(&self, group: u64) -> Option<u32> {
        u32::try_from(group).ok().filter(|group| *group < self.groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(group_blocks: u32, groups: u32) -> Answer {
        Answer { block_bytes: 4096, group_blocks, groups, inode_bytes: 512, ..Answer::default() }
    }

    #[test]
    fn inodes_and_bytes_have_their_groups() {
        // 1 GiB groups: 2^18 blocks of 8 inodes.
        let geometry = Geometry::checked(&answer(1 << 18, 16)).unwrap();
        assert_eq!(geometry.group_of_inode(128), Some(0));
        assert_eq!(geometry.group_of_inode((3 << 21) + 128), Some(3));
        assert_eq!(geometry.group_of_byte((5 << 30) + 4096), Some(5));
        // Numbers of inodes are counted by powers of two, bytes are not.
        let odd = Geometry::checked(&answer((1 << 18) + 1, 4)).unwrap();
        assert_eq!(odd.group_of_inode((3 << 22) + 128), Some(3));
        assert_eq!(odd.group_of_byte(1 << 30), Some(0));
        assert_eq!(odd.group_of_byte((1 << 30) + 4096), Some(1));
    }

    #[test]
    fn what_lies_beyond_the_last_group_lies_in_none() {
        let geometry = Geometry::checked(&answer(1 << 18, 4)).unwrap();
        assert_eq!(geometry.group_of_inode(4 << 21), None);
        assert_eq!(geometry.group_of_byte(4 << 30), None);
        assert_eq!(geometry.group_of_inode(u64::MAX), None);
        assert_eq!(geometry.group_of_byte(u64::MAX), None);
    }

    #[test]
    fn a_geometry_that_lies_is_no_geometry() {
        assert_eq!(Geometry::checked(&Answer::default()), None);
        assert_eq!(Geometry::checked(&answer(0, 16)), None);
        assert_eq!(Geometry::checked(&answer(1 << 18, 0)), None);
        assert_eq!(Geometry::checked(&Answer { inode_bytes: 0, ..answer(1, 1) }), None);
        assert_eq!(Geometry::checked(&Answer { inode_bytes: 8192, ..answer(1, 1) }), None);
        assert_eq!(Geometry::checked(&Answer { block_bytes: 4097, ..answer(1, 1) }), None);
        // The largest values do not overflow.
        let largest = Geometry::checked(&answer(u32::MAX, u32::MAX)).unwrap();
        assert!(
            largest.group_of_byte(u64::MAX).is_some() && largest.group_of_inode(u64::MAX).is_some()
        );
    }
}
