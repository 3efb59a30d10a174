//! A suite's file as it is written: its tables and their keys, nothing looked up. Unknown keys are
//! refused by name, with the known keys. Every word to look up keeps its place in the text.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{Bytes, FileBytes, Pair, TableKind};
use crate::echo::EchoLoad;
use crate::job::Order;
use crate::programs::spec::ProgramLoad;
use crate::request::{Operation, Pattern, RequestDevice, Submitter, Switch};
use crate::shape::{Ground, ReadWrite, ShapeEngine};
use crate::through::Poll;
use crate::writers::Layout;

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
    /// Of all but echoes and programs, which have their own.
    pub(super) block: Option<Spanned<Bytes>>,
    pub(super) new_files: Option<Spanned<u32>>,
    pub(super) pattern: Option<Pattern>,
    pub(super) operation: Option<Operation>,
    pub(super) job: Option<Spanned<JobText>>,
    pub(super) copy: Option<Spanned<Bytes>>,
    pub(super) writers: Option<Spanned<WritersText>>,
    pub(super) echo: Option<Spanned<EchoLoad>>,
    pub(super) program: Option<Spanned<ProgramLoad>>,
}

/// Threads that write files of their own once, in the words of a fio job file where it has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WritersText {
    pub(super) rw: WritersOrder,
    pub(super) numjobs: Spanned<u32>,
    pub(super) nrfiles: Spanned<u32>,
    /// That the jobs have between them; one each if it says nothing.
    pub(super) directories: Option<Spanned<u32>>,
    /// Of the direct arms, in each job.
    pub(super) iodepth: Spanned<u32>,
}

/// fio's `rw`, as far as it writes alone.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WritersOrder {
    Write,
    RandWrite,
}

impl From<WritersOrder> for Order {
    fn from(order: WritersOrder) -> Self {
        match order {
            WritersOrder::Write => Order::Sequential,
            WritersOrder::RandWrite => Order::Random,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobText {
    pub(super) rw: ReadWrite,
    pub(super) iodepth: Spanned<u32>,
    pub(super) ioengine: ShapeEngine,
    pub(super) numjobs: Spanned<u32>,
    pub(super) uncached: bool,
    pub(super) cache: Spanned<Bytes>,
    pub(super) dirty: Option<Spanned<Bytes>>,
    pub(super) background: Option<Spanned<Bytes>>,
    #[serde(default)]
    pub(super) on: Ground,
    /// Whether another writes a little and syncs it, again and again.
    #[serde(default)]
    pub(super) beside: Beside,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Beside {
    #[default]
    Nothing,
    /// Small writes, each synced, one after the other.
    Sync,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArmText {
    pub(super) name: Word,
    pub(super) through: Word,
    #[serde(default)]
    pub(super) knobs: BTreeMap<Word, Word>,
    pub(super) batch: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) depths: Vec<Spanned<u32>>,
    #[serde(default = "on")]
    pub(super) fixed_buffers: Switch,
    #[serde(default = "on")]
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

fn on() -> Switch {
    Switch::On
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
            pub(super) table: TableKind,
            pub(super) metric: Word,
            pub(super) base: Option<Word>,
            pub(super) best_of: Option<Vec<Word>>,
            pub(super) again: Word,
            #[serde(default)]
            pub(super) also: Vec<Spanned<Pair>>,
            pub(super) full: Option<CutText>,
            pub(super) quick: Option<CutText>,
            pub(super) bare: Option<CutText>,
            $($key: Option<$of>,)*
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
    devices: Vec<Spanned<RequestDevice>>,
    depths: Vec<Spanned<u32>>,
    batches: Vec<Spanned<u32>>,
    seconds: Spanned<f64>,
    scale: Spanned<f64>,
    rounds: Spanned<u32>,
    file_bytes: Spanned<Bytes>,
    cell_bytes: Spanned<Bytes>,
    contexts: Vec<Word>,
    affinities: Vec<Word>,
    layouts: Vec<Layout>,
    writes_at_most: Bytes,
}
