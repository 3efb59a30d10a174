//! Description of the machine and the run: enough to judge whether another machine should show the
//! same.
//!
//! Read from `/proc` and `/sys` without privilege. Unreadable values are absent (null), never
//! guessed.

pub mod machine;
pub mod mount;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::file_system::Made;
use crate::price::Measured;
pub use machine::Machine;
pub use mount::Storage;

/// All that is known about how a result came about.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    pub version: String,
    pub commit: Option<String>,
    #[serde(default)]
    pub build: Option<String>,
    pub date: String,
    pub command_line: Vec<String>,
    pub machine: Machine,
    pub engine: String,
    pub storage: Storage,
    #[serde(default)]
    pub ground: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<Made>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Measured>,
    pub title: String,
    pub seed: String,
    pub rounds: u32,
    pub orders: Vec<Vec<String>>,
    pub cell_bytes: Option<u64>,
    pub budget_bytes: Option<u64>,
    pub settings: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_files: Vec<JobFile>,
    pub left_out: Vec<ArmLeftOut>,
    pub notes: Vec<String>,
}

/// A file that says what is asked: a suite, or jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobFile {
    pub name: String,
    pub text: String,
}

/// An arm that is not among the results, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ArmLeftOut {
    pub arm: String,
    pub reason: String,
    pub failed: bool,
}

impl Manifest {
    /// Gathers the facts known beforehand, for files in `directory`. None is secret: no
    /// environment, no names of machines or users.
    pub fn gather(directory: &Path) -> Self {
        let storage = Storage::of(directory).with_free_space();
        let ground = match storage.used_percent() {
            Some(used) => format!("in use before: {used} % full"),
            None => "in use before".to_owned(),
        };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: utc(SystemTime::now()),
            command_line: command_line(),
            machine: Machine::here(),
            storage: storage.without_names(),
            ground,
            ..Self::default()
        }
    }
}

/// Returns the words that were typed, with the program by its name alone: its place may be private.
fn command_line() -> Vec<String> {
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut() {
        let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
        *program = name.unwrap_or_default();
    }
    words
}

/// Formats a time as `2026-03-01T12:34:56Z`.
pub(crate) fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// Returns year, month and day of the Gregorian calendar, from days since 1970-01-01. The year is
/// taken to begin in March, so that the leap day is its last.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    assert!((1..=12).contains(&month) && (1..=31).contains(&day), "{month}-{day} is no date");
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(4_102_444_800), "2100-01-01T00:00:00Z");
    }

    #[test]
    fn something_is_known_about_every_machine() {
        let manifest = Manifest::gather(&std::env::temp_dir());
        assert!(manifest.machine.cpus > 0 && manifest.machine.memory_bytes > 0);
        assert!(!manifest.machine.release.is_empty() && !manifest.storage.file_system.is_empty());
        assert!(manifest.storage.free_bytes > 0);
        let text = serde_json::to_string(&manifest).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), manifest);
        assert!(manifest.ground.starts_with("in use before"), "{}", manifest.ground);
    }

    #[test]
    fn nothing_secret_is_reported() {
        let text = serde_json::to_string(&Manifest::gather(&std::env::temp_dir())).unwrap();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // A name that is a word of its own is found by chance alone.
        if name.len() > 8 {
            assert!(!text.contains(&name), "{name}");
        }
        for (variable, value) in std::env::vars() {
            let secret =
                ["TOKEN", "SECRET", "KEY", "PASSWORD"].iter().any(|word| variable.contains(word));
            assert!(!secret || value.len() < 8 || !text.contains(&value), "{variable}");
        }
    }
}
