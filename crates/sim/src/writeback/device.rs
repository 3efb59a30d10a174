//! The device: a pipe that takes requests in order, and the drives whose figures are known.

use std::time::Duration;

/// What a drive does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drive {
    /// Most requests a second.
    pub iops: u64,
    /// Most bytes a second.
    pub bandwidth: u64,
    /// From a request's turn to its end.
    pub latency: Duration,
    /// Most requests in flight.
    pub depth: u64,
    /// Bytes it writes at least; a request is rounded outwards to these.
    pub unit: u64,
}

/// Drives by name. The two of the published figures are as their raw rates say: the PM9A3 did 546 thousand random
/// writes of 4 KiB a second, its bandwidth is the maker's; the BM1743 did 117 thousand, which is its 2 GB/s in units
/// of 16 KiB, so no rate binds it apart from that. Latencies are assumed.
pub const DRIVES: [(&str, Drive); 3] = [
    (
        "pm9a3",
        Drive {
            iops: 546_000,
            bandwidth: 4_000_000_000,
            latency: Duration::from_micros(20),
            depth: 1023,
            unit: 4096,
        },
    ),
    (
        "bm1743",
        Drive {
            iops: 1_000_000,
            bandwidth: 2_000_000_000,
            latency: Duration::from_micros(25),
            depth: 1023,
            unit: 16_384,
        },
    ),
    (
        "unbounded",
        Drive {
            iops: 1_000_000_000,
            bandwidth: 1_000_000_000_000_000,
            latency: Duration::ZERO,
            depth: 1_000_000,
            unit: 4096,
        },
    ),
];
