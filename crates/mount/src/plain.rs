//! Files of the source that are open past the engine.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use crate::in_place;

/// Opens a file of the source, for reading, or for writing as well.
pub(crate) fn plain(object: BorrowedFd<'_>, writes: bool) -> io::Result<std::fs::File> {
    let flags = if writes { OFlags::RDWR } else { OFlags::RDONLY };
    Ok(in_place::open(object, flags | OFlags::CLOEXEC)?.into())
}

/// Opens a file of the source with the rights that a caller asked for, and no others.
pub(crate) fn as_asked(object: BorrowedFd<'_>, flags: OFlags) -> io::Result<std::fs::File> {
    let mut asked = flags & (OFlags::RWMODE | OFlags::APPEND) | OFlags::CLOEXEC;
    if flags.contains(OFlags::NOATIME) && rustix::process::geteuid().is_root() {
        // Others may do so for their own files alone.
        asked |= OFlags::NOATIME;
    }
    // The kernel has checked that a caller that cuts a file may write it.
    asked.set(OFlags::RDWR, flags.contains(OFlags::RDWR) || is_cut_by_reader(flags));
    Ok(in_place::open(object, asked)?.into())
}

fn is_cut_by_reader(flags: OFlags) -> bool {
    flags.contains(OFlags::TRUNC) && !flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// Appends all of the data, each part at the end of that moment, and returns the number
/// of bytes: fewer only if the file can be no longer.
pub(crate) fn append_all(file: &std::fs::File, data: &[u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < data.len() {
        let part = [IoSlice::new(&data[done..])];
        // The position is not used, so it may move.
        match pwritev2(file, &part, u64::MAX, ReadWriteFlags::APPEND) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(Errno::FBIG) if done > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}
