//! Through what an arm of a suite does its I/O: jobs on files through one of the [`Arm`]s of [`crate::arm`], requests
//! through Forebay's queue, through the kernel's own calls, or through fio. And what a request cell is told besides
//! its specification.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::arm::Arm;
use crate::request::RequestSpec;

/// Through what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Through {
    /// Jobs on files.
    Files(Arm),
    /// Requests.
    Requests(Way),
}

/// Through what requests go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Forebay's queue.
    Queue,
    /// One call at a time: `preadv2`, `pwritev2`.
    Pread,
    /// The kernel's ring, with nothing of ours between.
    Uring,
    /// fio, as a child.
    Fio,
}

impl Way {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::Queue => "queue",
            Way::Pread => "pread",
            Way::Uring => "uring",
            Way::Fio => "fio",
        }
    }
}

/// The ways of requests.
pub const WAYS: [Way; 4] = [Way::Queue, Way::Pread, Way::Uring, Way::Fio];

/// The ways of jobs on new files.
pub const FILES: [Arm; 9] = [
    Arm::KernelBuffered,
    Arm::KernelBounded,
    Arm::KernelBoundedPrealloc,
    Arm::KernelUncached,
    Arm::KernelUncachedPrealloc,
    Arm::KernelDirectPrealloc,
    Arm::Forebay,
    Arm::ForebayDeclared,
    Arm::Null,
];

/// A word that names no way; says what would do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{word}: no such way of I/O (for requests: {requests}; for new files: {files})")]
pub struct NoSuchWay {
    word: String,
    requests: String,
    files: String,
}

impl std::str::FromStr for Through {
    type Err = NoSuchWay;

    fn from_str(word: &str) -> Result<Self, NoSuchWay> {
        let way = WAYS.into_iter().find(|way| way.name() == word).map(Through::Requests);
        let files = || FILES.into_iter().find(|arm| arm.name() == word).map(Through::Files);
        way.or_else(files).ok_or_else(|| NoSuchWay {
            word: word.to_owned(),
            requests: WAYS.map(Way::name).join(", "),
            files: FILES.map(Arm::name).join(", "),
        })
    }
}

/// Whether the kernel may merge what is handed over together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelMerges {
    /// As the device is set.
    #[default]
    AsSet,
    /// Not while the cell runs: `queue/nomerges` of the device is 2. Needs root.
    Off,
}

/// Whether completions are polled for rather than told by an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poll {
    /// No.
    #[default]
    Never,
    /// Where the device has queues for it (`queue/io_poll`); else noted.
    WhereItCan,
}

/// What one request cell has to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RequestCell {
    /// Through what.
    pub way: Way,
    /// What.
    pub spec: RequestSpec,
    /// Whether the kernel may merge.
    pub kernel_merges: KernelMerges,
    /// Whether completions are polled for.
    pub poll: Poll,
    /// Where the laid-out file is, if it needs one: an existing directory.
    pub directory: PathBuf,
}
