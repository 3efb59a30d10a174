//! What is measured, and what was asked for: `docs/measurements/measurements.toml`.

use std::collections::BTreeSet;

use serde::Deserialize;

/// The file's content.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Every measurement, in the order in which they run.
    #[serde(rename = "measurement")]
    pub measurements: Vec<Measurement>,
    /// What was asked for, in the order of the tables.
    #[serde(rename = "aim", default)]
    pub aims: Vec<Aim>,
}

/// One measurement.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// By which documents name it.
    pub name: String,
    /// About how long it takes.
    pub minutes: u32,
    /// What is typed in a shell, in the project's directory; a line each. `$DIR` is where files go.
    pub command: String,
}

/// Something that was asked for, and which figure tells whether it is so.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aim {
    /// The table it stands in.
    pub table: String,
    /// What was asked, in words.
    pub what: String,
    /// The measurement that tells.
    pub measurement: String,
    /// The job; the first that has the figure if none.
    pub job: Option<String>,
    /// The metric.
    pub metric: String,
    /// The arm.
    pub arm: String,
    /// What it is compared with: an arm, or `base`, what the job's table compares with. The figure
    /// itself counts if none.
    pub against: Option<String>,
    /// The least it is to be.
    pub at_least: Option<f64>,
    /// The most it is to be.
    pub at_most: Option<f64>,
}

/// A list that cannot be meant.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// It is not of this form.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// Two measurements have a name, or it is none.
    #[error("{0:?}: not the name of one measurement (a to z, 0 to 9 and -, each once)")]
    Name(String),
    /// There is nothing to do.
    #[error("{0}: no command")]
    NoCommand(String),
    /// An aim is about something else.
    #[error("{what}: {why}")]
    Aim {
        /// Which.
        what: String,
        /// Why.
        why: &'static str,
    },
}

impl List {
    /// Reads it, every name looked up.
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

    /// The measurement of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.name == name)
    }
}

impl Measurement {
    /// The command as a reader types it.
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
    fn what_cannot_be_meant_is_refused() {
        let aim = |rest: &str| {
            format!(
                "{ONE}[[aim]]\ntable = 't'\nwhat = 'fast'\nmetric = 'iops'\narm = 'a'\n{rest}\n"
            )
        };
        for (text, expected) in [
            (format!("{ONE}{ONE}"), "\"one\": not the name of one"),
            (ONE.replace("'one'", "'One'"), "\"One\": not the name"),
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
