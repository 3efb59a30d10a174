//! Parts that all programs have in common.

use std::os::fd::BorrowedFd;

use crate::btf::Btf;
use crate::code::{ARGUMENTS, Code, END, Helper, KEPT, RESULT, Register, Width};
use crate::counter::Counter;
use crate::place::{Disk, Place};

/// Number of the software interrupt that completes requests.
const BLOCK_SOFTIRQ: i32 = 4;

/// Offset below the top of the stack: the key of the counters.
const KEY: u8 = 8;
/// Offset below the top of the stack: the numbers of a task and of its process.
const TASK: u8 = 16;

/// A program and its tracepoint.
#[derive(Debug)]
pub(crate) struct Program {
    /// Number of the tracepoint in BTF.
    pub(crate) to: u32,
    pub(crate) instructions: Vec<u64>,
}

/// Writes programs for the running kernel. A method returns `None` if the kernel has no such
/// tracepoint, struct or member.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) btf: &'a Btf,
    pub(crate) counters: BorrowedFd<'a>,
    pub(crate) place: Place<'a>,
    /// The namespace of the numbers of processes: its device and its number.
    pub(crate) namespace: (u64, u64),
}

impl Writer<'_> {
    pub(super) fn at(self, tracepoint: &str, first: Option<&str>, code: Code) -> Option<Program> {
        let to = self.btf.tracepoint(tracepoint, first)?;
        Some(Program { to, instructions: code.finish() })
    }

    /// Ends the program if the request, its first argument, is not for the disk.
    pub(super) fn request(self, code: &mut Code, disk: Disk) -> Option<()> {
        let [queue, ..] = ARGUMENTS;
        code.load(queue, Width::Eight, KEPT[0], 0);
        self.follow(code, queue, "request", "q")?;
        self.only_on(code, queue, disk)
    }

    /// Ends the program if the queue is not that of the disk.
    pub(super) fn only_on(self, code: &mut Code, queue: Register, disk: Disk) -> Option<()> {
        self.follow(code, queue, "request_queue", "disk")?;
        self.only_of(code, queue, disk)
    }

    pub(super) fn only_of(self, code: &mut Code, found: Register, disk: Disk) -> Option<()> {
        let number = ARGUMENTS[3];
        for (member, wanted) in [("major", disk.major), ("first_minor", disk.minor)] {
            code.load(number, Width::Four, found, self.btf.member("gendisk", member)?);
            code.jump_if_other(number, i32::try_from(wanted).ok()?, END);
        }
        Some(())
    }

    /// Loads a pointer that is a member of a struct.
    pub(super) fn follow(
        self,
        code: &mut Code,
        pointer: Register,
        of: &str,
        member: &str,
    ) -> Option<()> {
        code.load(pointer, Width::Eight, pointer, self.btf.member(of, member)?);
        Some(())
    }

    /// Ends the program if the number is not that of the file system.
    pub(super) fn only_on_file_system(self, code: &mut Code, number: Register) {
        let (wanted, device) = (ARGUMENTS[1], self.place.file_system.device);
        assert!(device.minor < 1 << 20, "a minor number has 20 bits");
        code.set_wide(wanted, u64::from(device.major << 20 | device.minor));
        code.jump_unless_same(number, wanted, END);
    }

    /// Ends the program if another process runs. Its number is the one in the namespace of this
    /// process, which may differ from the kernel's.
    pub(super) fn only_this_process(self, code: &mut Code) {
        let [device, number, task, bytes] = ARGUMENTS;
        code.set(RESULT, 0);
        code.store_on_stack(TASK, RESULT);
        code.set_wide(device, self.namespace.0);
        code.set_wide(number, self.namespace.1);
        code.address_on_stack(task, TASK);
        code.set(bytes, 8);
        code.call(Helper::CurrentProcessIn);
        code.jump_if_other(RESULT, 0, END);
        code.load_from_stack(device, Width::Four, TASK - 4);
        code.set_wide(number, u64::from(std::process::id()));
        code.jump_unless_same(device, number, END);
    }

    pub(super) fn find_counters(self, code: &mut Code) {
        let [map, key, ..] = ARGUMENTS;
        code.set(RESULT, 0);
        code.store_on_stack(KEY, RESULT);
        code.set_map(map, self.counters);
        code.address_on_stack(key, KEY);
        code.call(Helper::MapLookup);
        code.jump_if_equal(RESULT, 0, END);
        code.copy(KEPT[2], RESULT);
    }

    /// Finds the counters and counts in one of them.
    pub(super) fn count(self, code: &mut Code, counter: Counter) {
        self.find_counters(code);
        count(code, counter);
    }

    pub(super) fn enter(self, code: &mut Code, number: Counter, inside: Counter) {
        self.count(code, number);
        code.set(ARGUMENTS[0], 1);
        code.store(KEPT[2], offset(inside), ARGUMENTS[0]);
    }

    pub(super) fn leave(self, code: &mut Code, inside: Counter) {
        self.find_counters(code);
        code.set(ARGUMENTS[0], 0);
        code.store(KEPT[2], offset(inside), ARGUMENTS[0]);
    }
}

/// Begins a program, and keeps its argument.
pub(super) fn begun() -> Code {
    let mut code = Code::new();
    code.copy(KEPT[0], ARGUMENTS[0]);
    code
}

/// Ends the program in a software interrupt other than the block layer's.
pub(super) fn of_block(code: &mut Code) {
    code.load(ARGUMENTS[0], Width::Eight, KEPT[0], 0);
    code.copy_lower(ARGUMENTS[0], ARGUMENTS[0]);
    code.jump_if_other(ARGUMENTS[0], BLOCK_SOFTIRQ, END);
}

pub(super) fn count(code: &mut Code, counter: Counter) {
    code.load(ARGUMENTS[0], Width::Eight, KEPT[2], offset(counter));
    code.add_number(ARGUMENTS[0], 1);
    code.store(KEPT[2], offset(counter), ARGUMENTS[0]);
}

/// Counts in the counter at an index behind the first; both registers are changed.
pub(super) fn count_at(code: &mut Code, first: Counter, index: Register) {
    code.shift_left(index, 3);
    code.add(KEPT[2], index);
    count(code, first);
}

pub(super) fn add(code: &mut Code, counter: Counter, amount: Register) {
    code.load(ARGUMENTS[0], Width::Eight, KEPT[2], offset(counter));
    code.add(ARGUMENTS[0], amount);
    code.store(KEPT[2], offset(counter), ARGUMENTS[0]);
}

pub(super) fn offset(counter: Counter) -> u32 {
    counter as u32 * 8
}
