//! Settings as an arm wants them, as long as the value lives; and the claim of a comparison on all
//! that its arms set.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::io::Errno;

use super::journal::{Change, Journal};
use super::{Knob, Places, Tuning, TuningError, read, same};
use crate::terminal::warn;

/// Of each two the kernel makes 0 of one when the other is set, and takes no 0 for the first: so
/// the one that is not 0 is what is put back.
const PAIRS: [(&str, &str); 2] =
    [("dirty_bytes", "dirty_ratio"), ("dirty_background_bytes", "dirty_background_ratio")];

/// Settings that a change of scheduler sets anew, besides those of the scheduler itself.
const OF_SCHEDULER: [&str; 2] = ["wbt_lat_usec", "nr_requests"];

/// Where a scheduler has that.
const SCHEDULER_S_OWN: &str = "iosched";

/// Locked files. Closing one would not unlock it at once: a child that another thread has just
/// started holds it too, for a moment.
#[derive(Debug)]
struct Locks(Vec<(PathBuf, File)>);

impl Locks {
    fn has(&self, path: &Path) -> bool {
        self.0.iter().any(|(locked, _)| locked == path)
    }

    /// Locks a file for a setting, if its file system has locks.
    fn add(&mut self, path: &Path, tuning: &Tuning) -> Result<(), TuningError> {
        if self.has(path) {
            return Ok(());
        }
        let file = File::open(path).map_err(|error| tuning.refused(&error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => self.0.push((path.to_owned(), file)),
            Err(Errno::WOULDBLOCK) => {
                let what = "another comparison uses this setting; wait until it ends";
                return Err(TuningError::NotSet(format!("{}: {what}", tuning.knob)));
            }
            Err(_) => {}
        }
        Ok(())
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        for (_, file) in &self.0 {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// The settings that a comparison changes, locked from its start to its end.
///
/// A value that the kernel refuses, or a setting that another comparison uses, is found here,
/// before the first run, and not when an arm's turn comes.
#[derive(Debug)]
pub struct Claim(Locks);

impl Claim {
    /// Returns the claim of a comparison that changes no setting.
    pub const fn none() -> Self {
        Self(Locks(Vec::new()))
    }

    /// Locks the settings of an arm, then sets and restores each of them once.
    ///
    /// # Errors
    /// [`TuningError`] for the first that cannot be set. All of them are as they were.
    pub fn add(
        &mut self,
        tunings: &[Tuning],
        places: &Places,
        journal: &Journal,
    ) -> Result<(), TuningError> {
        for tuning in tunings {
            let file = places.look(&tuning.knob)?;
            for file in changed_along(&file).iter().chain([&file]) {
                self.0.add(file, tuning)?;
            }
        }
        let held = Held::new(tunings, places, journal, self)?;
        held.release().map_err(TuningError::NotRestored)
    }
}

/// All is set; it is put back when this goes.
#[derive(Debug)]
pub struct Held {
    changes: Vec<Change>,
    journal: Journal,
    /// Given back after all is as it was.
    _locks: Locks,
}

impl Held {
    /// Sets all of it and checks that the kernel took it. Locks the settings that are not in the
    /// claim. Blocks until the journal is on the disk.
    ///
    /// # Errors
    /// The first that could not be set; those before it are as they were.
    pub fn new(
        tunings: &[Tuning],
        places: &Places,
        journal: &Journal,
        claim: &Claim,
    ) -> Result<Self, TuningError> {
        let mut tunings: Vec<&Tuning> = tunings.iter().collect();
        // A new scheduler resets others, so these come after it.
        tunings.sort_by_key(|tuning| tuning.knob != Knob::Queue("scheduler".to_owned()));
        let (mut changes, mut locks) = (Vec::new(), Locks(Vec::new()));
        for tuning in &tunings {
            let file = places.look(&tuning.knob)?;
            // Settings that the kernel changes too are locked as well: another program would save
            // our value as the old one. They stand before their cause: so they are put back after.
            let ours = (file.clone(), Some(tuning.value.clone()));
            let along = changed_along(&file).into_iter().map(|file| (file, None));
            for (file, ours) in along.chain([ours]) {
                if !claim.0.has(&file) {
                    locks.add(&file, tuning)?;
                }
                let before = read(&file).map_err(|error| tuning.refused(&error))?;
                changes.push(Change { file, before, ours });
            }
        }
        journal.write(&changes).map_err(|error| {
            let path = journal.path().display();
            let what = format!("cannot write the journal {path}: {error}; nothing was set");
            TuningError::NotSet(what)
        })?;
        // From here on dropping it puts back what there is.
        let held = Self { changes, journal: journal.clone(), _locks: locks };
        let ours = held.changes.iter().filter(|change| change.ours.is_some());
        assert_eq!(tunings.len(), ours.clone().count(), "each setting has its file");
        for (tuning, change) in tunings.into_iter().zip(ours) {
            set(tuning, &change.file)?;
        }
        Ok(held)
    }

    /// Restores all of it.
    ///
    /// # Errors
    /// The settings that were not restored, and how to do it.
    pub fn release(mut self) -> Result<(), String> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), String> {
        put_back(&self.changes)?;
        self.changes.clear();
        self.journal.clear()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.changes.is_empty()
            && let Err(why) = self.put_back()
        {
            warn(&why);
        }
    }
}

fn set(tuning: &Tuning, file: &Path) -> Result<(), TuningError> {
    let set = fs::write(file, &tuning.value).and_then(|()| read(file));
    let found = set.map_err(|error| tuning.refused(&error))?;
    if same(&found, &tuning.value) {
        return Ok(());
    }
    let what = format!("{tuning}: the kernel changes this to {found}; give that, or another value");
    Err(TuningError::NotSet(what))
}

/// Returns all files that the kernel changes along with a file. Those to restore first come last.
fn changed_along(file: &Path) -> Vec<PathBuf> {
    if file.file_name().is_none_or(|name| name != "scheduler") {
        return partner(file).into_iter().collect();
    }
    let own = fs::read_dir(file.with_file_name(SCHEDULER_S_OWN)).into_iter().flatten();
    let mut own: Vec<PathBuf> = own.filter_map(Result::ok).map(|entry| entry.path()).collect();
    own.sort();
    own.extend(OF_SCHEDULER.map(|name| file.with_file_name(name)));
    own.retain(|file| {
        file.is_file() && access(file, Access::WRITE_OK).is_ok() && read(file).is_ok()
    });
    own
}

/// Returns the file that the kernel changes along with one.
fn partner(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?;
    let mut pairs = PAIRS.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]);
    let (_, other) = pairs.find(|(one, _)| *one == name)?;
    Some(file.with_file_name(other)).filter(|other| other.is_file())
}

/// Restores old values, last first, and verifies them. Unchanged values are not written: a write
/// turns some of the kernel's defaults into a setting.
pub(super) fn put_back(changes: &[Change]) -> Result<(), String> {
    let is_back = |change: &Change| read(&change.file).is_ok_and(|now| same(&now, &change.before));
    let mut refused: Vec<(&Change, String)> = Vec::new();
    for change in changes.iter().rev().filter(|change| !is_zero_of_pair(change, changes)) {
        if !is_back(change)
            && let Err(error) = fs::write(&change.file, &change.before)
        {
            refused.push((change, error.to_string()));
        }
    }
    // The final value counts: a depth may not be taken before its scheduler is back, and is set
    // once more after that.
    let wrong = changes.iter().filter(|change| !is_back(change)).map(|change| {
        let why = match refused.iter().find(|(one, _)| *one == change) {
            Some((_, why)) => why.clone(),
            None => read(&change.file)
                .map_or_else(|error| error.to_string(), |now| format!("it reads {now}")),
        };
        let (file, before) = (change.file.display(), &change.before);
        format!("{file} cannot be restored: {why}; write {before} to it")
    });
    match wrong.collect::<Vec<_>>() {
        none if none.is_empty() => Ok(()),
        wrong => Err(wrong.join("; ")),
    }
}

/// Returns whether it becomes 0 by itself when the other of its pair is restored.
fn is_zero_of_pair(change: &Change, changes: &[Change]) -> bool {
    let other = partner(&change.file);
    let other = changes.iter().find(|one| Some(&one.file) == other.as_ref());
    change.before == "0" && other.is_some_and(|other| other.before != "0")
}
