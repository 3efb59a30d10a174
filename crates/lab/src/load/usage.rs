//! Counters of the system: context switches, processor time, bytes written. Two snapshots make a
//! difference.
//!
//! Everything of this process is counted, the load generator and the sync probe with it, for every
//! arm alike; work of kernel threads is not, except in the system's own context switches.

use procfs::process::Process;
use procfs::{CurrentSI, KernelStats};

use crate::batching::{self, Counts};
use crate::detail::ProcessUse;

/// Counters at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) process: ProcessUse,
    /// Context switches of the whole system, where `/proc/stat` tells.
    pub(crate) system_context_switches: Option<u64>,
    /// Bytes this process caused to be written, as the kernel accounts them: direct writes when
    /// issued, buffered ones when a page becomes dirty, less those dropped before writeback.
    pub(crate) written_bytes: Option<u64>,
    /// The kernel's batching, if counted.
    pub(crate) batched: Option<Counts>,
}

impl Usage {
    /// Reads the counters.
    pub(crate) fn now() -> Self {
        let usage = resource_usage();
        let io = Process::myself().and_then(|process| process.io()).ok();
        Self {
            process: ProcessUse {
                user_us: micros(usage.ru_utime),
                system_us: micros(usage.ru_stime),
                context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
                major_faults: usage.ru_majflt as u64,
                minor_faults: usage.ru_minflt as u64,
            },
            system_context_switches: KernelStats::current().ok().map(|stat| stat.ctxt),
            written_bytes: io.map(|io| io.write_bytes.saturating_sub(io.cancelled_write_bytes)),
            batched: batching::now(),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        let difference = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Self {
            process: self.process.since(before.process),
            system_context_switches: difference(
                self.system_context_switches,
                before.system_context_switches,
            ),
            written_bytes: difference(self.written_bytes, before.written_bytes),
            batched: self.batched.zip(before.batched).map(|(now, before)| now.since(before)),
        }
    }
}

impl ProcessUse {
    pub(crate) fn cpu_us(self) -> u64 {
        self.user_us + self.system_us
    }

    fn since(self, before: Self) -> Self {
        Self {
            user_us: self.user_us.saturating_sub(before.user_us),
            system_us: self.system_us.saturating_sub(before.system_us),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
        }
    }
}

fn resource_usage() -> libc::rusage {
    // SAFETY: a struct of integers, which may all be zero.
    let mut usage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a struct of the right type.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(failed, 0, "getrusage of oneself cannot fail");
    usage
}

fn micros(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_a_busy_moment_costs() {
        let before = Usage::now();
        let mut sum = 0_u64;
        while Usage::now().since(before).process.cpu_us() < 2000 {
            sum = (0..1000).fold(sum, |sum: u64, value| sum.wrapping_add(value));
            std::thread::sleep(std::time::Duration::from_micros(10));
        }
        let used = Usage::now().since(before);
        assert!(used.process.context_switches > 0);
        assert!(used.system_context_switches.is_none_or(|switches| switches >= 1));
        assert_ne!(sum, 1);
    }
}
