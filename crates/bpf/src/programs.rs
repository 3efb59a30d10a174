//! The programs: a few instructions at each event, which add to the counters of their processor.
//!
//! ```text
//! block_bio_queue, block_getrq, block_rq_insert, block_rq_issue, _requeue   one each
//! block_getrq       and the number of requests in the plug of this task
//! block_unplug      the number of requests, and whether on request or because of sleep
//! softirq_entry, _exit, irq_handler_entry, _exit                           a new interrupt
//! block_rq_complete one more request, and one more run if it is the first of this interrupt
//! workqueue_execute_start   one more run of a worker that ends I/O
//! io_uring_complete, _task_work_run, _local_work_run, sys_enter            this process alone
//! ext4_writepages_result, writeback_single_inode                           pages written
//! jbd2_end_commit, xlog_iclog_write                                        commits of the journal
//! xfs_alloc_vextent_finish, xfs_buf_lock, _trylock_fail   allocations, and locks of groups
//! ```
//!
//! `block_unplug` has two causes: a plug is flushed, or a driver is notified about requests that it
//! has just taken from the scheduler (`blk_mq_commit_rqs`). Only the first is counted. A number
//! above the requests in the plug of the last request on this processor is of the second.
//!
//! Requests and bios are counted on one disk, pages on one file system. Counters are not atomic:
//! the kernel does not run a program inside itself on one processor, and no two programs add to one
//! counter except those of interrupts, which come in pairs.

mod file_system;
mod groups;
mod process;
mod requests;
mod writer;

use crate::counter::Counter;
use crate::place::{Kind, Ring};

pub(crate) use writer::{Program, Writer};

/// Programs that are attached all together or not at all.
#[derive(Debug)]
pub(crate) struct Group {
    /// Name of their counters in messages.
    pub(crate) what: &'static str,
    /// `None` if this kernel has other tracepoints or structs.
    pub(crate) programs: Option<Vec<Program>>,
}

impl Writer<'_> {
    /// Returns the programs that are attached together. `workers` are the addresses of the workers
    /// that end I/O.
    pub(crate) fn groups(self, workers: &[u64], ring: Ring) -> Vec<Group> {
        let one = |program: Option<Program>| program.map(|program| vec![program]);
        let mut groups = Vec::new();
        let mut add = |what, programs| groups.push(Group { what, programs });
        if let Some(disk) = self.place.disk {
            add("requests", self.requests(disk));
            add("completion runs", self.completions(disk));
        }
        if !workers.is_empty() {
            add("completion workers", one(self.workers(workers)));
        }
        add("pages written back", one(self.writeback()));
        if self.place.file_system.kind == Kind::Xfs {
            add("allocations of XFS", one(self.allocations()));
            add("waits for the locks of allocation groups", one(self.group_waits()));
            add("refused locks of allocation groups", one(self.group_refusals()));
        }
        if ring == Ring::Used {
            add("items of task work", self.task_work());
            add("io_uring completions", self.ring());
        }
        groups
    }

    /// Returns the program of a counter that can be used alone.
    pub(crate) fn alone(self, counter: Counter) -> Option<Program> {
        match counter {
            Counter::SystemCalls => self.system_calls(),
            Counter::Commits => self.commits(),
            Counter::Flushes => self.flushes(self.place.disk?),
            _ => None,
        }
    }
}
