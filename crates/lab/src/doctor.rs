//! `forebay doctor`: the abilities of this machine, its kernel and one place for files, and the
//! obstacles to full strength.
//!
//! Each part first gathers facts, then judges them by a function of the facts alone, so that every
//! judgement can be tested without such a machine. `/proc` and `/sys` are read below a root that a
//! test can set.
//!
//! Nothing here changes anything. Trials use a file without a name in the place (or beside the file
//! that is the place), which disappears with this process. A block device is only read. A file on
//! which somebody holds a lease is not opened, for that would break it.
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
//! `schema`. Findings that make no sense in a place are absent.

mod device;
mod files;
mod finding;
mod free_space;
mod groups;
mod machine;
mod mount;
mod place;
mod process;
mod ring;
mod tags;
mod text;
mod tree;
mod trial;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use forebay_uring::Mode;
use serde::{Deserialize, Serialize};

pub(crate) use finding::quoted;
pub use finding::{By, Command, Finding, Level, Part, Remedy};
pub use place::Kind;
use place::Place;
use process::Process;
use ring::Ring;
use tree::Tree;
use trial::Trial;

use crate::manifest::{self, Machine, Storage};
use crate::price::{Measured, measure};
use crate::progress::Verbosity;
use crate::refusal::Refusal;

/// The version of the document.
pub const SCHEMA: u32 = 1;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub version: String,
    /// When it was looked, UTC.
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

/// Looks at a place, and at the machine it is on. Blocks for as long as that takes: up to three
/// seconds for the price of the disk, and two more on a file system with much free space in pieces.
///
/// # Errors
/// Where there is nothing that could be looked at.
pub fn examine(path: &Path) -> Result<Report, Refusal> {
    let tree = Tree::real();
    let place = Place::of(path)?;
    let process = Process::of(&tree);
    let ring = Ring::of(&tree, &process);
    let machine = machine::Limits::of(&tree, &process);
    let storage = place.is_on_file_system().then(|| Storage::of(&place.directory));
    let trial = place.is_on_file_system().then(|| Trial::of(&place, &tree));
    let device = device::Device::of(&tree, &place, storage.as_ref());

    let mut findings = Vec::new();
    let mut add = |part, found: Vec<Finding>| {
        findings.extend(found.into_iter().map(|finding| Finding { part, ..finding }));
    };
    add(Part::Ring, ring.findings());
    add(Part::Machine, machine.findings());
    if let (Some(storage), Some(trial)) = (&storage, &trial) {
        add(Part::FileSystem, mount::findings(storage, trial.groups()));
        add(Part::FileSystem, groups::findings(storage, trial.groups(), machine.processors()));
        add(Part::FileSystem, free_space::findings(storage, trial));
        add(Part::Files, files::findings(&place, trial, &process));
    }
    let mode = trial.as_ref().map_or(Mode::Direct, Trial::mode);
    if let Some(device) = device {
        add(Part::Device, device.findings(mode, machine.huge.answer()));
    }
    Ok(Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        date: manifest::utc(SystemTime::now()),
        path: path.to_owned(),
        kind: place.kind,
        heading: heading(&place, storage.as_ref()),
        price: place
            .is_on_file_system()
            .then(|| measure(&place.directory).ok())
            .flatten()
            .map(Measured::from),
        strength: Strength::of(&findings),
        findings,
    })
}

fn heading(place: &Place, storage: Option<&Storage>) -> String {
    let what = match storage {
        Some(storage) => format!("{} at {}", storage.heading(), storage.mount_point.display()),
        None => format!("block device {}", place.path.display()),
    };
    format!("{what}; Linux {}", Machine::here().release)
}

impl Strength {
    /// One finding that stops everything decides; unknown ones do not count.
    fn of(findings: &[Finding]) -> Self {
        if findings.iter().any(Finding::stops_everything) {
            return Self::None;
        }
        let is_lost = |finding: &Finding| matches!(finding.level, Level::Degraded | Level::Missing);
        if findings.iter().any(is_lost) { Self::Degraded } else { Self::Full }
    }
}

impl Report {
    /// The report as text of 72 columns, problems first. Words that cannot be broken, such as
    /// paths, may be longer.
    pub fn text(&self, verbosity: Verbosity) -> String {
        text::text(self, verbosity)
    }

    /// As JSON, with a line end.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("words and numbers become JSON") + "\n"
    }
}

#[cfg(test)]
mod tests;
