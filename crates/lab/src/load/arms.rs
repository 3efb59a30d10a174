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
use std::io::IoSliceMut;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use forebay::{Engine, File};
use forebay_block::limits::PAGE;
use rustix::io::{ReadWriteFlags, preadv2};

use super::error::{CellError, Context};
use super::futures::FuturesLane;
use super::guard;
use super::kernel::{Calls, KernelFiles, Opening, Space};
use super::lane::{Buffers, Lane, Nothing, SerialLane};
use super::layout::{FileKind, JobPlan};
use super::library::{Blocking, open_files};
use super::ring::{self, Handling, RingLane};
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
        /// Bytes after which it writes behind and drops, if it does.
        window_bytes: Option<u64>,
    },
    Library {
        /// Whether it goes past the cache.
        direct: YesNo,
        /// Operations in flight; with one through the cache, the blocking calls.
        depth: u32,
    },
    /// None.
    Null,
}

/// Returns the way of one of `jobs` jobs on an arm that may use `budget_bytes` of memory.
pub(crate) fn way(
    arm: Arm,
    plan: &JobPlan,
    budget_bytes: u64,
    jobs: usize,
) -> Result<Way, CellError> {
    use Caching::{Buffered, Direct, Uncached};
    use Space::{Ahead, AsItGrows};
    assert!(jobs > 0, "a way of no job");
    let job = &plan.job;
    let window = Some((budget_bytes / (2 * jobs as u64)).max(u64::from(job.blocks.write.max())));
    let own_ring = (job.io_engine == IoEngine::Ring).then_some(job.depth);
    let kernel = |caching, space, window_bytes, ring| {
        let opening = Opening { caching, space };
        Way::Kernel { opening, ring, window_bytes }
    };
    let way = match arm {
        Arm::KernelBuffered | Arm::KernelCgroup => kernel(Buffered, AsItGrows, None, own_ring),
        Arm::KernelBufferedPrealloc => kernel(Buffered, Ahead, None, own_ring),
        Arm::KernelBounded => kernel(Buffered, AsItGrows, window, own_ring),
        Arm::KernelBoundedPrealloc => kernel(Buffered, Ahead, window, own_ring),
        Arm::KernelUncached => kernel(Uncached, AsItGrows, None, own_ring),
        Arm::KernelUncachedPrealloc => kernel(Uncached, Ahead, None, own_ring),
        Arm::KernelDirect => kernel(Direct, AsItGrows, None, own_ring),
        Arm::KernelDirectPrealloc => kernel(Direct, Ahead, None, Some(job.depth.max(DIRECT_DEPTH))),
        Arm::KernelDirect1m => kernel(Direct, ahead_where_it_can(plan), None, Some(job.depth)),
        Arm::RawDevice | Arm::RawDevice1m => kernel(Direct, AsItGrows, None, Some(job.depth)),
        Arm::Kernel if job.io_engine == IoEngine::Null => Way::Null,
        Arm::Kernel => kernel(job.caching, AsItGrows, None, own_ring),
        Arm::Forebay | Arm::ForebayDeclared | Arm::ForebaySurvive => {
            Way::Library { direct: (job.caching == Direct).into(), depth: depth_of(job) }
        }
        Arm::Null => Way::Null,
    };
    check_files(arm, plan, way)?;
    check_buffers(plan, way)?;
    Ok(way)
}

/// Returns when files get their space. On a device there is nothing to allocate.
fn ahead_where_it_can(plan: &JobPlan) -> Space {
    let device = plan.files.iter().any(|file| file.kind == FileKind::BlockDevice);
    if device { Space::AsItGrows } else { Space::Ahead }
}

/// Returns how many operations a job keeps in flight: one, if it asks for single calls.
pub(crate) fn depth_of(job: &Job) -> u32 {
    match job.io_engine {
        IoEngine::Ring => job.depth.max(1),
        IoEngine::Calls | IoEngine::Null => 1,
    }
}

/// Refuses more buffers than fit in memory; a slip of the pen asks for terabytes.
fn check_buffers(plan: &JobPlan, way: Way) -> Result<(), CellError> {
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
    Ok(())
}

/// Returns the bytes of the buffer of one operation.
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

fn check_files(arm: Arm, plan: &JobPlan, way: Way) -> Result<(), CellError> {
    let Way::Kernel { opening, .. } = way else { return Ok(()) };
    let device = plan.files.iter().find(|file| file.kind == FileKind::BlockDevice);
    if opening.space == Space::Ahead
        && plan.writes()
        && let Some(device) = device
    {
        let reason =
            format!("{}: space cannot be allocated ahead on a block device", device.path.display());
        return Err(CellError::refused(arm, reason));
    }
    Ok(())
}

/// Checks whether the kernel, and the file system of each job's first file, can do what an arm
/// needs.
pub(crate) fn probe(arm: Arm, ways: &[(Way, &JobPlan)]) -> Result<(), CellError> {
    for &(way, plan) in ways {
        if matches!(way, Way::Kernel { ring: Some(_), .. }) {
            ring::set_up(1, YesNo::No).map_err(|error| {
                CellError::refused(arm, format!("io_uring is missing or forbidden here: {error}"))
            })?;
        }
        let Way::Kernel { opening, .. } = way else { continue };
        let path = &plan.files[0].path;
        match opening.caching {
            Caching::Buffered => {}
            Caching::Uncached => probe_uncached(arm, path)?,
            Caching::Direct => probe_direct(arm, path, plan)?,
        }
    }
    Ok(())
}

fn probe_uncached(arm: Arm, path: &Path) -> Result<(), CellError> {
    let flags = ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as u32);
    let mut buffer = [0; 512];
    let tried = with_sample(path, 0, |file| {
        preadv2(file, &mut [IoSliceMut::new(&mut buffer)], 0, flags).map(drop).map_err(Into::into)
    });
    tried.map_err(|error| {
        let reason = format!(
            "{}: RWF_DONTCACHE (since Linux 6.14, on XFS 6.15, on ext4 6.17): {error}",
            path.display()
        );
        CellError::refused(arm, reason)
    })
}

/// Reads twice: that shows whether a length and whether an offset of the job's alignment is taken.
fn probe_direct(arm: Arm, path: &Path, plan: &JobPlan) -> Result<(), CellError> {
    let blocks = &plan.job.blocks;
    let lengths = [blocks.read.min(), blocks.write.min()].map(u64::from);
    let starts = plan.files.iter().map(|file| file.range.start);
    let alignment = lengths.into_iter().chain(starts).fold(0, gcd).min(4096);
    let mut buffers = Buffers::new(1, alignment as usize);
    let tried = with_sample(path, libc::O_DIRECT, |file| {
        let buffer = &mut buffers.slot(0)[..alignment as usize];
        file.read_at(buffer, 0)?;
        file.read_at(buffer, alignment).map(drop)
    });
    tried.map_err(|error| {
        let path = path.display();
        CellError::refused(
            arm,
            format!("{path}: no direct I/O in steps of {alignment} bytes here: {error}"),
        )
    })
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Opens the file itself if it is there, else one beside it that is gone again when this returns.
fn with_sample(
    path: &Path,
    flags: i32,
    what: impl FnOnce(&std::fs::File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags);
    if path.exists() {
        return what(&options.open(path)?);
    }
    let sample = guard::nearest_directory(path).join(format!(".arm-probe.{}", std::process::id()));
    let file = std::fs::write(&sample, [0; 8192]).and_then(|()| options.open(&sample));
    let result = file.and_then(|file| what(&file));
    let _ = std::fs::remove_file(&sample);
    result
}

/// Opens the files of a job and returns its lane: the first thing inside the clock.
pub(crate) type Opener =
    Box<dyn FnOnce(&JobPlan, Option<Arc<Engine>>) -> Result<Box<dyn Lane + Send>, CellError>>;

/// Sets up what a job needs before the clock starts, on the thread that will use it.
pub(crate) fn prepare(way: Way, plan: &JobPlan) -> Result<Opener, CellError> {
    let bytes = buffer_bytes(&plan.job);
    let engine = |engine: Option<_>| engine.expect("a cell through the library has an engine");
    Ok(match way {
        Way::Kernel { opening, ring: None, window_bytes } => {
            let buffers = Buffers::new(1, bytes);
            Box::new(move |plan, _| {
                let files = Calls::new(KernelFiles::open(plan, opening)?, window_bytes);
                Ok(Box::new(SerialLane::new(buffers, files)))
            })
        }
        Way::Kernel { opening, ring: Some(depth), window_bytes } => {
            let ring = ring::set_up(depth, YesNo::No).context("could not set up a ring")?;
            let buffers = Buffers::new(depth as usize, bytes);
            let handling = Handling { submit_batch: plan.job.submit_batch, ..Handling::default() };
            Box::new(move |plan, _| {
                let files = KernelFiles::open(plan, opening)?;
                Ok(Box::new(RingLane::new(ring, buffers, files, window_bytes, handling)?))
            })
        }
        Way::Library { direct: YesNo::No, depth: 1 } => {
            let buffers = Buffers::new(1, bytes);
            Box::new(move |plan, of_cell| {
                Ok(Box::new(SerialLane::new(buffers, Blocking::open(engine(of_cell), plan)?)))
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
            let slots = depth as usize;
            Ok(Box::new(FuturesLane::open_direct(slots, bytes, engine(of_cell), plan)?))
        }),
        Way::Null => {
            let buffers = Buffers::new(1, bytes);
            Box::new(move |_, _| Ok(Box::new(SerialLane::new(buffers, Nothing))))
        }
    })
}
