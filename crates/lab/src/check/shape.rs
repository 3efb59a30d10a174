//! The loads that both generators are asked for, as a job of ours and as options of fio.
//!
//! Both do the same to the same file. Past the page cache: anywhere in it, for a time. Through it:
//! each block once, in an order of its own, from a file without cached pages, with an `fsync` at
//! the end if it is written. So work on the device is compared, not a copy out of the cache. At
//! depth one single calls, `psync`; above it a ring, which is handed all that is free and waited at
//! for one.

use std::path::{Path, PathBuf};

use crate::fio_program::filename;
use crate::job::{
    Access, Amount, BlockSize, Blocks, Caching, Devices, Direction, Fallocate, FinalSync, IoEngine,
    Job, Order, RandomMap, Workload, YesNo,
};
use crate::request::{DATA_FILE, Operation};

/// Length of the file, at full scale.
const FILE_BYTES: u64 = 256 << 20;

/// How long a cell takes at most, at full scale.
const SECONDS: f64 = 1.0;

/// A block that every length is a multiple of.
const LARGE: u32 = 128 << 10;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Bytes of the file, a multiple of every block.
    pub file_bytes: u64,
    /// How long a cell takes at most.
    pub seconds: f64,
}

impl Load {
    /// Of this share of the full sizes and times.
    pub fn scaled(scale: f64) -> Self {
        let large = u64::from(LARGE);
        let file_bytes = (FILE_BYTES as f64 * scale) as u64 / large * large;
        Self { file_bytes: file_bytes.max(8 * large), seconds: (SECONDS * scale).max(0.02) }
    }

    fn runtime_us(&self) -> u64 {
        // fio takes whole milliseconds.
        (self.seconds * 1e3).round() as u64 * 1000
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Through the page cache or past it.
    pub caching: Caching,
    pub operation: Operation,
    pub block_bytes: u32,
    pub depth: u32,
}

/// All of them, in the order of the table.
pub fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for caching in [Caching::Direct, Caching::Buffered] {
        for operation in [Operation::Read, Operation::Write] {
            for block_bytes in [4096, LARGE] {
                for depth in [1, 32] {
                    shapes.push(Shape { caching, operation, block_bytes, depth });
                }
            }
        }
    }
    shapes
}

impl Shape {
    /// Its name, in files and tables.
    pub fn name(&self) -> String {
        let caching = if self.is_direct() { "direct" } else { "buffered" };
        format!("{caching} {} {}k {}", self.direction(), self.block_bytes >> 10, self.depth)
    }

    /// The word that its metrics begin with.
    pub(super) fn direction(&self) -> &'static str {
        self.operation.name()
    }

    /// Whether operations go over a ring, and not by single calls.
    pub(super) fn is_over_a_ring(&self) -> bool {
        self.depth > 1
    }

    pub fn is_direct(&self) -> bool {
        self.caching == Caching::Direct
    }

    /// As a job of ours.
    pub(super) fn workload(&self, load: &Load) -> Workload {
        let block = BlockSize::Fixed(self.block_bytes);
        let direction = match self.operation {
            Operation::Read => Direction::Read,
            Operation::Write => Direction::Write,
        };
        let (random_map, time_based) = if self.is_direct() {
            (RandomMap::WithReplacement, YesNo::Yes)
        } else {
            (RandomMap::EachOnce, YesNo::No)
        };
        let job = Job {
            name: "check".into(),
            access: Access { direction, order: Order::Random },
            blocks: Blocks { read: block.clone(), write: block },
            files: vec![PathBuf::from(DATA_FILE)],
            size: Some(Amount::Bytes(load.file_bytes)),
            random_map,
            time_based,
            runtime_us: Some(load.runtime_us()),
            overwrite: YesNo::Yes,
            fallocate: Fallocate::None,
            depth: self.depth,
            io_engine: if self.is_over_a_ring() { IoEngine::Ring } else { IoEngine::Calls },
            caching: self.caching,
            final_sync: FinalSync::All,
            ..Job::default()
        };
        Workload { jobs: vec![job], devices: Devices::Refuse }
    }

    /// As options of fio.
    pub(super) fn arguments(&self, load: &Load, path: &Path, seed: u64) -> Vec<String> {
        let on = u8::from;
        let engine = if self.is_over_a_ring() { "io_uring" } else { "psync" };
        let mut arguments = vec![
            "--name=check".to_owned(),
            format!("--ioengine={engine}"),
            filename(path),
            format!("--size={}", load.file_bytes),
            format!("--rw=rand{}", self.direction()),
            format!("--bs={}", self.block_bytes),
            format!("--direct={}", on(self.is_direct())),
            format!("--iodepth={}", self.depth),
            format!("--iodepth_batch_submit={}", self.depth),
            "--iodepth_batch_complete_min=1".to_owned(),
            format!("--iodepth_batch_complete_max={}", self.depth),
            format!("--runtime={}ms", load.runtime_us() / 1000),
            // Here: anywhere, for the whole time. There: each block once, and then it is over.
            format!("--time_based={}", on(self.is_direct())),
            format!("--norandommap={}", on(self.is_direct())),
            format!("--randseed={}", seed >> 1),
        ];
        let fixed = [
            "--thread=1",
            "--invalidate=1",
            // Hints change what the kernel reads ahead; our generator gives none.
            "--fadvise_hint=0",
            "--allow_file_create=0",
            "--fallocate=none",
            "--gtod_reduce=0",
            "--clat_percentiles=1",
            "--lat_percentiles=1",
            "--percentile_list=50:99",
            "--output-format=json",
            "--eta=never",
        ];
        arguments.extend(fixed.map(str::to_owned));
        if !self.is_direct() {
            // Each block once, every one as likely as any other. Its usual way takes the next free
            // block where one is taken already: runs grow, the kernel reads ahead of them, and much
            // of the rest is found in memory.
            arguments.push("--random_generator=lfsr".to_owned());
        }
        // Our write clock ends with a sync; so does fio's runtime then.
        arguments.push(match self.operation {
            Operation::Read => "--readonly".to_owned(),
            Operation::Write => "--end_fsync=1".to_owned(),
        });
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_the_same_for_both() {
        let load = Load::scaled(1.0);
        assert_eq!(load, Load { file_bytes: 256 << 20, seconds: 1.0 });
        let shapes = shapes();
        assert_eq!(shapes.len(), 16);
        for shape in shapes {
            let job = &shape.workload(&load).jobs[0];
            let arguments = shape.arguments(&load, Path::new("/a:b/requests.data"), 8);
            let has =
                |option: String| assert!(arguments.contains(&option), "{option}: {arguments:?}");
            has("--filename=/a\\:b/requests.data".into());
            has(format!("--iodepth={}", job.depth));
            has(format!("--direct={}", u8::from(job.caching == Caching::Direct)));
            has(format!("--bs={}", job.blocks.read.max()));
            has(format!("--time_based={}", u8::from(job.time_based == YesNo::Yes)));
            has(format!(
                "--norandommap={}",
                u8::from(job.random_map == RandomMap::WithReplacement)
            ));
            has(format!("--runtime={}ms", job.runtime_us.unwrap() / 1000));
            let writes = job.access.direction.writes();
            assert_eq!(arguments.contains(&"--end_fsync=1".to_owned()), writes);
            assert_eq!(arguments.contains(&"--readonly".to_owned()), !writes);
            assert!(arguments.iter().all(|argument| !argument.contains("uncached")));
            assert!(shape.name().len() <= 23, "{}", shape.name());
        }
    }

    #[test]
    fn a_small_scale_is_still_whole_blocks() {
        let load = Load::scaled(0.0001);
        assert_eq!((load.file_bytes, load.seconds), (1 << 20, 0.02));
        assert_eq!(Load::scaled(0.3).file_bytes % u64::from(LARGE), 0);
    }
}
