//! The work of one small program, and the ways of its I/O: the standard library or Forebay. Only the
//! description; the parent module runs it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use super::program::Program;
use super::program::{Sizes, Writes};
use crate::words::words;

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramLoad {
    pub probe: &'static Program,
    #[serde(default = "one")]
    pub threads: u32,
    /// A sync after this many operations of a thread.
    #[serde(default = "one")]
    pub every: u32,
    /// Operations of each thread before its clock starts.
    #[serde(default)]
    pub warm: u32,
    /// Operations of all threads together, if that and not the time ends it.
    #[serde(default)]
    pub operations: Option<u64>,
    /// Operations a second of all threads together, if they have their times.
    #[serde(default)]
    pub rate: Option<u32>,
    #[serde(default)]
    pub beside: Beside,
    /// MiB of its large file.
    #[serde(default)]
    pub file_mib: u64,
    /// MiB of memory for data: the engine's cache, or the control group of the standard library's
    /// arm. Without it the engine has its default, and the page cache no limit.
    #[serde(default)]
    pub memory_mib: u64,
    /// Bytes of the smallest and of the largest of its new files or records.
    #[serde(default)]
    pub sizes: (u64, u64),
    #[serde(default)]
    pub form: Form,
}

fn one() -> u32 {
    1
}

/// Form of a probe that has several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    #[default]
    Usual,
    /// A new file is opened as any other, and not as one that gets its name by a rename.
    AnyFile,
    /// The same bytes are written again, in one write.
    Again,
    /// With the standard library each thread makes its own syncs.
    OwnSync,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beside {
    #[default]
    Nothing,
    /// A thread of the same program, and of the same engine, that writes another file in order.
    Bulk,
    /// `dd`, in a process of its own.
    Dd,
}

words! {
    /// Through what a program does its I/O. Those of files make new files durable together, and
    /// sync the directories once, at the end.
    pub enum ProgramWay {
        /// The standard library, in the form that suits the program best.
        Std = "program-std",
        Forebay = "program-forebay",
        ForebaySurvive = "program-forebay-survive",
        /// Forebay, with an intent log in the directory of the files.
        ForebayLog = "program-forebay-log",
        /// One write and one flush of a single log for all threads that wait. Nothing reaches the
        /// files: the most that a log can gain.
        LogAlone = "program-log-alone",
        /// Forebay, copying with `std::io::copy` over cursors.
        ForebayIoCopy = "program-forebay-io-copy",
        /// One file after the other: create, write, fdatasync, rename.
        FilesFsyncEach = "files-fsync-each",
        /// The same by eight threads.
        FilesFsyncThreads = "files-fsync-8-threads",
        /// Writes all and starts the writeback of each with `sync_file_range`, then fdatasync of
        /// each, then the renames.
        FilesRangeThenFsync = "files-range-then-fsync",
        /// Writes all, then fdatasync of all through one io_uring, then the renames.
        FilesRingOfFsyncs = "files-ring-of-fsyncs",
        /// Writes all, then one `syncfs`, then the renames.
        FilesSyncfs = "files-syncfs",
        /// One batch of Forebay's engine.
        FilesForebayBatch = "files-forebay-batch",
        /// Writes and renames, and syncs nothing: a reference.
        FilesNoSync = "files-no-sync",
    }
}

impl ProgramWay {
    /// Returns whether it is a way of new files that become durable together.
    pub fn is_of_files(self) -> bool {
        self.name().starts_with("files-")
    }

    /// Returns whether it goes through Forebay's engine.
    pub fn is_forebay(self) -> bool {
        self.name().contains("forebay")
    }

    /// Returns whether it can run this program.
    pub fn suits(self, probe: &Program) -> bool {
        (probe.suits)(self)
    }
}

/// Bytes of the file of commits.
pub const COMMIT_FILE_BYTES: u64 = 64 << 20;

/// A file that is read is as many times the memory for data at least.
const FILE_IN_MEMORIES: u64 = 4;

impl ProgramLoad {
    /// Refuses a load that cannot run, with a remedy.
    pub fn check(&self) -> Result<(), String> {
        let Program { name, most_threads, reads_file, beside, .. } = self.probe;
        if !(1..=*most_threads).contains(&self.threads) {
            let threads = self.threads;
            return Err(format!("{name}: {threads} threads: out of range (1 to {most_threads})"));
        }
        if self.every == 0 || self.operations == Some(0) || self.rate == Some(0) {
            return Err("every, operations and rate begin at 1".to_owned());
        }
        let has_beside = self.beside != Beside::Nothing;
        if has_beside && !beside.contains(&self.beside) {
            return Err(format!("{name} has no such writer beside it (leave beside out)"));
        }
        if (*reads_file || has_beside) != (self.file_mib > 0) {
            let what = "a program that reads a file, or with a writer beside it, needs file_mib; \
                        the others have none";
            return Err(what.to_owned());
        }
        if self.form != Form::Usual && !self.probe.forms.contains(&self.form) {
            return Err(format!("{name} has no such form (leave form out)"));
        }
        let has_sizes = (1..=self.sizes.1).contains(&self.sizes.0);
        match self.probe.sizes {
            Sizes::Given if !has_sizes || self.operations.is_none() => {
                Err(format!("{name} needs operations and sizes"))
            }
            Sizes::Fixed if self.sizes != (0, 0) => Err(format!("{name} has no sizes")),
            Sizes::Usually(_) if self.sizes != (0, 0) && !has_sizes => {
                Err(format!("{name}: sizes are the smallest and the largest, from 1 on"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes of the smallest and of the largest of its new files or records.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        match self.probe.sizes {
            Sizes::Usually(usual) if self.sizes == (0, 0) => usual,
            _ => self.sizes,
        }
    }

    /// Returns the same program with a share of its operations and of its large file.
    pub fn scaled(&self, scale: f64) -> Self {
        let of = |whole: u64| (whole as f64 * scale).round() as u64;
        let threads = u64::from(self.threads);
        let least = (self.memory_mib * FILE_IN_MEMORIES).max(16);
        Self {
            operations: self.operations.map(|all| of(all).max(threads)),
            file_mib: if self.file_mib == 0 {
                0
            } else {
                of(self.file_mib).max(least).min(self.file_mib)
            },
            ..*self
        }
    }

    /// Returns the time from one operation of a thread to its next, or zero without a rate.
    pub(crate) fn pace(&self) -> Duration {
        let every = |rate| Duration::from_secs(u64::from(self.threads)) / rate;
        self.rate.map_or(Duration::ZERO, every)
    }

    pub fn file_bytes(&self) -> u64 {
        self.file_mib << 20
    }

    /// Returns the bytes of memory for data, if limited.
    pub fn memory_bytes(&self) -> Option<u64> {
        (self.memory_mib > 0).then_some(self.memory_mib << 20)
    }

    /// Returns whether all its cells share a large file: one that it reads, or that `dd` writes
    /// beside files that stay.
    pub fn shares_source(&self) -> bool {
        self.probe.reads_file || (self.probe.keeps_files && self.beside == Beside::Dd)
    }

    /// Returns the bytes it writes, if that number is fixed.
    pub fn written_bytes(&self) -> u64 {
        match self.probe.writes {
            Writes::Fixed(bytes) => bytes(self),
            Writes::Nothing | Writes::ForATime => 0,
        }
    }

    /// Returns whether it, or a writer beside it, writes what it can in a time.
    pub fn writes_for_a_time(&self) -> bool {
        matches!(self.probe.writes, Writes::ForATime) || self.beside != Beside::Nothing
    }

    /// Returns the bytes on the disk at once, at most, as far as they are fixed.
    pub fn space_bytes(&self) -> u64 {
        self.file_bytes() + self.written_bytes() + COMMIT_FILE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(name: &str) -> ProgramLoad {
        ProgramLoad {
            probe: Program::by_name(name).unwrap(),
            threads: 1,
            every: 1,
            warm: 0,
            operations: None,
            rate: None,
            beside: Beside::Nothing,
            file_mib: 0,
            memory_mib: 0,
            sizes: (0, 0),
            form: Form::Usual,
        }
    }

    #[test]
    fn a_load_that_cannot_run_is_refused() {
        assert_eq!(load("put").check(), Ok(()));
        let copy = ProgramLoad { file_mib: 64, ..load("copy") };
        assert_eq!(copy.check(), Ok(()));
        let files = ProgramLoad { sizes: (1, 9), operations: Some(3), ..load("files") };
        assert_eq!(files.check(), Ok(()));
        let beside = ProgramLoad { beside: Beside::Dd, file_mib: 64, ..files };
        assert_eq!(beside.check(), Ok(()));
        for (load, expected) in [
            (ProgramLoad { threads: 0, ..load("put") }, "1 to 1024"),
            (ProgramLoad { every: 0, ..load("log") }, "begin at 1"),
            (ProgramLoad { rate: Some(0), ..load("rewrite") }, "begin at 1"),
            (ProgramLoad { threads: 2, ..copy }, "1 to 1)"),
            (load("copy"), "needs file_mib"),
            (ProgramLoad { file_mib: 64, ..load("put") }, "the others have none"),
            (
                ProgramLoad { beside: Beside::Dd, file_mib: 64, ..load("log") },
                "log has no such writer",
            ),
            (ProgramLoad { beside: Beside::Bulk, ..beside }, "files has no such writer"),
            (ProgramLoad { threads: 2, ..files }, "1 to 1)"),
            (ProgramLoad { operations: None, ..files }, "needs operations and sizes"),
            (ProgramLoad { sizes: (9, 1), ..files }, "needs operations and sizes"),
            (ProgramLoad { sizes: (1, 9), ..load("put") }, "put has no sizes"),
            (ProgramLoad { sizes: (9, 1), ..load("log") }, "the smallest and the largest"),
            (ProgramLoad { form: Form::Again, ..load("put") }, "put has no such form"),
        ] {
            let refused = load.check().unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn a_share_keeps_a_file_larger_than_the_memory() {
        let whole = ProgramLoad { file_mib: 1024, memory_mib: 64, ..load("read-miss") };
        assert_eq!(whole.scaled(0.5).file_mib, 512);
        assert_eq!(whole.scaled(0.01).file_mib, 256);
        let put = ProgramLoad { threads: 32, operations: Some(6400), ..load("put") };
        assert_eq!(put.scaled(0.5).operations, Some(3200));
        assert_eq!(put.scaled(0.001).operations, Some(32), "one for each thread at least");
    }
}
