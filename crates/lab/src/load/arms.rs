//! From an arm and a job to a lane: who issues what, with which flags, at which depth, in how much
//! memory.
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
use io_uring::IoUring;
use rustix::io::{ReadWriteFlags, preadv2};

use super::futures::FuturesLane;
use super::guard;
use super::kernel::{Calls, KernelFiles, Opening, Space};
use super::lane::{Buffers, Lane, Nothing, SerialLane};
use super::layout::{FileKind, JobPlan};
use super::library::Blocking;
use super::ring::{self, RingLane};
use super::{CellError, Context};
use crate::arm::Arm;
use crate::job::{Caching, IoEngine, Job, YesNo};

/// The depth of the direct arm, where the job asks for less: what a kernel user without a cache
/// needs to keep a device busy.
pub(crate) const DIRECT_DEPTH: u32 = 32;

/// How a job of a cell does its I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A call at a time.
    Calls {
        /// With which flags.
        opening: Opening,
        /// Bytes after which it writes behind and drops, if it does.
        window_bytes: Option<u64>,
    },
    /// A ring.
    Ring {
        /// With which flags.
        opening: Opening,
        /// Operations in flight.
        depth: u32,
        /// Bytes after which it writes behind and drops, if it does.
        window_bytes: Option<u64>,
    },
    /// The library.
    Library {
        /// Operations in flight; with one, the blocking calls.
        depth: u32,
    },
    /// The library, past its cache.
    LibraryDirect {
        /// Operations in flight.
        depth: u32,
    },
    /// None.
    Null,
}

/// The way of one of `jobs` jobs on an arm that may use `budget_bytes` of memory.
pub(crate) fn way(
    arm: Arm,
    plan: &JobPlan,
    budget_bytes: u64,
    jobs: usize,
) -> Result<Way, CellError> {
    let job = &plan.job;
    let window = Some((budget_bytes / (2 * jobs as u64)).max(u64::from(job.blocks.write.max())));
    let at = |opening, depth, window_bytes| match job.io_engine {
        IoEngine::Ring => Way::Ring { opening, depth, window_bytes },
        IoEngine::Calls | IoEngine::Null => Way::Calls { opening, window_bytes },
    };
    let cached = |caching, space, window| at(Opening { caching, space }, job.depth, window);
    let ring = |space, depth| {
        let opening = Opening { caching: Caching::Direct, space };
        Way::Ring { opening, depth, window_bytes: None }
    };
    let way = match arm {
        Arm::KernelBuffered | Arm::KernelCgroup => {
            cached(Caching::Buffered, Space::AsItGrows, None)
        }
        Arm::KernelBufferedPrealloc => cached(Caching::Buffered, Space::Ahead, None),
        Arm::KernelBounded => cached(Caching::Buffered, Space::AsItGrows, window),
        Arm::KernelBoundedPrealloc => cached(Caching::Buffered, Space::Ahead, window),
        Arm::KernelUncached => cached(Caching::Uncached, Space::AsItGrows, None),
        Arm::KernelUncachedPrealloc => cached(Caching::Uncached, Space::Ahead, None),
        Arm::KernelDirect => cached(Caching::Direct, Space::AsItGrows, None),
        Arm::KernelDirectPrealloc => ring(Space::Ahead, job.depth.max(DIRECT_DEPTH)),
        Arm::KernelDirect1m => ring(ahead_where_it_can(plan), job.depth),
        Arm::RawDevice | Arm::RawDevice1m => ring(Space::AsItGrows, job.depth),
        Arm::Kernel if job.io_engine == IoEngine::Null => Way::Null,
        Arm::Kernel => cached(job.caching, Space::AsItGrows, None),
        Arm::Forebay | Arm::ForebayDeclared | Arm::ForebaySurvive => match job.caching {
            Caching::Direct => Way::LibraryDirect { depth: depth_of(job) },
            Caching::Buffered | Caching::Uncached => Way::Library { depth: depth_of(job) },
        },
        Arm::Null => Way::Null,
    };
    check_files(arm, plan, way)?;
    check_buffers(plan, way)?;
    Ok(way)
}

/// On a device there is nothing to allocate.
fn ahead_where_it_can(plan: &JobPlan) -> Space {
    let device = plan.files.iter().any(|file| file.kind == FileKind::BlockDevice);
    if device { Space::AsItGrows } else { Space::Ahead }
}

/// Operations a job keeps in flight: one, where it asks for single calls.
pub(crate) fn depth_of(job: &Job) -> u32 {
    match job.io_engine {
        IoEngine::Ring => job.depth.max(1),
        IoEngine::Calls | IoEngine::Null => 1,
    }
}

/// A buffer for each operation in flight has to fit in memory; a slip of the pen asks for
/// terabytes.
fn check_buffers(plan: &JobPlan, way: Way) -> Result<(), CellError> {
    const MOST_BYTES: u64 = 4 << 30;
    let depth = match way {
        Way::Ring { depth, .. } | Way::Library { depth } | Way::LibraryDirect { depth } => {
            u64::from(depth)
        }
        Way::Calls { .. } | Way::Null => 1,
    };
    let bytes = depth * buffer_bytes(&plan.job) as u64;
    if bytes > MOST_BYTES {
        let name = &plan.job.name;
        return Err(CellError::invalid(format!(
            "job {name}: {bytes} bytes of buffers (block size by depth); at most {MOST_BYTES}"
        )));
    }
    Ok(())
}

/// Bytes of the buffer of one operation.
fn buffer_bytes(job: &Job) -> usize {
    job.blocks.read.max().max(job.blocks.write.max()) as usize
}

/// Bytes of the engine's pool that the operations of a job take.
pub(crate) fn pool_bytes(way: Way, job: &Job) -> u64 {
    match way {
        Way::LibraryDirect { depth } => {
            u64::from(depth) * buffer_bytes(job).next_multiple_of(PAGE) as u64
        }
        _ => 0,
    }
}

fn check_files(arm: Arm, plan: &JobPlan, way: Way) -> Result<(), CellError> {
    let (Way::Calls { opening, .. } | Way::Ring { opening, .. }) = way else { return Ok(()) };
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

/// Whether the kernel, and the file system of each job's first file, can do what an arm needs.
pub(crate) fn probe(arm: Arm, ways: &[(Way, &JobPlan)]) -> Result<(), CellError> {
    for &(way, plan) in ways {
        if matches!(way, Way::Ring { .. }) {
            ring::set_up(1, YesNo::No).map_err(|error| {
                CellError::refused(arm, format!("io_uring is missing or forbidden here: {error}"))
            })?;
        }
        let (Way::Calls { opening, .. } | Way::Ring { opening, .. }) = way else { continue };
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

/// Two reads show both whether a length and whether an offset of the job's alignment is taken.
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

/// The file itself if it is there, else one beside it that is gone again when this returns.
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

/// What a job's thread sets up before the clock starts.
pub(crate) enum Prepared {
    Calls { buffers: Buffers, opening: Opening, window_bytes: Option<u64> },
    Ring { ring: Box<IoUring>, buffers: Buffers, opening: Opening, window_bytes: Option<u64> },
    Library { buffers: Buffers },
    Futures { buffers: Vec<Box<[u8]>> },
    Direct { slots: usize, bytes: usize },
    Null { buffers: Buffers },
}

impl Prepared {
    /// On the thread that will use it.
    pub(crate) fn new(way: Way, plan: &JobPlan) -> Result<Self, CellError> {
        let bytes = buffer_bytes(&plan.job);
        Ok(match way {
            Way::Calls { opening, window_bytes } => {
                Self::Calls { buffers: Buffers::new(1, bytes), opening, window_bytes }
            }
            Way::Ring { opening, depth, window_bytes } => {
                let ring = ring::set_up(depth, YesNo::No).context("could not set up a ring")?;
                let buffers = Buffers::new(depth as usize, bytes);
                Self::Ring { buffers, opening, window_bytes, ring: Box::new(ring) }
            }
            Way::Library { depth: 1 } => Self::Library { buffers: Buffers::new(1, bytes) },
            Way::Library { depth } => {
                // Not zeroes, which would be no memory yet.
                let buffer = || vec![0xf0; bytes].into_boxed_slice();
                Self::Futures { buffers: (0..depth).map(|_| buffer()).collect() }
            }
            // The memory is of the engine's pool, and no engine is there yet.
            Way::LibraryDirect { depth } => Self::Direct { slots: depth as usize, bytes },
            Way::Null => Self::Null { buffers: Buffers::new(1, bytes) },
        })
    }

    /// Opens the files: the first thing inside the clock.
    pub(crate) fn open(
        self,
        plan: &JobPlan,
        engine: Option<Arc<Engine>>,
    ) -> Result<Box<dyn Lane>, CellError> {
        let engine = || engine.expect("a cell through the library has an engine");
        Ok(match self {
            Self::Calls { buffers, opening, window_bytes } => {
                let files = Calls::new(KernelFiles::open(plan, opening)?, window_bytes);
                Box::new(SerialLane::new(buffers, files))
            }
            Self::Ring { buffers, opening, window_bytes, ring } => {
                let files = KernelFiles::open(plan, opening)?;
                Box::new(RingLane::new(*ring, buffers, files, window_bytes, &plan.job))
            }
            Self::Library { buffers } => {
                Box::new(SerialLane::new(buffers, Blocking::open(engine(), plan)?))
            }
            Self::Futures { buffers } => {
                Box::new(FuturesLane::<File>::new(buffers, engine(), plan, 1)?)
            }
            Self::Direct { slots, bytes } => {
                Box::new(FuturesLane::open_direct(slots, bytes, engine(), plan)?)
            }
            Self::Null { buffers } => Box::new(SerialLane::new(buffers, Nothing)),
        })
    }
}
