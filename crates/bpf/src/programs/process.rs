//! Work of this process in the kernel: system calls, task work, completions of io_uring.

use crate::code::{ARGUMENTS, END, KEPT, Width};
use crate::counter::Counter;

use super::writer::{Program, Writer, add, begun};

impl Writer<'_> {
    pub(super) fn system_calls(self) -> Option<Program> {
        let mut code = begun();
        self.only_this_process(&mut code);
        self.count(&mut code, Counter::SystemCalls);
        self.at("sys_enter", None, code)
    }

    /// Task work of a task, and of a ring with deferred task work.
    pub(super) fn task_work(self) -> Option<Vec<Program>> {
        let run = |name| {
            let [context, _, _, items] = KEPT;
            let mut code = begun();
            self.only_this_process(&mut code);
            code.load(items, Width::Eight, context, 8);
            code.copy_lower(items, items);
            code.jump_if_equal(items, 0, END);
            self.count(&mut code, Counter::TaskWorkRuns);
            add(&mut code, Counter::TaskWorkItems, items);
            self.at(name, None, code)
        };
        Some(vec![run("io_uring_task_work_run")?, run("io_uring_local_work_run")?])
    }

    /// Completions of rings, and calls of `io_uring_enter`.
    pub(super) fn ring(self) -> Option<Vec<Program>> {
        let [context, ..] = KEPT;
        let [call, ..] = ARGUMENTS;
        let mut ended = begun();
        self.only_this_process(&mut ended);
        self.count(&mut ended, Counter::RingCompletions);
        let mut enters = begun();
        enters.load(call, Width::Eight, context, 8);
        enters.jump_if_other(call, i32::try_from(libc::SYS_io_uring_enter).ok()?, END);
        self.only_this_process(&mut enters);
        self.count(&mut enters, Counter::Enters);
        Some(vec![self.at("io_uring_complete", None, ended)?, self.at("sys_enter", None, enters)?])
    }
}
