//! Settings as an arm wants them, as long as the value lives.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::journal::{Change, Journal};
use super::{Places, Tuning, TuningError, read, same};

/// Of each two the kernel makes 0 of one when the other is set, and takes no 0 for the first: so the one that is not 0 is
/// what is put back.
const PAIRS: [(&str, &str); 2] =
    [("dirty_bytes", "dirty_ratio"), ("dirty_background_bytes", "dirty_background_ratio")];

/// All is set; it is put back when this goes.
#[derive(Debug)]
pub struct Held {
    changes: Vec<Change>,
    journal: Journal,
    /// Closing them gives the locks back: after all is as it was.
    _locks: Vec<File>,
}

impl Held {
    /// Sets all of it and looks whether the kernel has it so. Blocks until the journal is on the disk.
    ///
    /// # Errors
    /// The first that could not be set; those before it are as they were.
    pub fn new(tunings: &[Tuning], places: &Places, journal: &Journal) -> Result<Self, TuningError> {
        let (mut changes, mut locks): (Vec<Change>, Vec<File>) = (Vec::new(), Vec::new());
        for tuning in tunings {
            let file = places.look(&tuning.knob)?;
            let refused = |source: io::Error| TuningError::Refused {
                knob: tuning.knob.to_string(),
                value: tuning.value.clone(),
                source,
            };
            let lock = File::open(&file).map_err(refused)?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => locks.push(lock),
                Err(Errno::WOULDBLOCK) => {
                    return Err(TuningError::Busy { knob: tuning.knob.to_string() });
                }
                // Where nothing can be locked, nobody else can either.
                Err(_) => {}
            }
            let ours = Some(tuning.value.clone());
            let before = read(&file).map_err(refused)?;
            if let Some(other) = partner(&file) {
                let before = read(&other).map_err(refused)?;
                changes.push(Change { file: other, before, ours: None });
            }
            changes.push(Change { file, before, ours });
        }
        let failed = |source| TuningError::Journal { path: journal.path().to_owned(), source };
        journal.write(&changes).map_err(failed)?;
        // From here on dropping it puts back what there is.
        let held = Self { changes, journal: journal.clone(), _locks: locks };
        let files: Vec<&Path> =
            held.changes.iter().filter(|change| change.ours.is_some()).map(|change| &*change.file).collect();
        for (tuning, file) in tunings.iter().zip(files) {
            set(tuning, file)?;
        }
        Ok(held)
    }

    /// Puts all of it back, and says what could not be.
    ///
    /// # Errors
    /// Which setting is not as it was, and how to make it so.
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
    let (knob, value) = (tuning.knob.to_string(), tuning.value.clone());
    let set = fs::write(file, &tuning.value).and_then(|()| read(file));
    match set {
        Ok(found) if same(&found, &tuning.value) => Ok(()),
        Ok(found) => Err(TuningError::Other { knob, value, found }),
        Err(source) => Err(TuningError::Refused { knob, value, source }),
    }
}

/// The file that the kernel changes along with one.
fn partner(file: &Path) -> Option<std::path::PathBuf> {
    let name = file.file_name()?.to_str()?;
    let other = PAIRS.iter().find_map(|(one, other)| match name {
        name if name == *one => Some(*other),
        name if name == *other => Some(*one),
        _ => None,
    })?;
    Some(file.with_file_name(other)).filter(|other| other.is_file())
}

/// Writes back what was there, last first, and looks whether it is.
pub(super) fn put_back(changes: &[Change]) -> Result<(), String> {
    let mut wrong = Vec::new();
    for change in changes.iter().rev().filter(|change| !is_zero_of_pair(change, changes)) {
        if let Err(error) = fs::write(&change.file, &change.before) {
            wrong.push((change, error.to_string()));
        }
    }
    for change in changes {
        let known = wrong.iter().any(|(one, _)| *one == change);
        match read(&change.file) {
            Ok(now) if known || same(&now, &change.before) => {}
            Ok(now) => wrong.push((change, format!("it is {now}"))),
            Err(error) => wrong.push((change, error.to_string())),
        }
    }
    let said = |(change, why): (&Change, String)| {
        let (file, before) = (change.file.display(), &change.before);
        format!("{file} could not be put back: {why} (write {before} to it)")
    };
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into_iter().map(said).collect::<Vec<_>>().join("; ")) }
}

/// Whether it becomes 0 by itself when the other of its pair is put back.
fn is_zero_of_pair(change: &Change, changes: &[Change]) -> bool {
    let Some(other) = partner(&change.file) else { return false };
    let other = changes.iter().find(|one| one.file == other);
    change.before == "0" && other.is_some_and(|other| other.before != "0")
}
