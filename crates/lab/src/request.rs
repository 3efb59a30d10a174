//! A request cell: one closed loop of requests of one size at a depth, on a device or on one
//! laid-out file, for a time. This is the specification; `load::request` runs it.
//!
//! Where a job ([`crate::job`]) is about files and ends with a sync, this is about the path of one
//! request: costs and savings of a batch. So there are no files to make, no space to find and no
//! sync; the clock runs for a fixed time, and requests that end in it are counted. The same
//! specification runs through Forebay's queue and through the kernel's own calls, so that the arms
//! differ in nothing else.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::words::words;

/// The name of the laid-out file in the directory a cell is given.
pub const DATA_FILE: &str = "requests.data";

/// The devices that are named by one word.
const NAMED: [&str; 5] = ["null", "gen4", "gen5", "optane", "file"];

/// Prefix of a device of a cost: `free:200` takes 200 nanoseconds for each doorbell and nothing
/// else.
const FREE: &str = "free:";

/// Specification of a request cell. As a shape it has the work alone; the rest is its cell's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestSpec {
    pub device: RequestDevice,
    /// Bios kept in flight; at least one.
    pub depth: u32,
    pub block_bytes: u32,
    pub pattern: Pattern,
    pub operation: Operation,
    /// Knobs of the queue, as `Knobs::set` takes them, or of the engine.
    pub knobs: Vec<(String, String)>,
    /// Whether the file is registered with the ring.
    pub fixed_files: Switch,
    /// Bios handed over between two dispatches, waited for where fewer places are free; as many as
    /// are free if none.
    pub batch: Option<u32>,
    #[serde(default)]
    pub from: Submitter,
    /// Bytes of the file or device that offsets are drawn from; a multiple of `block_bytes`.
    pub file_bytes: u64,
    pub seconds: f64,
    /// Of the offsets and data.
    pub seed: u64,
}

impl RequestSpec {
    /// Returns random reads of 4 KiB in the first MiB of a device, one at a time, for 50 ms.
    pub fn random_reads(device: RequestDevice) -> Self {
        Self {
            device,
            depth: 1,
            block_bytes: 4096,
            pattern: Pattern::Random,
            operation: Operation::Read,
            knobs: Vec::new(),
            fixed_files: Switch::Off,
            batch: None,
            from: Submitter::Local,
            file_bytes: 1 << 20,
            seconds: 0.05,
            seed: 0,
        }
    }

    pub(crate) fn counted(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Where requests go: nowhere (`null`), to a device of a cost (`free:200`: nanoseconds), to a
/// modelled one (`gen4`, `gen5`, `optane`), or to a laid-out file (`file`).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct RequestDevice(String);

impl RequestDevice {
    pub fn file() -> Self {
        Self("file".to_owned())
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns whether requests go to a real file: only there do registered files and the kernel's
    /// arms mean anything.
    pub fn is_file(&self) -> bool {
        self.0 == "file"
    }

    /// Returns the nanoseconds of a device of a cost.
    pub fn free_nanos(&self) -> Option<u64> {
        self.0.strip_prefix(FREE).and_then(|nanos| nanos.parse().ok())
    }
}

impl FromStr for RequestDevice {
    type Err = Refusal;

    fn from_str(word: &str) -> Result<Self, Refusal> {
        let device = Self(word.to_owned());
        let known = NAMED.contains(&word) || device.free_nanos().is_some();
        known.then_some(device).ok_or_else(|| {
            let all = "null, free:NANOSECONDS, gen4, gen5, optane, file";
            Refusal(format!("{word}: no such device (there are: {all})"))
        })
    }
}

impl TryFrom<String> for RequestDevice {
    type Error = Refusal;

    fn try_from(word: String) -> Result<Self, Refusal> {
        word.parse()
    }
}

impl fmt::Display for RequestDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

words! {
    /// In which order blocks are asked for.
    pub enum Pattern {
        Random = "random",
        /// Front to back, and from the front again.
        Sequential = "sequential",
    }
}

words! {
    /// Its words are how metrics of it begin.
    pub enum Operation {
        Read = "read",
        /// Writes, over what is there.
        Write = "write",
    }
}

words! {
    #[derive(Default)]
    pub enum Switch {
        #[default]
        On = "on",
        Off = "off",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Submitter {
    /// The one that runs the queue.
    #[default]
    Local,
    /// Another one, through a list.
    Thread,
}

words! {
    /// Through what requests go.
    #[derive(Default)]
    pub enum Way {
        /// Forebay's queue.
        #[default]
        Queue = "queue",
        /// One call at a time: `preadv2`, `pwritev2`.
        Pread = "pread",
        /// The kernel's ring, with nothing of ours between.
        Uring = "uring",
        /// Forebay's library: direct operations, those of a batch in one plug.
        Library = "library",
        /// fio, as a child.
        Fio = "fio",
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

/// Specification of a request cell. As a shape it has the work alone; the rest is its cell's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RequestCell {
    #[serde(skip)]
    pub way: Way,
    pub spec: RequestSpec,
    #[serde(default)]
    pub poll: Poll,
    /// Where the laid-out file is, if it needs one: an existing directory.
    #[serde(skip)]
    pub directory: PathBuf,
    /// File or device to read in its place, opened for reading alone.
    #[serde(default)]
    pub target: Option<PathBuf>,
}

impl RequestCell {
    /// Returns a cell without a place that does not poll.
    pub fn of(way: Way, spec: RequestSpec) -> Self {
        Self { way, spec, poll: Poll::Never, directory: PathBuf::new(), target: None }
    }

    /// Returns the file that is read, or the directory: its disk gets the requests.
    pub fn place(&self) -> &Path {
        self.target.as_deref().unwrap_or(&self.directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_words() {
        for word in ["null", "free:200", "gen4", "gen5", "optane", "file"] {
            let device: RequestDevice = word.parse().unwrap();
            assert_eq!(serde_json::to_string(&device).unwrap(), format!("\"{word}\""));
            assert_eq!(device.is_file(), word == "file");
        }
        assert_eq!("free:200".parse::<RequestDevice>().unwrap().free_nanos(), Some(200));
        for word in ["", "free:", "free:x", "Gen4", "nvme"] {
            let refused = word.parse::<RequestDevice>().unwrap_err().to_string();
            assert!(refused.contains("free:NANOSECONDS, gen4"), "{refused}");
        }
        assert!(serde_json::from_str::<RequestDevice>("\"nvme\"").is_err());
    }
}
