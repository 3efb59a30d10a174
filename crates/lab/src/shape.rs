//! The shape of a job of a suite, in the words of a fio job file: what a thread does, on what, with
//! how much memory.
//!
//! From a shape, an arm and a length comes the [`Workload`] of a cell. A shape runs for a time,
//! over its file again and again, and its clock stops after the final sync: what an arm holds back
//! it has to pay for before it is over.

use std::path::PathBuf;

use serde::Deserialize;

use crate::arm::Arm;
use crate::bytes;
use crate::cell::{DEVICE_TO_COME, SyncProbe};
use crate::job::{
    Access, Amount, BlockSize, Blocks, Caching, Create, Devices, Direction, IoEngine, Job, Order,
    Workload, YesNo,
};
use crate::tuning::{Knob, Tuning};

/// Bytes of a write of the arm that writes the same bytes in large pieces.
const LARGE_BYTES: u32 = 1 << 20;

/// How many of those it keeps in flight.
const LARGE_DEPTH: u32 = 4;

/// Work and resources of every thread of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobShape {
    pub rw: ReadWrite,
    /// Bytes at a time, which the workload says.
    #[serde(skip)]
    pub block_bytes: u32,
    /// Operations each thread keeps in flight.
    #[serde(rename = "iodepth")]
    pub depth: u32,
    /// By single calls or at that depth.
    #[serde(rename = "ioengine")]
    pub engine: ShapeEngine,
    /// Threads, each with a file of its own.
    #[serde(rename = "numjobs")]
    pub threads: u32,
    /// Whether pages are to go when they are written or read.
    pub uncached: bool,
    /// On files or on a device.
    #[serde(default)]
    pub on: Ground,
    /// Bytes of memory for data of a bounded arm.
    #[serde(rename = "cache", deserialize_with = "bytes::field")]
    pub cache_bytes: u64,
    /// Bytes that may be dirty, where the job says so.
    #[serde(default, rename = "dirty", deserialize_with = "bytes::optional")]
    pub dirty_bytes: Option<u64>,
    /// Bytes dirty from which on they are written, where the job says so.
    #[serde(default, rename = "background", deserialize_with = "bytes::optional")]
    pub background_bytes: Option<u64>,
    /// Whether another writes a little and syncs it, again and again.
    #[serde(default)]
    pub beside: Beside,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Beside {
    #[default]
    Nothing,
    /// Small writes, each synced, one after the other.
    Sync,
}

impl From<Beside> for SyncProbe {
    fn from(beside: Beside) -> Self {
        match beside {
            Beside::Nothing => SyncProbe::Off,
            Beside::Sync => SyncProbe::Always,
        }
    }
}

/// fio's `rw`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadWrite {
    Write,
    RandWrite,
    /// Half reads, half writes, each front to back.
    Rw,
}

/// How a thread of a job calls: fio's `ioengine`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShapeEngine {
    Pvsync2,
    #[serde(rename = "io_uring")]
    IoUring,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ground {
    #[default]
    File,
    Device,
}

/// How long a cell is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Extent {
    pub file_bytes: u64,
    /// Seconds until no more is begun.
    pub seconds: f64,
}

impl ReadWrite {
    pub(crate) fn access(self) -> Access {
        let (direction, order) = match self {
            ReadWrite::Write => (Direction::Write, Order::Sequential),
            ReadWrite::RandWrite => (Direction::Write, Order::Random),
            ReadWrite::Rw => (Direction::Mixed { read_percent: 50 }, Order::Sequential),
        };
        Access { direction, order }
    }
}

/// Refuses a number that is not between 1 and `most`.
pub(crate) fn bounded(what: &str, value: u32, most: u32) -> Result<(), String> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} {value}: out of range (1 to {most})"))
}

/// Most operations in flight.
pub(crate) const MOST_DEPTH: u32 = 4096;

impl JobShape {
    /// Refuses a job that cannot run, with a remedy.
    pub fn check(&self) -> Result<(), String> {
        bounded("iodepth", self.depth, MOST_DEPTH)?;
        bounded("numjobs", self.threads, 1024)?;
        let on_device = self.on == Ground::Device;
        let refused = if self.with_memory(1.0) != *self {
            "memory out of range (in steps of 1m, cache 8m or more, dirty 4m to 7/8 of it)"
        } else if on_device && self.threads > 1 {
            "on a device there is one job (give numjobs = 1)"
        } else if on_device && self.beside != Beside::Nothing {
            "on a device there is no file to sync beside it (leave out beside)"
        } else if self.engine == ShapeEngine::Pvsync2 && self.depth > 1 {
            "single calls have a depth of 1 (take ioengine = \"io_uring\")"
        } else {
            return Ok(());
        };
        Err(refused.to_owned())
    }

    /// The jobs of one cell, on a device that is named when the cell gets its place.
    pub fn workload(&self, arm: Arm, extent: Extent) -> Workload {
        let shape = if arm == Arm::KernelDirect1m { self.in_large_pieces() } else { *self };
        let block = BlockSize::Fixed(shape.block_bytes);
        let access = shape.rw.access();
        let io_engine = match shape.engine {
            ShapeEngine::Pvsync2 => IoEngine::Calls,
            ShapeEngine::IoUring => IoEngine::Ring,
        };
        let job = |number: u32| Job {
            name: format!("job.{number}"),
            number,
            access,
            blocks: Blocks { read: block.clone(), write: block.clone() },
            files: vec![match shape.on {
                Ground::File => PathBuf::from(format!("job-{number}")),
                Ground::Device => PathBuf::from(DEVICE_TO_COME),
            }],
            size: Some(Amount::Bytes(extent.file_bytes)),
            create: if access.direction.reads() { Create::Before } else { Create::OnOpen },
            declared: (arm == Arm::ForebayDeclared).into(),
            depth: shape.depth,
            io_engine,
            caching: if shape.uncached { Caching::Uncached } else { Caching::Buffered },
            runtime_us: Some((extent.seconds * 1e6).round() as u64),
            time_based: YesNo::Yes,
            ..Job::default()
        };
        let devices = if shape.on == Ground::Device { Devices::Write } else { Devices::Refuse };
        Workload { jobs: (0..shape.threads).map(job).collect(), devices }
    }

    /// The same bytes in large pieces, front to back.
    fn in_large_pieces(&self) -> Self {
        Self {
            rw: ReadWrite::Write,
            block_bytes: LARGE_BYTES,
            depth: LARGE_DEPTH,
            engine: ShapeEngine::IoUring,
            ..*self
        }
    }

    /// Bytes of memory for data of an arm: Forebay's cache, or what a bounded arm of the kernel may
    /// have dirty.
    pub fn budget_bytes(&self, arm: Arm) -> u64 {
        if arm.is_forebay() {
            self.cache_bytes
        } else {
            self.dirty_bytes.unwrap_or(self.cache_bytes)
        }
    }

    /// The engine's knobs that are the job's own.
    pub fn knobs(&self) -> Vec<(String, String)> {
        let own = [("dirty_bytes", self.dirty_bytes), ("background_bytes", self.background_bytes)];
        let said =
            own.into_iter().filter_map(|(knob, bytes)| Some((knob.to_owned(), bytes?.to_string())));
        said.collect()
    }

    /// Returns the settings of the kernel that bound the dirty pages of an arm as the job says.
    /// Forebay has limits of its own and the bounded arms write back by themselves; nothing else
    /// bounds these.
    pub fn limits(&self, arm: Arm) -> Vec<Tuning> {
        let is_unbounded = matches!(
            arm,
            Arm::KernelBuffered
                | Arm::KernelBufferedPrealloc
                | Arm::KernelUncached
                | Arm::KernelUncachedPrealloc
        );
        let limits = [
            ("vm.dirty_bytes", self.dirty_bytes),
            ("vm.dirty_background_bytes", self.background_bytes),
        ];
        let tuning = |(name, bytes): (&str, Option<u64>)| {
            Some(Tuning { knob: Knob::Sysctl(name.to_owned()), value: bytes?.to_string() })
        };
        limits.into_iter().filter(|_| is_unbounded).filter_map(tuning).collect()
    }

    /// The same with a share of its memory, in steps of a mebibyte; a cache keeps the least size of
    /// an engine.
    pub fn with_memory(mut self, share: f64) -> Self {
        const LEAST_CACHE: u64 = 8 << 20;
        let of = |bytes: u64| ((bytes >> 20) as f64 * share).round().max(1.0) as u64 * (1 << 20);
        self.cache_bytes = of(self.cache_bytes).max(LEAST_CACHE);
        // Of the cache an eighth is never dirty, and an engine wants 4 MiB that may be.
        let most = self.cache_bytes / 8 * 7;
        self.dirty_bytes = self.dirty_bytes.map(|bytes| of(bytes).clamp(4 << 20, most));
        let most = self.dirty_bytes.unwrap_or(most);
        self.background_bytes = self.background_bytes.map(|bytes| of(bytes).min(most));
        self
    }

    /// Whether an arm can do it: space cannot be allocated ahead on a device.
    pub fn suits(&self, arm: Arm) -> bool {
        let ahead = matches!(
            arm,
            Arm::KernelBufferedPrealloc
                | Arm::KernelBoundedPrealloc
                | Arm::KernelUncachedPrealloc
                | Arm::KernelDirectPrealloc
                | Arm::ForebayDeclared
        );
        self.on == Ground::File || !ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> JobShape {
        JobShape {
            rw: ReadWrite::Rw,
            block_bytes: 65_536,
            depth: 32,
            engine: ShapeEngine::IoUring,
            threads: 4,
            uncached: true,
            on: Ground::File,
            cache_bytes: 80 << 20,
            dirty_bytes: Some(64 << 20),
            background_bytes: Some(32 << 20),
            beside: Beside::Nothing,
        }
    }

    const EXTENT: Extent = Extent { file_bytes: 1 << 30, seconds: 1.5 };

    #[test]
    fn a_job_is_what_the_shape_says() {
        let workload = shape().workload(Arm::KernelUncached, EXTENT);
        assert_eq!((workload.jobs.len(), workload.devices), (4, Devices::Refuse));
        let job = &workload.jobs[3];
        assert_eq!(job.access.direction, Direction::Mixed { read_percent: 50 });
        assert_eq!(
            (job.depth, job.io_engine, job.caching),
            (32, IoEngine::Ring, Caching::Uncached)
        );
        assert_eq!((job.runtime_us, job.time_based), (Some(1_500_000), YesNo::Yes));
        assert_eq!(job.create, Create::Before, "there has to be something to read");
        let names: std::collections::BTreeSet<_> =
            workload.jobs.iter().map(|job| &job.files[0]).collect();
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn the_reference_writes_in_large_pieces() {
        let shape = JobShape { on: Ground::Device, ..shape() };
        let workload = shape.workload(Arm::KernelDirect1m, EXTENT);
        let job = &workload.jobs[0];
        assert_eq!(job.access, Access { direction: Direction::Write, order: Order::Sequential });
        assert_eq!(
            (job.blocks.write.max(), job.depth, job.io_engine),
            (1 << 20, 4, IoEngine::Ring)
        );
        assert_eq!(
            (job.files[0].to_str(), workload.devices),
            (Some(DEVICE_TO_COME), Devices::Write)
        );
    }

    #[test]
    fn memory_shrinks_together_and_stays_possible() {
        let half = shape().with_memory(0.5);
        assert_eq!(half.cache_bytes, 40 << 20);
        assert_eq!((half.dirty_bytes, half.background_bytes), (Some(32 << 20), Some(16 << 20)));
        let least = shape().with_memory(0.001);
        assert_eq!((least.cache_bytes, least.dirty_bytes), (8 << 20, Some(4 << 20)));
        assert_eq!(shape().with_memory(1.0), shape());
        assert_eq!(shape().budget_bytes(Arm::KernelBounded), 64 << 20);
        assert_eq!(shape().budget_bytes(Arm::Forebay), 80 << 20);
        for part in [1.0, 0.3, 0.01] {
            let shape = shape().with_memory(part);
            let builder = forebay::Engine::builder().cache_bytes(shape.cache_bytes);
            let set = |builder: forebay::Builder, (key, value): (String, String)| {
                builder.set(&key, &value)
            };
            let builder = shape.knobs().into_iter().try_fold(builder, set).unwrap();
            builder.build().unwrap();
        }
    }

    #[test]
    fn nothing_is_allocated_ahead_on_a_device() {
        let device = JobShape { on: Ground::Device, ..shape() };
        assert!(!device.suits(Arm::ForebayDeclared) && !device.suits(Arm::KernelDirectPrealloc));
        assert!(device.suits(Arm::KernelDirect1m) && device.suits(Arm::Forebay));
        assert!(shape().suits(Arm::KernelDirectPrealloc));
    }
}
