//! A position in a file, for code that reads and writes from one.

use std::borrow::Borrow;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};

#[cfg(feature = "tokio")]
use crate::adapters::tokio::Polled;
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::slices::{Slices, SlicesMut};
use crate::wait;

/// A file with a position of its own, which reads and writes move: [`Read`], [`Write`] and
/// [`Seek`], and with the feature `tokio` its `AsyncRead`, `AsyncWrite` and `AsyncSeek`.
///
/// It holds the file as it was given it: `&File` ([`File::cursor`]), `Arc<File>`, or the `File`
/// itself. Any number of cursors of one file go their own ways. No buffer is in it and none is
/// needed around it: a write of a few bytes costs a copy into the cache and no system call.
///
/// On a handle for appending ([`Open::append`](crate::Open::append)) every write goes to the end of
/// the file, and the position follows it. On a block device a write ends where the device does.
///
/// # What `flush` promises
/// Nothing beyond `write`: what is written is in the engine's cache at once, and every handle of
/// the engine sees it. **It is not durable, nor does another program see it, until a sync**: call
/// [`File::sync_data`], and [`File::close`] for the last chance to hear an error, for a cursor that
/// is dropped tells none.
///
/// # Errors
/// Those of [`File`], as [`io::Error`] with the nearest kind; the [`Error`] itself is inside
/// ([`io::Error::get_ref`]). Calls block as those of [`File`] do; from the engine's own threads
/// they are refused.
///
/// ```
/// use std::io::{BufRead, BufReader, Seek, Write};
/// use forebay::{Cursor, Engine, Open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir_in(".")?;
/// # let path = directory.path().join("list");
/// let engine = Engine::new()?;
/// let file = engine.open(&path, Open::create())?;
/// let mut cursor = file.cursor();
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
    #[cfg(feature = "tokio")]
    pub(super) polled: Polled,
}

impl File {
    /// A position in this file, at its start; see [`Cursor`].
    #[must_use]
    pub fn cursor(&self) -> Cursor<&File> {
        Cursor::new(self)
    }
}

impl<F: Borrow<File>> Cursor<F> {
    /// A position at the start of a file.
    #[must_use]
    pub fn new(file: F) -> Self {
        Self {
            file,
            position: 0,
            #[cfg(feature = "tokio")]
            polled: Polled::default(),
        }
    }

    /// Where it is, in bytes.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes to a byte, which may be beyond the end.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        self.file.borrow()
    }

    /// The file as it was given.
    #[must_use]
    pub fn into_inner(self) -> F {
        self.file
    }

    /// How many of so many bytes a device has room for from the position on; all of them where none
    /// is left, to be told.
    pub(super) fn fitting(&self, length: usize) -> usize {
        let room =
            self.file().inode.fixed_size.map_or(0, |size| size.saturating_sub(self.position));
        if room == 0 { length } else { length.min(usize::try_from(room).unwrap_or(usize::MAX)) }
    }

    pub(super) fn sought(&self, to: SeekFrom) -> Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(position) => return Ok(position),
            SeekFrom::Current(by) => (self.position, by),
            SeekFrom::End(by) => (self.file().len(), by),
        };
        from.checked_add_signed(by).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("{by} bytes from there is no place in a file"),
            )
            .at_path(&self.file().inode.path)
            .at_offset(from)
        })
    }

    fn read_slices(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let read = wait::block_on(self.file().read_into(SlicesMut::new(buffers), self.position))?;
        self.position += read as u64;
        Ok(read)
    }

    /// What was accepted before an error counts; the error is met again by the next call.
    fn write_slices(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [data] = data {
            let past = self.file().write_past(data, self.position)?;
            if past > 0 {
                self.position += past as u64;
                return Ok(past);
            }
        }
        let data = Slices::new(data);
        let write = async {
            let file = self.file();
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
        self.read_slices(&mut [IoSliceMut::new(buffer)])
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

    /// Does nothing: see [`Cursor`].
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

/// At the same place of the same file.
impl<F: Borrow<File> + Clone> Clone for Cursor<F> {
    fn clone(&self) -> Self {
        Self { position: self.position, ..Self::new(self.file.clone()) }
    }
}

impl<F: Borrow<File>> fmt::Debug for Cursor<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = formatter.debug_struct("Cursor");
        told.field("file", self.file()).field("position", &self.position).finish_non_exhaustive()
    }
}
