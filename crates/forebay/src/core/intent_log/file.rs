//! The open log of a directory: one descriptor, locked against other engines and recoveries.
//!
//! Direct I/O where the file system has it. Every write is durable before this returns. One caller
//! at a time: batches and heads are written one after the other.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_log::replay::Copy;
use forebay_log::scan::{Scanned, scan};
use forebay_log::{BLOCK, Batch, HEADS, Head, LogId, NAME, Point, Ring, ScanError, Source, Wall};

use super::durable::{Choice, Way};
use super::heads::{check, cut_short, head_of};
use super::marks::file_id;
use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::{
    Access, AlignedMemory, Lock, Mode, OpenDirectory, OpenFile, clock, files, thread,
};

/// Pause between two attempts at something that another process holds.
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes copied at a time.
const PART: u64 = 1 << 20;

/// The open and locked log of a directory.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: OpenFile,
    path: PathBuf,
    /// The last head that is durable.
    head: Head,
    ring: Ring,
    /// Latest promise that is durable.
    promise: Wall,
    /// Whether the file system is read-only: the log is empty, and stays so.
    is_read_only: bool,
    /// Set once a write has failed: its batch may be there or not.
    is_uncertain: bool,
    /// How batches become durable.
    choice: Choice,
    memory: AlignedMemory,
}

impl LogFile {
    /// Opens the log of a directory and locks it; waits up to `patience` for another holder of the
    /// lock. Returns `None` if the directory has no log. Blocks.
    ///
    /// The log may hold live records: see [`LogFile::scan`].
    ///
    /// # Errors
    /// `Busy` if the lock stays held. `Unsupported` for a log with records on a read-only file
    /// system, and for one of another version. `Open` for a log that was copied or cut, or that has
    /// no valid head.
    pub(crate) fn open(directory: &Path, patience: Duration) -> Result<Option<Self>> {
        let path = directory.join(NAME);
        let failed = |error: io::Error| not_opened(&path, error);
        let opened = OpenDirectory::open(directory).map_err(failed)?;
        let mut file = match opened.open_existing(OsStr::new(NAME), Access::ReadWrite) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                let file = opened.open_existing(OsStr::new(NAME), Access::Read).map_err(failed)?;
                let mut log = Self { is_read_only: true, ..Self::read(file, path.clone())? };
                let is_empty = log.scan()?.batches.is_empty();
                return if is_empty { Ok(Some(log)) } else { Err(failed(error)) };
            }
            opened => opened.map_err(failed)?,
        };
        lock(&file, patience).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                let what = "another engine, keeper or recovery holds the intent log";
                Error::new(ErrorKind::Busy, what)
                    .at_path(&path)
                    .remedy("wait until it has ended, or stop it")
            }
            _ => failed(error),
        })?;
        // A process may have died with writes in the page cache, or in a cache of the disk. After
        // this flush, the bytes that are read now are those that any later recovery reads.
        file.sync().map_err(failed)?;
        file.go_direct().map_err(failed)?;
        if file.alignment().offset as usize > BLOCK || file.alignment().memory as usize > BLOCK {
            file.go_buffered().map_err(failed)?;
        }
        file.set_direct(Mode::Direct).map_err(failed)?;
        Self::read(file, path).map(Some)
    }

    /// Takes the log of a dead process from its descriptor, which has the lock. A drop does not
    /// release it. Blocks.
    ///
    /// # Errors
    /// As [`LogFile::open`].
    pub(crate) fn of(mut file: OpenFile) -> Result<Self> {
        let path = files::path_of(&file).unwrap_or_else(|_| NAME.into());
        let failed = |error: io::Error| not_opened(&path, error);
        // See `open`.
        file.sync().map_err(failed)?;
        file.go_buffered().map_err(failed)?;
        Self::read(file, path)
    }

    /// Reads and checks the heads.
    fn read(file: OpenFile, path: PathBuf) -> Result<Self> {
        let failed = |error: io::Error| not_opened(&path, error);
        let (length, own) = (file.length().map_err(failed)?, file_id(&file).map_err(failed)?);
        let mut memory = AlignedMemory::new(HEADS as usize * BLOCK);
        if length < memory.len() as u64 {
            return Err(cut_short(&path, length, memory.len() as u64));
        }
        file.read_exact_at(&mut memory, 0).map_err(|error| not_read(&path, error))?;
        let head = head_of(&path, &memory)?;
        check(&path, &head, length, &own)?;
        let ring = Ring::new(head.ring, head.start);
        let promise = head.promise;
        let (is_read_only, is_uncertain) = (false, false);
        let choice = Choice::default();
        Ok(Self { file, path, head, ring, promise, is_read_only, is_uncertain, choice, memory })
    }

    /// Returns the path of the log.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file.
    pub(crate) fn file(&self) -> &OpenFile {
        &self.file
    }

    /// Returns the identity of the log.
    pub(crate) fn id(&self) -> LogId {
        self.head.log
    }

    /// Returns the space of the ring.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the latest durable promise.
    pub(crate) fn promise(&self) -> Wall {
        self.promise
    }

    /// Returns whether the file system is read-only. Such a log is empty.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns whether a write has failed: nothing can be appended before [`LogFile::restart`].
    pub(crate) fn is_uncertain(&self) -> bool {
        self.is_uncertain
    }

    /// Reads all batches from the head on.
    ///
    /// # Errors
    /// `Io` if a block cannot be read, `Open` if the log is damaged.
    pub(crate) fn scan(&mut self) -> Result<Scanned> {
        let head = self.head;
        let scanned = scan(&head, self).map_err(|error| match error {
            ScanError::Read { block, error } => {
                not_read(&self.path, error).at_offset(block * BLOCK as u64)
            }
            ScanError::Damage(damage) => {
                let what = format!(
                    "the intent log is damaged: batch {} is missing or cannot be read, and batch \
                     {} is behind it",
                    damage.expected.sequence, damage.found.sequence
                );
                Error::new(ErrorKind::Open, what).at_path(&self.path).remedy(
                    "keep the log and its files; tools/read-intent-log shows the batches that can \
                     be read",
                )
            }
        })?;
        self.promise = scanned.promise;
        Ok(scanned)
    }

    /// Returns bytes of the log's file.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn read_at(&mut self, offset: u64, bytes: usize) -> io::Result<&[u8]> {
        let block = BLOCK as u64;
        let (first, end) = (offset / block, (offset + bytes as u64).div_ceil(block));
        let length = ((end - first) * block) as usize;
        self.reserve(length);
        self.file.read_exact_at(&mut self.memory[..length], first * block)?;
        let at = (offset % block) as usize;
        Ok(&self.memory[at..at + bytes])
    }

    /// Copies bytes of a record to their place in a file, `before` each part after a call.
    ///
    /// # Errors
    /// The error of the kernel, or of the call.
    pub(crate) fn copy_to(
        &mut self,
        file: &OpenFile,
        copy: &Copy,
        mut before: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < copy.length {
            before()?;
            let length = (copy.length - done).min(PART) as usize;
            file.write_all_at(self.read_at(copy.from + done, length)?, copy.offset + done)?;
            done += length as u64;
        }
        Ok(())
    }

    /// Appends a batch and makes it durable. Blocks. Returns its sequence number. The caller has
    /// looked for room: [`Ring::place`].
    ///
    /// # Errors
    /// The error of the kernel: the batch may be there or not, and the log is uncertain. `NotFound`
    /// if the log was removed: nothing was written.
    ///
    /// # Panics
    /// If the log is uncertain, or has no room for the batch.
    pub(crate) fn append(&mut self, batch: &mut Batch, promise: Wall) -> io::Result<u64> {
        assert!(!self.is_uncertain, "a batch behind one that may be missing");
        self.check_name()?;
        let at = self.ring.place(batch.blocks()).expect("the caller looked for room");
        let log = self.head.log;
        let (bytes, next) = batch.seal(&log, &at, promise);
        let length = bytes.len();
        self.reserve(length);
        self.memory[..length].copy_from_slice(bytes);
        // These blocks are in use from here on, also if the write fails.
        self.ring.push(next);
        self.is_uncertain = true;
        let offset = (HEADS + at.position % self.ring.blocks()) * BLOCK as u64;
        let begin = clock::instant();
        let bytes = &self.memory[..length];
        match self.choice.way() {
            Way::Write => self.file.write_all_durably_at(bytes, offset)?,
            Way::Flush => {
                self.file.write_all_at(bytes, offset)?;
                self.file.sync_data()?;
            }
        }
        self.choice.note(clock::instant().saturating_duration_since(begin));
        self.is_uncertain = false;
        self.promise = self.promise.max(promise);
        Ok(at.sequence)
    }

    /// Writes a head that starts at a point, with a promise, and makes it durable. Blocks. The
    /// blocks before the point are free after that. To renew the promise alone, start where the
    /// last head starts.
    ///
    /// # Errors
    /// The error of the kernel: nothing is freed, and the next call repeats the same head.
    pub(crate) fn advance(&mut self, start: Point, promise: Wall) -> io::Result<()> {
        let promise = promise.max(self.promise);
        self.write_head(Head { number: self.head.number + 1, start, promise, ..self.head })?;
        self.ring.advance(start);
        Ok(())
    }

    /// Makes the log empty after a failed write, or after a recovery: the next batch begins behind
    /// `end`, with a later sequence number than any batch that may be there. No record may be live.
    /// Blocks.
    ///
    /// # Errors
    /// The error of the kernel: nothing has changed.
    pub(crate) fn restart(&mut self, end: Point, promise: Wall) -> io::Result<()> {
        let end = if end.position > self.ring.next().position { end } else { self.ring.next() };
        // A batch that failed, or that was torn at the end, may be found whole later: it would have
        // the sequence number `end.sequence`.
        let start = Point { sequence: end.sequence + 1, chain: 0, ..end };
        self.write_head(Head { number: self.head.number + 1, start, promise, ..self.head })?;
        self.ring = Ring::new(self.head.ring, start);
        self.is_uncertain = false;
        Ok(())
    }

    fn write_head(&mut self, head: Head) -> io::Result<()> {
        self.check_name()?;
        self.memory[..BLOCK].copy_from_slice(&head.encode());
        self.file.write_all_at(&self.memory[..BLOCK], head.slot() * BLOCK as u64)?;
        self.file.sync_data()?;
        self.promise = head.promise;
        self.head = head;
        Ok(())
    }

    /// Refuses a log that was removed: no recovery would find it.
    fn check_name(&self) -> io::Result<()> {
        match self.file.status()?.links {
            0 => Err(io::Error::new(io::ErrorKind::NotFound, "another program removed it")),
            _ => Ok(()),
        }
    }

    fn reserve(&mut self, length: usize) {
        if self.memory.len() < length {
            self.memory = AlignedMemory::new(length.next_power_of_two());
        }
    }
}

impl Source for LogFile {
    type Error = io::Error;

    fn read(&mut self, block: u64, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(self.read_at(block * BLOCK as u64, into.len())?);
        Ok(())
    }
}

/// Locks a file against other engines and recoveries.
///
/// # Errors
/// `WouldBlock` if another one still holds it when patience ends, and errors of the kernel.
pub(super) fn lock(file: &OpenFile, patience: Duration) -> io::Result<()> {
    patiently(patience, || match file.try_ofd_lock()? {
        Lock::Taken => Ok(()),
        Lock::HeldElsewhere => Err(io::ErrorKind::WouldBlock.into()),
    })
}

/// Repeats a call while it would block, until patience ends.
pub(super) fn patiently<T>(
    patience: Duration,
    mut call: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let until = clock::instant() + patience;
    loop {
        match call() {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && clock::instant() + PAUSE < until =>
            {
                thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

fn not_read(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Io, "could not read the intent log").at_path(path).because(error)
}

fn not_opened(path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return Error::new(ErrorKind::Unsupported, "cannot use an intent log here")
            .at_path(path)
            .because(error)
            .remedy("mount the file system read-write");
    }
    Error::at_open("could not open the intent log", path, error)
}
