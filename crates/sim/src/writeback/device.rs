//! The device: a pipe that takes requests in order, and drives with known figures.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_block::limits::PAGE;

use super::space::Address;

/// Speed of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drive {
    /// Maximum of requests per second.
    pub iops: u64,
    /// Maximum of bytes per second.
    pub bandwidth: u64,
    /// Time from a request's turn to its end.
    pub latency: Duration,
    /// Maximum of requests in flight.
    pub depth: u64,
    /// Bytes of the smallest unit that it writes; a request is rounded outwards to whole units.
    pub unit: u64,
}

/// Drives by name. Two have published figures and follow their raw rates. The PM9A3 did 546
/// thousand random writes of 4 KiB per second; its bandwidth is the maker's. The BM1743 did 117
/// thousand, which equals its 2 GB/s in units of 16 KiB, so no other rate limits it. Latencies are
/// assumed.
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

/// The drive at work: it serves requests one after the other.
#[derive(Debug)]
pub(super) struct Pipe {
    drive: Drive,
    /// Time at which the last request is served.
    through: Duration,
    flying: u64,
    /// Contexts that wait for room in the drive.
    waiting: VecDeque<usize>,
    taken: Taken,
    /// Time that all requests take.
    busy: Duration,
    /// Sum of the times that requests were in flight, up to `counted`.
    flown: Duration,
    counted: Duration,
}

/// Requests and pages that the drive took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Taken {
    pub(super) requests: u64,
    pub(super) pages: u64,
}

impl Pipe {
    /// Creates an idle drive.
    pub(super) fn new(drive: Drive) -> Self {
        Self {
            drive,
            through: Duration::ZERO,
            flying: 0,
            waiting: VecDeque::new(),
            taken: Taken::default(),
            busy: Duration::ZERO,
            flown: Duration::ZERO,
            counted: Duration::ZERO,
        }
    }

    /// Takes a request and returns the time of its end. Returns `None` if the drive is full; the
    /// context then waits for room.
    pub(super) fn take(
        &mut self,
        context: usize,
        start: Address,
        pages: u32,
        now: Duration,
    ) -> Option<Duration> {
        if self.flying == self.drive.depth {
            self.waiting.push_back(context);
            return None;
        }
        self.count(now);
        self.flying += 1;
        let work = self.work(start, pages);
        self.through = self.through.max(now) + work;
        self.taken.requests += 1;
        self.taken.pages += u64::from(pages);
        self.busy += work;
        Some(self.through + self.drive.latency)
    }

    /// Ends a request. Returns the context that there is room for now.
    pub(super) fn end(&mut self, now: Duration) -> Option<usize> {
        self.count(now);
        self.flying -= 1;
        self.waiting.pop_front()
    }

    /// Returns the requests and pages taken so far.
    pub(super) fn taken(&self) -> Taken {
        self.taken
    }

    /// Returns how long it has been writing until now.
    pub(super) fn busy(&self, now: Duration) -> Duration {
        self.busy.saturating_sub(self.through.saturating_sub(now))
    }

    /// Returns the mean number of requests in flight.
    pub(super) fn mean_flight(&mut self, now: Duration) -> f64 {
        self.count(now);
        self.flown.as_secs_f64() / now.as_secs_f64()
    }

    /// Returns how long a request occupies the drive.
    fn work(&self, start: Address, pages: u32) -> Duration {
        let from = start.page() * PAGE as u64;
        let to = from + u64::from(pages) * PAGE as u64;
        let unit = self.drive.unit;
        let bytes = to.next_multiple_of(unit) - from / unit * unit;
        let nanos = |amount: u64, rate: u64| {
            (u128::from(amount) * 1_000_000_000)
                .div_ceil(u128::from(rate))
                .min(u128::from(u64::MAX)) as u64
        };
        Duration::from_nanos(nanos(1, self.drive.iops).max(nanos(bytes, self.drive.bandwidth)))
    }

    fn count(&mut self, now: Duration) {
        self.flown += (now - self.counted) * self.flying as u32;
        self.counted = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writeback::space::Space;

    #[test]
    fn the_larger_of_rate_and_bandwidth_binds_and_units_are_whole() {
        let drive = Drive {
            iops: 100_000,
            bandwidth: 1 << 30,
            latency: Duration::from_micros(7),
            depth: 2,
            unit: 16 << 10,
        };
        let mut pipe = Pipe::new(drive);
        let mut space = Space::new(1);
        let (first, large) = (space.allocate(0, 1), space.allocate(0, 8));
        let micros = Duration::from_micros;
        // A page is a unit of 16 KiB and takes 15.3 us, longer than one request at 100,000 per
        // second.
        assert_eq!(pipe.take(0, first, 1, micros(0)), Some(Duration::from_nanos(15_259 + 7_000)));
        // Pages 1 to 8 are in three units.
        assert_eq!(
            pipe.take(0, large, 8, micros(0)),
            Some(Duration::from_nanos(15_259 + 45_777 + 7_000))
        );
        assert_eq!(pipe.take(5, first, 1, micros(1)), None);
        assert_eq!(pipe.end(micros(30)), Some(5));
        assert_eq!(pipe.taken(), Taken { requests: 2, pages: 9 });
        assert_eq!(pipe.busy(micros(30)), micros(30), "the rest is written later");
        assert_eq!(pipe.busy(micros(90)), Duration::from_nanos(15_259 + 45_777));
        assert!((pipe.mean_flight(micros(60)) - 1.5).abs() < 1e-9);
    }
}
