//! Prices of work: processor time, locks of allocation groups, and the rates of the device. They
//! are measured figures; each has its source.
//!
//! Where work has a price, data has none: requests carry no bytes and the files keep none, so that
//! millions of requests can be simulated. Nothing is checked there but the rate.

use std::collections::BTreeMap;

/// Nanoseconds of processor time of a system call: 0.66 s for the 3 million of `perf bench syscall
/// basic -l 3000000`, on the machine of the measurements.
pub(super) const CALL: u64 = 220;

/// The same of a direct request of 4 KiB in the kernel, from its submission in a batch of 32 to its
/// completion: 1.32 us of processor time (`results/plug-fio.txt`).
pub(super) const REQUEST: u64 = 1_320;

/// The same of the engine for a request, and for a page: 5097 and 1867 instructions then
/// (`crates/sim/costs.txt` has those of now), 4.5 in a nanosecond. A cached write of 4 KiB had 1190
/// of them, and took 477 ns less the 211 ns of its copy (`results/completion-ext4.txt`).
pub(super) const BIO: u64 = 1_130;
pub(super) const PAGE: u64 = 415;

/// The same of an allocation of XFS, with the lock of its group held: one context writes 170 MB/s
/// into holes and 317 MB/s into allocated space, which is 11.2 us more for a page, with 1320 pieces
/// of 2048 pages (`results/writeback-full.txt`). An upper bound: not all of it is under the lock.
pub(super) const ALLOCATION: u64 = 17_400;

/// Rates of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prices {
    /// Requests a second.
    pub requests_per_second: u64,
    /// Bytes a second.
    pub bytes_per_second: u64,
}

/// Work that the device and the locks have been given.
#[derive(Default, Debug)]
pub(super) struct Priced {
    /// Up to when the device has been given work, in nanoseconds.
    pub(super) device: u64,
    /// The same of the lock of each group.
    pub(super) groups: BTreeMap<u64, u64>,
}
