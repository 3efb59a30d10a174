//! The bytes of a file's records are put into the file.

use std::io;

use forebay_log::replay::Copy;
use forebay_log::{Mark, Wall};

use super::super::file::LogFile;
use super::super::marks::file_id;
use super::super::promise::{end_marks, keep_promise, put_copies};
use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::OpenFile;

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
    let mut mark = Mark { file: file_id(file)?, promise: Wall::default(), ..old };
    keep_promise(file, &mut mark)?;
    put_copies(log, file, copies, &mut mark)?;
    file.sync_data()?;
    end_marks(file, &mark, end)
}
