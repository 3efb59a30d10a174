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
mod here;
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

pub use failure::{Failure, Waiting};
pub use here::{
    Events, after, block, draw, expect_panics, fail, has_world, is_killed, is_tracing,
    look_at_each_turn, now, number, preempt, set_events, sleep, task, trace, wake, wake_one,
    yield_now,
};
pub(crate) use here::{
    acquire, is_ours, is_panicking, mark_as_ours, park, processors, release, serial, spend, spent,
    unpark, wakes_for_nothing, work,
};
pub use identity::Identity;
pub(crate) use local::waker_of;
pub use local::{Gone, LocalKey, extension};
pub use process::{is_dead, kill, new_process, process};
pub use run::{Outcome, Settings, run};
pub use state::{Ended, Process, Reason, TaskId};
pub use task::spawn;

/// Declares a value that each task has for itself.
#[macro_export]
macro_rules! task_local {
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $kind:ty = $make:expr $(;)?) => {
        $(#[$attribute])*
        $visibility static $name: $crate::world::LocalKey<$kind> =
            $crate::world::LocalKey::new(|| $make);
    };
}

#[cfg(test)]
mod tests;
