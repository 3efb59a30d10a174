//! A simulated machine on one thread of the operating system: tasks, processes, virtual time.
//!
//! Every simulated thread is a coroutine. The scheduler resumes one task at a time and picks the
//! next one with a seeded generator, so the seed alone decides the order of everything. Code of
//! the simulated threads reaches the world through the functions here, which act on the world of
//! the calling thread.
//!
//! ```text
//!              +--------------------- scheduler: one seeded generator ---------------------+
//!              |  a runnable task   |   an event of the disk   |   the next deadline       |
//!              v                    v                          v
//!  task: caller 0   task: context 1   Events::happen     time moves when no task can run
//!     |  preempt, block, wake            | wake
//!     +----------> world <---------------+
//! ```
//!
//! - A switch of tasks happens only inside [`preempt`], [`block`], [`yield_now`] and [`kill`].
//!   Between two of these calls a task runs alone.
//! - Virtual time moves by 50 ns at each [`preempt`], and to the next deadline or event when no
//!   task can run. Nothing here reads a real clock.
//! - If no task can run and nothing is due, the run fails with a list of all tasks, each with what
//!   it waits for.
//! - Every task belongs to a process. [`kill`] ends a process at one point in time, as `SIGKILL`
//!   does for all others. Its tasks are unwound, so that the memory of the simulation is freed;
//!   what a real kill would leave behind has to be copied before.
//!
//! Nothing here knows disks or files: they register as [`Events`] and keep their state in an
//! [`extension`] of the world.

mod failure;
mod identity;
mod local;
pub mod machine;
#[allow(unsafe_code, reason = "copies between frames and the simulated device")]
pub(crate) mod memory;
pub mod others;
mod process;
mod run;
mod schedule;
mod state;
mod task;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use forebay_block::Moment;

use crate::random::Random;

pub use failure::{Failure, Waiting};
pub use identity::Identity;
pub(crate) use local::waker_of;
pub use local::{Gone, LocalKey, extension};
pub use process::{Process, is_dead, is_killed, kill, new_process, process};
pub use run::{Outcome, Settings, run};
pub use task::{TaskId, spawn};

use run::World;
use schedule::MUTEX;

thread_local! {
    static CURRENT: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
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

/// A source of events that no task causes, such as completions of a disk.
///
/// The scheduler calls it outside any task: it may wake tasks, read the time and draw numbers, and
/// it may not block.
pub trait Events {
    /// The time of the next event. The scheduler asks before each decision.
    fn next(&self) -> Option<Moment>;

    /// Makes the next event happen. [`now`] has reached its time.
    fn happen(&self);
}

/// Whether the calling thread runs a world.
#[must_use]
pub fn has_world() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// The running task; `None` outside all tasks.
#[must_use]
pub fn task() -> Option<TaskId> {
    current().and_then(|world| world.running())
}

/// Returns the virtual time.
///
/// # Panics
/// Outside a world.
#[must_use]
pub fn now() -> Moment {
    world().now()
}

/// Blocks the running task until it is woken for this reason or the time has come.
///
/// No other task runs between the caller's last check and the wait.
///
/// # Panics
/// Outside all tasks.
pub fn block(on: Reason, until: Option<Moment>) -> Ended {
    world().block(on, until)
}

/// Wakes all tasks that wait for this reason; returns their number. The caller runs on.
pub fn wake(on: Reason) -> usize {
    current().map_or(0, |world| world.state().wake_all(on))
}

/// Wakes one of the tasks that wait for this reason, at random. The caller runs on.
pub fn wake_one(on: Reason) -> bool {
    current().is_some_and(|world| world.state().wake_one(on).is_some())
}

/// A point where another task may run: moves time by 50 ns and switches at the rate of the run.
/// Does nothing outside all tasks.
pub fn preempt() {
    if let Some(world) = current() {
        world.preempt();
    }
}

/// Lets another task run if one can.
pub fn yield_now() {
    if let Some(world) = current() {
        world.yield_now();
    }
}

/// Blocks the running task for a duration of virtual time.
///
/// # Panics
/// Outside all tasks.
pub fn sleep(duration: Duration) {
    let world = world();
    let number = world.running().map_or(0, TaskId::number);
    let until = after(world.now(), duration);
    drop(world);
    let on = Reason { what: "sleep", number };
    while now() < until && block(on, Some(until)) == Ended::Woken {}
}

/// Registers the source of events, in place of the one before.
///
/// # Panics
/// Outside a world.
pub fn set_events(events: Rc<dyn Events>) {
    world().set_events(events);
}

/// Adds a line to the trace, with the time and the running task.
pub fn trace(line: fmt::Arguments<'_>) {
    if let Some(world) = current() {
        world.trace(line);
    }
}

/// Whether lines of the trace are kept.
#[must_use]
pub fn is_tracing() -> bool {
    current().is_some_and(|world| world.is_tracing())
}

/// Draws from the generator of the run. The scheduler draws from another one.
///
/// # Panics
/// Outside a world.
pub fn draw<T>(from: impl FnOnce(&mut Random) -> T) -> T {
    world().draw(from)
}

/// Returns 1, 2, 3 and so on: identities that do not depend on addresses.
///
/// # Panics
/// Outside a world.
#[must_use]
pub fn number() -> u64 {
    world().number()
}

/// Ends the run with a report.
///
/// # Panics
/// Always.
pub fn fail(message: fmt::Arguments<'_>) -> ! {
    panic!("{message}")
}

/// Waits until no task holds a mutex, and gives it to the running task.
pub(crate) fn acquire(mutex: u64) {
    let world = world();
    let id = world.running().expect("only a task locks a mutex of the world");
    while !world.state().acquire(mutex, id) {
        Rc::clone(&world).block(Reason { what: MUTEX, number: mutex }, None);
    }
}

/// Takes a mutex from the task that holds it. The caller runs on.
pub(crate) fn release(mutex: u64) {
    if let Some(world) = current() {
        world.state().release(mutex);
    }
}

/// Whether a wait for a condition variable ends without a wake this time.
pub(crate) fn wakes_for_nothing() -> bool {
    let world = world();
    let rate = world.settings().spurious;
    world.state().order.happens(rate)
}

/// The serial of the world of the calling thread.
pub(crate) fn serial() -> u64 {
    world().serial()
}

/// Lets the next [`park`] of a task return at once. Does nothing if its world has ended.
pub(crate) fn unpark(serial: u64, task: TaskId) {
    if let Some(world) = current().filter(|world| world.serial() == serial) {
        let is_own = world.running() == Some(task);
        let mut state = world.state();
        let unparked = state.task(task);
        unparked.token = true;
        unparked.is_woken_by_others |= !is_own;
        drop(state);
        wake(park_of(task));
    }
}

/// Blocks the running task until it is unparked, or until a time.
pub(crate) fn park(until: Option<Moment>) {
    let world = world();
    let id = world.running().expect("only a task can park");
    if world.take_unpark(id) {
        // Two tasks that wake each other, or one that wakes itself, must not keep the others off.
        return world.yield_now();
    }
    Rc::clone(&world).block(park_of(id), until);
    let mut state = world.state();
    let parked = state.task(id);
    (parked.token, parked.is_woken_by_others) = (false, false);
}

fn park_of(task: TaskId) -> Reason {
    Reason { what: "park", number: task.number() }
}

/// Whether the engine marked the running task as one of its own threads.
pub(crate) fn is_ours() -> bool {
    let Some(world) = current() else { return false };
    world.running().is_some_and(|id| world.state().task(id).is_ours)
}

/// Marks the running task as one of the engine's own threads.
pub(crate) fn mark_as_ours() {
    let world = world();
    let id = world.running().expect("only a task is a thread");
    world.state().task(id).is_ours = true;
}

/// Whether a panic unwinds the running task.
pub(crate) fn is_panicking() -> bool {
    match current() {
        Some(world) if world.running().is_some() => world.is_panicking(),
        _ => std::thread::panicking(),
    }
}

/// Says whether panics of tasks are part of the test from now on. Any other panic fails the run,
/// also one that the engine catches.
///
/// # Panics
/// Outside a world.
pub fn expect_panics(expected: bool) {
    world().expect_panics(expected);
}

/// A moment some time after another.
#[must_use]
pub fn after(moment: Moment, duration: Duration) -> Moment {
    let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    Moment::from_nanoseconds(moment.nanoseconds().saturating_add(nanoseconds))
}

fn current() -> Option<Rc<World>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

fn world() -> Rc<World> {
    current().expect("the calling thread runs no world")
}

#[cfg(test)]
mod tests;
