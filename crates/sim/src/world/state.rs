//! The tables of the scheduler: tasks, runnable tasks, waits with their deadlines, mutexes.
//!
//! Every task that is not done is in `runnable` or in exactly one line of `waiting`; one that waits
//! until a time is in `deadlines` too.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::task::Waker;

use crate::random::Random;

/// The reason of a wait for a mutex.
pub(super) const MUTEX: &str = "mutex";

/// The number of a task, in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskId(pub(super) u32);

impl TaskId {
    /// Returns the number.
    #[must_use]
    pub fn number(self) -> u64 {
        u64::from(self.0)
    }
}

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

/// The reason of a wait: a fixed text and a number, such as the doorbell of context 2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reason {
    /// The kind of wait.
    pub what: &'static str,
    /// The number within the kind.
    pub number: u64,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.what, self.number)
    }
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Another task or an event woke this task.
    Woken,
    /// The deadline passed, or the process of the task was killed.
    TimedOut,
}

/// The values of one task.
#[derive(Default)]
pub(super) struct Locals {
    pub(super) values: Vec<(usize, Rc<dyn Any>, Ends)>,
    pub(super) dropped: Vec<usize>,
}

/// The fate of a value at the end of its task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// It has a destructor, after which it cannot be reached.
    WithDrop,
    /// It has none, and can be reached in the destructors of others.
    Silently,
}

impl fmt::Debug for Locals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Locals").field(&self.values.len()).finish()
    }
}

/// One simulated thread.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) process: Process,
    pub(super) status: Status,
    /// How its last wait ended.
    pub(super) ended: Ended,
    /// Whether `unpark` was called since the last `park`.
    pub(super) token: bool,
    /// Whether another task, or an event, did so.
    pub(super) is_woken_by_others: bool,
    /// Times in a row that it parked after it had unparked itself.
    pub(super) own_wakes: u32,
    /// Whether it unwinds because its process was killed.
    pub(super) is_unwinding: bool,
    /// Simulated mutexes it holds.
    pub(super) holds: u32,
    /// Whether the engine marked it as one of its own threads.
    pub(super) is_ours: bool,
    /// Waits it asked for since its process was killed.
    pub(super) waits_after_death: u32,
    /// The time it sees after its death: each deadline it waits for passes at once.
    pub(super) late: u64,
    pub(super) locals: Locals,
    /// Processor time it has used, in nanoseconds.
    pub(super) spent: u64,
    /// Whether it has waited since it used a processor.
    pub(super) has_slept: bool,
    pub(super) waker: Option<Waker>,
}

/// The state of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Runnable,
    Waiting { on: Reason, until: Option<u64> },
    Done,
}

/// A processor where processor time has a price.
#[derive(Clone, Copy, Default, Debug)]
struct Processor {
    /// End of the work given to it.
    free_at: u64,
    last: Option<TaskId>,
}

/// Nanoseconds of processor time to go from one task to another, or to wake up for one: 0.73 s for
/// the 200,000 switches of `taskset -c 0 perf bench sched pipe -l 100000`, user and system, on the
/// machine of the measurements.
const SWITCH: u64 = 3_700;

/// The reason of a wait for the end of work on a processor.
pub(super) const PROCESSOR: &str = "processor";

/// The tables.
#[derive(Debug)]
pub(super) struct State {
    pub(super) now: u64,
    /// Draws the order of tasks.
    pub(super) order: Random,
    pub(super) tasks: Vec<Task>,
    pub(super) processes: Vec<ProcessState>,
    /// Tasks that can run, in no order that matters: one is picked at random.
    pub(super) runnable: Vec<TaskId>,
    waiting: BTreeMap<Reason, Vec<TaskId>>,
    deadlines: BTreeSet<(u64, TaskId)>,
    /// The task that holds each locked mutex.
    owners: BTreeMap<u64, TaskId>,
    /// Tasks of killed processes that are not done.
    pub(super) dying: u32,
    processors: Vec<Processor>,
}

impl State {
    pub(super) fn new(order: Random, processors: usize) -> Self {
        Self {
            now: 0,
            order,
            tasks: Vec::new(),
            processes: vec![ProcessState::new("test")],
            runnable: Vec::new(),
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            owners: BTreeMap::new(),
            dying: 0,
            processors: vec![Processor::default(); processors],
        }
    }

    pub(super) fn task(&mut self, id: TaskId) -> &mut Task {
        &mut self.tasks[id.0 as usize]
    }

    /// Gives work of a task, or of the kernel, to a processor: to the one that the task was on if
    /// it is free, or else to the one that is free first. Work is done in the order it
    /// came. Returns its end.
    pub(super) fn occupy(&mut self, id: Option<TaskId>, nanoseconds: u64) -> u64 {
        let now = self.now;
        let order = |processor: &&mut Processor| {
            let is_other = processor.last != id || id.is_none();
            (processor.free_at.max(now), is_other, processor.last.is_some())
        };
        let processor = self.processors.iter_mut().min_by_key(order).expect("there is one");
        let has_slept = id.is_none_or(|id| self.tasks[id.0 as usize].has_slept);
        let switch = if processor.last == id && !has_slept { 0 } else { SWITCH };
        processor.last = id;
        processor.free_at = processor.free_at.max(now) + switch + nanoseconds;
        let end = processor.free_at;
        if let Some(id) = id {
            let task = self.task(id);
            task.spent += switch + nanoseconds;
            task.has_slept = false;
        }
        end
    }

    pub(super) fn is_dead(&self, id: TaskId) -> bool {
        let process = self.tasks[id.0 as usize].process;
        self.processes[process.0 as usize].is_killed
    }

    pub(super) fn add(&mut self, name: String, process: Process) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        self.tasks.push(Task {
            name,
            process,
            status: Status::Runnable,
            ended: Ended::Woken,
            token: false,
            is_woken_by_others: false,
            own_wakes: 0,
            is_unwinding: false,
            holds: 0,
            is_ours: false,
            waits_after_death: 0,
            late: 0,
            locals: Locals::default(),
            spent: 0,
            has_slept: false,
            waker: None,
        });
        self.runnable.push(id);
        id
    }

    /// Takes a task out of those that can run: it runs, waits or is done after.
    pub(super) fn take_runnable(&mut self, at: usize) -> TaskId {
        self.runnable.swap_remove(at)
    }

    /// A task that ran can go on.
    pub(super) fn set_runnable(&mut self, id: TaskId) {
        debug_assert!(!self.runnable.contains(&id), "a task is runnable once");
        self.task(id).status = Status::Runnable;
        self.runnable.push(id);
    }

    /// The running task waits.
    pub(super) fn wait(&mut self, id: TaskId, on: Reason, until: Option<u64>) {
        debug_assert!(!self.runnable.contains(&id), "the running task is not in the list");
        let task = self.task(id);
        task.has_slept |= on.what != PROCESSOR;
        task.status = Status::Waiting { on, until };
        self.waiting.entry(on).or_default().push(id);
        if let Some(until) = until {
            self.deadlines.insert((until, id));
        }
    }

    pub(super) fn wake_all(&mut self, on: Reason) -> usize {
        let woken = self.waiting.get(&on).cloned().unwrap_or_default();
        woken.iter().for_each(|id| self.end_wait(*id, Ended::Woken));
        woken.len()
    }

    pub(super) fn wake_one(&mut self, on: Reason) -> Option<TaskId> {
        let line = self.waiting.get(&on)?;
        let id = line[self.order.below(line.len() as u64) as usize];
        self.end_wait(id, Ended::Woken);
        Some(id)
    }

    /// Ends the wait of a task. Does nothing for a task that does not wait.
    pub(super) fn end_wait(&mut self, id: TaskId, ended: Ended) {
        let Status::Waiting { on, until } = self.task(id).status else { return };
        if let Some(until) = until {
            self.deadlines.remove(&(until, id));
        }
        let line = self.waiting.get_mut(&on).expect("a task that waits is in a line");
        line.retain(|waiting| *waiting != id);
        if line.is_empty() {
            self.waiting.remove(&on);
        }
        self.task(id).ended = ended;
        self.set_runnable(id);
    }

    /// Ends the waits whose time has come.
    pub(super) fn end_late_waits(&mut self) {
        while let Some(&(until, id)) = self.deadlines.first()
            && until <= self.now
        {
            self.end_wait(id, Ended::TimedOut);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Gives a mutex to a task, if nobody holds it.
    pub(super) fn acquire(&mut self, mutex: u64, id: TaskId) -> bool {
        if self.owners.contains_key(&mutex) {
            return false;
        }
        self.owners.insert(mutex, id);
        self.task(id).holds += 1;
        true
    }

    /// Takes a mutex from the task that holds it, and wakes one task that waits for it.
    pub(super) fn release(&mut self, mutex: u64) {
        let owner = self.owners.remove(&mutex).expect("a mutex that is unlocked was locked");
        self.task(owner).holds -= 1;
        self.wake_one(Reason { what: MUTEX, number: mutex });
    }

    pub(super) fn owner(&self, mutex: u64) -> Option<TaskId> {
        self.owners.get(&mutex).copied()
    }
}
