//! How a doorbell waits: for the first completion, or for several of them a bounded time.
//!
//! The second is one call where the kernel has a minimal wait that late events end, and two
//! elsewhere: one for the first completion, one with the time that is left. Nothing breaks the
//! minimal time, a waker neither; that is why it is short.
//!
//! If the time is the limit of the whole wait (a completion was taken before, and is held), it may
//! be long. Then the wait needs no minimal time, and the waker ends it.
//!
//! The kernel counts completions in its queue that nobody took: those taken before, or made here,
//! are counted on this side.

use std::time::{Duration, Instant};

use forebay_block::{Errno, Wait};

use super::Ring;
use crate::min_wait::{self, MinWait};

/// The condition of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleep {
    /// Completions in the completion queue.
    pub(super) want: u32,
    /// How long all of them are waited for; after that one is enough. Zero: as long as `limit`.
    pub(super) within: Duration,
    /// How long the first is waited for.
    pub(super) limit: Option<Duration>,
}

impl Sleep {
    /// No sleep at all.
    pub(super) const NOT: Sleep = Sleep { want: 0, within: Duration::ZERO, limit: None };
}

impl Ring {
    /// Returns the remaining wait, if any: present completions end the wait.
    pub(super) fn sleep_for(&mut self, wait: Wait) -> Option<Sleep> {
        let queued = u32::try_from(self.setup.uring.completion().len())
            .expect("the queue's size is 32 bits");
        let arrived = u32::try_from(self.arrived.len()).unwrap_or(u32::MAX);
        let here = queued.saturating_add(arrived);
        let sleep = match wait {
            Wait::Not => return None,
            Wait::Something(_) if here > 0 => return None,
            Wait::Something(limit) => Sleep { want: 1, within: Duration::ZERO, limit },
            Wait::Batch { want, within, limit } => {
                // More than is in flight never comes; a wake may.
                let want = want.min(self.ledger.in_flight().saturating_add(arrived)).max(1);
                if here >= want {
                    return None;
                }
                let within = limit.map_or(within, |limit| within.min(limit));
                match here {
                    // The kernel counts microseconds, and takes none of them for no minimal wait at
                    // all. For one completion there is nothing to wait for besides it, and kernels
                    // without a minimal wait refuse the call.
                    0 if want == 1 || within.as_micros() == 0 => {
                        Sleep { want: 1, within: Duration::ZERO, limit }
                    }
                    0 if limit == Some(within) => Sleep { want, within: Duration::ZERO, limit },
                    0 => Sleep { want, within, limit },
                    _ => {
                        Sleep { want: want - arrived, within: Duration::ZERO, limit: Some(within) }
                    }
                }
            }
        };
        (sleep.limit != Some(Duration::ZERO)).then_some(sleep)
    }

    /// Submits and waits, until the bell is rung at the latest.
    pub(super) fn sleep(&mut self, sleep: Sleep) -> Result<(), Errno> {
        if !self.waker.fall_asleep() {
            // Somebody rang since the last look: the caller looks again.
            self.waker.awake();
            return self.submit();
        }
        self.arm_wake(sleep.want > 1 && sleep.within.is_zero());
        let entered = if sleep.want == 1 || sleep.within.is_zero() || self.waits_minimally() {
            self.enter(sleep)
        } else {
            self.sleep_twice(sleep)
        };
        self.waker.awake();
        entered
    }

    fn sleep_twice(&mut self, sleep: Sleep) -> Result<(), Errno> {
        let start = Instant::now();
        self.enter(Sleep { want: 1, within: Duration::ZERO, ..sleep })?;
        let came = self.setup.uring.completion().len();
        let left = sleep.within.saturating_sub(start.elapsed());
        // Moved over on a busy kernel, woken, out of time, or all here.
        let over =
            came == 0 || came >= sleep.want as usize || self.waker.is_rung() || left.is_zero();
        if over {
            return Ok(());
        }
        self.enter(Sleep { want: sleep.want, within: Duration::ZERO, limit: Some(left) })
    }

    /// Whether the kernel's minimal wait does what it should. Tried the first time it is asked for.
    fn waits_minimally(&self) -> bool {
        self.setup.has.min_wait && min_wait::behaviour(self.setup.level) == MinWait::Ends
    }
}
