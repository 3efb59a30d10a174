//! Through what an arm of a suite does its I/O: jobs on files through one of the [`Arm`]s of
//! [`crate::arm`], requests through Forebay's queue, through the kernel's own calls, or through
//! fio, and copies into memory. And the specification of a cell of requests or of copies.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::arm::Arm;
use crate::cell::Verify;
use crate::programs::spec::ProgramWay;
use crate::refusal::Refusal;
use crate::request::RequestSpec;
use crate::words::words;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Through {
    Files(Arm),
    Requests(Way),
    Copies(CopyWay),
    Program(ProgramWay),
}

words! {
    /// Through what requests go.
    pub enum Way {
        /// Forebay's queue.
        Queue = "queue",
        /// One call at a time: `preadv2`, `pwritev2`.
        Pread = "pread",
        /// The kernel's ring, with nothing of ours between.
        Uring = "uring",
        /// fio, as a child.
        Fio = "fio",
    }
}

words! {
    /// Where a copy goes.
    pub enum CopyWay {
        /// Into a shared mapping of a memory file, with nothing between.
        Memcpy = "copy-memcpy",
        /// Into the page cache, by `pwrite`.
        Pwrite = "copy-pwrite",
        /// Into Forebay's cache, by its blocking write.
        Forebay = "copy-forebay",
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CopyCell {
    /// Where they go.
    pub way: CopyWay,
    pub block_bytes: u32,
    /// Bytes that are copied over again and again; whole blocks.
    pub file_bytes: u64,
    /// How long.
    pub seconds: f64,
    /// Of the order and the data.
    pub seed: u64,
    pub settings: Vec<(String, String)>,
    /// Whether all of it is read back.
    pub verify: Verify,
    /// Where a file goes: an existing, empty directory.
    pub directory: PathBuf,
}

/// The arms of jobs that a suite can name.
pub(crate) fn files() -> impl Iterator<Item = Arm> {
    Arm::ALL.into_iter().filter(|arm| *arm != Arm::Kernel)
}

words! {
    pub enum Family {
        Requests = "requests",
        Files = "files",
        Copies = "copies",
        Programs = "programs",
    }
}

impl Family {
    /// The ways of its arms.
    pub fn ways(self) -> impl Iterator<Item = Through> {
        Through::all().filter(move |through| through.family() == self)
    }
}

impl Through {
    /// Every way of I/O that a suite can name.
    pub fn all() -> impl Iterator<Item = Self> {
        let all = Way::ALL.map(Self::Requests).into_iter().chain(files().map(Self::Files));
        let all = all.chain(CopyWay::ALL.map(Self::Copies));
        all.chain(ProgramWay::all().map(Self::Program))
    }

    pub fn name(self) -> &'static str {
        match self {
            Through::Files(arm) => arm.name(),
            Through::Requests(way) => way.name(),
            Through::Copies(way) => way.name(),
            Through::Program(way) => way.name(),
        }
    }

    /// The kind of work it can do.
    pub fn family(self) -> Family {
        match self {
            Through::Files(_) => Family::Files,
            Through::Requests(_) => Family::Requests,
            Through::Copies(_) => Family::Copies,
            Through::Program(_) => Family::Programs,
        }
    }

    /// Whether it goes through Forebay's engine, which has knobs.
    pub fn is_engine(self) -> bool {
        match self {
            Through::Files(arm) => arm.is_forebay(),
            Through::Copies(way) => way == CopyWay::Forebay,
            Through::Program(way) => way.is_forebay(),
            Through::Requests(_) => false,
        }
    }
}

impl std::str::FromStr for Through {
    type Err = Refusal;

    fn from_str(word: &str) -> Result<Self, Refusal> {
        Self::all().find(|through| through.name() == word).ok_or_else(|| {
            let known = Family::ALL.map(|family| {
                let ways = family.ways().map(Through::name).collect::<Vec<_>>().join(", ");
                format!("for {}: {ways}", family.name())
            });
            Refusal(format!("{word}: no such way of I/O ({})", known.join("; ")))
        })
    }
}

/// Whether completions are polled for rather than told by an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poll {
    #[default]
    Never,
    /// Where the device has queues for it (`queue/io_poll`); else noted.
    WhereItCan,
}

/// Specification of a request cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RequestCell {
    pub way: Way,
    pub spec: RequestSpec,
    /// Whether completions are polled for.
    pub poll: Poll,
    /// Where the laid-out file is, if it needs one: an existing directory.
    pub directory: PathBuf,
    /// File or device to read in its place, opened for reading alone.
    #[serde(default)]
    pub target: Option<PathBuf>,
}

impl RequestCell {
    /// The file read, or the directory: its disk gets the requests.
    pub fn place(&self) -> &Path {
        self.target.as_deref().unwrap_or(&self.directory)
    }
}
