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
mod report;
mod ring;
mod trial;

use std::path::Path;
use std::time::SystemTime;

use facts::Facts;
pub use facts::Kind;
pub(crate) use finding::quoted;
pub use finding::{By, Command, Finding, Level, Part, Remedy};
pub use report::{Report, Strength};

use crate::manifest::{self, Machine};
use crate::price::{Measured, measure};
use crate::refusal::Refusal;

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

/// Looks at a place, and at the machine it is on. Blocks for up to three seconds, because it
/// measures the price of the disk.
///
/// # Errors
/// If there is no file, directory or block device at the path.
pub fn examine(path: &Path) -> Result<Report, Refusal> {
    let facts = Facts::of(path)?;
    let findings = findings(&facts);
    let price = facts.storage.as_ref().and_then(|_| measure(&facts.place.directory).ok());
    let place = match &facts.storage {
        Some(storage) => format!("{} at {}", storage.heading(), storage.mount_point.display()),
        None => format!("block device {}", facts.place.path.display()),
    };
    Ok(Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        date: manifest::utc(SystemTime::now()),
        path: path.to_owned(),
        kind: facts.place.kind,
        heading: format!("{place}; Linux {}", Machine::here().release),
        price: price.map(Measured::from),
        strength: Strength::of(&findings),
        findings,
    })
}

/// Makes every check, in the order of the table.
fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (part, name, look) in CHECKS {
        findings.extend(look(facts).map(|finding| finding.called(part, name)));
        if name == "type" {
            let options = files::mount_options(facts).into_iter();
            findings.extend(options.map(|(name, finding)| finding.called(part, name)));
        }
    }
    findings
}

#[cfg(test)]
mod tests;
