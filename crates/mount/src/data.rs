//! The data of one open file: through the engine, or straight to the source.

use std::cell::Cell;
use std::fs::FileTimes;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use forebay::{File, OpenOptions, Times, inside};
use forebay_uring::longest;
use forebay_uring::page_cache::{self, WHOLE};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};

use crate::error::of_engine;
use crate::in_place::path_of;
use crate::plain::{append_all, plain};
use crate::small::{self, Small, Stack};

/// Where the data of all files goes.
#[derive(Debug)]
pub(crate) enum Way {
    Engine(Arc<Stack>),
    /// Without an engine: reads and writes of the source, to compare with.
    Plain,
}

/// An open file.
#[derive(Debug)]
pub(crate) enum OpenData {
    Engine(File),
    Small(Small),
    Plain(std::fs::File),
}

/// An open file where it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held<'a> {
    Engine(&'a File),
    Plain(&'a std::fs::File),
}

impl AsFd for Held<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Engine(file) => file.as_fd(),
            Self::Plain(file) => file.as_fd(),
        }
    }
}

/// How an open file can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    ReadWrite,
    /// By its own open of the kernel alone, with the flags of that: this process may not open it
    /// for both. Its data is in the page cache of the source.
    AsAsked,
}

impl Access {
    /// Returns the access that serves an open with these flags.
    pub(crate) fn of(flags: OFlags) -> Self {
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
        if writes { Self::ReadWrite } else { Self::Read }
    }
}

impl Way {
    /// Returns the engine, if there is one, and the limits of the page cache beside it.
    pub(crate) fn stack(&self) -> Option<&Stack> {
        match self {
            Self::Engine(stack) => Some(stack),
            Self::Plain => None,
        }
    }

    /// Opens the file of an `O_PATH` descriptor.
    pub(crate) fn open(&self, object: BorrowedFd<'_>, access: Access) -> io::Result<OpenData> {
        let Self::Engine(stack) = self else {
            return plain(object, access == Access::ReadWrite).map(OpenData::Plain);
        };
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite);
        let file = stack.engine.open(path_of(object), &options).map_err(of_engine)?;
        inside::leave_accessed(&file);
        Ok(OpenData::Engine(file))
    }
}

impl OpenData {
    pub(crate) fn with<T>(&self, operation: impl FnOnce(Held<'_>) -> T) -> T {
        match self {
            Self::Engine(file) => operation(Held::Engine(file)),
            Self::Small(small) => small.with(operation),
            Self::Plain(file) => operation(Held::Plain(file)),
        }
    }

    /// The same for an operation that makes the file `end` bytes long, if it is shorter.
    fn with_size<T>(
        &self,
        end: u64,
        operation: impl FnOnce(Held<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Small(small) => small.with_size(end, operation),
            _ => self.with(operation),
        }
    }

    /// The small file, if it is one still.
    pub(crate) fn small(&self) -> Option<&Small> {
        match self {
            Self::Small(small) if small.is_small() => Some(small),
            _ => None,
        }
    }

    /// Makes the descriptor of an open for its caller alone append, or not, as that of the caller.
    ///
    /// # Errors
    /// `EPERM` for a write at an offset of a file that only grows.
    pub(crate) fn append_as(&self, flags: OFlags) -> io::Result<()> {
        let Self::Plain(file) = self else { return Ok(()) };
        let own = rustix::fs::fcntl_getfl(file)?;
        if own.contains(OFlags::APPEND) != flags.contains(OFlags::APPEND) {
            rustix::fs::fcntl_setfl(file, own ^ OFlags::APPEND)?;
        }
        Ok(())
    }

    /// Whether something may have to be written out that has no time of writing.
    pub(crate) fn was_small(&self) -> bool {
        matches!(self, Self::Small(_))
    }

    /// Reads until the buffer is full or the file ends.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|file| {
            let mut done = 0;
            while done < buffer.len() {
                let (rest, at) = (&mut buffer[done..], offset + done as u64);
                let read = match file {
                    Held::Engine(file) => file.read_at(rest, at).map_err(of_engine)?,
                    Held::Plain(file) => file.read_at(rest, at)?,
                };
                if read == 0 {
                    break;
                }
                done += read;
            }
            Ok(done)
        })
    }

    /// Writes, and returns the number of bytes: fewer only if the file can be no longer.
    pub(crate) fn write(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.with_size(offset.saturating_add(data.len() as u64), |file| {
            what_fits(file, data, offset, |data| match file {
                Held::Engine(file) => file.write_at(data, offset).map_err(of_engine),
                Held::Plain(file) => file.write_all_at(data, offset),
            })
        })
    }

    /// Writes at the end that the file has at that moment in the source, too: another program may
    /// have moved it. `end` is where it was a moment ago. Returns as [`OpenData::write`].
    pub(crate) fn append(&self, data: &[u8], end: u64) -> io::Result<usize> {
        self.with_size(end.saturating_add(data.len() as u64), |held| match held {
            Held::Plain(file) => append_all(file, data),
            Held::Engine(file) => {
                what_fits(held, data, end, |data| file.append(data).map(drop).map_err(of_engine))
            }
        })
    }

    /// The size at this moment.
    pub(crate) fn end(&self) -> io::Result<u64> {
        self.with(|file| match file {
            Held::Engine(file) => file.len().map_err(of_engine),
            Held::Plain(file) => Ok(file.metadata()?.len()),
        })
    }

    /// The size, with data that the source does not have yet.
    pub(crate) fn size(&self) -> io::Result<Option<u64>> {
        self.with(|file| match file {
            Held::Engine(file) => file.len().map(Some).map_err(of_engine),
            Held::Plain(_) => Ok(None),
        })
    }

    pub(crate) fn set_size(&self, size: u64) -> io::Result<()> {
        self.with_size(size, |file| match file {
            Held::Engine(file) => file.set_len(size).map_err(of_engine),
            Held::Plain(file) => file.set_len(size),
        })
    }

    /// Makes the source show everything that was written, and brings it to the device. Not a
    /// flush.
    pub(crate) fn write_out(&self) -> io::Result<()> {
        match self {
            Self::Engine(file) => file.write_out().map_err(of_engine),
            Self::Small(small) => small.write_out(),
            Self::Plain(file) => page_cache::write_out(file, WHOLE),
        }
    }

    /// Makes everything durable that was written before, and for `All` the attributes, too. Notes
    /// whether all syncs fail until the engine has closed the file.
    pub(crate) fn sync(&self, what: Sync, is_poisoned: &Cell<bool>) -> io::Result<()> {
        let of_engine = |error| noting(is_poisoned, error);
        let sync = |file: Held<'_>| match (file, what) {
            (Held::Engine(file), Sync::Data) => file.sync_data().map_err(of_engine),
            (Held::Engine(file), Sync::All) => file.sync_all().map_err(of_engine),
            (Held::Plain(file), Sync::Data) => file.sync_data(),
            (Held::Plain(file), Sync::All) => file.sync_all(),
        };
        match self {
            Self::Small(small) => small.report(sync),
            _ => self.with(sync),
        }
    }

    /// Writes everything out and sets times.
    pub(crate) fn set_times(&self, times: Times) -> io::Result<()> {
        self.with(|file| match file {
            Held::Engine(file) => file.set_times(times).map_err(of_engine),
            Held::Plain(file) => {
                let Times { accessed, modified } = times;
                let mut of_file = FileTimes::new();
                of_file = accessed.map_or(of_file, |time| of_file.set_accessed(time));
                of_file = modified.map_or(of_file, |time| of_file.set_modified(time));
                file.set_times(of_file)
            }
        })
    }

    /// Whether the engine has it: the source shows what is written only later, and reads leave the
    /// time of access.
    pub(crate) fn is_in_engine(&self) -> bool {
        self.with(|file| matches!(file, Held::Engine(_)))
    }

    /// Has the file system of the source move the time of access, by its own rules.
    pub(crate) fn touch(&self) {
        self.with(|file| {
            if let Held::Engine(file) = file {
                inside::touch_accessed(file);
            }
        });
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
        if let Self::Small(small) = self {
            small.grow()?;
        }
        self.with(|file| match file {
            Held::Engine(file) => {
                let end = offset.checked_add(length);
                let end = end.ok_or(io::Error::from_raw_os_error(libc::EFBIG))?;
                if !longest::can_hold(file, end) {
                    // The file system has its own reasons. No file has this byte.
                    rustix::fs::fallocate(file, flags, end - 1, 1)?;
                }
                allocate(file, flags, offset, end)
            }
            Held::Plain(file) => Ok(rustix::fs::fallocate(file, flags, offset, length)?),
        })
    }

    /// Finds the next data or hole.
    pub(crate) fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        self.with(|file| match file {
            Held::Engine(file) => {
                file.write_out().map_err(of_engine)?;
                Ok(rustix::fs::seek(file, to)?)
            }
            Held::Plain(file) => Ok(rustix::fs::seek(file, to)?),
        })
    }

    /// Drops what was written and not written out: for a file without a name that nobody has open.
    pub(crate) fn discard(self) {
        match self {
            Self::Engine(file) => small::discard(file),
            Self::Small(small) => small.discard(),
            Self::Plain(_) => {}
        }
    }

    /// Writes everything out, and closes the file. Notes whether the error is that of a failed
    /// flush: all data was written then.
    pub(crate) fn close(self, is_poisoned: &Cell<bool>) -> io::Result<()> {
        let of_engine = |error| noting(is_poisoned, error);
        match self {
            Self::Engine(file) => file.close().map_err(of_engine),
            Self::Small(small) => small.close(of_engine),
            Self::Plain(_) => Ok(()),
        }
    }
}

/// Writes the data, or as much of it as a file can have from this offset on.
fn what_fits(
    file: Held<'_>,
    data: &[u8],
    offset: u64,
    write: impl Fn(&[u8]) -> io::Result<()>,
) -> io::Result<usize> {
    let error = match write(data) {
        Ok(()) => return Ok(data.len()),
        Err(error) => error,
    };
    let most = match error.raw_os_error() {
        Some(libc::EFBIG) => longest::largest(file).saturating_sub(offset),
        _ => 0,
    };
    match usize::try_from(most) {
        Ok(most @ 1..) if most < data.len() => write(&data[..most]).map(|()| most),
        _ => Err(error),
    }
}

/// The error of the system for an error of the engine. Notes whether that is of a failed flush.
fn noting(is_poisoned: &Cell<bool>, error: forebay::Error) -> io::Error {
    is_poisoned.set(error.kind() == forebay::ErrorKind::Poisoned);
    of_engine(error)
}

/// Changes the space of a range of a file in the engine.
fn allocate(file: &File, flags: FallocateFlags, offset: u64, end: u64) -> io::Result<()> {
    let not_supported = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    let keeps_size = flags.contains(FallocateFlags::KEEP_SIZE);
    let length = end - offset;
    let size = file.len().map_err(of_engine)?;
    let within = end.min(size).saturating_sub(offset);
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
mod tests;
