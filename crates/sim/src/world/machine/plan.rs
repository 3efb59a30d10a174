//! Properties of the simulated machine: its file systems, how slow its devices are, and how often
//! they fail.

use std::time::Duration;

use forebay_uring::{Alignment, Geometry};

use super::prices::Prices;
use crate::faults::{Faults, Latency};
use crate::random::{PerMille, Random};

/// Bits of an inode number that count the inodes of one allocation group.
pub(super) const INODE_BITS: u32 = 20;

/// Pages of a file system that no test fills.
pub(super) const UNLIMITED: u64 = u64::MAX / 2;

/// Properties of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachinePlan {
    /// File systems. The first one is mounted at `/`, number N at `/volumeN`.
    pub volumes: Vec<VolumePlan>,
    /// Rates of faults of all devices.
    pub faults: Faults,
    /// Times that requests take.
    pub latency: Latency,
    /// Rates of the device, if work has a price in this world.
    pub prices: Option<Prices>,
}

/// Properties of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumePlan {
    /// Pages of space for file data.
    pub space_pages: u64,
    /// Alignment that direct I/O needs; `None` if the file system has no direct I/O.
    pub direct: Option<Alignment>,
    /// Leases that it grants.
    pub leases: Leases,
    /// Whether the callers of the engine promise that no other program uses its files.
    pub is_promised: bool,
    /// Whether it has `fallocate`, to allocate and to punch.
    pub allocates: bool,
    /// Whether punching frees space beyond the end of a file.
    pub punches_beyond_end: bool,
    /// Whether it has extended attributes.
    pub attributes: bool,
    /// Whether it reports the extents of a file.
    pub extents: bool,
    /// Its allocation groups, if it reports any.
    pub groups: Option<Geometry>,
    /// Pages of a contiguous piece of free space, if the space is fragmented.
    pub piece_pages: Option<u64>,
    /// Largest size of a file in bytes.
    pub most_bytes: u64,
    /// Whether it is mounted read-only.
    pub is_read_only: bool,
    /// Whether it says that a page takes new space each time it is written.
    pub copies_on_write: bool,
}

/// Leases that a file system grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leases {
    /// Every other program breaks them.
    Enforced,
    /// No other program breaks them.
    Bypassed,
    /// None.
    Refused,
}

impl VolumePlan {
    /// Returns whether a file is shared from the start.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.leases != Leases::Enforced && !self.is_promised
    }

    /// A file system like XFS, with four allocation groups.
    #[must_use]
    pub fn xfs() -> Self {
        Self {
            space_pages: UNLIMITED,
            direct: Some(Alignment { memory: 512, offset: 512 }),
            leases: Leases::Enforced,
            is_promised: false,
            allocates: true,
            punches_beyond_end: true,
            attributes: true,
            extents: true,
            groups: Some(Geometry::new(4, 1 << 30, INODE_BITS)),
            piece_pages: None,
            most_bytes: (1 << 63) - 1,
            is_read_only: false,
            copies_on_write: false,
        }
    }

    /// A file system like ext4.
    #[must_use]
    pub fn ext4() -> Self {
        Self {
            punches_beyond_end: false,
            groups: None,
            most_bytes: (1 << 44) - 4096,
            ..Self::xfs()
        }
    }

    /// A file system like btrfs: space that is allocated for a page serves its first write alone.
    #[must_use]
    pub fn btrfs() -> Self {
        Self { copies_on_write: true, ..Self::ext4() }
    }

    /// A file system like tmpfs: without direct I/O, extents and space ahead.
    #[must_use]
    pub fn tmpfs() -> Self {
        Self { direct: None, allocates: false, attributes: false, extents: false, ..Self::ext4() }
    }

    /// A file system like NFS: without leases and attributes.
    #[must_use]
    pub fn nfs() -> Self {
        Self { leases: Leases::Refused, attributes: false, extents: false, ..Self::ext4() }
    }

    /// A file system like FUSE before Linux 7.0: it grants leases, and other programs reach the
    /// files by the directory below, past the leases.
    #[must_use]
    pub fn fuse() -> Self {
        Self { leases: Leases::Bypassed, ..Self::nfs() }
    }
}

impl VolumePlan {
    /// Draws a file system. Most are like XFS or ext4; some lack leases, direct I/O or space ahead,
    /// and the free space of some is in pieces.
    #[must_use]
    pub fn draw(random: &mut Random) -> Self {
        let base = match random.below(8) {
            0..4 => Self::xfs(),
            4..6 => Self::ext4(),
            6 => Self::tmpfs(),
            _ => Self::nfs(),
        };
        let block = *random.pick(&[512, 512, 4096]);
        let is_fuse = base.leases == Leases::Refused && block == 4096;
        Self {
            leases: if is_fuse { Leases::Bypassed } else { base.leases },
            direct: base.direct.map(|_| Alignment { memory: 512, offset: block }),
            allocates: base.allocates && !random.happens(PerMille(100)),
            attributes: base.attributes && !random.happens(PerMille(100)),
            extents: base.extents && !random.happens(PerMille(100)),
            piece_pages: *random.pick(&[None, None, Some(4), Some(16)]),
            ..base
        }
    }
}

impl MachinePlan {
    /// Draws the file systems of a machine, one to three. Faults and latency are the caller's.
    #[must_use]
    pub fn draw(faults: Faults, latency: Latency, random: &mut Random) -> Self {
        let volumes = (0..random.within(1..4)).map(|_| VolumePlan::draw(random)).collect();
        Self { volumes, faults, latency, prices: None }
    }

    /// A machine without faults, with these file systems.
    #[must_use]
    pub fn calm(volumes: Vec<VolumePlan>) -> Self {
        let latency =
            Latency { least: Duration::from_micros(10), most: Duration::from_micros(100) };
        Self { volumes, faults: Faults::NONE, latency, prices: None }
    }
}

impl Default for MachinePlan {
    fn default() -> Self {
        Self::calm(vec![VolumePlan::xfs()])
    }
}
