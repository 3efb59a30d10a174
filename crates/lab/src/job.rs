//! A job: what one thread does to its files, whatever file it was read from.
//!
//! This is the meaning of a job, not its spelling: every default is resolved, every clone of
//! `numjobs` stands for itself, every unit is in the name. What depends on the file system (a
//! percentage of a device, the length of a file that is there already) stays symbolic until
//! [`crate::load`] looks. Nothing here does I/O.

mod amounts;

use std::path::{Component, PathBuf};

use serde::{Deserialize, Serialize};

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
    /// They are refused.
    #[default]
    Refuse,
    /// The user said so.
    Write,
    /// Nothing is written, no file either: all are there, and longer than what is read of them.
    ReadOnly,
}

impl Workload {
    /// As many jobs as files, each with one new file in a directory of its own, made inside the
    /// clock; each block written exactly once, in random order; a sync at the end, inside the clock
    /// too. The hardest ordinary case for whoever has to lay such files out.
    #[must_use]
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

    /// The same jobs, with the final length of each file told when it is opened, or not.
    #[must_use]
    pub fn declared(mut self, declared: Declared) -> Self {
        for job in &mut self.jobs {
            job.declared = declared;
        }
        self
    }

    /// The same jobs with every file inside the directory of their cell, wherever the job file put
    /// it, so that cells share nothing. A block device would become a file: look at
    /// [`Workload::absolute_paths`] before.
    #[must_use]
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

    /// Files named by an absolute path: they are not in a cell's own directory, so every cell
    /// shares them.
    pub fn absolute_paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.jobs.iter().flat_map(|job| &job.files).filter(|path| path.is_absolute())
    }
}

/// What one thread does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Its name, unique within the workload.
    pub name: String,
    /// Which clone of its section it is, from zero; tells its random numbers from those of its
    /// siblings.
    pub number: u32,
    /// Reads, writes, or both, and in what order.
    pub access: Access,
    /// How much at a time.
    pub blocks: Blocks,
    /// Its files, relative to the directory of the cell unless absolute.
    pub files: Vec<PathBuf>,
    /// A directory that has to be there already, if the job names one; others are made.
    pub directory: Option<PathBuf>,
    /// Which file comes next.
    pub next_file: NextFile,
    /// The range it works on, all files together; the length of what is there already if none.
    pub size: Option<Amount>,
    /// The length of each file, if told apart from `size`.
    pub file_size: Option<FileSize>,
    /// Where in each file the range begins.
    pub offset: Amount,
    /// How far the range of each clone lies behind that of the one before.
    pub offset_increment: u64,
    /// How many bytes it reads and writes, if not once the range.
    pub io_bytes: Option<Amount>,
    /// Ends it after so many operations.
    pub operations: Option<u64>,
    /// How often it goes through all of that.
    pub loops: u32,
    /// Whether random offsets repeat before each block had its turn.
    pub random_map: RandomMap,
    /// When its files are made.
    pub create: Create,
    /// How a file made before the clock gets its space.
    pub fallocate: Fallocate,
    /// Whether a file to be written holds data beforehand.
    pub overwrite: Overwrite,
    /// Whether the final length is told at the opening.
    pub declared: Declared,
    /// Whether cached pages of its files are dropped before the start.
    pub invalidate: Invalidate,
    /// Whether its files are removed at the end.
    pub unlink: Unlink,
    /// How many operations it keeps in flight, where its way of I/O can.
    pub depth: u32,
    /// How many operations are handed over together, if not as many as there are.
    pub submit_batch: Option<u32>,
    /// How many completions are waited for, once it has to wait.
    pub complete_batch: u32,
    /// Whether the memory of its operations is registered with the ring.
    pub fixed_buffers: FixedBuffers,
    /// Whether its ring polls for completions.
    pub completions: Completions,
    /// Its way of I/O, where the arm leaves that to the job.
    pub io_engine: IoEngine,
    /// Through the page cache or not, where the arm leaves that to the job.
    pub caching: Caching,
    /// An `fsync` after so many writes; zero is never.
    pub fsync_every: u32,
    /// An `fdatasync` after so many writes; zero is never.
    pub fdatasync_every: u32,
    /// The sync the write clock ends with.
    pub final_sync: FinalSync,
    /// Waits so long before it starts.
    pub start_delay_us: u64,
    /// Does not count what happens in this time.
    pub ramp_us: u64,
    /// Ends after this time, if its work has not.
    pub runtime_us: Option<u64>,
    /// Whether it begins anew when its work is done before its time is.
    pub time_based: TimeBased,
    /// Slows it down.
    pub pace: Pace,
    /// The seed of its offsets, if not that of the cell.
    pub seed: Option<u64>,
    /// Whether what it wrote is read back at the end.
    pub verify: VerifyJob,
    /// The processors it runs on; all if none.
    pub cpus: Vec<u32>,
}

impl Default for Job {
    /// What fio takes for a job that says nothing.
    fn default() -> Self {
        let block = BlockSize::Fixed(4096);
        Self {
            name: String::new(),
            number: 0,
            access: Access { direction: Direction::Read, order: Order::Sequential },
            blocks: Blocks { read: block.clone(), write: block },
            files: Vec::new(),
            directory: None,
            next_file: NextFile::RoundRobin,
            size: None,
            file_size: None,
            offset: Amount::Bytes(0),
            offset_increment: 0,
            io_bytes: None,
            operations: None,
            loops: 1,
            random_map: RandomMap::EachOnce,
            create: Create::Before,
            fallocate: Fallocate::Native,
            overwrite: Overwrite::No,
            declared: Declared::No,
            invalidate: Invalidate::Yes,
            unlink: Unlink::No,
            depth: 1,
            submit_batch: None,
            complete_batch: 1,
            fixed_buffers: FixedBuffers::No,
            completions: Completions::Interrupt,
            io_engine: IoEngine::Calls,
            caching: Caching::Buffered,
            fsync_every: 0,
            fdatasync_every: 0,
            final_sync: FinalSync::Data,
            start_delay_us: 0,
            ramp_us: 0,
            runtime_us: None,
            time_based: TimeBased::No,
            pace: Pace::default(),
            seed: None,
            verify: VerifyJob::No,
            cpus: Vec::new(),
        }
    }
}

/// What is done, and in what order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Access {
    /// Reads, writes, both.
    pub direction: Direction,
    /// Front to back or anywhere.
    pub order: Order,
}

/// Reads, writes, both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Direction {
    /// Reads alone.
    Read,
    /// Writes alone.
    Write,
    /// Both, at random.
    Mixed {
        /// Of a hundred operations so many are reads.
        read_percent: u8,
    },
}

impl Direction {
    /// Whether there are reads.
    #[must_use]
    pub fn reads(self) -> bool {
        !matches!(self, Direction::Write)
    }

    /// Whether there are writes.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Direction::Read)
    }
}

/// Front to back or anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Front to back.
    Sequential,
    /// Anywhere.
    Random,
}

/// How much at a time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Blocks {
    /// Per read.
    pub read: BlockSize,
    /// Per write.
    pub write: BlockSize,
}

/// How much at a time, in one direction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum BlockSize {
    /// Always so many bytes.
    Fixed(u32),
    /// Any multiple of the least from the least to the most.
    Range {
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// Sizes by their share.
    Split(Vec<SizeShare>),
}

/// One size of a mix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SizeShare {
    /// The size.
    pub bytes: u32,
    /// Of a hundred operations so many.
    pub percent: u8,
}

impl BlockSize {
    /// The least of them: what offsets are aligned to.
    #[must_use]
    pub fn min(&self) -> u32 {
        match self {
            BlockSize::Fixed(bytes) => *bytes,
            BlockSize::Range { min, .. } => *min,
            BlockSize::Split(shares) => shares.iter().map(|share| share.bytes).min().unwrap_or(1),
        }
    }

    /// The most of them: what a buffer holds.
    #[must_use]
    pub fn max(&self) -> u32 {
        match self {
            BlockSize::Fixed(bytes) => *bytes,
            BlockSize::Range { max, .. } => *max,
            BlockSize::Split(shares) => shares.iter().map(|share| share.bytes).max().unwrap_or(1),
        }
    }
}

/// Bytes, or a share of what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the file or device.
    Percent(u8),
}

/// How long each file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FileSize {
    /// Each so many bytes.
    Fixed(u64),
    /// Each something between, by the seed.
    Range {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
}

/// Which file comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NextFile {
    /// Each in turn.
    RoundRobin,
    /// Any.
    Random,
    /// One is finished before the next begins.
    Sequential,
}

/// How slow it has to be. Zero is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pace {
    /// Reads, at most.
    pub read: Rate,
    /// Writes, at most.
    pub write: Rate,
    /// A pause after so many operations.
    pub think_us: u64,
    /// So many; at least one.
    pub think_operations: u32,
}

/// The limit of one direction. Zero is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Bytes in a second.
    pub bytes_per_s: u64,
    /// Operations in a second.
    pub operations_per_s: u64,
}

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }
    )*};
}

choices! {
    /// Whether random offsets repeat before each block had its turn.
    RandomMap {
        /// Each block exactly once in a pass, in a pseudo-random permutation.
        EachOnce,
        /// Drawn anew each time: some blocks twice, some never.
        WithReplacement,
    }

    /// When a file is made.
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

    /// Whether a file to be written holds data beforehand.
    Overwrite {
        /// No.
        No,
        /// It is filled before the clock starts.
        Yes,
    }

    /// Whether the final length of a file is told when it is opened.
    Declared {
        /// No: it grows.
        No,
        /// Yes, by setting its length.
        Yes,
    }

    /// Whether cached pages of a job's files are dropped before the start.
    Invalidate {
        /// They stay.
        No,
        /// They go.
        Yes,
    }

    /// Whether a job's files are removed at the end.
    Unlink {
        /// They stay.
        No,
        /// They go.
        Yes,
    }

    /// Whether the memory of operations is registered with the ring.
    FixedBuffers {
        /// The kernel looks its pages up for each operation.
        No,
        /// It has done so before the clock starts.
        Yes,
    }

    /// How a ring learns of completions.
    Completions {
        /// The device interrupts.
        Interrupt,
        /// It polls a queue of the device that does not.
        Polled,
    }

    /// The way of I/O a job asks for.
    IoEngine {
        /// One call at a time: `pread`, `pwrite` and their relatives.
        Calls,
        /// A ring at the job's depth.
        Ring,
        /// No I/O.
        Null,
    }

    /// Through the page cache or not.
    Caching {
        /// Through it.
        Buffered,
        /// Past it: `O_DIRECT`.
        Direct,
        /// Through it and out again: `RWF_DONTCACHE`.
        Uncached,
    }

    /// The sync a write clock ends with. There is always one.
    FinalSync {
        /// `fdatasync`.
        Data,
        /// `fsync`.
        All,
    }

    /// Whether a job begins anew when its work is done before its time is.
    TimeBased {
        /// It ends.
        No,
        /// It goes on until its time is over.
        Yes,
    }

    /// Whether what a job wrote is read back at the end.
    VerifyJob {
        /// Only if the cell says so.
        No,
        /// In any case.
        Yes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_have_directories_of_their_own_and_a_sync_at_the_end() {
        let workload =
            Workload::random_writes_into_new_files(12, 24 << 20, 4096).declared(Declared::Yes);
        assert_eq!(workload.jobs.len(), 12);
        let mut directories: Vec<_> =
            workload.jobs.iter().map(|job| job.files[0].parent().unwrap()).collect();
        directories.dedup();
        assert_eq!(directories.len(), 12);
        for job in &workload.jobs {
            assert_eq!(job.create, Create::OnOpen);
            assert_eq!(job.final_sync, FinalSync::All);
            assert_eq!(job.declared, Declared::Yes);
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
