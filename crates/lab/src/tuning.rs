//! Settings of the machine that an arm is compared with: sysctls, and how the device under the
//! files queues its requests.
//!
//! ```text
//! check, claim  |  per cell:  read, journal -> write -> read back  ... cell ...  write back -> read back -> no journal
//! ```
//!
//! They belong to the whole machine, so a setting that stays changed would cost more than any
//! result is worth. Before the first cell, [`Places::check`] checks that the files exist and may be
//! written, and a [`Claim`] locks them for the whole comparison and tries each value once. Around a
//! cell [`Held`] sets the values and restores the old ones when it is dropped: at the end of the
//! cell, on an error, after Ctrl-C (which only sets a flag), in a panic. After SIGKILL the old
//! values are in a [`Journal`], written to the disk before anything was set: the next comparison in
//! that directory finds it and restores them ([`recover`]).

mod held;
mod journal;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{Access, access};

use crate::chosen::chosen;
use crate::manifest::mount;
use crate::nearest;
use crate::refusal::Refusal;

pub use held::{Claim, Held};
pub(crate) use journal::FILE as JOURNAL_FILE;
pub use journal::{Journal, Recovered, recover};

pub const SYSCTL: &str = "sysctl.";

pub const QUEUE: &str = "queue.";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tuning {
    pub knob: Knob,
    /// The value as the kernel reads it.
    pub value: String,
}

impl fmt::Display for Tuning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.knob, self.value)
    }
}

/// Something of the machine that can be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Knob {
    /// A sysctl, as `vm.dirty_bytes`.
    Sysctl(String),
    /// A file of `/sys/block/DEVICE/queue`.
    Queue(String),
}

impl fmt::Display for Knob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Knob::Sysctl(name) => write!(formatter, "{SYSCTL}{name}"),
            Knob::Queue(name) => write!(formatter, "{QUEUE}{name}"),
        }
    }
}

impl FromStr for Knob {
    type Err = Refusal;

    /// Refuses a name that leads nowhere below the directory it belongs to. The name of a queue's
    /// setting has one part: what lies below is not of the queue.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let is_name = |part: &str| !part.is_empty() && part.chars().all(is_letter);
        if let Some(name) = text.strip_prefix(SYSCTL)
            && name.split('.').all(is_name)
        {
            return Ok(Knob::Sysctl(name.to_owned()));
        }
        match text.strip_prefix(QUEUE) {
            Some(name) if is_name(name) => Ok(Knob::Queue(name.to_owned())),
            _ => Err(Refusal(
                "not the name of a setting; use a form like sysctl.vm.dirty_bytes or queue.nomerges"
                    .to_owned(),
            )),
        }
    }
}

/// Where the kernel shows what can be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    sysctl: PathBuf,
    queue: Option<PathBuf>,
}

impl Places {
    /// Returns the places of this machine, with the queue of the device under `path`: a device, a
    /// file or a directory.
    pub fn under(path: &Path) -> Self {
        Self { sysctl: PathBuf::from("/proc/sys"), queue: mount::queue_directory_of(path) }
    }

    /// Checks that all settings exist and may be written. Changes nothing.
    ///
    /// # Errors
    /// The first that does not, with a remedy. Values that the kernel refuses are not found.
    pub fn check(&self, tunings: &[Tuning]) -> Result<(), TuningError> {
        tunings.iter().try_for_each(|tuning| self.look(&tuning.knob).map(drop))
    }

    /// Returns the file of a knob, which exists and may be written.
    fn look(&self, knob: &Knob) -> Result<PathBuf, TuningError> {
        let refused = |what: String| TuningError::NotSet(format!("{knob}: {what}"));
        let file = match (knob, &self.queue) {
            (Knob::Sysctl(name), _) => self.sysctl.join(name.replace('.', "/")),
            (Knob::Queue(name), Some(queue)) => queue.join(name),
            (Knob::Queue(_), None) => {
                let what = "the files are not on a block device of their own; use --dir, --scratch \
                            or --target on one";
                return Err(refused(what.to_owned()));
            }
        };
        if !file.is_file() {
            return Err(refused(format!("no such setting on this machine{}", meant(knob, &file))));
        }
        access(&file, Access::WRITE_OK)
            .map_err(|error| refused(format!("{error}; machine settings need root: use sudo")))?;
        Ok(file)
    }
}

/// Suggests the nearest name that exists.
fn meant(knob: &Knob, file: &Path) -> String {
    let beside = file.parent().and_then(|directory| fs::read_dir(directory).ok());
    let files = beside.into_iter().flatten().flatten().filter(|entry| entry.path().is_file());
    let names: Vec<String> =
        files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let wrong = file.file_name().unwrap_or_default().to_string_lossy();
    let Some(near) = nearest::nearest(&wrong, names.iter().map(String::as_str)) else {
        return String::new();
    };
    let knob = knob.to_string();
    let before = knob.strip_suffix(wrong.as_ref()).unwrap_or_default();
    format!("; did you mean {before}{near}?")
}

/// Why something is not set.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// Nothing is left changed.
    #[error("{0}")]
    NotSet(String),
    /// It was set, and could not be restored.
    #[error("{0}")]
    NotRestored(String),
}

impl Tuning {
    /// Returns the error of a value that the kernel refused.
    fn refused(&self, error: &io::Error) -> TuningError {
        let what = format!("{self}: the kernel refuses this value: {error}; give another one");
        TuningError::NotSet(what)
    }
}

/// Reads a setting as it would be written: of `none [mq-deadline]` the word in brackets.
fn read(file: &Path) -> io::Result<String> {
    let text = fs::read_to_string(file)?;
    Ok(chosen(text.trim()).to_owned())
}

/// Returns whether two values are the same: the kernel separates numbers by tabs or by spaces.
fn same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

#[cfg(test)]
mod tests;
