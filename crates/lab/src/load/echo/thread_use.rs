//! The time of a thread as the kernel accounts it, read by any other thread of the process.
//!
//! While a thread is ready but another has the processor, it neither works nor is idle: `schedstat`
//! gives that time, and without `schedstat` it counts as idle.

use std::io;
use std::time::Duration;

use procfs::process::Process;

/// Of one thread, since it started.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ThreadUse {
    pub(crate) running: Duration,
    pub(crate) delayed: Duration,
    /// Of the time on a processor, that in the program itself, in clock ticks.
    user_ticks: u64,
    system_ticks: u64,
}

impl ThreadUse {
    /// Of a thread of this process.
    pub(crate) fn of(thread: i32) -> io::Result<Self> {
        let task = Process::myself().and_then(|process| process.task_from_tid(thread));
        let task = task.map_err(io::Error::other)?;
        let stat = task.stat().map_err(io::Error::other)?;
        let (running, delayed) = match task.schedstat() {
            Ok(schedule) => (
                Duration::from_nanos(schedule.sum_exec_runtime),
                Duration::from_nanos(schedule.run_delay),
            ),
            Err(_) => {
                let each = Duration::from_secs(1) / procfs::ticks_per_second() as u32;
                (each * (stat.utime + stat.stime) as u32, Duration::ZERO)
            }
        };
        Ok(Self { running, delayed, user_ticks: stat.utime, system_ticks: stat.stime })
    }

    /// Returns the use of a span that began with `before` and took `elapsed`.
    pub(crate) fn since(self, before: Self, elapsed: Duration) -> Used {
        let running = self.running.saturating_sub(before.running);
        let delayed = self.delayed.saturating_sub(before.delayed);
        let user = self.user_ticks.saturating_sub(before.user_ticks) as f64;
        let system = self.system_ticks.saturating_sub(before.system_ticks) as f64;
        // The ticks say how it is shared out, the nanoseconds how much it is.
        let share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
        let user = running.mul_f64(share);
        Used {
            idle: elapsed.saturating_sub(running + delayed),
            user,
            system: running.saturating_sub(user),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Used {
    /// Nothing: it slept.
    pub(crate) idle: Duration,
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_work_is_idle() {
        let before = ThreadUse::default();
        let after = ThreadUse {
            running: Duration::from_millis(60),
            delayed: Duration::from_millis(10),
            user_ticks: 1,
            system_ticks: 5,
        };
        let used = after.since(before, Duration::from_millis(100));
        assert_eq!(used.idle, Duration::from_millis(30));
        assert_eq!((used.user.as_millis(), used.system.as_millis()), (10, 50));
        let late = after.since(before, Duration::from_millis(50));
        assert_eq!(late.idle, Duration::ZERO, "no time is less than none");
    }

    #[test]
    fn of_this_very_thread() {
        let used = ThreadUse::of(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        assert!(used.running > Duration::ZERO || used.user_ticks + used.system_ticks == 0);
    }
}
