//! The old values of changed settings, written to the disk before the change, so that they can be
//! restored after a run was killed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::held::put_back;
use super::{read, same};

/// Its name in the directory of a comparison.
pub(crate) const FILE: &str = "settings.json";

/// Where a machine says since which start it runs: settings do not outlive it.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Where the settings of one comparison are written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Journal {
    path: PathBuf,
}

/// All that is changed at a time.
#[derive(Serialize, Deserialize)]
struct Written {
    boot: String,
    changes: Vec<Change>,
}

/// One file that is changed, or that the kernel changes along with another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) file: PathBuf,
    pub(super) before: String,
    /// Our value; none if the kernel sets it.
    pub(super) ours: Option<String>,
}

impl Journal {
    /// Returns the journal of the comparison that works in a directory.
    pub fn of(directory: &Path) -> Self {
        Self { path: directory.join(FILE) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the changes. They are on the disk when it returns.
    pub(super) fn write(&self, changes: &[Change]) -> io::Result<()> {
        let written = Written { boot: boot(), changes: changes.to_vec() };
        let mut file = File::create(&self.path)?;
        file.write_all(&serde_json::to_vec(&written)?)?;
        file.sync_all()?;
        self.path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }

    /// Records that nothing is changed.
    pub(super) fn clear(&self) -> Result<(), String> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

fn boot() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// Outcome for a setting that a killed run had changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recovered {
    /// It is as it was before.
    PutBack { file: PathBuf, value: String },
    /// Somebody has set it since; it stays.
    SetSince { file: PathBuf, before: String },
}

/// Restores the settings that the comparison in `directory`, which no longer runs, had changed.
/// Does nothing after a reboot.
///
/// # Errors
/// The settings that were not restored; the journal then stays.
pub fn recover(directory: &Path) -> Result<Vec<Recovered>, String> {
    let journal = Journal::of(directory);
    let written = fs::read(&journal.path).ok();
    // If it is cut short, it was being written, so nothing had been set.
    let written = written.and_then(|text| serde_json::from_slice::<Written>(&text).ok());
    let Some(written) = written.filter(|written| written.boot == boot()) else {
        return Ok(Vec::new());
    };
    let path = journal.path.display();
    let (mut back, mut kept, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    // A file that the kernel changed stands before its cause, and is restored only with that.
    for group in written.changes.split_inclusive(|change| change.ours.is_some()) {
        let Some(Change { file, before, ours: Some(value) }) = group.last().cloned() else {
            continue;
        };
        match read(&file) {
            Ok(now) if same(&now, &before) => {}
            Ok(now) if same(&now, &value) => {
                ours.extend_from_slice(group);
                back.push(Recovered::PutBack { file, value: before });
            }
            Ok(_) => kept.push(Recovered::SetSince { file, before }),
            Err(error) => return Err(format!("{path}: {}: {error}", file.display())),
        }
    }
    put_back(&ours).map_err(|why| format!("{path}: {why}"))?;
    journal.clear()?;
    back.append(&mut kept);
    Ok(back)
}
