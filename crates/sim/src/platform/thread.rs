//! Threads of the simulated machine: tasks of the world.

use std::io;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::platform::clock;
use crate::world::{self, TaskId};

pub use crate::task_local;

/// Starts a thread in the process of the caller.
///
/// # Errors
/// If the process of the caller was killed.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    world::preempt();
    let started = world::spawn(world::process(), name, body);
    world::preempt();
    started.map(drop).ok_or_else(|| io::Error::other("the process was killed"))
}

/// Allows real-time priorities: the scheduler of the simulation has none.
pub fn try_realtime() -> io::Result<()> {
    Ok(())
}

/// Changes nothing, as [`try_realtime`].
pub fn set_realtime(_: bool) -> io::Result<()> {
    Ok(())
}

/// Returns the number of processors of the simulated machine.
#[must_use]
pub fn processors() -> usize {
    match world::processors() {
        0 => 4,
        priced => priced,
    }
}

/// Returns the processor time of the calling thread. Where it has no price, every thread is busy.
#[must_use]
pub fn spent() -> Duration {
    world::spent()
}

/// Blocks the thread for a duration of virtual time.
pub fn sleep(duration: Duration) {
    world::preempt();
    world::sleep(duration);
}

/// Lets another thread run if one can.
pub fn yield_now() {
    world::yield_now();
}

/// Whether the calling thread is one of the engine's own.
#[must_use]
pub fn is_ours() -> bool {
    world::is_ours()
}

/// Marks the calling thread as one of the engine's own.
pub fn mark_as_ours() {
    world::mark_as_ours();
}

/// Returns whether a panic unwinds the calling thread. The end of a killed process is no panic: on a
/// machine its threads would run no code.
#[must_use]
pub fn panicking() -> bool {
    world::is_panicking()
}

/// Runs something with a waker that unparks the calling thread.
///
/// # Panics
/// Outside all tasks.
pub fn with_waker<T>(run: impl FnOnce(&Waker) -> T) -> T {
    let task = world::task().expect("only a task can be unparked");
    let waker =
        world::waker_of(task, || Waker::from(Arc::new(Unpark { task, world: world::serial() })));
    run(&waker)
}

/// Returns whether a waker unparks the calling thread and does nothing else.
#[must_use]
pub fn is_own_waker(waker: &Waker) -> bool {
    world::task().is_some() && with_waker(|own| own.will_wake(waker))
}

/// Blocks the calling thread until its waker is woken. Returns at once if that happened since the
/// last call.
pub fn park() {
    world::preempt();
    world::park(None);
}

/// Blocks the calling thread until its waker is woken, or until a deadline.
pub fn park_until(deadline: Instant) {
    world::preempt();
    world::park(Some(clock::moment_of(deadline)));
}

/// A waker may outlive its world, and another world has a task of the same number.
struct Unpark {
    task: TaskId,
    world: u64,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        world::preempt();
        world::unpark(self.world, self.task);
        world::preempt();
    }
}
