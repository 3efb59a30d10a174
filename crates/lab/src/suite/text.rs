//! A suite's file as it is written: its tables and their keys, nothing looked up. Unknown keys are
//! refused by name, with the known keys. Every word to look up keeps its place in the text.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::model::{FileBytes, Layout, Pair, Published};
use crate::bytes::Bytes;
use crate::job::MOST_DEPTH;
use crate::plan::MOST_ROUNDS;
use crate::refusal::Refusal;
use crate::request::{Poll, RequestDevice, Submitter, Switch};

/// A word and where it stands.
pub(super) type Word = Spanned<String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteText {
    pub(super) name: Word,
    pub(super) title: String,
    pub(super) file: Option<FileBytes>,
    #[serde(default)]
    pub(super) workload: Vec<WorkloadText>,
    #[serde(default)]
    pub(super) arm: Vec<ArmText>,
    #[serde(default)]
    pub(super) part: Vec<PartText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadText {
    pub(super) name: Word,
    pub(super) title: Option<String>,
    pub(super) probe: Word,
    /// The work, in the probe's own form.
    pub(super) shape: Option<Spanned<toml::Table>>,
}

impl WorkloadText {
    /// Returns a probe with the defaults of its shape, under its own name.
    pub(super) fn of_probe(name: &Word) -> Self {
        Self { name: name.clone(), title: None, probe: name.clone(), shape: None }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArmText {
    pub(super) name: Word,
    pub(super) through: Word,
    #[serde(default)]
    pub(super) knobs: BTreeMap<Word, Word>,
    pub(super) batch: Option<Depth>,
    #[serde(default)]
    pub(super) depths: Vec<Depth>,
    #[serde(default)]
    pub(super) fixed_files: Switch,
    /// Settings of the machine while one of its cells runs, such as `"queue.nomerges" = "2"`.
    #[serde(default)]
    pub(super) machine: BTreeMap<Word, Word>,
    #[serde(default)]
    pub(super) poll: Poll,
    #[serde(default)]
    pub(super) from: Submitter,
    #[serde(default)]
    pub(super) layout: Layout,
}

fn yes() -> bool {
    true
}

/// Declares numbers that are read only within their range.
macro_rules! within {
    ($($(#[$about:meta])* $name:ident: $number:ty = $range:expr, $said:literal;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub(super) struct $name(pub(super) $number);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let number = <$number>::deserialize(from)?;
                let refused = || D::Error::custom(format!("{number}: out of range ({})", $said));
                $range.contains(&number).then_some(Self(number)).ok_or_else(refused)
            }
        }
    )*};
}

within! {
    /// Bios in flight.
    Depth: u32 = (1..=MOST_DEPTH), "1 to 4096";
    /// Seconds of one cell.
    Seconds: f64 = (0.01..=3600.0), "0.01 to 3600";
    /// A share of a form's sizes and times.
    Scale: f64 = (f64::MIN_POSITIVE..=1.0), "above 0, at most 1";
    Rounds: u32 = (1..=MOST_ROUNDS), "1 to 1000";
}

/// Keys that a part may have for all its forms, and each form of its own.
macro_rules! keys_of_forms {
    ($($key:ident: $of:ty,)*) => {
        /// A part: keys for all its forms, and keys of each form.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct PartText {
            pub(super) name: Word,
            pub(super) title: String,
            pub(super) metric: Word,
            pub(super) base: Option<Word>,
            pub(super) best_of: Option<Vec<Word>>,
            pub(super) again: Word,
            /// Whether arms of the user's own go into it.
            #[serde(default = "yes")]
            pub(super) own_arms: bool,
            #[serde(default)]
            pub(super) figure: Vec<Spanned<Published>>,
            pub(super) full: Option<CutText>,
            pub(super) quick: Option<CutText>,
            pub(super) bare: Option<CutText>,
            pub(super) published: Option<CutText>,
            $(pub(super) $key: Option<$of>,)*
        }

        /// Keys of one form; the others are its part's.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct CutText {
            $(pub(super) $key: Option<$of>,)*
        }

        impl PartText {
            /// Returns the keys of a form, completed with those of the part.
            pub(super) fn form(&self, own: &CutText) -> CutText {
                CutText { $($key: own.$key.clone().or_else(|| self.$key.clone()),)* }
            }
        }
    };
}

keys_of_forms! {
    workloads: Vec<Word>,
    arms: Vec<Word>,
    devices: Vec<RequestDevice>,
    depths: Vec<Depth>,
    seconds: Seconds,
    scale: Scale,
    rounds: Rounds,
    file_bytes: Bytes,
    cell_bytes: Bytes,
    also: Vec<Spanned<Pair>>,
    writes_at_most: Bytes,
}

/// Where things stand.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) text: &'a str,
    pub(super) file: &'a str,
}

impl Places<'_> {
    /// Returns the refusal of what stands there.
    pub(super) fn wrong(&self, span: Range<usize>, what: impl Into<String>) -> Refusal {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
        Refusal(format!("{}:{line}:{column}: {}", self.file, what.into()))
    }
}

/// Returns a message on one line.
pub(super) fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
