//! A job: the work of one thread on its files.
//!
//! This is the meaning of a job, not its spelling: every default is resolved, every clone of
//! `numjobs` stands for itself, every unit is in the name. Values that depend on the file system (a
//! percentage of a device, the length of a file that is there already) stays symbolic until
//! [`crate::load`] looks. Nothing here does I/O.

mod amounts;

use std::path::{Component, PathBuf};

use serde::{Deserialize, Serialize};

use crate::words::with_defaults;

/// Jobs that start together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Workload {
    /// In the order of the job file; a job with `numjobs` stands here once per clone.
    pub jobs: Vec<Job>,
    /// Whether a block device among the files may be written.
    pub devices: Devices,
}

/// Whether block devices may be written. A mounted one never is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Devices {
    #[default]
    Refuse,
    /// The user said so.
    Write,
    /// Nothing is written, not even a file: all files exist and are longer than the range read.
    ReadOnly,
}

impl Workload {
    /// Makes a job for each file, with a new file in a directory of its own, made inside the clock.
    /// Each block is written once in random order; a sync at the end is inside the clock too. It is
    /// the hardest ordinary case for an allocator.
    pub fn random_writes_into_new_files(files: u32, file_bytes: u64, block: u32) -> Self {
        let job = |number: u32| Job {
            name: format!("writer.{number}"),
            number,
            access: Access { direction: Direction::Write, order: Order::Random },
            blocks: Blocks { read: BlockSize::Fixed(block), write: BlockSize::Fixed(block) },
            files: vec![PathBuf::from(format!("writer-{number:02}/data"))],
            size: Some(Amount::Bytes(file_bytes)),
            create: Create::OnOpen,
            final_sync: FinalSync::All,
            ..Job::default()
        };
        Self { jobs: (0..files).map(job).collect(), devices: Devices::Refuse }
    }

    /// Returns the same jobs, with the final length of each file declared when it is opened, or
    /// not.
    pub fn declared(mut self, declared: YesNo) -> Self {
        self.jobs.iter_mut().for_each(|job| job.declared = declared);
        self
    }

    /// Returns the same jobs with every file inside the directory of their cell, wherever the job
    /// file put it, so that cells share nothing. A block device would become a file: look at
    /// [`Workload::absolute_paths`] before.
    pub fn confined(mut self) -> Self {
        for job in &mut self.jobs {
            job.directory = None;
            for path in &mut job.files {
                let inside = path.components().filter(|part| matches!(part, Component::Normal(_)));
                *path = inside.collect();
            }
        }
        self
    }

    /// Returns files named by an absolute path: they are not in a cell's own directory, so every
    /// cell shares them.
    pub fn absolute_paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.jobs.iter().flat_map(|job| &job.files).filter(|path| path.is_absolute())
    }
}

with_defaults! {
    /// Defaults are those of fio.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    pub struct Job {
        pub name: String = String::new(),
        /// Number of the clone within its section, from zero. Clones have different random numbers.
        pub number: u32 = 0,
        pub access: Access = Access { direction: Direction::Read, order: Order::Sequential },
        pub blocks: Blocks = Blocks { read: BlockSize::Fixed(4096), write: BlockSize::Fixed(4096) },
        /// Its files, relative to the directory of the cell unless absolute.
        pub files: Vec<PathBuf> = Vec::new(),
        /// A directory that has to be there already, if the job names one; others are made.
        pub directory: Option<PathBuf> = None,
        pub next_file: NextFile = NextFile::RoundRobin,
        /// Range over all files; the existing length if none.
        pub size: Option<Amount> = None,
        /// The length of each file, if told apart from `size`.
        pub file_size: Option<FileSize> = None,
        /// Where in each file the range begins.
        pub offset: Amount = Amount::Bytes(0),
        /// How far the range of each clone lies behind that of the one before.
        pub offset_increment: u64 = 0,
        /// How many bytes it reads and writes, if not once the range.
        pub io_bytes: Option<Amount> = None,
        pub operations: Option<u64> = None,
        /// How often it goes through all of that.
        pub loops: u32 = 1,
        pub random_map: RandomMap = RandomMap::EachOnce,
        pub create: Create = Create::Before,
        pub fallocate: Fallocate = Fallocate::Native,
        /// Whether a file to be written holds data beforehand.
        pub overwrite: YesNo = YesNo::No,
        /// Whether `set_len` sets the final length at the opening.
        pub declared: YesNo = YesNo::No,
        /// Whether cached pages of its files are dropped before the start.
        pub invalidate: YesNo = YesNo::Yes,
        /// Whether its files are removed at the end.
        pub unlink: YesNo = YesNo::No,
        /// How many operations it keeps in flight, where its way of I/O can.
        pub depth: u32 = 1,
        /// How many operations are handed over together, if not as many as there are.
        pub submit_batch: Option<u32> = None,
        /// How many completions are waited for, once it has to wait.
        pub complete_batch: u32 = 1,
        /// Its way of I/O, where the arm leaves that to the job.
        pub io_engine: IoEngine = IoEngine::Calls,
        /// Through the page cache or not, where the arm leaves that to the job.
        pub caching: Caching = Caching::Buffered,
        /// Writes between two `fsync`; zero is never.
        pub fsync_every: u32 = 0,
        /// Writes between two `fdatasync`; zero is never.
        pub fdatasync_every: u32 = 0,
        pub final_sync: FinalSync = FinalSync::Data,
        pub start_delay_us: u64 = 0,
        /// Does not count what happens in this time.
        pub ramp_us: u64 = 0,
        /// Ends after this time, if its work has not.
        pub runtime_us: Option<u64> = None,
        /// Whether it begins anew when its work is done before its time is.
        pub time_based: YesNo = YesNo::No,
        pub pace: Pace = Pace::default(),
        /// The seed of its offsets, if not that of the cell.
        pub seed: Option<u64> = None,
        /// Whether what it wrote is read back at the end.
        pub verify: YesNo = YesNo::No,
        /// The processors it runs on; all if none.
        pub cpus: Vec<u32> = Vec::new(),
    }
}

impl Job {
    /// Returns whether its files hold data before the clock starts.
    pub(crate) fn is_filled(&self) -> bool {
        self.access.direction.reads() || self.overwrite == YesNo::Yes
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Access {
    pub direction: Direction,
    pub order: Order,
}

impl Direction {
    pub fn reads(self) -> bool {
        !matches!(self, Direction::Write)
    }

    pub fn writes(self) -> bool {
        !matches!(self, Direction::Read)
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Blocks {
    pub read: BlockSize,
    pub write: BlockSize,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum BlockSize {
    Fixed(u32),
    /// Any multiple of the least from the least to the most.
    Range {
        min: u32,
        max: u32,
    },
    Split(Vec<SizeShare>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SizeShare {
    pub bytes: u32,
    /// Percent of all operations.
    pub percent: u8,
}

impl BlockSize {
    /// Returns the smallest block, to which offsets are aligned.
    pub fn min(&self) -> u32 {
        self.bounds().0
    }

    /// Returns the largest block, which a buffer holds.
    pub fn max(&self) -> u32 {
        self.bounds().1
    }

    fn bounds(&self) -> (u32, u32) {
        match self {
            BlockSize::Fixed(bytes) => (*bytes, *bytes),
            BlockSize::Range { min, max } => (*min, *max),
            BlockSize::Split(shares) => {
                let sizes = shares.iter().map(|share| share.bytes);
                (sizes.clone().min().unwrap_or(1), sizes.max().unwrap_or(1))
            }
        }
    }
}

/// How slow it has to be. Zero is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pace {
    pub read: Rate,
    pub write: Rate,
    /// Length of a pause.
    pub think_us: u64,
    /// So many; at least one.
    pub think_operations: u32,
}

/// Limits of one direction; zero is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rate {
    pub bytes_per_s: u64,
    pub operations_per_s: u64,
}

impl From<bool> for YesNo {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($variants:tt)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum $name { $($variants)* }
    )*};
}

choices! {
    Direction {
        Read,
        Write,
        Mixed { read_percent: u8 },
    }

    Order { Sequential, Random }

    /// Bytes, or a share of the file or device.
    Amount {
        Bytes(u64),
        /// Hundredths of the file or device.
        Percent(u8),
    }

    FileSize {
        Fixed(u64),
        /// Each something between, by the seed.
        Range { min: u64, max: u64 },
    }

    NextFile {
        RoundRobin,
        Random,
        /// One is finished before the next begins.
        Sequential,
    }

    YesNo { No, Yes }

    /// Whether random offsets repeat before each block had its turn.
    RandomMap {
        /// Each block exactly once in a pass, in a pseudo-random permutation.
        EachOnce,
        /// Drawn anew each time: some blocks twice, some never.
        WithReplacement,
    }

    Create {
        /// Before the clock starts.
        Before,
        /// When its job opens it, inside the clock.
        OnOpen,
    }

    /// How a file made before the clock gets its space.
    Fallocate {
        /// Not at all: it grows as it is written.
        None,
        /// `fallocate`, and nothing where the file system has none.
        Native,
        /// `fallocate` without a change of length.
        KeepSize,
        /// A length, no space.
        Truncate,
    }

    IoEngine {
        /// One call at a time: `pread`, `pwrite` and their relatives.
        Calls,
        /// A ring at the job's depth.
        Ring,
        Null,
    }

    Caching {
        Buffered,
        /// Past it: `O_DIRECT`.
        Direct,
        /// Through it and out again: `RWF_DONTCACHE`.
        Uncached,
    }

    /// The sync a write clock ends with. There is always one.
    FinalSync { Data, All }
}

/// Most operations in flight.
pub(crate) const MOST_DEPTH: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_have_directories_of_their_own_and_a_sync_at_the_end() {
        let workload =
            Workload::random_writes_into_new_files(12, 24 << 20, 4096).declared(YesNo::Yes);
        assert_eq!(workload.jobs.len(), 12);
        let mut directories: Vec<_> =
            workload.jobs.iter().map(|job| job.files[0].parent().unwrap()).collect();
        directories.dedup();
        assert_eq!(directories.len(), 12);
        for job in &workload.jobs {
            assert_eq!(job.create, Create::OnOpen);
            assert_eq!(job.final_sync, FinalSync::All);
            assert_eq!(job.declared, YesNo::Yes);
            assert_eq!(job.random_map, RandomMap::EachOnce);
        }
        assert_eq!(workload.absolute_paths().count(), 0);
    }

    #[test]
    fn confined_files_stay_inside() {
        let mut workload = Workload::random_writes_into_new_files(1, 1, 1);
        workload.jobs[0].files = vec!["/a/../../b/c".into(), "../d".into()];
        let workload = workload.confined();
        assert_eq!(workload.jobs[0].files, [PathBuf::from("a/b/c"), PathBuf::from("d")]);
    }

    #[test]
    fn survives_json() {
        let workload = Workload::random_writes_into_new_files(2, 1 << 20, 4096);
        let text = serde_json::to_string(&workload).unwrap();
        assert_eq!(serde_json::from_str::<Workload>(&text).unwrap(), workload);
    }
}
