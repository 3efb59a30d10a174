//! In how many pieces the file system laid a file out, by FIEMAP, after the final sync.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The pieces of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extents {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl std::ops::AddAssign for Extents {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

const BATCH: usize = 512;
/// `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: libc::c_ulong = 0xC020_660B;
const FLAG_SYNC: u32 = 1;
const EXTENT_LAST: u32 = 1;

/// As the kernel's own headers lay it out.
#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; BATCH],
}

/// Of the file at `path`, as it now is on the device.
pub(crate) fn extents_of(path: &Path) -> io::Result<Extents> {
    let file = File::open(path)?;
    let none = Extent {
        logical: 0,
        physical: 0,
        length: 0,
        reserved64: [0; 2],
        flags: 0,
        reserved: [0; 3],
    };
    let mut map = Box::new(Map {
        start: 0,
        length: u64::MAX,
        flags: FLAG_SYNC,
        mapped_extents: 0,
        extent_count: BATCH as u32,
        reserved: 0,
        extents: [none; BATCH],
    });
    let mut sum = Extents::default();
    loop {
        map.length = u64::MAX - map.start;
        // SAFETY: the pointer is to a map with room for the extents it announces; the call writes
        // to nothing else.
        let failed = unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP as _, &raw mut *map) };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        let found = &map.extents[..(map.mapped_extents as usize).min(BATCH)];
        for extent in found {
            sum += Extents { count: 1, bytes: extent.length };
        }
        match found.last() {
            Some(last) if last.flags & EXTENT_LAST == 0 => map.start = last.logical + last.length,
            _ => return Ok(sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn counts_the_pieces_of_a_file_with_holes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let file = File::create(&path).unwrap();
        for piece in 0..600 {
            file.write_all_at(&[7; 4096], piece * 16_384).unwrap();
        }
        match extents_of(&path) {
            Ok(extents) => {
                // tmpfs has no FIEMAP; a file system may lay pieces out together, holes stay
                // between them.
                assert_eq!(extents, Extents { count: 600, bytes: 600 * 4096 });
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        }
    }
}
