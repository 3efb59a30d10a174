//! The list of measurements and targets: `docs/measurements/measurements.toml`.

use std::collections::BTreeSet;

use serde::Deserialize;

/// The file's content.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Measurements, in the order they run.
    #[serde(rename = "measurement")]
    pub measurements: Vec<Measurement>,
    /// Targets, in the order of the tables.
    #[serde(rename = "aim", default)]
    pub aims: Vec<Aim>,
}

/// One measurement.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// Name, as the documents use it.
    pub name: String,
    /// Approximate duration, in minutes.
    pub minutes: u32,
    /// Shell commands, run in the project's directory, one per line. `$DIR` is the directory for
    /// files.
    pub command: String,
}

/// A target, and the figure it applies to.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aim {
    /// Table that shows it.
    pub table: String,
    /// The target in words.
    pub what: String,
    /// Name of the measurement.
    pub measurement: String,
    /// Job; `None` means the first with this figure.
    pub job: Option<String>,
    /// Metric.
    pub metric: String,
    /// Arm.
    pub arm: String,
    /// Arm it is compared with, or `base` for the base of the job's table. `None` means that the
    /// figure itself counts.
    pub against: Option<String>,
    /// Lower bound.
    pub at_least: Option<f64>,
    /// Upper bound.
    pub at_most: Option<f64>,
}

/// Why a list was refused.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Not valid TOML of this form.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// A name is used twice, or has other characters.
    #[error("invalid name {0:?}: use a to z, 0 to 9 and -, and each name once")]
    Name(String),
    /// The command is empty.
    #[error("{0}: no command")]
    NoCommand(String),
    /// A target is incomplete or names no measurement.
    #[error("{what}: {why}")]
    Aim {
        /// The target in words.
        what: String,
        /// Reason.
        why: &'static str,
    },
}

impl List {
    /// Parses a list and checks every name in it.
    ///
    /// # Errors
    /// [`ListError`] for a list of another form, or with wrong names.
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let list: Self = toml::from_str(text)?;
        let mut names = BTreeSet::new();
        for Measurement { name, command, .. } in &list.measurements {
            let letters = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
            if name.is_empty() || !letters || !names.insert(name.as_str()) {
                return Err(ListError::Name(name.clone()));
            }
            if command.trim().is_empty() {
                return Err(ListError::NoCommand(name.clone()));
            }
        }
        for aim in &list.aims {
            let why = if !names.contains(aim.measurement.as_str()) {
                "there is no such measurement"
            } else if aim.at_least.is_some() == aim.at_most.is_some() {
                "give at_least or at_most"
            } else {
                continue;
            };
            return Err(ListError::Aim { what: aim.what.clone(), why });
        }
        Ok(list)
    }

    /// Returns the measurement of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.name == name)
    }
}

impl Measurement {
    /// Returns the command as a reader types it.
    #[must_use]
    pub fn shown(&self) -> String {
        self.command.trim().lines().map(|line| format!("$ {}\n", line.trim_end())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[[measurement]]\nname = 'one'\nminutes = 1\ncommand = '''\na\nb\n'''\n";

    #[test]
    fn it_is_read_and_a_command_shown_line_by_line() {
        let list = List::parse(ONE).unwrap();
        assert_eq!(list.find("one").unwrap().shown(), "$ a\n$ b\n");
        assert_eq!(list.find("two"), None);
    }

    #[test]
    fn an_invalid_list_is_refused() {
        let aim = |rest: &str| {
            format!(
                "{ONE}[[aim]]\ntable = 't'\nwhat = 'fast'\nmetric = 'iops'\narm = 'a'\n{rest}\n"
            )
        };
        for (text, expected) in [
            (format!("{ONE}{ONE}"), "invalid name \"one\""),
            (ONE.replace("'one'", "'One'"), "invalid name \"One\""),
            (ONE.replace("a\nb", ""), "one: no command"),
            (ONE.replace("minutes", "hours"), "unknown field `hours`"),
            (aim("measurement = 'two'\nat_least = 1.0"), "fast: there is no such measurement"),
            (aim("measurement = 'one'"), "fast: give at_least or at_most"),
            (
                aim("measurement = 'one'\nat_least = 1.0\nat_most = 2.0"),
                "fast: give at_least or at_most",
            ),
        ] {
            let refused = List::parse(&text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
        assert!(List::parse(&aim("measurement = 'one'\nat_most = 1.0")).is_ok());
    }
}
