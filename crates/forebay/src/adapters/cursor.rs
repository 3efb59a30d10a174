//! A file with a position, for code that uses the traits of `std::io`.

use std::borrow::Borrow;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::time::Instant;

use forebay_cache::Liberties;

#[cfg(feature = "tokio")]
use crate::adapters::tokio::Polled;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::limits::{CURSOR_AHEAD, CURSOR_AHEAD_FRESH};
use crate::core::slices::{Slices, SlicesMut};
use crate::core::wait;
use crate::platform::{Access, Kind, clock};

/// File with a position, for the traits [`Read`], [`Write`] and [`Seek`], and with the feature
/// `tokio` for its `AsyncRead`, `AsyncWrite` and `AsyncSeek`.
///
/// `F` is `&File`, `Arc<File>` or `File`. A file can have any number of
/// cursors, each with its own position. A cursor needs no `BufWriter` or `BufReader` around it: a
/// small write or read is a copy into or from the cache, without a system call.
///
/// A file that the engine has open for reading only is not cached if another program may write it.
/// Small sequential reads of such a file read ahead into a buffer of the cursor, of at most 1 MiB.
/// Its bytes are used for a tenth of a second, so a reader may see changes of another program
/// that much later.
///
/// On a handle for [appending](crate::OpenOptions::append) every write goes to the end of the file
/// and moves the position there. On a block device a write stops at the end of the device.
///
/// # What `flush` does
/// Nothing. Written data is in the cache of the engine at once, where every handle sees it. **Until
/// a sync it is not durable, and other programs do not see it**: call [`File::sync_data`]. Dropping
/// a cursor reports no error; [`File::close`] reports the last ones.
///
/// # Errors
/// Those of [`File`], converted to the nearest kind of [`io::Error`], with the [`Error`] inside
/// ([`io::Error::get_ref`]). Calls block as those of [`File`].
///
/// ```
/// use std::io::{BufRead, BufReader, Seek, Write};
/// use forebay::{Cursor, Engine, OpenOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir_in(".")?;
/// # let path = directory.path().join("list");
/// let engine = Engine::new()?;
/// let file = engine.open(&path, OpenOptions::new().read(true).write(true).create(true))?;
/// let mut cursor = Cursor::new(&file);
/// for number in 1..=3 {
///     writeln!(cursor, "line {number}")?;
/// }
/// cursor.rewind()?;
/// let lines: Vec<String> = BufReader::new(&mut cursor).lines().collect::<Result<_, _>>()?;
/// assert_eq!(lines, ["line 1", "line 2", "line 3"]);
/// file.sync_data()?;                                  // durable from here on
/// file.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Cursor<F> {
    pub(super) file: F,
    pub(super) position: u64,
    pub(super) ahead: Ahead,
    #[cfg(feature = "tokio")]
    pub(super) polled: Polled,
}

impl<F: Borrow<File>> Cursor<F> {
    /// Creates a cursor at the start of a file.
    #[must_use]
    pub fn new(file: F) -> Self {
        Self {
            file,
            position: 0,
            ahead: Ahead::default(),
            #[cfg(feature = "tokio")]
            polled: Polled::default(),
        }
    }

    /// Returns the file.
    #[must_use]
    pub fn get_ref(&self) -> &File {
        self.file.borrow()
    }

    /// Returns the file as it was passed to [`Cursor::new`].
    #[must_use]
    pub fn into_inner(self) -> F {
        self.file
    }

    /// Returns how many of `length` bytes fit between the position and the end of a block device.
    /// Returns `length` if no byte fits, so that the write fails with an error.
    pub(super) fn fitting(&self, length: usize) -> usize {
        let room =
            self.get_ref().inode.fixed_size.map_or(0, |size| size.saturating_sub(self.position));
        if room == 0 { length } else { length.min(usize::try_from(room).unwrap_or(usize::MAX)) }
    }

    pub(super) fn sought(&self, to: SeekFrom) -> Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(position) => return Ok(position),
            SeekFrom::Current(by) => (self.position, by),
            SeekFrom::End(by) => (self.get_ref().len()?, by),
        };
        from.checked_add_signed(by).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("cannot seek by {by}: the position would be negative or too large"),
            )
            .at_path(&self.get_ref().inode.path)
            .at_offset(from)
        })
    }

    fn read_ahead(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { file, position, ahead, .. } = self;
        let file: &File = (*file).borrow();
        file.may_read()?;
        let taken = ahead.take(file, *position, buffer);
        if taken > 0 {
            *position += taken as u64;
            return Ok(taken);
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        if ahead.begin(file, *position, buffer.len()) {
            let read = file.read_at(ahead.memory(), *position)?;
            let taken = ahead.end(read, *position, buffer);
            *position += taken as u64;
            return Ok(taken);
        }
        self.read_slices(&mut [IoSliceMut::new(buffer)])
    }

    fn read_slices(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let read =
            wait::block_on(self.get_ref().read_into(SlicesMut::new(buffers), self.position))?;
        self.position += read as u64;
        self.ahead.note(self.position);
        Ok(read)
    }

    /// Returns success if some bytes were accepted before an error. The next call meets the same
    /// error.
    fn write_slices(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [data] = data {
            let fitting = &data[..self.fitting(data.len())];
            let past = self.get_ref().write_past(fitting, self.position)?;
            if past > 0 {
                self.position += past as u64;
                return Ok(past);
            }
        }
        let data = Slices::new(data);
        let write = async {
            let file = self.get_ref();
            let (offset, accepted, result) = if file.open.append {
                file.append_all(data).await
            } else {
                file.may_write_at()?;
                let (accepted, result) =
                    file.write_all(data.cut(self.fitting(data.len())), self.position).await;
                (self.position, accepted, result)
            };
            if accepted == 0 {
                result?;
            }
            Ok((offset, accepted))
        };
        let (offset, accepted) = wait::block_on(write)?;
        if accepted > 0 {
            self.position = offset + accepted as u64;
        }
        Ok(accepted)
    }
}

impl<F: Borrow<File>> Read for Cursor<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_ahead(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read_slices(buffers)
    }
}

impl<F: Borrow<File>> Write for Cursor<F> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_slices(&[IoSlice::new(data)])
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_slices(data)
    }

    /// Does nothing; see [`Cursor`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: Borrow<File>> Seek for Cursor<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = self.sought(to)?;
        Ok(self.position)
    }

    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.position)
    }
}

/// Returns a cursor at the same position of the same file.
impl<F: Borrow<File> + Clone> Clone for Cursor<F> {
    fn clone(&self) -> Self {
        Self { position: self.position, ..Self::new(self.file.clone()) }
    }
}

impl<F: Borrow<File>> fmt::Debug for Cursor<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reported = formatter.debug_struct("Cursor");
        reported
            .field("file", self.get_ref())
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// Bytes that a cursor has read ahead of a sequential reader, for files that the engine has open
/// for reading only, without a lease.
///
/// Other programs may write such a file, so the engine keeps none of its pages, and each read asks
/// the device. `std::io::copy` reads 8 KiB at a time: without a buffer that is a device
/// read each. So a cursor keeps the rest of a larger read, with bounds:
///
/// - only for a reader that goes on where its last read ended; any other read drops the bytes,
/// - only while no handle of the engine can write the file, and
/// - for a tenth of a second. A follower of a growing file that waits longer sees it as it is then.
///
/// The window doubles, as that of readahead does.
#[derive(Default)]
pub(super) struct Ahead {
    memory: Vec<u8>,
    /// Bytes in the memory that the reader does not have yet.
    left: Range<usize>,
    /// When they were asked for.
    since: Option<Instant>,
    /// Offset where the last read ended; `None` before the first.
    next: Option<u64>,
    /// Bytes of the last window.
    window: usize,
}

impl Ahead {
    /// Copies bytes that were read ahead to a reader at `position`. Returns their number, which
    /// is 0 for a reader elsewhere.
    pub(super) fn take(&mut self, file: &File, position: u64, into: &mut [u8]) -> usize {
        let is_fresh =
            |since| clock::instant().saturating_duration_since(since) < CURSOR_AHEAD_FRESH;
        if self.left.is_empty() {
            return 0;
        }
        if self.next != Some(position) || !serves(file) || !self.since.is_some_and(is_fresh) {
            self.left = 0..0;
            return 0;
        }
        self.give(position, into)
    }

    fn give(&mut self, position: u64, into: &mut [u8]) -> usize {
        let length = self.left.len().min(into.len());
        into[..length].copy_from_slice(&self.memory[self.left.start..][..length]);
        self.left.start += length;
        self.next = Some(position + length as u64);
        length
    }

    /// Returns whether a read of `wanted` bytes at `position` is to read ahead, into
    /// [`Ahead::memory`].
    pub(super) fn begin(&mut self, file: &File, position: u64, wanted: usize) -> bool {
        self.left = 0..0;
        let is_small = wanted <= CURSOR_AHEAD.end() / 2;
        if self.next != Some(position) || !is_small || !serves(file) {
            (self.memory, self.window) = (Vec::new(), 0);
            return false;
        }
        let least = (2 * wanted).max(*CURSOR_AHEAD.start());
        self.window = (2 * self.window).max(least).min(*CURSOR_AHEAD.end());
        self.memory.resize(self.window, 0);
        self.since = Some(clock::instant());
        true
    }

    /// Returns the memory for a read that has begun.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Ends a read that has begun, of `read` bytes from `position` on. Copies the first ones to the
    /// reader, and returns their number.
    pub(super) fn end(&mut self, read: usize, position: u64, into: &mut [u8]) -> usize {
        self.left = 0..read;
        self.give(position, into)
    }

    /// Notes that the reader has read up to `end` into its own memory.
    pub(super) fn note(&mut self, end: u64) {
        self.next = Some(end);
    }
}

/// Returns whether reads of a file ask the device each time, and nothing in this engine writes it.
pub(super) fn serves(file: &File) -> bool {
    let inode = &file.inode;
    inode.file.kind() == Kind::Regular
        && inode.file.access() == Access::Read
        && inode.lock().cache.liberties() == Liberties::Shared
}
