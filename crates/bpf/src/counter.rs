//! The counters, and their values at a moment.

/// A counter. Counters are per processor; [`Counts`] has their sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Plugs flushed on request.
    AskedUnplugs,
    /// Requests in them.
    AskedRequests,
    /// Plugs flushed because the task went to sleep.
    SleepingUnplugs,
    /// Requests in them.
    SleepingRequests,
    /// Plugs flushed with as many requests as a plug holds.
    FullUnplugs,
    /// Bios submitted.
    Bios,
    /// Requests made.
    Made,
    /// Requests inserted into a scheduler.
    Inserts,
    /// Requests issued to the driver.
    Issues,
    /// Bytes in them.
    IssuedBytes,
    /// Requests that the driver did not take, and that are issued again later.
    Requeues,
    /// Requests completed.
    Completions,
    /// Interrupts that completed at least one request.
    CompletionRuns,
    /// Requests completed outside of an interrupt.
    PolledCompletions,
    /// Runs of the workers that end I/O.
    WorkerRuns,
    /// Runs of the task work of this process.
    TaskWorkRuns,
    /// Items in them.
    TaskWorkItems,
    /// Completions of io_uring for this process.
    RingCompletions,
    /// Calls of `io_uring_enter` of this process.
    Enters,
    /// Runs of writeback.
    WritebackRuns,
    /// Pages in them.
    WritebackPages,
    /// System calls of this process.
    SystemCalls,
    /// Commits of the journal of ext4; on XFS, writes of the log with a commit record.
    Commits,
    /// Flush commands issued to the disk.
    Flushes,
    /// Allocations of space by XFS.
    Allocations,
    /// Attempts to lock an allocation group without a wait that found it locked. The allocator then
    /// goes to another group, or waits: a wait begins with such an attempt.
    GroupRefusals,
    /// Scratch: requests in the plug that took the last one of this processor; 0 if no plug did.
    Plugged,
    /// Scratch: whether this processor is in an interrupt.
    InInterrupt,
    /// Scratch: interrupts of this processor.
    Interrupts,
    /// Scratch: the last of them that completed a request.
    LastInterrupt,
    /// As `InInterrupt`, for software interrupts of the block layer.
    InSoftInterrupt,
    /// As `Interrupts`, for software interrupts of the block layer.
    SoftInterrupts,
    /// As `LastInterrupt`, for software interrupts of the block layer.
    LastSoftInterrupt,
    /// Waits for the lock of the first allocation group, and of each 16th behind it. The
    /// counters of the other groups follow.
    GroupWaits,
}

/// Number of allocation groups with a counter each, a power of two.
pub(crate) const GROUPS: usize = 16;

/// Number of counters.
pub const COUNTERS: usize = Counter::GroupWaits as usize + GROUPS;

/// Values of all counters, summed over the processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts([u64; COUNTERS]);

impl Counts {
    /// Returns counts with these values and zeroes, for tests.
    #[must_use]
    pub fn of(values: &[(Counter, u64)]) -> Self {
        let mut all = [0; COUNTERS];
        values.iter().for_each(|(counter, value)| all[*counter as usize] = *value);
        Self(all)
    }

    /// Returns the sums of the values of all processors, one after the other.
    ///
    /// # Panics
    /// If a processor has more or fewer values than there are counters.
    #[must_use]
    pub fn sum(processors: &[u64]) -> Self {
        assert!(processors.len().is_multiple_of(COUNTERS), "{} values", processors.len());
        let mut sums = [0_u64; COUNTERS];
        for processor in processors.chunks_exact(COUNTERS) {
            for (sum, value) in sums.iter_mut().zip(processor) {
                *sum = sum.wrapping_add(*value);
            }
        }
        Self(sums)
    }

    /// Returns the value of a counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Returns the waits for the locks of allocation groups, by group modulo their number.
    #[must_use]
    pub fn group_waits(&self) -> &[u64] {
        &self.0[Counter::GroupWaits as usize..]
    }

    /// Returns the counts since an earlier moment.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let mut counted = self.0;
        for (value, before) in counted.iter_mut().zip(before.0) {
            *value = value.saturating_sub(before);
        }
        Self(counted)
    }
}
