//! Making the log of a directory.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use forebay_log::{BLOCK, HEADS, Head, LogId, MAX_RING, MIN_RING, NAME, Point, Wall};

use super::marks::file_id;
use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::{Access, Lock, OpenDirectory, OpenFile, Replace, random_bytes};

/// Name of a log that is not complete yet.
const NEW: &str = ".forebay-log.new";

/// Bytes that are written at a time.
const ZEROES: usize = 1 << 20;

/// Makes the log of a directory, with a ring of `ring` blocks. It is durable when this returns.
/// Blocks.
///
/// Every block is written, so that a later write of it changes no metadata.
///
/// # Errors
/// `AlreadyExists` if the directory has a log, `Busy` while another engine makes it, and errors of
/// the file system.
pub(crate) fn create(directory: &Path, ring: u64) -> Result<()> {
    if !(MIN_RING..=MAX_RING).contains(&ring) {
        let what = format!("an intent log has {MIN_RING} to {MAX_RING} blocks, not {ring}");
        return Err(Error::new(ErrorKind::InvalidInput, what));
    }
    let path = directory.join(NAME);
    let failed = |error| Error::at_open("could not create the intent log", &path, error);
    let opened = OpenDirectory::open(directory).map_err(failed)?;
    let file = new_file(&opened).map_err(failed)?;
    if file.try_ofd_lock().map_err(failed)? == Lock::HeldElsewhere {
        let what = "another engine makes the intent log of this directory";
        return Err(Error::new(ErrorKind::Busy, what).at_path(&path));
    }
    let named = || opened.rename(OsStr::new(NEW), &opened, OsStr::new(NAME), Replace::No);
    fill(&file, ring).and_then(|()| named()).map_err(|error| {
        // It may have the last space of a full file system.
        let _ = opened.remove(OsStr::new(NEW));
        failed(error)
    })?;
    opened.sync().map_err(|error| {
        // The kernel reports a failed flush once: the next one would end well without the name.
        let _ = opened.remove(OsStr::new(NAME));
        failed(error)
    })
}

/// Opens the incomplete log, which may be left from a crash.
fn new_file(directory: &OpenDirectory) -> io::Result<OpenFile> {
    match directory.create(OsStr::new(NEW), 0o600) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    directory.open_existing(OsStr::new(NEW), Access::ReadWrite)
}

fn fill(file: &OpenFile, ring: u64) -> io::Result<()> {
    let bytes = (HEADS + ring) * BLOCK as u64;
    file.truncate(0)?;
    match file.allocate(0, bytes) {
        // The writes allocate.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
        result => result?,
    }
    let zeroes = vec![0; ZEROES];
    for at in (0..bytes).step_by(ZEROES) {
        let length = (bytes - at).min(ZEROES as u64) as usize;
        file.write_all_at(&zeroes[..length], at)?;
    }
    let start = Point { position: 0, sequence: 1, chain: 0 };
    let log = LogId(random_bytes()?);
    let head = Head { log, number: 0, file: file_id(file)?, ring, start, promise: Wall::default() };
    for number in 0..HEADS {
        let head = Head { number, ..head };
        file.write_all_at(&head.encode(), head.slot() * BLOCK as u64)?;
    }
    file.sync()
}
