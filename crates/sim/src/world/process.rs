//! Processes: groups of tasks that die together.

use super::{Ended, current, world};

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Process(pub u32);

impl Process {
    /// The test itself, and everything outside tasks.
    pub const TEST: Process = Process(0);
}

#[derive(Debug)]
pub(super) struct ProcessState {
    pub(super) name: String,
    pub(super) is_killed: bool,
}

impl ProcessState {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), is_killed: false }
    }
}

/// Makes a process without tasks.
///
/// # Panics
/// Outside a world.
#[must_use]
pub fn new_process(name: &str) -> Process {
    let world = world();
    let mut state = world.state();
    state.processes.push(ProcessState::new(name));
    Process(state.processes.len() as u32 - 1)
}

/// The process of the running task.
#[must_use]
pub fn process() -> Process {
    let Some(world) = current() else { return Process::TEST };
    world.running().map_or(Process::TEST, |id| world.state().task(id).process)
}

/// Whether the process of the running task was killed. Calls on files and devices do nothing then.
#[must_use]
pub fn is_dead() -> bool {
    is_killed(process())
}

/// Whether a process was killed.
#[must_use]
pub fn is_killed(process: Process) -> bool {
    current().is_some_and(|world| world.state().processes[process.0 as usize].is_killed)
}

/// Kills a process. Returns when none of its tasks is left; no task of another process runs in
/// between. A task that kills its own process does not return.
///
/// Tasks that hold a mutex run on until they hold none, since the data behind it is borrowed. Then
/// every task is unwound. Waits of a killed process end at once, with their deadline passed.
///
/// # Panics
/// Outside a world, and for the process of the test.
pub fn kill(process: Process) {
    assert_ne!(process, Process::TEST, "the test itself cannot be killed");
    let world = world();
    world.state().kill(process);
    world.trace(format_args!("process {} killed", process.0));
    world.yield_now();
}

impl super::state::State {
    pub(super) fn kill(&mut self, process: Process) {
        let state = &mut self.processes[process.0 as usize];
        if std::mem::replace(&mut state.is_killed, true) {
            return;
        }
        for at in 0..self.tasks.len() {
            let id = super::TaskId(at as u32);
            let task = self.task(id);
            if task.process != process || task.status == super::state::Status::Done {
                continue;
            }
            self.dying += 1;
            self.end_wait(id, Ended::TimedOut);
        }
    }

    pub(super) fn kill_all(&mut self) {
        for process in 0..self.processes.len() as u32 {
            self.kill(Process(process));
        }
    }
}
