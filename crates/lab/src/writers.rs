//! Writers: threads that each write files of their own once, in the words of a fio job file, until
//! all is synced. With how many directories the files are in, and what of each file is there before
//! the clock starts.
//!
//! The same bytes can go to a block device: each thread then has a part of it as long as its files
//! together, which is what the same writes cost without a file system.

use std::path::PathBuf;

use serde::Deserialize;

use crate::arm::Arm;
use crate::cell::DEVICE_TO_COME;
use crate::job::{
    Amount, BlockSize, Blocks, Caching, Create, Devices, Fallocate, FinalSync, IoEngine, Job,
    Workload,
};
use crate::shape::{MOST_DEPTH, ReadWrite, bounded};
use crate::words::words;

/// Bytes of a write of the arms that write in large pieces; less if a file, or a thread's part of
/// a device, is no multiple of it.
const LARGE_BYTES: u32 = 1 << 20;

/// How many of those a thread keeps in flight.
const LARGE_DEPTH: u32 = 4;

/// The threads and their files, apart from how long those are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writers {
    pub rw: ReadWrite,
    /// Bytes at a time, which the workload says.
    #[serde(skip)]
    pub block_bytes: u32,
    #[serde(rename = "numjobs")]
    pub threads: u32,
    /// Files of each thread, written in turn.
    #[serde(rename = "nrfiles")]
    pub files_each: u32,
    /// Directories the threads have between them; one each if it says nothing.
    pub directories: Option<u32>,
    /// Operations in flight in each thread of the direct arms. The others make one call at a time:
    /// a buffered write only copies.
    #[serde(rename = "iodepth")]
    pub direct_depth: u32,
}

words! {
    /// State of a file before the clock starts.
    #[derive(PartialOrd, Ord, Hash, Default)]
    pub enum Layout {
        /// Nothing: it is made inside the clock, and grows.
        #[default]
        New = "new",
        /// Its length, and no space.
        Holes = "holes",
        /// Its length and space that was never written, by `fallocate`.
        Unwritten = "unwritten",
        /// Other data.
        Written = "written",
    }
}

impl Writers {
    /// Refuses writers that cannot run, with a remedy.
    pub fn check(&self) -> Result<(), String> {
        bounded("numjobs", self.threads, 256)?;
        bounded("nrfiles", self.files_each, 256)?;
        bounded("directories", self.directories.unwrap_or(1), self.threads)?;
        bounded("iodepth", self.direct_depth, MOST_DEPTH)?;
        if self.rw == ReadWrite::Rw {
            return Err("writers write alone (take write or randwrite)".to_owned());
        }
        Ok(())
    }

    /// Returns the number of files.
    pub fn files(&self) -> u32 {
        self.threads * self.files_each
    }

    /// Returns the jobs of one cell. An arm of the raw device writes to one that is named when the cell
    /// gets its place.
    pub fn workload(&self, arm: Arm, layout: Layout, file_bytes: u64) -> Workload {
        let each = file_bytes * u64::from(self.files_each);
        let large = matches!(arm, Arm::RawDevice1m | Arm::KernelDirect1m);
        let rw = if large { ReadWrite::Write } else { self.rw };
        let piece = if arm.is_raw() { each } else { file_bytes };
        let block = BlockSize::Fixed(if large { large_block(piece) } else { self.block_bytes });
        let direct = arm.is_direct_kernel();
        let job = |number: u32| {
            let files = match arm.is_raw() {
                true => vec![PathBuf::from(DEVICE_TO_COME)],
                false => (0..self.files_each).map(|file| self.path(number, file)).collect(),
            };
            Job {
                name: format!("writer.{number}"),
                number,
                access: rw.access(),
                blocks: Blocks { read: block.clone(), write: block.clone() },
                files,
                size: Some(Amount::Bytes(each)),
                offset_increment: if arm.is_raw() { each } else { 0 },
                create: if layout == Layout::New { Create::OnOpen } else { Create::Before },
                fallocate: if layout == Layout::Holes {
                    Fallocate::Truncate
                } else {
                    Fallocate::Native
                },
                overwrite: (layout == Layout::Written).into(),
                declared: (arm == Arm::ForebayDeclared).into(),
                depth: match (large, direct) {
                    (true, _) => LARGE_DEPTH,
                    (false, true) => self.direct_depth,
                    (false, false) => 1,
                },
                io_engine: if direct && (large || self.direct_depth > 1) {
                    IoEngine::Ring
                } else {
                    IoEngine::Calls
                },
                caching: Caching::Buffered,
                final_sync: FinalSync::All,
                ..Job::default()
            }
        };
        let devices = if arm.is_raw() { Devices::Write } else { Devices::Refuse };
        Workload { jobs: (0..self.threads).map(job).collect(), devices }
    }

    fn path(&self, thread: u32, file: u32) -> PathBuf {
        let directory = thread % self.directories.unwrap_or(self.threads);
        PathBuf::from(format!("directory-{directory:02}/{thread:02}-{file:02}"))
    }
}

/// Returns the largest power of two up to [`LARGE_BYTES`] that these bytes are a multiple of.
fn large_block(bytes: u64) -> u32 {
    assert!(bytes > 0, "a file without bytes has no blocks");
    let power = bytes.trailing_zeros().min(LARGE_BYTES.trailing_zeros());
    1 << power
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::job::{Order, YesNo};

    fn writers() -> Writers {
        Writers {
            rw: ReadWrite::RandWrite,
            block_bytes: 4096,
            threads: 12,
            files_each: 12,
            directories: Some(12),
            direct_depth: 32,
        }
    }

    #[test]
    fn every_thread_has_its_files_in_its_directory() {
        let workload = writers().workload(Arm::Forebay, Layout::New, 1 << 20);
        let files: BTreeSet<_> = workload.jobs.iter().flat_map(|job| &job.files).collect();
        let directories: BTreeSet<_> = files.iter().map(|file| file.parent().unwrap()).collect();
        assert_eq!((workload.jobs.len(), files.len(), directories.len()), (12, 144, 12));
        let job = &workload.jobs[3];
        assert!(job.files.iter().all(|file| file.parent() == job.files[0].parent()));
        assert_eq!((job.size, job.create), (Some(Amount::Bytes(12 << 20)), Create::OnOpen));
        assert_eq!((job.depth, job.io_engine), (1, IoEngine::Calls));
        let one = Writers { threads: 1, files_each: 6, directories: Some(1), ..writers() };
        let one = one.workload(Arm::KernelDirect, Layout::New, 1 << 20);
        assert_eq!((one.jobs.len(), one.jobs[0].files.len()), (1, 6));
        assert_eq!((one.jobs[0].depth, one.jobs[0].io_engine), (32, IoEngine::Ring));
    }

    #[test]
    fn what_is_there_beforehand_is_what_the_layout_says() {
        let job = |layout| writers().workload(Arm::Forebay, layout, 1 << 20).jobs.swap_remove(0);
        assert_eq!(
            (job(Layout::Holes).create, job(Layout::Holes).fallocate),
            (Create::Before, Fallocate::Truncate)
        );
        assert_eq!(job(Layout::Unwritten).fallocate, Fallocate::Native);
        assert_eq!(
            (job(Layout::Written).overwrite, job(Layout::Unwritten).overwrite),
            (YesNo::Yes, YesNo::No)
        );
    }

    #[test]
    fn a_file_holds_a_large_block_however_small_it_is() {
        let job = writers().workload(Arm::KernelDirect1m, Layout::New, 3 << 16).jobs.swap_remove(0);
        assert_eq!(job.blocks.write, BlockSize::Fixed(1 << 16), "192 KiB are three of it");
        let job = writers().workload(Arm::KernelDirect1m, Layout::New, 1 << 20).jobs.swap_remove(0);
        assert_eq!(job.blocks.write, BlockSize::Fixed(LARGE_BYTES));
    }

    #[test]
    fn on_a_device_the_threads_write_side_by_side() {
        let workload = writers().workload(Arm::RawDevice, Layout::New, 3 << 16);
        assert_eq!(workload.devices, Devices::Write);
        let job = &workload.jobs[2];
        assert_eq!(
            (job.files.as_slice(), job.offset_increment),
            (&[PathBuf::from(DEVICE_TO_COME)][..], 36 << 16)
        );
        assert_eq!((job.access.order, job.depth), (Order::Random, 32));
        let large = writers().workload(Arm::RawDevice1m, Layout::New, 3 << 16);
        assert_eq!(large.jobs[0].access.order, Order::Sequential);
        assert_eq!(
            large.jobs[0].blocks.write.max(),
            256 << 10,
            "12 files of 192 KiB are nine of it"
        );
    }
}
