//! `forebay doctor`: what this machine and one place for files offer Forebay, and the obstacles to
//! full strength.
//!
//! `Facts` are gathered first. Then each check of the table `CHECKS` judges them: one function,
//! which returns a finding with a remedy, or none if the check makes no sense in this place. `/proc`
//! and `/sys` are read below a root that a test can set.
//!
//! Nothing here changes anything. Trials use a file without a name in the place, or beside the file
//! that is the place, which disappears with this process. A block device is only read.
//!
//! `--json` prints one document:
//!
//! ```text
//! { schema: 1, version, date, path, kind: "file" | "directory" | "device", heading,
//!   price: null | { requests_per_s, bytes_per_s, flush_us },
//!   strength: "full" | "degraded" | "none",
//!   findings: [ { part: "ring" | "machine" | "file_system" | "files" | "device",
//!                 name, level: "full" | "degraded" | "missing" | "not_known", found, means,
//!                 remedy: null | { what, command: null | { line, by: "root" | "user" } } } ] }
//! ```
//!
//! Names stay; a later version may add findings and fields, and only a change of meaning raises
//! `schema`.

mod device;
mod facts;
mod files;
mod finding;
mod machine;
mod ring;
mod text;
mod trial;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use facts::Facts;
pub use facts::Kind;
pub(crate) use finding::quoted;
pub use finding::{By, Command, Finding, Level, Part, Remedy};

use crate::manifest::{self, Machine};
use crate::price::{Measured, measure};
use crate::progress::Verbosity;
use crate::refusal::Refusal;

/// The version of the document.
pub const SCHEMA: u32 = 1;

/// A check: its part, the name that programs rely on, and the function that looks.
type Check = (Part, &'static str, fn(&Facts) -> Option<Finding>);

/// Every check, in the order of the report. The mount options have a table of their own.
#[rustfmt::skip]
const CHECKS: [Check; 26] = [
    (Part::Ring, "kernel", ring::kernel),
    (Part::Ring, "engine", ring::engine),
    (Part::Ring, "io_uring", ring::permission),
    (Part::Ring, "ring features", ring::features),
    (Part::Machine, "processors", machine::processors),
    (Part::Machine, "processor quota", machine::quota),
    (Part::Machine, "frequency governor", machine::governor),
    (Part::Machine, "other load", machine::load),
    (Part::Machine, "memory", machine::memory),
    (Part::Machine, "huge pages", machine::huge_pages),
    (Part::Machine, "descriptors", machine::descriptors),
    (Part::Machine, "FUSE", machine::fuse),
    (Part::FileSystem, "type", files::kind),
    (Part::FileSystem, "free space", files::room),
    (Part::Files, "access", files::access),
    (Part::Files, "trial", files::trial),
    (Part::Files, "direct I/O", files::direct),
    (Part::Files, "write lease", files::lease),
    (Part::Files, "reservation", files::reservation),
    (Part::Files, "reservation mark", files::mark),
    (Part::Device, "access", device::access),
    (Part::Device, "below it", device::below),
    (Part::Device, "scheduler", device::scheduler),
    (Part::Device, "request size", device::request_size),
    (Part::Device, "wbt", device::wbt),
    (Part::Device, "rotational", device::rotational),
];

/// All findings on a place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub version: String,
    /// When the place was examined, UTC.
    pub date: String,
    pub path: PathBuf,
    pub kind: Kind,
    /// The place and the machine, in a line.
    pub heading: String,
    /// Price of its disk, if it could be measured.
    #[serde(default)]
    pub price: Option<Measured>,
    pub strength: Strength,
    pub findings: Vec<Finding>,
}

/// How well Forebay works in a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// Nothing is in the way, as far as that is known.
    Full,
    /// It works, and something is lost.
    Degraded,
    /// It does not work.
    None,
}

/// Looks at a place, and at the machine it is on. Blocks for up to three seconds, because it
/// measures the price of the disk.
///
/// # Errors
/// If there is no file, directory or block device at the path.
pub fn examine(path: &Path) -> Result<Report, Refusal> {
    let facts = Facts::of(path)?;
    let findings = findings(&facts);
    let on_files = facts.storage.is_some();
    let price = on_files.then(|| measure(&facts.place.directory).ok()).flatten();
    Ok(Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        date: manifest::utc(SystemTime::now()),
        path: path.to_owned(),
        kind: facts.place.kind,
        heading: heading(&facts),
        price: price.map(Measured::from),
        strength: Strength::of(&findings),
        findings,
    })
}

/// Makes every check, in the order of the table.
fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (part, name, look) in CHECKS {
        findings.extend(look(facts).map(|finding| finding.of(part).named(name)));
        if name == "type" {
            let options = files::mount_options(facts);
            findings.extend(options.into_iter().map(|finding| finding.of(part)));
        }
    }
    findings
}

fn heading(facts: &Facts) -> String {
    let what = match &facts.storage {
        Some(storage) => format!("{} at {}", storage.heading(), storage.mount_point.display()),
        None => format!("block device {}", facts.place.path.display()),
    };
    format!("{what}; Linux {}", Machine::here().release)
}

impl Strength {
    /// Returns the strength of all findings: one that stops everything decides, and unknown ones do
    /// not count.
    fn of(findings: &[Finding]) -> Self {
        if findings.iter().any(Finding::stops_everything) {
            return Self::None;
        }
        let is_lost = |finding: &Finding| matches!(finding.level, Level::Degraded | Level::Missing);
        if findings.iter().any(is_lost) { Self::Degraded } else { Self::Full }
    }
}

impl Report {
    /// Returns the report as text of 72 columns, problems first. Words that cannot be broken, such
    /// as paths, may be longer.
    pub fn text(&self, verbosity: Verbosity) -> String {
        text::text(self, verbosity)
    }

    /// Returns the report as JSON, with a line end.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("words and numbers become JSON") + "\n"
    }
}

#[cfg(test)]
mod tests;
