//! Changes of a file by a recovery or a keeper, under a promise in its mark.
//!
//! ```text
//! promise, fsync --> bytes in place, the promise renewed --> fsync --> mark behind the log, fsync
//! ```
//!
//! A change after the promise is taken for that of another program.

use std::io;
use std::time::Duration;

use forebay_log::replay::{Copy, SECTOR};
use forebay_log::{Counts, Mark, Wall};

use super::file::LogFile;
use super::marks::{promise_of, set_mark};
use crate::platform::{OpenFile, clock};

/// Length of the promise in a mark. Until it ends, changes by others are not recognized if the work
/// was interrupted, so it is short.
const PROMISE: Duration = Duration::from_secs(10);

/// Rest of the promise when it is renewed, in nanoseconds.
const RENEWED: i64 = 5_000_000_000;

/// Makes a mark durable that allows changes for some time, if that is due. Blocks.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn keep_promise(file: &OpenFile, mark: &mut Mark) -> io::Result<()> {
    if mark.promise.0.saturating_sub(clock::wall()) >= RENEWED {
        return Ok(());
    }
    mark.promise = promise_of(PROMISE);
    set_mark(file, mark)
}

/// Puts bytes of records into a file. Blocks. Never shortens the file.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn put_copies(
    log: &mut LogFile,
    file: &OpenFile,
    copies: &[Copy],
    mark: &mut Mark,
) -> io::Result<()> {
    let length = file.length()?;
    for (at, copy) in copies.iter().enumerate() {
        log.copy_to(file, copy, || keep_promise(file, mark))?;
        let next = copies.get(at + 1).map_or(u64::MAX, |next| next.offset);
        let zeroes = copy.zeroes_behind(length).min(next - copy.end()) as usize;
        file.write_all_at(&[0; SECTOR as usize][..zeroes], copy.end())?;
    }
    Ok(())
}

/// Moves the mark of a file, whose bytes are in place and durable, to batches from `end` on. It is
/// durable after that. Blocks.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn end_marks(file: &OpenFile, mark: &Mark, end: u64) -> io::Result<()> {
    set_mark(file, &Mark { counts: Counts::From(end), promise: Wall::default(), ..*mark })
}
