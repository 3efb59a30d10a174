//! Recovery: the records of a log are put into their files.
//!
//! ```text
//! lock, flush, read the log          nothing is changed up to here
//!   for each file: find, lock, check identity, mark and change time
//!     mark with a promise of its own, fsync
//!     newest bytes in place, fdatasync
//!     mark behind the log, fsync        the records count no more for this file
//!   save what may not be put back
//!   head behind the log, fdatasync      the records are gone
//! ```
//!
//! A recovery that is interrupted anywhere is repeated as a whole. The promise in a mark tells its
//! writes from those of other programs. Nothing is guessed: a file that may be newer than its
//! records is left alone, and the log keeps them until they were saved elsewhere.

mod check;
mod fate;
mod put;
mod save;
#[cfg(test)]
mod tests;
mod walk;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_log::{Counts, FilePlan, MAX_PROMISE, Mark, NAME, Point, Replay};

use self::check::{Checked, Verdict};
pub use self::fate::{Fate, Recovered, Recovery};
use self::walk::{Lookup, Place};
use super::file::LogFile;
use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::{LeaseWatch, clock, files};

/// Whether [`recover`] writes, or only reports what it would do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Writes to the files, and empties the log.
    Real,
    /// Writes nothing.
    Dry,
}

/// Options of [`recover`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Whether to write.
    pub mode: Mode,
    /// Directory for bytes that may not be put into their files. Without one, the log keeps them.
    pub save: Option<PathBuf>,
    /// Time to wait for another holder of the log, and of a file.
    pub patience: Duration,
}

impl Default for Ask {
    fn default() -> Self {
        Self { mode: Mode::Real, save: None, patience: Duration::from_secs(5) }
    }
}

/// Puts the records of the intent log of a directory into their files, and empties the log. Blocks.
///
/// # Errors
/// `NotFound` if the directory has no log. `Busy` if an engine, a keeper or another recovery holds
/// it. `Unsupported` for records on a read-only file system, and for another version of the format.
/// `Open` if
/// the log is damaged, cut short or copied, and `Io` if it cannot be read: then nothing was
/// changed. An error that concerns one file is in its [`Recovered`].
pub fn recover(directory: &Path, ask: &Ask) -> Result<Recovery> {
    let Some(mut log) = LogFile::open(directory, ask.patience)? else {
        let what = "this directory has no intent log";
        return Err(Error::new(ErrorKind::NotFound, what).at_path(&directory.join(NAME)));
    };
    recover_log(&mut log, directory, ask, &[])
}

/// Recovers a log that was just opened: see [`recover`]. If [`Recovery::is_empty`] is true after
/// that, batches can be appended. `held` are the marks of files that the caller takes over from a
/// keeper: they cannot be opened here.
///
/// # Errors
/// As [`recover`].
pub(crate) fn recover_log(
    log: &mut LogFile,
    directory: &Path,
    ask: &Ask,
    held: &[Mark],
) -> Result<Recovery> {
    let scanned = log.scan()?;
    check_clock(log, !scanned.batches.is_empty())?;
    let replay = Replay::new(&scanned.batches);
    let mut lookup = Lookup::new(directory)?;
    // An open of one of them would break the lease of its keeper.
    let left = replay.files.iter().filter(|plan| !is_in_place(log, plan, held));
    let hints = left.map(|plan| (plan.file.inode, files::path_of_bytes(&plan.path)));
    let places = lookup.find(hints.collect());
    // Nobody hears of a break: the other program waits until the file is done.
    let watch = LeaseWatch::new(|_| {}).map_err(|error| {
        Error::new(ErrorKind::Open, "could not watch leases").at_path(log.path()).because(error)
    })?;
    let (lookup, watch, end) = (&lookup, &watch, scanned.end.sequence);
    let recovering = Recovering { ask, lookup, watch, held, end };
    let mut files = Vec::new();
    for plan in &replay.files {
        let place = places.get(&plan.file.inode);
        files.push(recovering.file(log, plan, place));
    }
    watch.shutdown();
    let is_settled = files.iter().all(|file| file.fate.is_settled());
    let mut recovery = Recovery { files, batches: scanned.batches.len(), is_empty: false };
    if log.is_read_only() {
        recovery.is_empty = true;
    } else if ask.mode == Mode::Real && is_settled {
        empty(log, scanned.end, &recovery).map_err(|error| {
            let what = "could not empty the intent log; its records are in place";
            Error::new(ErrorKind::at_device(&error), what).at_path(log.path()).because(error)
        })?;
        recovery.is_empty = true;
    }
    Ok(recovery)
}

/// Returns whether a keeper that holds a file has brought it into place.
fn is_in_place(log: &LogFile, plan: &FilePlan, held: &[Mark]) -> bool {
    let mut held = held.iter().filter(|mark| mark.log == log.id());
    let mark = held.find(|mark| mark.file.is_same(&plan.file));
    mark.is_some_and(|mark| match mark.counts {
        Counts::From(first) => plan.newest_from(first).is_empty(),
        Counts::SavedFrom(_) => false,
    })
}

/// Writes a head behind the last batch.
fn empty(log: &mut LogFile, end: Point, recovery: &Recovery) -> io::Result<()> {
    if recovery.files.iter().any(|file| matches!(file.fate, Fate::Deleted)) {
        // A removal that a power cut undoes would bring back a file without its records.
        log.file().sync_file_system()?;
    }
    log.restart(end, log.promise())
}

/// A clock that was set back makes changes of others look old.
fn check_clock(log: &LogFile, has_records: bool) -> Result<()> {
    let (now, promise) = (clock::wall(), log.promise());
    let behind = promise.0.saturating_sub(MAX_PROMISE).saturating_sub(now);
    if behind <= 0 || !has_records {
        return Ok(());
    }
    let what = format!(
        "the clock of this machine is at least {} s behind the last write of the intent log, so \
         changes after it cannot be recognized",
        behind / 1_000_000_000 + 1
    );
    Err(Error::new(ErrorKind::Open, what)
        .at_path(log.path())
        .remedy("set the clock, then recover again"))
}

/// The recovery of one file after the other.
struct Recovering<'a> {
    ask: &'a Ask,
    lookup: &'a Lookup,
    watch: &'a LeaseWatch,
    held: &'a [Mark],
    /// Sequence number behind the last batch.
    end: u64,
}

impl Recovering<'_> {
    fn file(&self, log: &mut LogFile, plan: &FilePlan, place: Option<&Place>) -> Recovered {
        let hint = || files::path_of_bytes(&plan.path);
        let path = place.map_or_else(hint, |place| place.path.clone());
        let all = plan.newest_from(0);
        let bytes = |copies: &[forebay_log::replay::Copy]| copies.iter().map(|it| it.length).sum();
        let checked = match place {
            _ if is_in_place(log, plan, self.held) => {
                Checked { verdict: Verdict::Done, copies: Vec::new() }
            }
            Some(place) => self.check(log, plan, place),
            None => self.missing(&path),
        };
        let Checked { verdict, copies } = checked;
        let (bytes, fate) = match verdict {
            Verdict::Done => (0, Fate::InPlace),
            Verdict::Deleted => (bytes(&all), Fate::Deleted),
            Verdict::Kept(error) => (bytes(&all), Fate::Kept(error)),
            Verdict::Skip(reason) => (bytes(&copies), self.skip(log, plan, &path, &copies, reason)),
            Verdict::Put(file) => {
                let fate = match self.ask.mode {
                    Mode::Dry => Fate::InPlace,
                    Mode::Real => match put::put(log, &file, &copies, self.end) {
                        Ok(()) => Fate::InPlace,
                        Err(error) => Fate::Kept(error.at_path(&path)),
                    },
                };
                (bytes(&copies), fate)
            }
        };
        Recovered { path, bytes, fate }
    }

    fn missing(&self, path: &Path) -> Checked {
        let verdict = match self.lookup.hidden() {
            None => Verdict::Deleted,
            Some((place, reason)) => {
                let what =
                    format!("the file was not found, but may be in {}: {reason}", place.display());
                Verdict::Kept(Error::new(ErrorKind::NotFound, what).at_path(path))
            }
        };
        Checked { verdict, copies: Vec::new() }
    }

    fn skip(
        &self,
        log: &mut LogFile,
        plan: &FilePlan,
        path: &Path,
        copies: &[forebay_log::replay::Copy],
        reason: String,
    ) -> Fate {
        let Some(directory) = self.ask.save.as_deref().filter(|_| self.ask.mode == Mode::Real)
        else {
            return Fate::Skipped { reason, saved: None };
        };
        match save::save(log, directory, plan, path, copies) {
            Ok(saved) => Fate::Skipped { reason, saved: Some(saved) },
            Err(error) => Fate::Kept(error),
        }
    }
}
