//! The pieces of a file system's free space, as it reports them: XFS and ext4 by `FS_IOC_GETFSMAP`.
//!
//! The walk goes over the trees of every group, holding each one's lock for as long as a call looks
//! at it. So it is for reports and bounded in time, and engines do not use it; they see pieces only
//! in their reservations.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use forebay_block::limits::REQUEST_BYTES;

/// Extents of the free space of a file system. An extent never crosses the end of a group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FreeSpace {
    /// Number of extents.
    pub pieces: u64,
    /// Total bytes.
    pub bytes: u64,
    /// Bytes of the largest extent.
    pub largest: u64,
    /// Total bytes of the extents that can hold a request of the largest size.
    pub in_large: u64,
    /// Offset on the device up to which the time sufficed to look, or `None` if all of it was seen.
    pub looked_until: Option<u64>,
}

/// `FS_IOC_GETFSMAP`: read and write 192 bytes, type `X`, number 59.
const FS_IOC_GETFSMAP: libc::Ioctl = 0xc0c0_583b;
const FMR_OF_SPECIAL_OWNER: u32 = 0x10;
const FMR_OF_LAST: u32 = 0x20;
const FMR_OWN_FREE: u64 = 1;
const RECORDS_PER_CALL: usize = 512;

#[repr(C)]
struct Map {
    flags: u32,
    answered_flags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    low: Record,
    high: Record,
    records: [Record; RECORDS_PER_CALL],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Record {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

const _: () = assert!(size_of::<Record>() == 64);
const _: () = assert!(size_of::<Map>() == 192 + 64 * RECORDS_PER_CALL);

impl FreeSpace {
    /// Reads the free extents of the file system of an open file or directory. Blocks for about
    /// `time`, and makes at least one system call.
    ///
    /// # Errors
    /// The error of the kernel: `Unsupported`, `InvalidInput` or `ENOTTY` if the file system does
    /// not report free extents.
    pub fn of(file: impl AsFd, time: Duration) -> io::Result<Self> {
        let until = Instant::now() + time;
        let mut map = Map::new();
        let mut space = Self::default();
        loop {
            let records = map.ask(&file)?;
            records.iter().for_each(|record| space.count(record));
            let Some(last) = records.last().copied().filter(|last| last.flags & FMR_OF_LAST == 0)
            else {
                return Ok(space);
            };
            if Instant::now() >= until {
                space.looked_until = Some(last.physical.saturating_add(last.length));
                return Ok(space);
            }
            map.low = last;
        }
    }

    fn count(&mut self, record: &Record) {
        if record.flags & FMR_OF_SPECIAL_OWNER == 0 || record.owner != FMR_OWN_FREE {
            return;
        }
        self.pieces += 1;
        self.bytes = self.bytes.saturating_add(record.length);
        self.largest = self.largest.max(record.length);
        if record.length >= REQUEST_BYTES {
            self.in_large = self.in_large.saturating_add(record.length);
        }
    }
}

impl Map {
    /// From the first record to the last.
    fn new() -> Box<Self> {
        let high = Record {
            device: u32::MAX,
            flags: u32::MAX,
            physical: u64::MAX,
            owner: u64::MAX,
            offset: u64::MAX,
            ..Record::default()
        };
        Box::new(Self {
            flags: 0,
            answered_flags: 0,
            count: u32::try_from(RECORDS_PER_CALL).expect("a small number"),
            entries: 0,
            reserved: [0; 6],
            low: Record::default(),
            high,
            records: [Record::default(); RECORDS_PER_CALL],
        })
    }

    /// As many as there is room for, behind the lowest.
    fn ask(&mut self, file: impl AsFd) -> io::Result<&[Record]> {
        let descriptor = file.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open for the length of the call; the kernel reads the head of
        // the map and writes it and at most `count` records behind it, which is how many there are.
        let result = unsafe { libc::ioctl(descriptor, FS_IOC_GETFSMAP, &raw mut *self) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(&self.records[..(self.entries as usize).min(RECORDS_PER_CALL)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_counted_and_nothing_else() {
        let record = |owner, flags, length| Record { owner, flags, length, ..Record::default() };
        let mut space = FreeSpace::default();
        for record in [
            record(FMR_OWN_FREE, FMR_OF_SPECIAL_OWNER, 8192),
            record(FMR_OWN_FREE, FMR_OF_SPECIAL_OWNER | FMR_OF_LAST, 3 << 20),
            // Inode 1, and what the file system has for itself.
            record(FMR_OWN_FREE, 0, 1 << 30),
            record(3, FMR_OF_SPECIAL_OWNER, 1 << 30),
        ] {
            space.count(&record);
        }
        let expected = FreeSpace {
            pieces: 2,
            bytes: (3 << 20) + 8192,
            largest: 3 << 20,
            in_large: 3 << 20,
            looked_until: None,
        };
        assert_eq!(space, expected);
    }

    #[test]
    fn a_real_file_system_reports_or_says_that_it_does_not() {
        let here = std::env::temp_dir();
        let directory = std::fs::File::open(&here).unwrap();
        let space = match FreeSpace::of(&directory, Duration::from_secs(2)) {
            Ok(space) => space,
            Err(error) => {
                println!("skipped: {}: {error}", here.display());
                return;
            }
        };
        println!("{space:?}");
        assert!(space.largest <= space.bytes && space.in_large <= space.bytes);
        let status = rustix::fs::fstatvfs(&directory).unwrap();
        // Space reserved for root is free here too; others write meanwhile.
        let free = status.f_bfree * status.f_frsize;
        let off = space.bytes.abs_diff(free);
        assert!(
            space.looked_until.is_some() || off < free / 4 + (64 << 20),
            "{space:?}, {free} by statvfs"
        );
        // With no time it is what one call tells.
        let hurried = FreeSpace::of(&directory, Duration::ZERO).unwrap();
        assert!(hurried.pieces <= space.pieces.max(RECORDS_PER_CALL as u64));
    }
}
