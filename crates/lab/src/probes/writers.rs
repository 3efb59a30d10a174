//! Writers: threads that each write files of their own once, in the words of a fio job file, until
//! all is synced. With how many directories the files are in, and what of each file is there before
//! the clock starts.
//!
//! The same bytes can go to a block device: each thread then has a part of it as long as its files
//! together, which is what the same writes cost without a file system.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::workload::{self, ReadWrite, arm, bounded, on_files};
use crate::arm::Arm;
use crate::bytes::Bytes;
use crate::cell::{Cell, CellSpec, DEVICE_TO_COME, SyncProbe};
use crate::job::{
    Amount, BlockSize, Blocks, Caching, Create, Devices, Fallocate, FinalSync, IoEngine,
    Job as OneJob, MOST_DEPTH, Workload as Jobs,
};
use crate::planning::{Job, MIB, PlanError, Planner, budget_of};
use crate::probe::{Probe, Steps, checked, read};
use crate::suite::model::{Cut, Layout, Workload};

pub(super) const PROBE: Probe = Probe {
    needs,
    figures: &[
        "extents_per_file",
        "mean_extent_bytes",
        "groups_per_file",
        "home_group_share",
        "sync_probe_p99_us",
        "peak_memory_bytes",
        "peak_dirty_bytes",
        "context_switches_per_io",
        "system_context_switches_per_io",
        "cpu_us_per_io",
        "written_per_asked",
    ],
    ..Probe::new(
        "writers",
        on_files,
        Steps { check, plan, work: workload::work, run: workload::run },
    )
};

/// Files are a multiple of this, and of a block.
const STEP_BYTES: u64 = 64 << 10;

/// Share of the bytes that a cell writes that is not counted.
const WARM_UP_SHARE: u64 = 8;

/// Bytes of a write of the arms that write in large pieces; less if a file, or a thread's part of
/// a device, is no multiple of it.
const LARGE_BYTES: u32 = 1 << 20;

/// How many of those a thread keeps in flight.
const LARGE_DEPTH: u32 = 4;

/// The threads and their files, apart from how long those are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    rw: ReadWrite,
    block: Bytes,
    /// Threads.
    numjobs: u32,
    /// Files of each thread, written in turn.
    nrfiles: u32,
    /// Directories the threads have between them; one each if it says nothing.
    directories: Option<u32>,
    /// Operations in flight in each thread of the direct arms. The others make one call at a time:
    /// a buffered write only copies.
    iodepth: u32,
    /// Length of a file in the published runs, for forms without `cell_bytes`.
    file: Option<Bytes>,
}

fn check(shape: &Value) -> Result<(), String> {
    let shape: Shape = read(shape)?;
    shape.block.block()?;
    bounded("numjobs", shape.numjobs, 256)?;
    bounded("nrfiles", shape.nrfiles, 256)?;
    bounded("directories", shape.directories.unwrap_or(1), shape.numjobs)?;
    bounded("iodepth", shape.iodepth, MOST_DEPTH)?;
    if shape.file.is_some_and(|file| file.0 == 0 || !file.0.is_multiple_of(shape.step_bytes())) {
        return Err(format!("file is no multiple of {}k", shape.step_bytes() >> 10));
    }
    if shape.rw == ReadWrite::Rw {
        return Err("writers write alone (take write or randwrite)".to_owned());
    }
    Ok(())
}

fn needs(cut: &Cut) -> Result<(), String> {
    let shapes = cut.workloads.iter().map(checked::<Shape>);
    let short = shapes.filter(|one| one.bytes(cut).is_none_or(|bytes| bytes < one.least_bytes()));
    match short.map(|shape| shape.least_bytes()).max() {
        Some(least) => {
            Err(format!("every form needs cell_bytes, here of {}k or more", least >> 10))
        }
        None => Ok(()),
    }
}

fn plan(planner: &mut Planner<'_>, workload: &Workload) -> Result<Vec<Job>, PlanError> {
    let shape: Shape = checked(workload);
    let file_bytes = length(planner, &shape)?;
    let cell_bytes = u64::from(shape.files()) * file_bytes;
    planner.ground = Some(match planner.ground.take() {
        None => format!("{} MiB each", cell_bytes / MIB),
        Some(known) if known.starts_with(&format!("{} MiB", cell_bytes / MIB)) => known,
        Some(known) => format!("{known}, {} MiB in {}", cell_bytes / MIB, workload.name),
    });
    assert!(file_bytes > 0 && file_bytes % shape.step_bytes() == 0, "files of {file_bytes} bytes");
    let budget_bytes = budget_of(cell_bytes);
    let job = planner.job(workload, |own| {
        let way = arm(own.way.word);
        let cell = |file_bytes| {
            // There is no file beside those of the load on a device.
            let sync_probe = if way.is_raw() { SyncProbe::Off } else { SyncProbe::On };
            let spec = CellSpec::of(way, shape.workload(way, own.layout, file_bytes));
            Cell::new(PROBE.name, own.way.word, &CellSpec { budget_bytes, sync_probe, ..spec })
        };
        let short = (file_bytes / WARM_UP_SHARE).next_multiple_of(shape.step_bytes());
        Some([file_bytes, short].map(cell))
    });
    // Several parts have the same writers.
    Ok(vec![Job { name: format!("{}/{}", planner.part.name, workload.name), ..job }])
}

/// Returns the length of a file, scaled. All together fit in the free space.
fn length(planner: &mut Planner<'_>, shape: &Shape) -> Result<u64, PlanError> {
    let whole = shape.bytes(planner.cut).expect("a form of writers says how much they write");
    let smallest = shape.least_bytes();
    let steps = ((whole / smallest) as f64 * planner.scale()).round().max(1.0) as u64;
    planner.has_room(smallest)?;
    let (room, free_bytes) = (planner.wish.room, planner.wish.free_bytes);
    let fits = room.of(free_bytes) / smallest;
    if fits < steps {
        let note = format!(
            "smaller files ({} MiB a run, not {}): {} MiB are free, and a run uses at most {}",
            fits * smallest / MIB,
            steps * smallest / MIB,
            free_bytes / MIB,
            room.words(),
        );
        if !planner.notes.contains(&note) {
            planner.notes.push(note);
        }
    }
    Ok(steps.min(fits) * shape.step_bytes())
}

impl Shape {
    fn files(&self) -> u32 {
        self.numjobs * self.nrfiles
    }

    fn step_bytes(&self) -> u64 {
        STEP_BYTES.max(self.block.0)
    }

    /// Returns the bytes that all writers of a cell write together, unscaled.
    fn bytes(&self, cut: &Cut) -> Option<u64> {
        cut.cell_bytes.or(self.file.map(|file| u64::from(self.files()) * file.0))
    }

    /// Returns the least bytes that all writers of a cell can write together.
    fn least_bytes(&self) -> u64 {
        u64::from(self.files()) * self.step_bytes()
    }

    /// Returns the jobs of one cell. An arm of the raw device writes to one that is named when the
    /// cell gets its place.
    fn workload(&self, arm: Arm, layout: Layout, file_bytes: u64) -> Jobs {
        let each = file_bytes * u64::from(self.nrfiles);
        let large = matches!(arm, Arm::RawDevice1m | Arm::KernelDirect1m);
        let rw = if large { ReadWrite::Write } else { self.rw };
        let piece = if arm.is_raw() { each } else { file_bytes };
        let block = if large { large_block(piece) } else { self.block.0 as u32 };
        let block = BlockSize::Fixed(block);
        let direct = arm.is_direct_kernel();
        let job = |number: u32| {
            let files = match arm.is_raw() {
                true => vec![PathBuf::from(DEVICE_TO_COME)],
                false => (0..self.nrfiles).map(|file| self.path(number, file)).collect(),
            };
            OneJob {
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
                    (false, true) => self.iodepth,
                    (false, false) => 1,
                },
                io_engine: if direct && (large || self.iodepth > 1) {
                    IoEngine::Ring
                } else {
                    IoEngine::Calls
                },
                caching: Caching::Buffered,
                final_sync: FinalSync::All,
                ..OneJob::default()
            }
        };
        let devices = if arm.is_raw() { Devices::Write } else { Devices::Refuse };
        Jobs { jobs: (0..self.numjobs).map(job).collect(), devices }
    }

    fn path(&self, thread: u32, file: u32) -> PathBuf {
        let directory = thread % self.directories.unwrap_or(self.numjobs);
        PathBuf::from(format!("directory-{directory:02}/{thread:02}-{file:02}"))
    }
}

/// Returns the largest power of two up to [`LARGE_BYTES`] that these bytes are a multiple of.
fn large_block(bytes: u64) -> u32 {
    let power = bytes.trailing_zeros().min(LARGE_BYTES.trailing_zeros());
    1 << power
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::job::{Order, YesNo};

    fn writers() -> Shape {
        Shape {
            rw: ReadWrite::RandWrite,
            block: Bytes(4096),
            numjobs: 12,
            nrfiles: 12,
            directories: Some(12),
            iodepth: 32,
            file: None,
        }
    }

    #[test]
    fn every_thread_has_its_files_in_its_directory() {
        let workload = writers().workload(Arm::Forebay, Layout::New, 1 << 20);
        let files: BTreeSet<_> = workload.jobs.iter().flat_map(|job| &job.files).collect();
        let directories: BTreeSet<_> = files.iter().map(|file| file.parent().unwrap()).collect();
        assert_eq!((workload.jobs.len(), files.len(), directories.len()), (12, 144, 12));
        let job = &workload.jobs[3];
        assert_eq!((job.size, job.create), (Some(Amount::Bytes(12 << 20)), Create::OnOpen));
        assert_eq!((job.depth, job.io_engine), (1, IoEngine::Calls));
        let direct = writers().workload(Arm::KernelDirect, Layout::New, 1 << 20);
        assert_eq!((direct.jobs[0].depth, direct.jobs[0].io_engine), (32, IoEngine::Ring));
    }

    #[test]
    fn the_layout_is_there_before_the_clock_starts() {
        let job = |layout| writers().workload(Arm::Forebay, layout, 1 << 20).jobs.swap_remove(0);
        assert_eq!(job(Layout::Holes).fallocate, Fallocate::Truncate);
        assert_eq!(job(Layout::Unwritten).fallocate, Fallocate::Native);
        assert_eq!(
            (job(Layout::Written).overwrite, job(Layout::Unwritten).overwrite),
            (YesNo::Yes, YesNo::No)
        );
    }

    #[test]
    fn large_pieces_fit_and_threads_write_side_by_side_on_a_device() {
        let block = |arm, bytes| {
            let job = writers().workload(arm, Layout::New, bytes).jobs.swap_remove(0);
            (job.blocks.write.max(), job.access.order)
        };
        assert_eq!(block(Arm::KernelDirect1m, 3 << 16).0, 1 << 16, "192 KiB are three of it");
        assert_eq!(block(Arm::RawDevice1m, 3 << 16), (256 << 10, Order::Sequential));
        let workload = writers().workload(Arm::RawDevice, Layout::New, 3 << 16);
        assert_eq!(
            (workload.devices, workload.jobs[2].offset_increment),
            (Devices::Write, 36 << 16)
        );
    }
}
