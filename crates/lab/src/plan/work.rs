//! What a cell does, and which one is run before the first round.

use crate::arm::Arm;
use crate::cell::outside;
use crate::echo::{EchoLoad, EchoWay, WorkOrder};
use crate::programs::spec::{Probe, ProgramLoad, ProgramWay};
use crate::request::{Operation, RequestSpec};
use crate::shape::{Extent, Ground, JobShape, ReadWrite};
use crate::suite::job_file::{self, JobFile};
use crate::through::{CopyWay, Poll, Through, Way};
use crate::writers::{Layout, Writers};

use super::{Job, PlannedArm, Size, WRITER_STEP_BYTES};

/// Of jobs that run for a time, the cell that is not counted takes no longer.
const WARM_UP_SECONDS: f64 = 1.0;

/// Of writers it writes this part.
const WARM_UP_SHARE: u64 = 8;

/// What a cell does, apart from where and from which seed.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// Random writes into new files.
    NewFiles {
        /// Through what.
        arm: Arm,
        /// How much.
        size: Size,
        /// Knobs of the engine that are the arm's own.
        knobs: Vec<(String, String)>,
    },
    /// Requests in a closed loop.
    Requests {
        /// Through what.
        way: Way,
        /// Whether completions are polled for.
        poll: Poll,
        /// The rest.
        spec: Box<RequestSpec>,
    },
    /// Jobs for a time.
    Jobs(Box<JobsWork>),
    /// Files written once, until synced.
    Writers(Box<WritersWork>),
    /// A group of a fio job file.
    JobFile(Box<JobFileWork>),
    /// Messages to a server that sends them back, for a time.
    Echo {
        /// Through what the server does its I/O.
        way: EchoWay,
        /// In which order it works off a pass.
        order: WorkOrder,
        /// What is asked of it.
        load: EchoLoad,
        /// How long.
        seconds: f64,
    },
    /// A small program.
    Program(Box<ProgramWork>),
    /// Copies for a time.
    Copies {
        /// Where they go.
        way: CopyWay,
        /// Bytes of one.
        block_bytes: u32,
        /// Bytes that are copied over.
        file_bytes: u64,
        /// How long.
        seconds: f64,
        /// Knobs of the engine.
        settings: Vec<(String, String)>,
    },
}

/// Jobs for a time, through an arm.
#[derive(Clone, PartialEq, Debug)]
pub struct JobsWork {
    /// Through what.
    pub arm: Arm,
    /// What they do.
    pub shape: JobShape,
    /// How long they are.
    pub extent: Extent,
    /// Knobs of the engine.
    pub settings: Vec<(String, String)>,
}

/// A small program, through an arm.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramWork {
    /// Through what.
    pub way: ProgramWay,
    /// The program.
    pub load: ProgramLoad,
    /// How long it runs, or should take.
    pub seconds: f64,
    /// Knobs of the engine.
    pub settings: Vec<(String, String)>,
}

/// A group of a fio job file, through an arm.
#[derive(Clone, PartialEq, Debug)]
pub struct JobFileWork {
    /// Through what: a way of files, or fio.
    pub through: Through,
    /// The jobs.
    pub file: JobFile,
    /// Knobs of the engine.
    pub settings: Vec<(String, String)>,
}

/// Files written once, through an arm.
#[derive(Clone, PartialEq, Debug)]
pub struct WritersWork {
    /// Through what.
    pub arm: Arm,
    /// The threads and their files.
    pub writers: Writers,
    /// What of the files is there before.
    pub layout: Layout,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Memory for data of a bounded arm.
    pub budget_bytes: u64,
    /// Knobs of the engine.
    pub settings: Vec<(String, String)>,
}

impl WritersWork {
    /// Bytes a cell writes.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        u64::from(self.writers.files()) * self.file_bytes
    }
}

impl Work {
    /// Whether it goes to the disk that the directory is on.
    #[must_use]
    pub fn on_disk(&self) -> bool {
        match self {
            Work::NewFiles { .. }
            | Work::Jobs(_)
            | Work::Writers(_)
            | Work::JobFile(_)
            | Work::Program(_) => true,
            Work::Requests { spec, .. } => spec.device.is_file(),
            Work::Copies { way, .. } => *way != CopyWay::Memcpy,
            Work::Echo { .. } => false,
        }
    }

    /// Whether it reads what is there, wherever that is.
    #[must_use]
    pub fn works_outside(&self) -> bool {
        matches!(self, Work::JobFile(work) if outside(&work.file.workload).is_some())
    }

    /// Whether it works on a block device.
    #[must_use]
    pub fn wants_device(&self) -> bool {
        match self {
            Work::Jobs(work) => work.shape.on == Ground::Device,
            Work::Writers(work) => work.arm.is_raw(),
            Work::NewFiles { .. }
            | Work::JobFile(_)
            | Work::Requests { .. }
            | Work::Copies { .. }
            | Work::Program(_)
            | Work::Echo { .. } => false,
        }
    }

    /// Bytes of a device it needs, where it works on one.
    #[must_use]
    pub fn device_bytes(&self) -> Option<u64> {
        let bytes = match self {
            Work::Jobs(work) => work.extent.file_bytes,
            Work::Writers(work) => work.data_bytes(),
            Work::NewFiles { .. }
            | Work::JobFile(_)
            | Work::Requests { .. }
            | Work::Copies { .. }
            | Work::Program(_)
            | Work::Echo { .. } => return None,
        };
        self.wants_device().then_some(bytes)
    }

    /// Bytes of data it writes, where that is fixed; what is there before is not counted.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        match self {
            Work::NewFiles { size, .. } => size.data_bytes(),
            Work::Writers(work) => work.data_bytes(),
            Work::JobFile(work) => work.file.written_bytes(),
            Work::Program(work) => work.load.written_bytes(),
            Work::Requests { .. } | Work::Jobs(_) | Work::Copies { .. } | Work::Echo { .. } => 0,
        }
    }

    /// The same, as short as a cell that is not counted is.
    pub(super) fn shortened(&self) -> Self {
        match self {
            Work::NewFiles { arm, size, knobs } => {
                Work::NewFiles { arm: *arm, size: size.smallest(), knobs: knobs.clone() }
            }
            Work::Jobs(work) => {
                let extent =
                    Extent { seconds: work.extent.seconds.min(WARM_UP_SECONDS), ..work.extent };
                Work::Jobs(Box::new(JobsWork { extent, ..(**work).clone() }))
            }
            Work::Writers(work) => {
                let least = WRITER_STEP_BYTES.max(u64::from(work.writers.block_bytes));
                let file_bytes = (work.file_bytes / WARM_UP_SHARE).next_multiple_of(least);
                Work::Writers(Box::new(WritersWork { file_bytes, ..(**work).clone() }))
            }
            Work::Program(work) => {
                let (seconds, load) = (work.seconds / 10.0, work.load.scaled(0.01));
                Work::Program(Box::new(ProgramWork { seconds, load, ..(**work).clone() }))
            }
            work => work.clone(),
        }
    }

    /// Whether it writes as much as it can in a time.
    #[must_use]
    pub fn writes_for_a_time(&self) -> bool {
        match self {
            Work::Jobs(_) => true,
            Work::JobFile(work) => work.file.writes_for_a_time(),
            Work::Program(work) => work.load.writes_for_a_time(),
            Work::Requests { spec, .. } => {
                spec.device.is_file() && spec.operation == Operation::Write
            }
            Work::NewFiles { .. } | Work::Writers(_) | Work::Copies { .. } | Work::Echo { .. } => {
                false
            }
        }
    }

    /// Bytes of files that are filled before the clock starts, for they are read.
    #[must_use]
    pub fn laid_out_bytes(&self) -> u64 {
        match self {
            Work::Jobs(work) if work.shape.rw == ReadWrite::Rw && work.shape.on == Ground::File => {
                u64::from(work.shape.threads) * work.extent.file_bytes
            }
            Work::JobFile(work) => work.file.laid_out_bytes(),
            _ => 0,
        }
    }

    /// Bytes it brings to the disk, where that is fixed: what is there before, and what it writes.
    #[must_use]
    pub fn fixed_bytes(&self) -> u64 {
        self.laid_out_bytes().saturating_add(self.written_bytes())
    }

    /// Bytes of memory for data of a bounded arm, where that is said.
    #[must_use]
    pub fn budget_bytes(&self) -> Option<u64> {
        match self {
            Work::NewFiles { size, .. } => Some(size.budget_bytes),
            Work::Jobs(work) => Some(work.shape.cache_bytes),
            Work::Writers(work) => Some(work.budget_bytes),
            Work::JobFile(_) => Some(job_file::MEMORY_BYTES),
            Work::Program(work) => work.load.memory_bytes(),
            Work::Requests { .. } | Work::Copies { .. } | Work::Echo { .. } => None,
        }
    }

    /// Seconds until no more is begun, where that is fixed.
    pub(super) fn seconds(&self) -> Option<f64> {
        match self {
            Work::NewFiles { .. } | Work::Writers(_) => None,
            Work::JobFile(work) => work.file.seconds(),
            Work::Requests { spec, .. } => Some(spec.seconds),
            Work::Jobs(work) => Some(work.extent.seconds),
            Work::Program(work) if matches!(work.load.probe, Probe::Copy | Probe::Files) => None,
            Work::Program(work) => Some(work.seconds),
            Work::Copies { seconds, .. } | Work::Echo { seconds, .. } => Some(*seconds),
        }
    }
}

/// A bounded arm, for its speed is nearer to that of the others than that of plain buffering; of
/// requests the first. One that needs no device, if there is one.
pub(super) fn warm_up(jobs: &[Job]) -> Work {
    let arms = || jobs.iter().flat_map(|job| &job.arms);
    let bounded = |arm: &&PlannedArm| match &arm.work {
        Work::NewFiles { arm, .. } => arm.is_bounded_kernel(),
        Work::Jobs(work) => work.arm.is_bounded_kernel() && work.shape.on == Ground::File,
        Work::Writers(work) => work.arm.is_bounded_kernel(),
        Work::JobFile(work) => work.through == Through::Files(Arm::Kernel),
        Work::Program(work) => work.way == ProgramWay::Std,
        Work::Requests { .. } | Work::Copies { .. } | Work::Echo { .. } => false,
    };
    let found = arms().find(bounded).or_else(|| arms().next()).expect("a plan has arms");
    found.work.shortened()
}
