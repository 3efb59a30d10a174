//! The data of one open file: through the engine, or straight to the source.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::SystemTime;

use forebay::{Engine, File, Open, Times};
use rustix::fs::{FallocateFlags, SeekFrom};

use crate::error::of_engine;

/// Where the data of all files goes.
#[derive(Debug)]
pub(crate) enum Way {
    Engine(Engine),
    /// Without an engine: reads and writes of the source, to compare with.
    Plain,
}

/// An open file.
#[derive(Debug)]
pub(crate) enum OpenData {
    Engine(File),
    Plain(std::fs::File),
}

/// Whether an open file can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

impl Way {
    /// Opens the file at a path.
    pub(crate) fn open(&self, path: &std::path::Path, access: Access) -> io::Result<OpenData> {
        match (self, access) {
            (Self::Engine(engine), Access::Read) => {
                engine.open(path, Open::read()).map(OpenData::Engine).map_err(of_engine)
            }
            (Self::Engine(engine), Access::ReadWrite) => {
                engine.open(path, Open::write()).map(OpenData::Engine).map_err(of_engine)
            }
            (Self::Plain, access) => {
                let writes = access == Access::ReadWrite;
                let file = std::fs::File::options().read(true).write(writes).open(path)?;
                Ok(OpenData::Plain(file))
            }
        }
    }

    /// Takes over a new file that is open for reading and writing.
    pub(crate) fn take(&self, file: OwnedFd) -> io::Result<OpenData> {
        match self {
            Self::Engine(engine) => {
                engine.open_fd(file, Open::write()).map(OpenData::Engine).map_err(of_engine)
            }
            Self::Plain => Ok(OpenData::Plain(file.into())),
        }
    }
}

impl OpenData {
    /// Reads until the buffer is full or the file ends.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let (rest, at) = (&mut buffer[done..], offset + done as u64);
            let read = match self {
                Self::Engine(file) => file.read_at(rest, at).map_err(of_engine)?,
                Self::Plain(file) => file.read_at(rest, at)?,
            };
            if read == 0 {
                break;
            }
            done += read;
        }
        Ok(done)
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Engine(file) => file.write_at(data, offset).map_err(of_engine),
            Self::Plain(file) => file.write_all_at(data, offset),
        }
    }

    /// The size, with data that the source does not have yet.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::Engine(file) => Some(file.len()),
            Self::Plain(_) => None,
        }
    }

    pub(crate) fn set_size(&self, size: u64) -> io::Result<()> {
        match self {
            Self::Engine(file) => file.set_len(size).map_err(of_engine),
            Self::Plain(file) => file.set_len(size),
        }
    }

    /// Makes the source show everything that was written. Not a flush.
    pub(crate) fn write_out(&self) -> io::Result<()> {
        match self {
            Self::Engine(file) => file.write_out().map_err(of_engine),
            Self::Plain(_) => Ok(()),
        }
    }

    /// Makes everything durable that was written before, and for `All` the attributes, too.
    pub(crate) fn sync(&self, what: Sync) -> io::Result<()> {
        match (self, what) {
            (Self::Engine(file), Sync::Data) => file.sync_data().map_err(of_engine),
            (Self::Engine(file), Sync::All) => file.sync_all().map_err(of_engine),
            (Self::Plain(file), Sync::Data) => file.sync_data(),
            (Self::Plain(file), Sync::All) => file.sync_all(),
        }
    }

    /// Writes everything out and sets the time of the last write.
    pub(crate) fn set_modified(&self, modified: SystemTime) -> io::Result<()> {
        match self {
            Self::Engine(file) => {
                let times = Times { modified: Some(modified), ..Times::default() };
                file.set_times(times).map_err(of_engine)
            }
            Self::Plain(file) => file.set_modified(modified),
        }
    }

    /// Changes the space of a range, as `fallocate(2)` with these flags.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for flags whose effect the cache of the engine does not have, and for space
    /// beyond the end that leaves the size: the engine gives that back.
    pub(crate) fn allocate(
        &self,
        flags: FallocateFlags,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        let file = match self {
            Self::Engine(file) => file,
            Self::Plain(file) => return Ok(rustix::fs::fallocate(file, flags, offset, length)?),
        };
        let not_supported = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let keeps_size = flags.contains(FallocateFlags::KEEP_SIZE);
        let end = offset.checked_add(length).ok_or(io::Error::from_raw_os_error(libc::EFBIG))?;
        let within = end.min(file.len()).saturating_sub(offset);
        let punch = || match within {
            0 => Ok(()),
            within => file.punch_hole(offset, within),
        };
        let allocate = |length| match length {
            0 => Ok(()),
            length => file.allocate(offset, length),
        };
        let done = match flags - FallocateFlags::KEEP_SIZE {
            none if none.is_empty() => match keeps_size {
                false => allocate(length),
                true if within == length => allocate(length),
                true => return Err(not_supported()),
            },
            FallocateFlags::PUNCH_HOLE if keeps_size => punch(),
            FallocateFlags::ZERO_RANGE if keeps_size => punch().and_then(|()| allocate(within)),
            FallocateFlags::ZERO_RANGE => punch().and_then(|()| allocate(length)),
            _ => return Err(not_supported()),
        };
        done.map_err(of_engine)
    }

    /// Finds the next data or hole.
    pub(crate) fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        self.write_out()?;
        Ok(rustix::fs::seek(self.as_fd(), to)?)
    }

    /// Drops what was written and not written out: for a file without a name that nobody has open.
    pub(crate) fn discard(self) {
        if let Self::Engine(file) = self {
            // An error here concerns a file that is gone.
            let _ = file.discard_dirty();
            let _ = file.close();
        }
    }

    /// Writes everything out, and closes the file.
    pub(crate) fn close(self) -> io::Result<()> {
        match self {
            Self::Engine(file) => file.close().map_err(of_engine),
            Self::Plain(_) => Ok(()),
        }
    }
}

impl AsFd for OpenData {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Engine(file) => file.as_fd(),
            Self::Plain(file) => file.as_fd(),
        }
    }
}

/// Extent of a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sync {
    Data,
    All,
}

impl Sync {
    /// Returns the sync that each write to a file with these flags needs.
    pub(crate) fn of_flags(flags: i32) -> Option<Self> {
        // By the numbers of libc: rustix has that of `O_SYNC` for `O_DSYNC`.
        match flags & libc::O_SYNC {
            0 => None,
            libc::O_SYNC => Some(Self::All),
            _ => Some(Self::Data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_synchronous_write_is_recognized() {
        let others = libc::O_WRONLY | libc::O_APPEND | libc::O_LARGEFILE;
        assert_eq!(Sync::of_flags(others), None);
        assert_eq!(Sync::of_flags(others | libc::O_DSYNC), Some(Sync::Data));
        assert_eq!(Sync::of_flags(others | libc::O_SYNC), Some(Sync::All));
    }
}
