//! The report of a run that failed: the reason, and the wait of each task.

use std::fmt;

use forebay_block::Moment;

use super::state::{MUTEX, State, Status, TaskId};

/// Lines of the trace that a report prints.
const LINES: usize = 60;

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The reason of the failure.
    pub message: String,
    /// The virtual time of it.
    pub at: Moment,
    /// All tasks that were not done.
    pub tasks: Vec<Waiting>,
    /// The lines of the trace, if they were kept.
    pub trace: Vec<String>,
}

/// A task that was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Its number.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// The name of its process.
    pub process: String,
    /// Its activity or its wait.
    pub state: String,
}

impl Failure {
    pub(super) fn new(seed: u64, message: String, state: &State) -> Self {
        let at = Moment::from_nanoseconds(state.now);
        Self { seed, message, at, tasks: tasks_of(state), trace: Vec::new() }
    }
}

fn tasks_of(state: &State) -> Vec<Waiting> {
    let tasks = state.tasks.iter().zip(0..);
    let left = tasks.filter(|(task, _)| task.status != Status::Done);
    left.map(|(task, number)| Waiting {
        task: TaskId(number),
        name: task.name.clone(),
        process: state.processes[task.process.0 as usize].name.clone(),
        state: describe(state, task.status),
    })
    .collect()
}

fn describe(state: &State, status: Status) -> String {
    let Status::Waiting { on, until } = status else { return "can run".to_owned() };
    let mut text = format!("waits for {on}");
    if on.what == MUTEX
        && let Some(owner) = state.owner(on.number)
    {
        let name = &state.tasks[owner.0 as usize].name;
        text.push_str(&format!(", held by task {} ({name})", owner.0));
    }
    if let Some(until) = until {
        text.push_str(&format!(", until {until} ns"));
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, message, at, tasks, trace } = self;
        for line in &trace[trace.len().saturating_sub(LINES)..] {
            writeln!(formatter, "{line}")?;
        }
        writeln!(formatter, "seed {seed}, at {} ns: {message}", at.nanoseconds())?;
        for Waiting { task, name, process, state } in tasks {
            writeln!(formatter, "  task {:>3} {name:<18} process {process:<10} {state}", task.0)?;
        }
        Ok(())
    }
}
