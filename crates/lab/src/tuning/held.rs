//! Settings as an arm wants them, as long as the value lives.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::claim::{Claim, Lock, lock};
use super::journal::{Change, Journal};
use super::{Knob, Places, Tuning, TuningError, read, same};

/// Of each two the kernel makes 0 of one when the other is set, and takes no 0 for the first: so
/// the one that is not 0 is what is put back.
const PAIRS: [(&str, &str); 2] =
    [("dirty_bytes", "dirty_ratio"), ("dirty_background_bytes", "dirty_background_ratio")];

/// Settings that a change of scheduler sets anew, besides those of the scheduler itself.
const OF_SCHEDULER: [&str; 2] = ["wbt_lat_usec", "nr_requests"];

/// Where a scheduler has that.
const SCHEDULER_S_OWN: &str = "iosched";

/// All is set; it is put back when this goes.
#[derive(Debug)]
pub struct Held {
    changes: Vec<Change>,
    journal: Journal,
    /// Given back after all is as it was.
    _locks: Vec<Lock>,
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
        let mut changes: Vec<Change> = Vec::new();
        let mut locks: Vec<Lock> = Vec::new();
        for tuning in &tunings {
            let file = places.look(&tuning.knob)?;
            let refused = |error| tuning.refused(&error);
            // Settings that the kernel changes too are locked as well: another program would save
            // our value as the old one.
            let along = changed_along(&file);
            for file in along.iter().chain([&file]) {
                let is_ours = |locks: &[Lock]| locks.iter().any(|lock| lock.is_on(file));
                if !claim.has(file) && !is_ours(&locks) {
                    locks.extend(lock(file, tuning)?);
                }
            }
            // Those before the one they belong to: so they are put back after it.
            for file in along {
                let before = read(&file).map_err(refused)?;
                changes.push(Change { file, before, ours: None });
            }
            let before = read(&file).map_err(refused)?;
            changes.push(Change { file, before, ours: Some(tuning.value.clone()) });
        }
        journal.write(&changes).map_err(|error| {
            let path = journal.path().display();
            TuningError::NotSet(format!(
                "cannot write the journal {path}: {error}; nothing was set"
            ))
        })?;
        // From here on dropping it puts back what there is.
        let held = Self { changes, journal: journal.clone(), _locks: locks };
        let files: Vec<&Path> = held
            .changes
            .iter()
            .filter(|change| change.ours.is_some())
            .map(|change| &*change.file)
            .collect();
        assert_eq!(tunings.len(), files.len(), "each setting has its file");
        for (tuning, file) in tunings.into_iter().zip(files) {
            set(tuning, file)?;
        }
        Ok(held)
    }

    /// Restores all of it.
    ///
    /// # Errors
    ///
    /// The settings that were not restored, and how to do it.
    pub fn release(mut self) -> Result<(), String> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), String> {
        put_back(&self.changes)?;
        self.changes.clear();
        self.journal.clear().map_err(|error| format!("{}: {error}", self.journal.path().display()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        if let Err(why) = self.put_back() {
            // Not `eprintln!`: it panics where nobody reads, and this may run in a panic.
            let _ = writeln!(io::stderr(), "forebay: {why}");
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
pub(super) fn changed_along(file: &Path) -> Vec<PathBuf> {
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
    let other = PAIRS.iter().find_map(|(one, other)| match name {
        name if name == *one => Some(*other),
        name if name == *other => Some(*one),
        _ => None,
    })?;
    Some(file.with_file_name(other)).filter(|other| other.is_file())
}

/// Restores old values, last first, and verifies them. Unchanged values are not written: a write
/// turns some of the kernel's defaults into a setting.
pub(super) fn put_back(changes: &[Change]) -> Result<(), String> {
    let mut refused: Vec<(&Change, String)> = Vec::new();
    for change in changes.iter().rev().filter(|change| !is_zero_of_pair(change, changes)) {
        if read(&change.file).is_ok_and(|now| same(&now, &change.before)) {
            continue;
        }
        if let Err(error) = fs::write(&change.file, &change.before) {
            refused.push((change, error.to_string()));
        }
    }
    let mut wrong = Vec::new();
    for change in changes {
        // The final value counts: a depth may not be taken before its scheduler is back, and is set
        // once more after that.
        let is = match read(&change.file) {
            Ok(now) if same(&now, &change.before) => continue,
            Ok(now) => format!("it reads {now}"),
            Err(error) => error.to_string(),
        };
        let why = refused.iter().find(|(one, _)| *one == change).map_or(is, |(_, why)| why.clone());
        wrong.push((change, why));
    }
    let said = |(change, why): (&Change, String)| {
        let (file, before) = (change.file.display(), &change.before);
        format!("{file} cannot be restored: {why}; write {before} to it")
    };
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.into_iter().map(said).collect::<Vec<_>>().join("; "))
    }
}

/// Returns whether it becomes 0 by itself when the other of its pair is restored.
fn is_zero_of_pair(change: &Change, changes: &[Change]) -> bool {
    let Some(other) = partner(&change.file) else { return false };
    let other = changes.iter().find(|one| one.file == other);
    change.before == "0" && other.is_some_and(|other| other.before != "0")
}
