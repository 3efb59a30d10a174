//! A suite, every name in it looked up: parts, their work and arms, and how much of it is run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arm::Way;
use crate::bytes::Bytes;
use crate::nearest;
use crate::refusal::Refusal;
use crate::request::{Poll, RequestDevice, Submitter, Switch};
use crate::tuning::Tuning;
use crate::words::words;

words! {
    /// How much of a suite is run.
    pub enum Form {
        /// For figures that are shown around.
        Full = "full",
        /// A first look.
        Quick = "quick",
        /// Run when no suite is named.
        Bare = "bare",
        /// The experiment of a thread of the kernel's lists, beside its published figures.
        Published = "published",
    }
}

words! {
    /// State of a file before the clock starts.
    #[derive(PartialOrd, Ord, Hash, Default)]
    pub enum Layout {
        /// Nothing: it is made inside the clock, and grows.
        #[default]
        New = "new",
        /// Its length, and no space.
        Holes = "holes",
        /// Its length and space that was never written, by `fallocate`.
        Unwritten = "unwritten",
        /// Other data.
        Written = "written",
    }
}

impl Form {
    /// Returns the rounds where the suite says nothing.
    pub(crate) fn rounds(self) -> u32 {
        match self {
            Form::Full => 10,
            Form::Quick | Form::Bare | Form::Published => 5,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Suite {
    pub name: String,
    pub title: String,
    /// Bytes of the laid-out file, by form; none where no part needs one.
    pub file: Option<FileBytes>,
    pub parts: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileBytes {
    full: Bytes,
    quick: Bytes,
    bare: Bytes,
}

impl FileBytes {
    pub fn of(self, form: Form) -> u64 {
        match form {
            Form::Full | Form::Published => self.full.0,
            Form::Quick => self.quick.0,
            Form::Bare => self.bare.0,
        }
    }
}

/// One question of a suite, which is one table.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    pub name: String,
    pub title: String,
    pub metric: &'static str,
    pub base: Base,
    /// The arm that runs twice: what differs between the two is noise.
    pub again: String,
    /// Whether arms of the user's own go into it.
    pub own_arms: bool,
    pub figures: Vec<Published>,
    pub(super) forms: [Option<Cut>; Form::ALL.len()],
}

impl Part {
    /// Returns whether any of its forms has a workload of that name.
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

    /// Returns the suite with this part alone.
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

/// A published figure: a metric without and with what a thread is about.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    pub workload: String,
    pub metric: String,
    /// The arms that do the same here.
    pub base: String,
    pub arm: String,
    /// The figures of base and arm, in the unit of the metric.
    pub values: [f64; 2],
    /// The machine, where there were several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub on: String,
}

/// How much of a part is run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cut {
    pub workloads: Vec<Workload>,
    pub arms: Vec<Arm>,
    /// Where requests go; empty for work on files.
    pub devices: Vec<RequestDevice>,
    /// Bios in flight; empty for work on files.
    pub depths: Vec<u32>,
    /// Of one cell that runs for a time.
    pub seconds: f64,
    /// The share of sizes and times that is run, where the user does not say so.
    pub scale: f64,
    /// Where the user does not say so.
    pub rounds: u32,
    pub file_bytes: Option<u64>,
    /// Bytes that all writers of a cell write together.
    pub cell_bytes: Option<u64>,
    /// Pairs that are compared besides those with the base.
    pub also: Vec<Pair>,
    /// Limit of the bytes of all cells.
    pub writes_at_most: Option<u64>,
}

impl Cut {
    /// Returns the name of the probe of its first workload; the others have the same arms.
    pub fn probe(&self) -> &'static str {
        self.workloads.first().map_or("", |workload| workload.probe)
    }

    /// Returns the names of the arms it runs, without the one that runs twice.
    pub fn names(&self) -> Vec<String> {
        self.arms.iter().map(|arm| arm.name.clone()).collect()
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    pub name: String,
    pub title: Option<String>,
    pub probe: &'static str,
    /// The work, in the probe's own form.
    pub shape: Value,
}

/// One of the things compared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arm {
    pub name: String,
    pub way: Way,
    /// Knobs of the queue, or of the engine.
    pub knobs: Vec<(String, String)>,
    /// Bios handed over together, where it says so.
    pub batch: Option<u32>,
    /// The depths it is run at; all if empty.
    pub depths: Vec<u32>,
    pub fixed_files: Switch,
    pub poll: Poll,
    /// The thread that submits.
    pub from: Submitter,
    /// State of its files before the clock starts.
    pub layout: Layout,
    /// Settings of the machine that the user asks for. A refused one ends the comparison.
    pub tunings: Vec<Tuning>,
    /// Settings of the machine that the suite asks for. If one is refused, the arm is left out.
    pub needs: Vec<Tuning>,
}

impl Arm {
    /// Returns an arm that says nothing but through what.
    pub fn plain(name: &str, way: Way) -> Self {
        Self { name: name.to_owned(), way, ..Self::default() }
    }
}
