//! What runs in the kernel: a few instructions at each event, which add to the counters of the
//! processor they are on.
//!
//! ```text
//! block_bio_queue, block_getrq, block_rq_insert, block_rq_issue, _requeue   one each
//! block_getrq       besides, how many are in the plug of this task with it
//! block_unplug      how many, and whether it was asked for or came of going to sleep
//! softirq_entry, _exit, irq_handler_entry, _exit                           a new interrupt
//! block_rq_complete one more, and one more run where it is the first of this interrupt
//! workqueue_execute_start   one more, where it is a worker that ends I/O
//! io_uring_complete, _task_work_run, _local_work_run, sys_enter            of this process alone
//! ext4_writepages_result, writeback_single_inode                           pages that were written
//! jbd2_end_commit, xlog_iclog_write                                        commits of the journal
//! ```
//!
//! `block_unplug` tells of two things: of what a plug lets go, and, where a driver is told that no
//! more comes, of what it has just taken from the scheduler (`blk_mq_commit_rqs`). Only the first
//! is meant: what is more than the plug of whoever made the last request on this processor has is
//! the second.
//!
//! Requests and bios are counted on one disk, pages on one file system. Counters are not atomic: a
//! program is not run inside itself on one processor, and no two programs add to the same counter
//! but those of interrupts, which come in pairs.

use std::os::fd::BorrowedFd;

use super::Ring;
use super::btf::Btf;
use super::code::{ARGUMENTS, Code, END, Helper, KEPT, RESULT, Register, Width};
use super::place::{Disk, FileSystem, Kind, Namespace};

/// What is counted, by its place among the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counter {
    AskedUnplugs,
    AskedRequests,
    SleepingUnplugs,
    SleepingRequests,
    FullUnplugs,
    Bios,
    Made,
    Inserts,
    Issues,
    IssuedBytes,
    /// Issued, and not taken: issued once more later.
    Requeues,
    Completions,
    CompletionRuns,
    PolledCompletions,
    WorkerRuns,
    TaskWorkRuns,
    TaskWorkItems,
    RingCompletions,
    Enters,
    WritebackRuns,
    WritebackPages,
    SystemCalls,
    /// Of the journal of ext4. On XFS: writes of the log that hold a commit record.
    Commits,
    /// Flush commands issued to the disk.
    Flushes,
    /// Requests in the plug that the last one of this processor went into; 0 if into none.
    Plugged,
    /// Whether this processor is in an interrupt, and how many it has had; the last that completed
    /// something.
    InInterrupt,
    Interrupts,
    LastInterrupt,
    /// The same of the block layer's software interrupts.
    InSoftInterrupt,
    SoftInterrupts,
    LastSoftInterrupt,
}

/// How many counters there are.
pub(super) const COUNTERS: usize = Counter::LastSoftInterrupt as usize + 1;

/// The kernel's number of the software interrupt in which the block layer ends requests.
const BLOCK_SOFTIRQ: i32 = 4;

/// The kernel's numbers of a flush among the operations of a request, and of their bits.
const OPERATION_FLUSH: i32 = 2;
const OPERATION_BITS: i32 = 0xff;

/// Flag of a buffer of the XFS log that holds a commit record (`XLOG_ICL_NEED_FUA`).
const HOLDS_COMMIT: i32 = 2;

/// As many requests fill a plug (`BLK_MAX_REQUEST_COUNT`).
const FULL_PLUG: i32 = 32;

/// Below the top of the stack: the key of the counters.
const KEY: u8 = 8;
/// What a helper writes: the numbers of a task and of its process.
const TASK: u8 = 16;

/// What programs work with.
#[derive(Debug)]
pub(super) struct Means<'a> {
    pub(super) counters: BorrowedFd<'a>,
    pub(super) disk: Option<Disk>,
    pub(super) file_system: FileSystem,
    pub(super) process: u32,
    pub(super) namespace: Namespace,
    /// Addresses of the workers that end I/O.
    pub(super) workers: &'a [u64],
    pub(super) ring: Ring,
}

/// A program and where it goes.
#[derive(Debug)]
pub(super) struct Program {
    /// The kernel's number of the tracepoint.
    pub(super) to: u32,
    pub(super) instructions: Vec<u64>,
}

/// What belongs together: counted as a whole, or not at all.
#[derive(Debug)]
pub(super) struct Group {
    /// What is not counted if one of these cannot run.
    pub(super) what: &'static str,
    /// None where the kernel's own forms are others.
    pub(super) programs: Option<Vec<Program>>,
}

/// All of them, for this kernel.
pub(super) fn groups(btf: &Btf, means: &Means<'_>) -> Vec<Group> {
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
    if means.ring == Ring::Used {
        groups.push(Group { what: "items of task work", programs: writer.task_work() });
        groups.push(Group { what: "io_uring completions", programs: writer.ring() });
    }
    groups
}

/// The program of a counter that is counted by itself.
pub(super) fn alone(counter: Counter, btf: &Btf, means: &Means<'_>) -> Option<Program> {
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

#[derive(Clone, Copy)]
struct Writer<'a> {
    btf: &'a Btf,
    means: &'a Means<'a>,
}

impl Writer<'_> {
    fn system_calls(self) -> Option<Program> {
        let mut code = begun();
        self.only_this_process(&mut code);
        self.find_counters(&mut code);
        count(&mut code, Counter::SystemCalls);
        self.at("sys_enter", None, code)
    }

    fn commits(self) -> Option<Program> {
        let [context, ..] = KEPT;
        let [number, flags, ..] = ARGUMENTS;
        let mut code = begun();
        code.load(number, Width::Eight, context, 0);
        let (tracepoint, first) = match self.means.file_system.kind {
            Kind::Ext4 => {
                self.follow(&mut code, number, "journal_s", "j_fs_dev")?;
                code.load(number, Width::Four, number, self.btf.member("block_device", "bd_dev")?);
                ("jbd2_end_commit", "journal_s")
            }
            Kind::Xfs => {
                let member = self.btf.member("xlog_in_core", "ic_flags")?;
                code.load(flags, Width::Four, number, member);
                code.and_number(flags, HOLDS_COMMIT);
                code.jump_if_equal(flags, 0, END);
                self.follow(&mut code, number, "xlog_in_core", "ic_log")?;
                self.follow(&mut code, number, "xlog", "l_mp")?;
                self.follow(&mut code, number, "xfs_mount", "m_super")?;
                code.load(number, Width::Four, number, self.btf.member("super_block", "s_dev")?);
                ("xlog_iclog_write", "xlog_in_core")
            }
            Kind::Other => return None,
        };
        self.only_on_file_system(&mut code, number);
        self.find_counters(&mut code);
        count(&mut code, Counter::Commits);
        self.at(tracepoint, Some(first), code)
    }

    fn flushes(self, disk: Disk) -> Option<Program> {
        let [context, operation, ..] = KEPT;
        let mut code = begun();
        self.request(&mut code, disk)?;
        code.load(operation, Width::Eight, context, 0);
        code.load(operation, Width::Four, operation, self.btf.member("request", "cmd_flags")?);
        code.and_number(operation, OPERATION_BITS);
        code.jump_if_other(operation, OPERATION_FLUSH, END);
        self.find_counters(&mut code);
        count(&mut code, Counter::Flushes);
        self.at("block_rq_issue", Some("request"), code)
    }

    fn unplug(self, disk: Disk) -> Option<Program> {
        let [context, _, _, depth] = KEPT;
        let [asked, queue, ..] = ARGUMENTS;
        let mut code = begun();
        code.load(queue, Width::Eight, context, 0);
        self.only_on(&mut code, queue, disk)?;
        code.load(depth, Width::Eight, context, 8);
        code.copy_lower(depth, depth);
        self.find_counters(&mut code);
        code.load(queue, Width::Eight, KEPT[2], offset(Counter::Plugged));
        code.jump_if_less(queue, depth, END);
        code.subtract(queue, depth);
        code.store(KEPT[2], offset(Counter::Plugged), queue);
        let (sleeping, not_full) = (code.label(), code.label());
        code.jump_if_below(depth, FULL_PLUG, not_full);
        count(&mut code, Counter::FullUnplugs);
        code.place(not_full);
        code.load(asked, Width::Eight, context, 16);
        // A truth value: only its lowest byte is told.
        code.and_number(asked, 0xff);
        code.jump_if_equal(asked, 0, sleeping);
        count(&mut code, Counter::AskedUnplugs);
        add(&mut code, Counter::AskedRequests, depth);
        code.jump(END);
        code.place(sleeping);
        count(&mut code, Counter::SleepingUnplugs);
        add(&mut code, Counter::SleepingRequests, depth);
        self.at("block_unplug", Some("request_queue"), code)
    }

    fn requests(self, disk: Disk) -> Option<Vec<Program>> {
        let [context, what, _, bytes] = KEPT;
        let [disk_of_it, ..] = ARGUMENTS;
        let of_bio = |counter| {
            let mut code = begun();
            code.load(disk_of_it, Width::Eight, context, 0);
            self.follow(&mut code, disk_of_it, "bio", "bi_bdev")?;
            self.follow(&mut code, disk_of_it, "block_device", "bd_disk")?;
            self.only_of(&mut code, disk_of_it, disk)?;
            self.find_counters(&mut code);
            count(&mut code, counter);
            Some(code)
        };

        let mut made = of_bio(Counter::Made)?;
        let (plugged, counted) = (what, made.label());
        made.call(Helper::CurrentTask);
        self.follow(&mut made, RESULT, "task_struct", "plug")?;
        made.set(plugged, 0);
        made.jump_if_equal(RESULT, 0, counted);
        made.load(plugged, Width::Two, RESULT, self.btf.member("blk_plug", "rq_count")?);
        // It is about to go into it.
        made.add_number(plugged, 1);
        made.place(counted);
        made.store(KEPT[2], offset(Counter::Plugged), plugged);

        let mut inserts = begun();
        self.request(&mut inserts, disk)?;
        self.find_counters(&mut inserts);
        count(&mut inserts, Counter::Inserts);

        let mut issues = begun();
        self.request(&mut issues, disk)?;
        issues.load(what, Width::Eight, context, 0);
        issues.load(bytes, Width::Four, what, self.btf.member("request", "__data_len")?);
        self.find_counters(&mut issues);
        count(&mut issues, Counter::Issues);
        add(&mut issues, Counter::IssuedBytes, bytes);

        let mut requeues = begun();
        self.request(&mut requeues, disk)?;
        self.find_counters(&mut requeues);
        count(&mut requeues, Counter::Requeues);
        Some(vec![
            self.at("block_bio_queue", Some("bio"), of_bio(Counter::Bios)?)?,
            self.at("block_getrq", Some("bio"), made)?,
            self.unplug(disk)?,
            self.at("block_rq_insert", Some("request"), inserts)?,
            self.at("block_rq_issue", Some("request"), issues)?,
            self.at("block_rq_requeue", Some("request"), requeues)?,
        ])
    }

    fn completions(self, disk: Disk) -> Option<Vec<Program>> {
        let [_, _, counters, _] = KEPT;
        let [value, last, ..] = ARGUMENTS;
        let mut code = begun();
        self.request(&mut code, disk)?;
        self.find_counters(&mut code);
        count(&mut code, Counter::Completions);
        let (soft, polled) = (code.label(), code.label());
        let interrupts = [
            (Counter::InInterrupt, Counter::Interrupts, Counter::LastInterrupt, soft),
            (Counter::InSoftInterrupt, Counter::SoftInterrupts, Counter::LastSoftInterrupt, polled),
        ];
        for (inside, number, last_number, otherwise) in interrupts {
            code.load(value, Width::Eight, counters, offset(inside));
            code.jump_if_equal(value, 0, otherwise);
            code.load(value, Width::Eight, counters, offset(number));
            code.load(last, Width::Eight, counters, offset(last_number));
            code.jump_if_same(value, last, END);
            code.store(counters, offset(last_number), value);
            count(&mut code, Counter::CompletionRuns);
            code.jump(END);
            code.place(otherwise);
        }
        count(&mut code, Counter::PolledCompletions);

        let mut interrupt = begun();
        self.enter(&mut interrupt, Counter::Interrupts, Counter::InInterrupt);
        let mut interrupt_over = begun();
        self.leave(&mut interrupt_over, Counter::InInterrupt);
        let mut soft_interrupt = begun();
        of_block(&mut soft_interrupt);
        self.enter(&mut soft_interrupt, Counter::SoftInterrupts, Counter::InSoftInterrupt);
        let mut soft_interrupt_over = begun();
        of_block(&mut soft_interrupt_over);
        self.leave(&mut soft_interrupt_over, Counter::InSoftInterrupt);
        Some(vec![
            self.at("irq_handler_entry", None, interrupt)?,
            self.at("irq_handler_exit", None, interrupt_over)?,
            self.at("softirq_entry", None, soft_interrupt)?,
            self.at("softirq_exit", None, soft_interrupt_over)?,
            // Last: before it is known whether a processor is in an interrupt nothing is counted.
            self.at("block_rq_complete", Some("request"), code)?,
        ])
    }

    fn workers(self) -> Option<Program> {
        let [context, ..] = KEPT;
        let [work, known, ..] = ARGUMENTS;
        let mut code = begun();
        let found = code.label();
        code.load(work, Width::Eight, context, 0);
        code.load(work, Width::Eight, work, self.btf.member("work_struct", "func")?);
        for &worker in self.means.workers {
            code.set_wide(known, worker);
            code.jump_if_same(work, known, found);
        }
        code.jump(END);
        code.place(found);
        self.find_counters(&mut code);
        count(&mut code, Counter::WorkerRuns);
        self.at("workqueue_execute_start", Some("work_struct"), code)
    }

    /// Both kinds: of a task, and of a ring that keeps it to itself.
    fn task_work(self) -> Option<Vec<Program>> {
        let run = |name| {
            let [context, _, _, items] = KEPT;
            let mut code = begun();
            self.only_this_process(&mut code);
            code.load(items, Width::Eight, context, 8);
            code.copy_lower(items, items);
            code.jump_if_equal(items, 0, END);
            self.find_counters(&mut code);
            count(&mut code, Counter::TaskWorkRuns);
            add(&mut code, Counter::TaskWorkItems, items);
            self.at(name, None, code)
        };
        Some(vec![run("io_uring_task_work_run")?, run("io_uring_local_work_run")?])
    }

    /// What a ring has ended, and the calls into the kernel that rings are handed over and waited
    /// for by.
    fn ring(self) -> Option<Vec<Program>> {
        let [context, ..] = KEPT;
        let [call, ..] = ARGUMENTS;
        let mut ended = begun();
        self.only_this_process(&mut ended);
        self.find_counters(&mut ended);
        count(&mut ended, Counter::RingCompletions);
        let mut enters = begun();
        enters.load(call, Width::Eight, context, 8);
        enters.jump_if_other(call, i32::try_from(libc::SYS_io_uring_enter).ok()?, END);
        self.only_this_process(&mut enters);
        self.find_counters(&mut enters);
        count(&mut enters, Counter::Enters);
        Some(vec![self.at("io_uring_complete", None, ended)?, self.at("sys_enter", None, enters)?])
    }

    /// ext4 tells of every run what it has written; the others are told about by who writes inodes
    /// back in the background, which says how much it might write, and what was left of that is
    /// still there to be read.
    fn writeback(self) -> Option<Program> {
        let [context, _, _, pages] = KEPT;
        let [inode, _, control, ..] = ARGUMENTS;
        let mut code = begun();
        code.load(inode, Width::Eight, context, 0);
        self.follow(&mut code, inode, "inode", "i_sb")?;
        code.load(inode, Width::Four, inode, self.btf.member("super_block", "s_dev")?);
        self.only_on_file_system(&mut code, inode);
        let tracepoint = match self.means.file_system.kind {
            Kind::Ext4 => {
                code.load(pages, Width::Eight, context, 24);
                code.copy_lower(pages, pages);
                "ext4_writepages_result"
            }
            Kind::Xfs | Kind::Other => {
                code.load(pages, Width::Eight, context, 16);
                code.load(control, Width::Eight, context, 8);
                let left = self.btf.member("writeback_control", "nr_to_write")?;
                code.load(control, Width::Eight, control, left);
                code.subtract(pages, control);
                "writeback_single_inode"
            }
        };
        code.jump_if_not_above_zero(pages, END);
        self.find_counters(&mut code);
        count(&mut code, Counter::WritebackRuns);
        add(&mut code, Counter::WritebackPages, pages);
        self.at(tracepoint, Some("inode"), code)
    }

    fn at(self, tracepoint: &str, first: Option<&str>, code: Code) -> Option<Program> {
        let to = self.btf.tracepoint(tracepoint, first)?;
        Some(Program { to, instructions: code.finish() })
    }

    /// Ends it where the request is not of the disk.
    fn request(self, code: &mut Code, disk: Disk) -> Option<()> {
        let [queue, ..] = ARGUMENTS;
        code.load(queue, Width::Eight, KEPT[0], 0);
        self.follow(code, queue, "request", "q")?;
        self.only_on(code, queue, disk)
    }

    /// Ends it where the queue is not that of the disk.
    fn only_on(self, code: &mut Code, queue: Register, disk: Disk) -> Option<()> {
        self.follow(code, queue, "request_queue", "disk")?;
        self.only_of(code, queue, disk)
    }

    fn only_of(self, code: &mut Code, found: Register, disk: Disk) -> Option<()> {
        let number = ARGUMENTS[3];
        for (member, wanted) in [("major", disk.major), ("first_minor", disk.minor)] {
            code.load(number, Width::Four, found, self.btf.member("gendisk", member)?);
            code.jump_if_other(number, i32::try_from(wanted).ok()?, END);
        }
        Some(())
    }

    /// From a struct to what it points to.
    fn follow(self, code: &mut Code, pointer: Register, of: &str, member: &str) -> Option<()> {
        code.load(pointer, Width::Eight, pointer, self.btf.member(of, member)?);
        Some(())
    }

    /// Ends the program if the number is not that of the file system.
    fn only_on_file_system(self, code: &mut Code, number: Register) {
        let wanted = ARGUMENTS[1];
        let here = code.label();
        code.set_wide(wanted, u64::from(self.means.file_system.number));
        code.jump_if_same(number, wanted, here);
        code.jump(END);
        code.place(here);
    }

    /// Ends it where another process runs. Its number is that of our own namespace, which need not
    /// be the kernel's.
    fn only_this_process(self, code: &mut Code) {
        let [device, number, task, bytes] = ARGUMENTS;
        let Namespace { device: its_device, number: its_number } = self.means.namespace;
        code.set(RESULT, 0);
        code.store_on_stack(TASK, RESULT);
        code.set_wide(device, its_device);
        code.set_wide(number, its_number);
        code.address_on_stack(task, TASK);
        code.set(bytes, 8);
        code.call(Helper::CurrentProcessIn);
        code.jump_if_other(RESULT, 0, END);
        code.load_from_stack(device, Width::Four, TASK - 4);
        code.set_wide(number, u64::from(self.means.process));
        let ours = code.label();
        code.jump_if_same(device, number, ours);
        code.jump(END);
        code.place(ours);
    }

    fn find_counters(self, code: &mut Code) {
        let [map, key, ..] = ARGUMENTS;
        code.set(RESULT, 0);
        code.store_on_stack(KEY, RESULT);
        code.set_map(map, self.means.counters);
        code.address_on_stack(key, KEY);
        code.call(Helper::MapLookup);
        code.jump_if_equal(RESULT, 0, END);
        code.copy(KEPT[2], RESULT);
    }

    fn enter(self, code: &mut Code, number: Counter, inside: Counter) {
        self.find_counters(code);
        count(code, number);
        code.set(ARGUMENTS[0], 1);
        code.store(KEPT[2], offset(inside), ARGUMENTS[0]);
    }

    fn leave(self, code: &mut Code, inside: Counter) {
        self.find_counters(code);
        code.set(ARGUMENTS[0], 0);
        code.store(KEPT[2], offset(inside), ARGUMENTS[0]);
    }
}

/// With what it is given kept.
fn begun() -> Code {
    let mut code = Code::new();
    code.copy(KEPT[0], ARGUMENTS[0]);
    code
}

/// Ends it in another software interrupt.
fn of_block(code: &mut Code) {
    code.load(ARGUMENTS[0], Width::Eight, KEPT[0], 0);
    code.copy_lower(ARGUMENTS[0], ARGUMENTS[0]);
    code.jump_if_other(ARGUMENTS[0], BLOCK_SOFTIRQ, END);
}

fn count(code: &mut Code, counter: Counter) {
    code.load(ARGUMENTS[0], Width::Eight, KEPT[2], offset(counter));
    code.add_number(ARGUMENTS[0], 1);
    code.store(KEPT[2], offset(counter), ARGUMENTS[0]);
}

fn add(code: &mut Code, counter: Counter, amount: Register) {
    code.load(ARGUMENTS[0], Width::Eight, KEPT[2], offset(counter));
    code.add(ARGUMENTS[0], amount);
    code.store(KEPT[2], offset(counter), ARGUMENTS[0]);
}

fn offset(counter: Counter) -> u32 {
    counter as u32 * 8
}
