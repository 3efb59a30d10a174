//! The world of the calling thread: what the code of simulated threads asks of it.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use forebay_block::Moment;

use super::run::World;
use super::state::{Ended, MUTEX, PROCESSOR, Process, Reason, TaskId};
use crate::random::Random;

thread_local! {
    pub(super) static CURRENT: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
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

/// Calls `look` at each point of preemption of this world, on the stack of the running task. It
/// must not block.
///
/// # Panics
/// Outside a world.
pub fn look_at_each_turn(look: impl Fn() + 'static) {
    world().set_look(Box::new(look));
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

/// Returns the number of processors; 0 if processor time has no price in this world.
pub(crate) fn processors() -> usize {
    current().map_or(0, |world| world.settings().processors)
}

/// Returns the processor time of the running task. Where it has no price, a task is always busy.
pub(crate) fn spent() -> Duration {
    let world = world();
    let spent = match (world.settings().processors, world.running()) {
        (1.., Some(id)) => world.state().task(id).spent,
        _ => world.now().nanoseconds(),
    };
    Duration::from_nanos(spent)
}

/// Uses a processor for a time. Does nothing where processor time has no price.
pub(crate) fn spend(time: Duration) {
    let world = world();
    let Some(id) = world.running().filter(|_| world.settings().processors > 0) else { return };
    let end = world.state().occupy(Some(id), time.as_nanos() as u64);
    drop(world);
    let end = Moment::from_nanoseconds(end);
    let on = Reason { what: PROCESSOR, number: id.number() };
    while now() < end && block(on, Some(end)) == Ended::Woken {}
}

/// Has a thread of the kernel work on a processor. Returns when it has done so, in nanoseconds.
pub(crate) fn work(nanoseconds: u64) -> u64 {
    world().state().occupy(None, nanoseconds)
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

pub(super) fn current() -> Option<Rc<World>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

pub(super) fn world() -> Rc<World> {
    current().expect("the calling thread runs no world")
}

/// Whether a process was killed.
#[must_use]
pub fn is_killed(process: Process) -> bool {
    current().is_some_and(|world| world.state().processes[process.0 as usize].is_killed)
}
