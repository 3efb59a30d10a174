//! From an arm and a job to a lane: its calls, their flags, its depth, its memory.
//!
//! An arm other than [`Arm::Kernel`] overrules the job's own `ioengine`, `direct` and `uncached`,
//! for these are what is being compared. An arm that cannot run here refuses before anything is
//! made, with the reason, so that it can be left out of a comparison honestly.
//!
//! Through the page cache a job goes by calls or over a ring at its depth, as its `ioengine` says.
//! For the comparison on new files that is calls: such a write only copies and starts the
//! writeback, so depth buys nothing. Measured with twelve jobs of random 4 KiB writes on ext4 and
//! XFS, rings at depth 1, 8 and 32 were within the spread of plain calls, and on ext4 cost several
//! times the context switches.

use std::fs::OpenOptions;
use std::io::{self, IoSliceMut, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use forebay::{DirectFile, Engine, File};
use forebay_block::limits::PAGE;
use rustix::io::{ReadWriteFlags, preadv2};
use tempfile::NamedTempFile;

use super::error::{CellError, Context};
use super::futures::FuturesLane;
use super::guard;
use super::kernel::{KernelFiles, Opening, Space};
use super::lane::{Lane, Nothing, SerialLane, buffer};
use super::layout::JobPlan;
use super::library::{Blocking, open_files, pool_buffers};
use super::ring::{self, HandOver, RingLane};
use crate::arm::Arm;
use crate::job::{Caching, IoEngine, Job, YesNo};

/// The depth of the direct arm, where the job asks for less: what a kernel user without a cache
/// needs to keep a device busy.
pub(crate) const DIRECT_DEPTH: u32 = 32;

/// How a job of a cell does its I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Kernel {
        opening: Opening,
        /// Operations in flight over a ring; without a ring, one call at a time.
        ring: Option<u32>,
    },
    Library {
        /// Whether it goes past the cache.
        direct: YesNo,
        /// Operations in flight; with one through the cache, the blocking calls.
        depth: u32,
    },
    Null,
}

/// Returns the way of one of `jobs` jobs on an arm that may use `budget_bytes` of memory.
pub(crate) fn way(arm: Arm, plan: &JobPlan, budget_bytes: u64, jobs: usize) -> Way {
    use Caching::{Buffered, Direct, Uncached};
    use Space::{Ahead, AsItGrows};
    assert!(jobs > 0, "a way of no job");
    let job = &plan.job;
    let window = Some((budget_bytes / (2 * jobs as u64)).max(u64::from(job.blocks.write.max())));
    let own_ring = (job.io_engine == IoEngine::Ring).then_some(job.depth);
    let kernel = |caching, space, window_bytes, ring| Way::Kernel {
        opening: Opening { caching, space, window_bytes },
        ring,
    };
    match arm {
        Arm::KernelBuffered | Arm::KernelCgroup => kernel(Buffered, AsItGrows, None, own_ring),
        Arm::KernelBufferedPrealloc => kernel(Buffered, Ahead, None, own_ring),
        Arm::KernelBounded => kernel(Buffered, AsItGrows, window, own_ring),
        Arm::KernelBoundedPrealloc => kernel(Buffered, Ahead, window, own_ring),
        Arm::KernelUncached => kernel(Uncached, AsItGrows, None, own_ring),
        Arm::KernelUncachedPrealloc => kernel(Uncached, Ahead, None, own_ring),
        Arm::KernelDirect => kernel(Direct, AsItGrows, None, own_ring),
        Arm::KernelDirectPrealloc => kernel(Direct, Ahead, None, Some(job.depth.max(DIRECT_DEPTH))),
        Arm::KernelDirect1m if plan.device().is_none() => {
            kernel(Direct, Ahead, None, Some(job.depth))
        }
        // On a device there is nothing to allocate.
        Arm::KernelDirect1m | Arm::RawDevice | Arm::RawDevice1m => {
            kernel(Direct, AsItGrows, None, Some(job.depth))
        }
        Arm::Kernel if job.io_engine == IoEngine::Null => Way::Null,
        Arm::Kernel => kernel(job.caching, AsItGrows, None, own_ring),
        Arm::Forebay | Arm::ForebayDeclared | Arm::ForebaySurvive => {
            Way::Library { direct: (job.caching == Direct).into(), depth: depth_of(job) }
        }
        Arm::Null => Way::Null,
    }
}

/// Returns how many operations a job keeps in flight: one, if it asks for single calls.
pub(crate) fn depth_of(job: &Job) -> u32 {
    if job.io_engine == IoEngine::Ring { job.depth.max(1) } else { 1 }
}

fn buffer_bytes(job: &Job) -> usize {
    job.blocks.read.max().max(job.blocks.write.max()) as usize
}

/// Returns the bytes of the engine's pool that the operations of a job take.
pub(crate) fn pool_bytes(way: Way, job: &Job) -> u64 {
    match way {
        Way::Library { direct: YesNo::Yes, depth } => {
            u64::from(depth) * buffer_bytes(job).next_multiple_of(PAGE) as u64
        }
        _ => 0,
    }
}

/// Refuses buffers that are larger than memory, and an arm that the kernel or the file system of
/// the first file does not support.
pub(crate) fn check(arm: Arm, plan: &JobPlan, way: Way) -> Result<(), CellError> {
    // A slip of the pen asks for terabytes.
    const MOST_BYTES: u64 = 4 << 30;
    let depth = match way {
        Way::Kernel { ring: Some(depth), .. } | Way::Library { depth, .. } => depth,
        Way::Kernel { ring: None, .. } | Way::Null => 1,
    };
    let bytes = u64::from(depth) * buffer_bytes(&plan.job) as u64;
    if bytes > MOST_BYTES {
        let name = &plan.job.name;
        return Err(CellError::invalid(format!(
            "job {name}: {bytes} bytes of buffers (block size by depth); at most {MOST_BYTES}"
        )));
    }
    let Way::Kernel { opening, ring } = way else { return Ok(()) };
    let refused = |reason| Err(CellError::refused(arm, reason));
    if let Some(device) = plan.device().filter(|_| plan.writes() && opening.space == Space::Ahead) {
        return refused(format!(
            "{}: space cannot be allocated ahead on a block device",
            device.path.display()
        ));
    }
    if let (Some(_), Err(error)) = (ring, ring::set_up(1, YesNo::No)) {
        return refused(format!("io_uring is missing or forbidden here: {error}"));
    }
    let path = &plan.files[0].path;
    let shown = path.display();
    match opening.caching {
        Caching::Buffered => Ok(()),
        Caching::Uncached => try_uncached(path).or_else(|error| {
            refused(format!(
                "{shown}: RWF_DONTCACHE (since Linux 6.14, on XFS 6.15, on ext4 6.17): {error}"
            ))
        }),
        Caching::Direct => {
            let blocks = &plan.job.blocks;
            let lengths = [blocks.read.min(), blocks.write.min()].map(u64::from);
            let starts = plan.files.iter().map(|file| file.range.start);
            let alignment = lengths.into_iter().chain(starts).fold(0, gcd).min(4096);
            try_direct(path, alignment).or_else(|error| {
                refused(format!(
                    "{shown}: no direct I/O in steps of {alignment} bytes here: {error}"
                ))
            })
        }
    }
}

fn try_uncached(path: &Path) -> io::Result<()> {
    let flags = ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as u32);
    let mut part = [0; 512];
    with_sample(path, 0, |file| Ok(preadv2(file, &mut [IoSliceMut::new(&mut part)], 0, flags)?))
}

/// Reads twice: that shows whether a length and whether an offset of this alignment is taken.
fn try_direct(path: &Path, alignment: u64) -> io::Result<()> {
    let mut memory = buffer(0, alignment as usize);
    let part = &mut memory[..alignment as usize];
    with_sample(path, libc::O_DIRECT, |file| {
        file.read_at(part, 0)?;
        file.read_at(part, alignment)
    })
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Opens the file itself if it is there, else one beside it that is gone again when this returns.
fn with_sample(
    path: &Path,
    flags: i32,
    read: impl FnOnce(&std::fs::File) -> io::Result<usize>,
) -> io::Result<()> {
    let sample = if path.exists() {
        None
    } else {
        let mut sample = NamedTempFile::new_in(guard::nearest_directory(path))?;
        sample.write_all(&[0; 8192])?;
        Some(sample)
    };
    let path = sample.as_ref().map_or(path, |sample| sample.path());
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    read(&file).map(drop)
}

/// Opens the files of a job and returns its lane: the first thing inside the clock.
pub(crate) type Opener =
    Box<dyn FnOnce(&JobPlan, Option<Arc<Engine>>) -> Result<Box<dyn Lane + Send>, CellError>>;

/// Sets up what a job needs before the clock starts, on the thread that will use it.
pub(crate) fn prepare(way: Way, plan: &JobPlan) -> Result<Opener, CellError> {
    let (bytes, submit_batch) = (buffer_bytes(&plan.job), plan.job.submit_batch);
    let engine = |engine: Option<_>| engine.expect("a cell through the library has an engine");
    Ok(match way {
        Way::Kernel { opening, ring: None } => {
            let buffer = buffer(0, bytes);
            Box::new(move |plan, _| {
                Ok(Box::new(SerialLane::new(1, buffer, KernelFiles::open(plan, opening)?)))
            })
        }
        Way::Kernel { opening, ring: Some(depth) } => {
            let ring = ring::set_up(depth, YesNo::No).context("could not set up a ring")?;
            let buffers = (0..depth as usize).map(|slot| buffer(slot, bytes)).collect();
            Box::new(move |plan, _| {
                let files = KernelFiles::open(plan, opening)?;
                let hand_over = HandOver::Apart(submit_batch);
                Ok(Box::new(RingLane::new(ring, buffers, files, hand_over)?))
            })
        }
        Way::Library { direct: YesNo::No, depth: 1 } => {
            let buffer = buffer(0, bytes);
            Box::new(move |plan, of_cell| {
                let files = Blocking(open_files(&engine(of_cell), plan)?);
                Ok(Box::new(SerialLane::new(1, buffer, files)))
            })
        }
        Way::Library { direct: YesNo::No, depth } => {
            // Not zeroes, which would be no memory yet.
            let buffer = || vec![0xf0; bytes].into_boxed_slice();
            let buffers = (0..depth).map(|_| buffer()).collect();
            Box::new(move |plan, of_cell| {
                let engine = engine(of_cell);
                let files: Vec<File> = open_files(&engine, plan)?;
                Ok(Box::new(FuturesLane::new(buffers, engine, files, 1)))
            })
        }
        // The memory is of the engine's pool, and no engine is there yet.
        Way::Library { direct: YesNo::Yes, depth } => Box::new(move |plan, of_cell| {
            let (engine, slots) = (engine(of_cell), depth as usize);
            let batch = submit_batch.map_or(slots, |batch| (batch as usize).clamp(1, slots));
            let files: Vec<DirectFile> = open_files(&engine, plan)?;
            let buffers = pool_buffers(&engine, slots, bytes)?;
            Ok(Box::new(FuturesLane::new(buffers, engine, files, batch)))
        }),
        Way::Null => {
            let buffer = buffer(0, bytes);
            Box::new(move |_, _| Ok(Box::new(SerialLane::new(1, buffer, Nothing))))
        }
    })
}
