//! In how many pieces a file lies on its device, and where: what fragmentation costs is measured by
//! it.
//!
//! The count is the kernel's own (`FS_IOC_FIEMAP`), so a file system's bound on one extent shows:
//! ext4 counts a piece of 1 GiB as at least eight. Bytes include space reserved beyond the end.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::geometry::Geometry;

/// Number and total length of the extents of a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extents {
    /// Number of extents.
    pub count: u64,
    /// Total length in bytes.
    pub bytes: u64,
}

/// `FS_IOC_FIEMAP`: read and write 32 bytes, type `f`, number 11.
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b;
const FIEMAP_FLAG_SYNC: u32 = 1;
const FIEMAP_EXTENT_LAST: u32 = 1;
/// Unknown, not allocated yet, or encoded, or within other data: its place is not a place on the
/// device.
const FIEMAP_EXTENT_PLACELESS: u32 = 0x2 | 0x4 | 0x8 | 0x200 | 0x400;
/// Another file shares the blocks: a write gets others.
const FIEMAP_EXTENT_SHARED: u32 = 0x2000;
const EXTENTS_PER_CALL: usize = 256;

#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS_PER_CALL],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

const _: () = assert!(size_of::<Extent>() == 56);
const _: () = assert!(size_of::<Map>() == 32 + 56 * EXTENTS_PER_CALL);

impl Extents {
    /// Returns the extents of a file. The kernel writes out its page cache of the file first.
    ///
    /// # Errors
    /// The error of the kernel: `Unsupported` if the file system does not report extents.
    pub fn of(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        count(descriptor, 0)
    }

    /// Returns the bytes of a file in each allocation group. An extent counts for the group of its
    /// first byte, and data without a place for none.
    ///
    /// # Errors
    /// As those of [`Extents::of`].
    pub fn by_group(
        descriptor: BorrowedFd<'_>,
        geometry: &Geometry,
    ) -> io::Result<BTreeMap<u32, u64>> {
        let mut groups = BTreeMap::new();
        walk(descriptor, 0, |extent| {
            let has_place = extent.flags & FIEMAP_EXTENT_PLACELESS == 0;
            if let Some(group) = geometry.group_of_byte(extent.physical).filter(|_| has_place) {
                *groups.entry(group).or_default() += extent.length;
            }
        })?;
        Ok(groups)
    }
}

/// Counts the extents of the file that reach beyond `start`.
pub(crate) fn count(descriptor: BorrowedFd<'_>, start: u64) -> io::Result<Extents> {
    let mut extents = Extents::default();
    walk(descriptor, start, |extent| {
        extents.count += 1;
        extents.bytes += extent.length;
    })?;
    Ok(extents)
}

/// Visits the extents of the file that reach beyond `start`.
fn walk(
    descriptor: BorrowedFd<'_>,
    mut start: u64,
    mut visit: impl FnMut(&Extent),
) -> io::Result<()> {
    let mut flags = FIEMAP_FLAG_SYNC;
    loop {
        let mut map = Map::new(start..u64::MAX, flags);
        let mapped = map.ask(descriptor)?;
        mapped.iter().for_each(&mut visit);
        let Some(last) = mapped.last().filter(|last| last.flags & FIEMAP_EXTENT_LAST == 0) else {
            return Ok(());
        };
        start = last.logical + last.length;
        // Once is enough, and keeps the walk from never ending behind a busy writer.
        flags = 0;
    }
}

/// In how many places on the device a range lies, as far as one call reports it: adjacent extents
/// count as one, written or only reserved. Data without a place is left out.
pub(crate) fn places(descriptor: BorrowedFd<'_>, bytes: Range<u64>) -> io::Result<Extents> {
    let mut map = Map::new(bytes.clone(), 0);
    let mut places = Extents::default();
    let mut next = None;
    for extent in map.ask(descriptor)? {
        if extent.flags & FIEMAP_EXTENT_PLACELESS != 0 {
            continue;
        }
        // The first and the last may reach beyond the range.
        let (start, end) =
            (extent.logical.max(bytes.start), (extent.logical + extent.length).min(bytes.end));
        places.count += u64::from(next != Some(extent.physical));
        places.bytes += end.saturating_sub(start);
        next = extent.physical.checked_add(extent.length);
    }
    Ok(places)
}

/// The ranges of a file that have blocks which no other file shares, as far as one call reports
/// them.
pub(crate) fn own(descriptor: BorrowedFd<'_>) -> io::Result<Vec<Range<u64>>> {
    let mut map = Map::new(0..u64::MAX, 0);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let foreign = FIEMAP_EXTENT_PLACELESS | FIEMAP_EXTENT_SHARED;
    for extent in map.ask(descriptor)?.iter().filter(|extent| extent.flags & foreign == 0) {
        let end = extent.logical.saturating_add(extent.length);
        match ranges.last_mut() {
            Some(last) if last.end == extent.logical => last.end = end,
            _ => ranges.push(extent.logical..end),
        }
    }
    Ok(ranges)
}

/// Where the byte at `offset` lies on the device; `None` for a hole, and for data without a place.
pub(crate) fn physical(descriptor: BorrowedFd<'_>, offset: u64) -> io::Result<Option<u64>> {
    let mut map = Map::new(offset..offset.saturating_add(1), 0);
    let extent = map.ask(descriptor)?.first();
    Ok(extent
        .filter(|extent| extent.flags & FIEMAP_EXTENT_PLACELESS == 0)
        .and_then(|extent| extent.physical.checked_add(offset.checked_sub(extent.logical)?)))
}

impl Map {
    fn new(bytes: Range<u64>, flags: u32) -> Self {
        let none = Extent {
            logical: 0,
            physical: 0,
            length: 0,
            reserved: [0; 2],
            flags: 0,
            reserved_too: [0; 3],
        };
        Self {
            start: bytes.start,
            length: bytes.end - bytes.start,
            flags,
            mapped_extents: 0,
            extent_count: u32::try_from(EXTENTS_PER_CALL).expect("a small number"),
            reserved: 0,
            extents: [none; EXTENTS_PER_CALL],
        }
    }

    /// As many as there is room for.
    fn ask(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<&[Extent]> {
        // SAFETY: the descriptor is open for the length of the call; the kernel reads the head of
        // the map and writes at most `extent_count` extents behind it, which is how many there are.
        let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *self) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(&self.extents[..(self.mapped_extents as usize).min(EXTENTS_PER_CALL)])
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Makes a file of more pieces than one call returns.
    fn file_of_pieces() -> (tempfile::TempDir, File) {
        let directory = tempfile::tempdir_in(".").unwrap();
        let file = File::create(directory.path().join("data")).unwrap();
        for piece in 0..600 {
            file.write_all_at(&[7; 4096], piece * 16_384).unwrap();
        }
        (directory, file)
    }

    #[test]
    fn the_pieces_between_holes_are_counted() {
        let (_directory, file) = file_of_pieces();
        match Extents::of(file.as_fd()) {
            Ok(extents) => assert_eq!(extents, Extents { count: 600, bytes: 600 * 4096 }),
            // As tmpfs.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        }
    }

    #[test]
    fn the_group_of_each_piece_is_that_of_its_first_byte() {
        let (_directory, file) = file_of_pieces();
        if Extents::of(file.as_fd()).is_err() {
            return println!("skipped: the file system does not report extents");
        }
        // Groups far smaller than real ones, so that there are several.
        let geometry = Geometry::new(u32::MAX, 1 << 20, 20);
        let mut expected = BTreeMap::new();
        for piece in 0..600 {
            let byte = physical(file.as_fd(), piece * 16_384).unwrap().unwrap();
            *expected.entry(geometry.group_of_byte(byte).unwrap()).or_default() += 4096_u64;
        }
        assert_eq!(Extents::by_group(file.as_fd(), &geometry).unwrap(), expected);
    }
}
