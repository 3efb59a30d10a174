//! Whether the records of a file may be put into it.

use std::io;

use forebay_log::replay::Copy;
use forebay_log::{Counts, FilePlan};

use super::super::file::{LogFile, lock, patiently};
use super::super::marks::{Marked, id_of, mark_of};
use super::Recovering;
use super::walk::Place;
use crate::core::error::{Error, ErrorKind};
use crate::platform::{Access, OpenFile};

/// Result of the check of a file.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing: none of its records counts.
    Done,
    /// Nothing: the file of the records was removed.
    Deleted,
    /// The bytes are put into the file. It is locked, and leased if the file system has leases.
    Put(OpenFile),
    /// The bytes are saved elsewhere, for this reason.
    Skip(String),
    /// The file cannot be recovered now.
    Kept(Error),
}

/// The verdict, and the newest bytes that count.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) verdict: Verdict,
    pub(super) copies: Vec<Copy>,
}

impl Recovering<'_> {
    /// Checks the file at a place.
    pub(super) fn check(&self, log: &LogFile, plan: &FilePlan, place: &Place) -> Checked {
        let failed = |error: io::Error| {
            let what = "could not recover the file";
            let error = if error.kind() == io::ErrorKind::WouldBlock {
                Error::new(ErrorKind::Busy, "another program has the file open")
            } else {
                Error::at_open(what, &place.path, error)
            };
            Checked { verdict: Verdict::Kept(error.at_path(&place.path)), copies: Vec::new() }
        };
        self.examine(log, plan, place).unwrap_or_else(failed)
    }

    fn examine(&self, log: &LogFile, plan: &FilePlan, place: &Place) -> io::Result<Checked> {
        // Requests of a dead process that are in flight keep its lease and its lock.
        let file =
            patiently(self.ask.patience, || self.lookup.open(&place.path, Access::ReadWrite))?;
        let lasting = file.lasting()?;
        if !plan.file.is_same(&id_of(&lasting)) {
            return Ok(Checked { verdict: Verdict::Deleted, copies: Vec::new() });
        }
        let skip = |reason: &str, first| {
            let copies = plan.newest_from(first);
            let is_done = copies.is_empty();
            let verdict = if is_done { Verdict::Done } else { Verdict::Skip(reason.to_owned()) };
            Ok(Checked { verdict, copies })
        };
        let mark = match mark_of(&file)? {
            Marked::Not => return skip("the file has no mark of the log", 0),
            Marked::Unknown => return skip("the mark of the file cannot be read", 0),
            Marked::By(mark) if mark.log != log.id() => {
                return skip("the mark of the file is of another log", 0);
            }
            Marked::By(mark) if !mark.file.is_same(&plan.file) => {
                return skip("the mark of the file was copied from another file", 0);
            }
            Marked::By(mark) => mark,
        };
        let first = match mark.counts {
            Counts::From(first) => first,
            Counts::SavedFrom(first) => {
                let reason = "its engine could not write it before another program opened it";
                return skip(reason, first);
            }
        };
        let copies = plan.newest_from(first);
        if copies.is_empty() {
            return Ok(Checked { verdict: Verdict::Done, copies });
        }
        self.hold(&file)?;
        // Under the lock: the requests of a dead engine have ended.
        let changed = file.lasting()?.changed;
        if changed > log.promise().max(mark.promise).0 {
            return skip("the file was changed after the crash", first);
        }
        Ok(Checked { verdict: Verdict::Put(file), copies })
    }

    /// Locks the file against other engines, and leases it so that no other program opens it.
    fn hold(&self, file: &OpenFile) -> io::Result<()> {
        lock(file, self.ask.patience)?;
        patiently(self.ask.patience, || match file.try_lease(self.watch, 0) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // The file system has none, or this user may not have one.
            _ => Ok(()),
        })
    }
}
