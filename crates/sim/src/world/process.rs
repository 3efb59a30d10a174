//! Processes: groups of tasks that die together.

use super::here::{current, is_killed, world};
use super::state::{Ended, Process, ProcessState, State, Status, TaskId};

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

impl State {
    pub(super) fn kill(&mut self, process: Process) {
        let state = &mut self.processes[process.0 as usize];
        if std::mem::replace(&mut state.is_killed, true) {
            return;
        }
        for at in 0..self.tasks.len() {
            let id = TaskId(at as u32);
            let task = self.task(id);
            if task.process != process || task.status == Status::Done {
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
