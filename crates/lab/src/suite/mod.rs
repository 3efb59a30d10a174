//! A suite: the arms and the work that ask one question, as a file says it.
//!
//! Suites are files so that a question can be read, changed and sent to somebody else. Those that
//! are shipped lie in `suites/` and are inside the program; a path takes a user's own. A file is
//! read whole and every name in it looked up before anything is done; an error has its line, its
//! column and a remedy (`text.rs`).
//!
//! ```text
//! suite = parts, each one table
//! part  = jobs (workload x device x depth)  x  arms (x batch)   in rounds   -> ratios to a base
//! form  = how much of it: full, quick, or bare (what `forebay compare` alone runs); a part may be absent
//! ```

mod arm;
mod check;
pub mod cross;
pub mod job_file;
pub mod own;
mod text;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) use check::batch_name;
use check::rounds_of;

pub use crate::bytes::Bytes;
use crate::nearest;
use crate::programs::spec::ProgramLoad;
use crate::refusal::Refusal;
use crate::request::{Operation, Pattern};
use crate::shape::JobShape;
use crate::through::Family;
use crate::tuning::Tuning;
use crate::words::words;
use crate::writers::Writers;
pub use arm::Arm;
use job_file::JobFile;

/// Those inside the program, by name.
pub const SHIPPED: [(&str, &str); 6] = [
    ("completion", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/completion.toml"))),
    ("files", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/files.toml"))),
    ("layout", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/layout.toml"))),
    ("plug", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/plug.toml"))),
    ("programs", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/programs.toml"))),
    ("writeback", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/writeback.toml"))),
];

/// Suites that `forebay compare` runs by default.
pub const BARE: [&str; 3] = ["layout", "plug", "completion"];

words! {
    /// How much of a suite is run.
    pub enum Form {
        /// For figures that are shown around.
        Full = "full",
        /// A first look.
        Quick = "quick",
        /// Run when no suite is named.
        Bare = "bare",
    }
}

/// A suite, every name in it looked up.
#[derive(Clone, PartialEq, Debug)]
pub struct Suite {
    pub name: String,
    pub title: String,
    /// Bytes of the laid-out file, by form; none where no part needs one.
    pub file: Option<FileBytes>,
    pub parts: Vec<Part>,
}

/// Bytes of the laid-out file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileBytes {
    pub full: Bytes,
    /// For a first look.
    pub quick: Bytes,
    /// Where no suite is named.
    pub bare: Bytes,
}

impl FileBytes {
    pub fn of(self, form: Form) -> u64 {
        match form {
            Form::Full => self.full.0,
            Form::Quick => self.quick.0,
            Form::Bare => self.bare.0,
        }
    }
}

/// One question of a suite, which is one table.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// Its name, unique within the suite.
    pub name: String,
    /// Over its table.
    pub title: String,
    /// Metric of the ratio.
    pub metric: &'static str,
    pub base: Base,
    /// The arm that runs twice: what differs between the two is noise.
    pub again: String,
    /// Pairs that are compared besides.
    pub also: Vec<Pair>,
    forms: [Option<Cut>; 3],
}

impl Part {
    /// Whether any of its forms has a workload of that name.
    pub fn has_workload(&self, name: &str) -> bool {
        let mut workloads = self.forms.iter().flatten().flat_map(|cut| &cut.workloads);
        workloads.any(|workload| workload.name == name)
    }

    pub fn cut(&self, form: Form) -> Option<&Cut> {
        self.forms[form as usize].as_ref()
    }
}

impl Suite {
    /// Returns the machine settings that it asks for.
    pub fn needs(&self) -> impl Iterator<Item = &Tuning> {
        let cuts = self.parts.iter().flat_map(|part| part.forms.iter().flatten());
        cuts.flat_map(|cut| &cut.arms).flat_map(|arm| &arm.needs)
    }

    /// The same with this part alone.
    pub fn only(mut self, part: &str) -> Result<Self, Refusal> {
        if self.parts.iter().any(|known| known.name == part) {
            self.parts.retain(|known| known.name == part);
            return Ok(self);
        }
        let known: Vec<&str> = self.parts.iter().map(|known| known.name.as_str()).collect();
        let (suite, meant) = (&self.name, nearest::meant(part, known.iter().copied()));
        Err(Refusal(format!(
            "--part {part}: {suite} has no such part{meant}; it has {}",
            known.join(", ")
        )))
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    Arm(String),
    /// That of these which is best, in each job.
    BestOf(Vec<String>),
}

/// An arm and its base.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    pub arm: String,
    pub base: String,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cut {
    pub workloads: Vec<Workload>,
    pub arms: Vec<Arm>,
    /// Where requests go; empty for work on files.
    pub devices: Vec<crate::request::RequestDevice>,
    /// Bios in flight; empty for work on files.
    pub depths: Vec<u32>,
    /// Batches that the one arm is run with; empty where the arms say themselves.
    pub batches: Vec<u32>,
    /// Of one cell that runs for a time.
    pub seconds: f64,
    /// The share of sizes and times that is run, where the user does not say so.
    pub scale: f64,
    /// Where the user does not say so.
    pub rounds: u32,
    pub file_bytes: Option<u64>,
    /// Bytes that all writers of a cell write together.
    pub cell_bytes: Option<u64>,
    /// Whether its arms were made by crossing.
    pub is_crossed: bool,
    /// Pairs of those that differ in one thing.
    pub contrasts: Vec<Pair>,
    /// Limit of the bytes of all cells.
    pub writes_at_most: Option<u64>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    pub name: String,
    /// Its heading.
    pub title: Option<String>,
    /// Bytes at a time.
    pub block_bytes: u32,
    pub kind: WorkloadKind,
}

#[derive(Clone, PartialEq, Debug)]
pub enum WorkloadKind {
    /// Random writes into new files (their number), until synced.
    NewFiles(u32),
    Requests {
        pattern: Pattern,
        operation: Operation,
    },
    /// Jobs on files or on a device, for a time.
    Jobs(JobShape),
    /// Copies into this number of bytes.
    Copies(u64),
    /// Threads that write files of their own once, until synced.
    Writers(Writers),
    Program(ProgramLoad),
    /// A group of a fio job file.
    JobFile(Box<JobFile>),
}

impl WorkloadKind {
    /// Returns the name of its probe.
    pub fn probe(&self) -> &'static str {
        match self {
            WorkloadKind::NewFiles(_) => "new-files",
            WorkloadKind::Requests { .. } => "requests",
            WorkloadKind::Jobs(_) => "jobs",
            WorkloadKind::Copies(_) => "copies",
            WorkloadKind::Writers(_) => "writers",
            WorkloadKind::Program(load) => load.probe.name(),
            WorkloadKind::JobFile(_) => "job-file",
        }
    }

    /// Returns the arms that can run it.
    pub fn family(&self) -> Family {
        match self {
            WorkloadKind::NewFiles(_) | WorkloadKind::Jobs(_) | WorkloadKind::Writers(_) => {
                Family::Files
            }
            WorkloadKind::Requests { .. } | WorkloadKind::JobFile(_) => Family::Requests,
            WorkloadKind::Copies(_) => Family::Copies,
            WorkloadKind::Program(_) => Family::Programs,
        }
    }
}

/// The suite of this name, or in the file of this path: what holds a slash or ends in `.toml` is a
/// path.
pub fn find(name: &Path) -> Result<Suite, Refusal> {
    let word = name.to_string_lossy();
    if word.contains('/') || word.ends_with(".toml") {
        return read(name);
    }
    let shipped = SHIPPED.iter().find(|(known, _)| *known == word);
    let (name, text) = shipped.ok_or_else(|| {
        Refusal(format!("{word}: no such suite; use one of {}, or the path of a file", names()))
    })?;
    check::parse(text, &format!("suites/{name}.toml"))
}

pub fn read(path: &Path) -> Result<Suite, Refusal> {
    check::parse(&text_of(path)?, &path.display().to_string())
}

fn text_of(path: &Path) -> Result<String, Refusal> {
    std::fs::read_to_string(path).map_err(|error| {
        let remedy = format!("give the path of a suite's file, or one of {}", names());
        Refusal(format!("{}: {error}; {remedy}", path.display()))
    })
}

/// Lists all shipped suites: name and title, then the parts with their forms.
pub fn list() -> String {
    let mut lines = Vec::new();
    for (name, _) in SHIPPED {
        let suite = find(Path::new(name)).expect("a shipped suite is sound");
        lines.push(format!("{:<12} {}", suite.name, suite.title));
        for part in &suite.parts {
            let forms = Form::ALL.into_iter().filter(|form| part.cut(*form).is_some());
            let forms = forms.map(Form::name).collect::<Vec<_>>().join(", ");
            lines.push(format!("  {:<11} {} ({forms})", part.name, part.title));
        }
    }
    lines.join("\n") + "\n"
}

fn names() -> String {
    SHIPPED.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests;
