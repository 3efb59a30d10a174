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

use crate::btf::Btf;
use crate::counter::Counter;
use crate::place::{Kind, Ring};

use writer::Writer;
pub(crate) use writer::{Means, Program};

/// Programs that are attached all together or not at all.
#[derive(Debug)]
pub(crate) struct Group {
    /// Name of their counters in messages.
    pub(crate) what: &'static str,
    /// `None` if this kernel has other tracepoints or structs.
    pub(crate) programs: Option<Vec<Program>>,
}

/// Returns the programs that are attached together, for this kernel.
pub(crate) fn groups(btf: &Btf, means: &Means<'_>) -> Vec<Group> {
    let writer = Writer { btf, means };
    let mut groups = Vec::new();
    if let Some(disk) = means.disk {
        groups.extend([
            Group { what: "requests", programs: writer.requests(disk) },
            Group { what: "completion runs", programs: writer.completions(disk) },
        ]);
    }
    if !means.workers.is_empty() {
        groups.push(Group { what: "completion workers", programs: writer.workers().map(one) });
    }
    groups.push(Group { what: "pages written back", programs: writer.writeback().map(one) });
    if means.file_system.kind == Kind::Xfs {
        groups.push(Group { what: "allocations of XFS", programs: writer.allocations().map(one) });
        let what = "waits for the locks of allocation groups";
        groups.push(Group { what, programs: writer.group_waits().map(one) });
        let what = "refused locks of allocation groups";
        groups.push(Group { what, programs: writer.group_refusals().map(one) });
    }
    if means.ring == Ring::Used {
        groups.push(Group { what: "items of task work", programs: writer.task_work() });
        groups.push(Group { what: "io_uring completions", programs: writer.ring() });
    }
    groups
}

/// Returns the program of a counter that can be used alone.
pub(crate) fn alone(counter: Counter, btf: &Btf, means: &Means<'_>) -> Option<Program> {
    let writer = Writer { btf, means };
    match counter {
        Counter::SystemCalls => writer.system_calls(),
        Counter::Commits => writer.commits(),
        Counter::Flushes => writer.flushes(means.disk?),
        _ => None,
    }
}

fn one(program: Program) -> Vec<Program> {
    vec![program]
}
