//! A suite: the arms and the work that ask one question, as a file says it.
//!
//! Suites are files so that a question can be read, changed and sent to somebody else. Those that
//! are shipped lie in `suites/` and are inside the program; a path takes a user's own. A file is
//! read whole and every name in it looked up before anything is done; what is wrong is told with
//! its line, its column and what would do (`text.rs`).
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
mod kind;
pub mod own;
mod text;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use check::batch_name;
use check::rounds_of;

pub use crate::bytes::Bytes;
use crate::echo::EchoLoad;
use crate::nearest;
use crate::programs::spec::ProgramLoad;
use crate::request::{Operation, Pattern};
use crate::shape::JobShape;
use crate::tuning::Tuning;
use crate::writers::Writers;
pub use arm::Arm;
use cross::{Contrast, Crossed};
use job_file::JobFile;
pub use kind::Kind;

/// Those inside the program, by name.
pub const SHIPPED: [(&str, &str); 7] = [
    ("completion", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/completion.toml"))),
    ("files", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/files.toml"))),
    ("layout", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/layout.toml"))),
    ("order", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/order.toml"))),
    ("plug", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/plug.toml"))),
    ("programs", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/programs.toml"))),
    ("writeback", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/suites/writeback.toml"))),
];

/// What `forebay compare` runs when no suite is named.
pub const BARE: [&str; 3] = ["layout", "plug", "completion"];

/// How much of a suite is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// For figures that are shown around.
    Full,
    /// A first look.
    Quick,
    /// What is run when no suite is named.
    Bare,
}

/// A suite, every name in it looked up.
#[derive(Clone, PartialEq, Debug)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Its question.
    pub title: String,
    /// Bytes of the laid-out file, by form; none where no part needs one.
    pub file: Option<FileBytes>,
    /// Its parts, in the order they run.
    pub parts: Vec<Part>,
}

/// Bytes of the laid-out file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileBytes {
    /// In full.
    pub full: Bytes,
    /// For a first look.
    pub quick: Bytes,
    /// Where no suite is named.
    pub bare: Bytes,
}

impl FileBytes {
    /// Of one form.
    #[must_use]
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
    /// What is shown of it, and how.
    pub table: TableKind,
    /// What the ratio is of.
    pub metric: &'static str,
    /// What arms are compared with.
    pub base: Base,
    /// The arm that runs twice: what differs between the two is noise.
    pub again: String,
    /// Pairs that are compared besides.
    pub also: Vec<Pair>,
    forms: [Option<Cut>; 3],
}

impl Part {
    /// Whether any of its forms has a workload of that name.
    #[must_use]
    pub fn has_workload(&self, name: &str) -> bool {
        let mut workloads = self.forms.iter().flatten().flat_map(|cut| &cut.workloads);
        workloads.any(|workload| workload.name == name)
    }

    /// What of it belongs to a form; none if it does not.
    #[must_use]
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
    pub fn only(mut self, part: &str) -> Result<Self, SuiteError> {
        if self.parts.iter().any(|known| known.name == part) {
            self.parts.retain(|known| known.name == part);
            return Ok(self);
        }
        let known: Vec<&str> = self.parts.iter().map(|known| known.name.as_str()).collect();
        let near = nearest::nearest(part, known.iter().copied());
        Err(SuiteError::Part {
            part: part.to_owned(),
            suite: self.name.clone(),
            meant: near.map(|near| format!("; did you mean {near}?")).unwrap_or_default(),
            known: known.join(", "),
        })
    }
}

/// How a part is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
    /// Of jobs on new files: rate, memory, sync probe, extents; then what an I/O costs.
    #[default]
    Files,
    /// A line for each arm, a table for each job.
    Arms,
    /// A line for each batch, a column for each device, a table for each depth: ratios to the base.
    Ladder,
    /// A line for each arm but the base: what an I/O costs more on it, in the metric's own unit.
    Worth,
    /// A line for each device, a column for each depth: the arm that runs twice against the base.
    Policies,
    /// For each job a block of metrics by policy of completion, then its arms.
    Completion,
    /// Of a bulk writer beside one that syncs: a line for each arm, a table for each job.
    Beside,
    /// Of copies: a line for each arm, a table for each job.
    Copies,
    /// Of writers: rate and layout side by side, then what that costs; a line for each arm, both
    /// for each job.
    Writers,
    /// Of writers: a line for each number of contexts and affinity, a table for each job.
    Contexts,
    /// The same by layout of the files, and what each of the three is worth by itself.
    Factors,
    /// Of echoes: a line for each arm, a table for each job; then the arm that runs twice against
    /// each other.
    Echo,
    /// Of programs: a line for each arm, a table for each job; then the ratios to the base.
    Programs,
}

/// What arms are compared with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// This arm.
    Arm(String),
    /// That of these which is best, in each job.
    BestOf(Vec<String>),
}

/// An arm and what it is compared with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The arm.
    pub arm: String,
    /// Its base.
    pub base: String,
}

/// What one form of a part runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Cut {
    /// What is asked for.
    pub workloads: Vec<Workload>,
    /// The things compared.
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
    /// Bytes of each file.
    pub file_bytes: Option<u64>,
    /// Bytes that all writers of a cell write together.
    pub cell_bytes: Option<u64>,
    /// What the arms are that came of crossing some; empty where nothing is crossed.
    pub crossed: Vec<Crossed>,
    /// Which of those differ in one thing alone.
    pub contrasts: Vec<Contrast>,
    /// What all cells together may write.
    pub writes_at_most: Option<u64>,
}

/// What is asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// What it is, in a heading.
    pub title: Option<String>,
    /// Bytes at a time; of echoes, of a message.
    pub block_bytes: u32,
    /// Of what kind.
    pub kind: WorkloadKind,
}

/// Of what kind.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkloadKind {
    /// Random writes into so many new files, until synced.
    NewFiles(u32),
    /// Requests in a closed loop.
    Requests {
        /// In which order.
        pattern: Pattern,
        /// Reads or writes.
        operation: Operation,
    },
    /// Jobs on files or on a device, for a time.
    Jobs(JobShape),
    /// Copies into so many bytes.
    Copies(u64),
    /// Threads that write files of their own once, until synced.
    Writers(Writers),
    /// Messages to a server that sends them back.
    Echo(EchoLoad),
    /// A small program.
    Program(ProgramLoad),
    /// A group of a fio job file.
    JobFile(Box<JobFile>),
}

/// A suite that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// There is none of that name.
    #[error("{name}: no such suite; use one of {shipped}, or the path of a file", shipped = names())]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("{path}: {source}; give the path of a suite's file, or one of {shipped}", path = path.display(), shipped = names())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The suite has no such part.
    #[error("--part {part}: {suite} has no such part{meant}; it has {known}")]
    Part {
        /// What was asked for.
        part: String,
        /// The suite.
        suite: String,
        /// Which may be meant.
        meant: String,
        /// Those it has.
        known: String,
    },
    /// A job file that cannot be compared; why, and what would do.
    #[error("{0}")]
    JobFile(String),
    /// The file makes no sense.
    #[error("{file}:{line}:{column}: {what}")]
    Text {
        /// The file, or the name of a shipped suite.
        file: String,
        /// From one.
        line: usize,
        /// From one, in characters.
        column: usize,
        /// What is wrong, and what would do.
        what: String,
    },
}

/// The suite of this name, or in the file of this path: what holds a slash or ends in `.toml` is a
/// path.
pub fn find(name: &Path) -> Result<Suite, SuiteError> {
    let word = name.to_string_lossy();
    if word.contains('/') || word.ends_with(".toml") {
        return read(name);
    }
    let shipped = SHIPPED.iter().find(|(known, _)| *known == word);
    let (name, text) =
        shipped.ok_or_else(|| SuiteError::Unknown { name: word.clone().into_owned() })?;
    check::parse(text, &format!("suites/{name}.toml"))
}

/// The suite in a file.
pub fn read(path: &Path) -> Result<Suite, SuiteError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| SuiteError::Read { path: path.to_owned(), source })?;
    check::parse(&text, &path.display().to_string())
}

/// What is told of all shipped suites: a name and a title each, then the parts with the forms they
/// are in.
#[must_use]
pub fn list() -> String {
    let mut lines = Vec::new();
    for (name, _) in SHIPPED {
        let suite = find(Path::new(name)).expect("a shipped suite is sound");
        lines.push(format!("{:<12} {}", suite.name, suite.title));
        for part in &suite.parts {
            let forms = [(Form::Full, "full"), (Form::Quick, "quick"), (Form::Bare, "bare")];
            let forms =
                forms.iter().filter(|(form, _)| part.cut(*form).is_some()).map(|(_, word)| *word);
            let forms = forms.collect::<Vec<_>>().join(", ");
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
