//! The bytes of a file's records are put into the file.

use std::io;
use std::time::Duration;

use forebay_log::replay::{Copy, SECTOR};
use forebay_log::{Counts, Mark, Wall};

use super::super::file::LogFile;
use super::super::marks::{file_id, promise_of, set_mark};
use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::{OpenFile, clock};

/// Length of the promise in a mark. Until it ends, changes by others are not recognized if the
/// recovery was interrupted, so it is short.
const PROMISE: Duration = Duration::from_secs(10);

/// Rest of the promise when it is renewed, in nanoseconds.
const RENEWED: i64 = 5_000_000_000;

/// Puts bytes into a file and makes them durable. After that only batches from `end` on count for
/// the file.
///
/// Never shortens the file. Repeated after an interruption at any point, it ends the same.
pub(super) fn put(log: &mut LogFile, file: &OpenFile, copies: &[Copy], end: u64) -> Result<()> {
    let first = copies.first().map(|copy| copy.offset);
    put_all(log, file, copies, end).map_err(|error| {
        let what = "could not put the records of the intent log into the file";
        let error = Error::new(ErrorKind::at_device(&error), what).because(error);
        first.map_or_else(|| error.clone(), |offset| error.clone().at_offset(offset))
    })
}

fn put_all(log: &mut LogFile, file: &OpenFile, copies: &[Copy], end: u64) -> io::Result<()> {
    let Some(old) = file.log_mark()?.and_then(|bytes| Mark::decode(&bytes)) else {
        return Err(io::Error::other("its mark was removed"));
    };
    let mut mark = Mark { file: file_id(file)?, ..old };
    renew(file, &mut mark)?;
    let length = file.length()?;
    for (at, copy) in copies.iter().enumerate() {
        log.copy_to(file, copy, || match mark.promise.0.saturating_sub(clock::wall()) {
            left if left < RENEWED => renew(file, &mut mark),
            _ => Ok(()),
        })?;
        let next = copies.get(at + 1).map_or(u64::MAX, |next| next.offset);
        let zeroes = copy.zeroes_behind(length).min(next - copy.end()) as usize;
        file.write_all_at(&[0; SECTOR as usize][..zeroes], copy.end())?;
    }
    file.sync_data()?;
    let counts = Counts::From(end);
    set_mark(file, &Mark { counts, promise: Wall::default(), ..mark })
}

/// Makes a mark durable that allows changes of this recovery for some time.
fn renew(file: &OpenFile, mark: &mut Mark) -> io::Result<()> {
    mark.promise = promise_of(PROMISE);
    set_mark(file, mark)
}
