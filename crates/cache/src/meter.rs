//! The price of a disk, learned from completed work alone.
//!
//! A disk that limits requests and bytes makes at most some number of each in a second, and one of
//! the two limits is reached first. So a window of time shows one limit and a lower bound of the
//! other, if the disk never ran dry meanwhile:
//!
//! ```text
//!            requests/s  bytes/s
//!   4 KiB      3,000       12 MB     requests were the limit
//!   1 MiB        120      125 MB     bytes were: few requests, although it could make 3,000
//! ```
//!
//! The known limits rise to the rates of a window. If all windows of a second show less of both,
//! the disk has become slower: the limit that the best of them comes nearer to falls. A disk may
//! take a fixed time for a request and a time for each byte. Requests of middle size show less of
//! both there, and the shares add up to one.
//!
//! Requests of one size never show which limit it is. So now and then writeback fills no gaps for a
//! window, or more than it would: its requests have another size then.

mod flushes;

use std::time::Duration;

use flushes::Flushes;
use forebay_block::Moment;

use crate::limits::{GAP_PAGES, PAGE};
use crate::price::Price;

/// Length of a window: some periods of a disk that is served in bursts every tenth of a second.
const WINDOW: Duration = Duration::from_millis(300);

/// Least part of a window that the flight is full.
const FULL: f64 = 0.7;

/// Shares of both limits together below which a window shows a slower disk, and the number of such
/// windows in a row that count: one may be an exception.
const SLOWER: f64 = 0.95;
const SLOWER_WINDOWS: u32 = 5;

/// Share of a limit below which it was the other one.
const OTHER_LIMIT: f64 = 0.7;

/// Longest time of a request that a small one of a caller may have to wait for, and the pages that
/// any request may have.
const BEFORE_SYNC: Duration = Duration::from_millis(1);
const LEAST_PAGES: u64 = 16;

/// Windows between two of another size, at first and at most.
const FIRST_PAUSE: u32 = 2;
const LONGEST_PAUSE: u32 = 64;

/// Work that a disk has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Work {
    /// Requests that have ended.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time that the flight was full while more was to be sent, in nanoseconds.
    pub full: u64,
}

/// Learns the price of a disk.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Meter {
    /// Start of the window, if there is one.
    start: Option<Moment>,
    work: Work,
    /// A second; zero while unknown.
    requests: f64,
    bytes: f64,
    /// Whether a window has shown that bytes are the limit of large requests.
    is_bytes_known: bool,
    /// Windows of a slower disk in a row, and the best of them.
    slower: u32,
    best: Shown,
    /// Whether this window has requests of another size, how many windows it is until one has, and
    /// how many there were before.
    is_trial: bool,
    until_trial: u32,
    pause: u32,
    flushes: Flushes,
}

/// Requests and bytes a second of a window, and the shares of the limits that these are.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Shown {
    requests: f64,
    bytes: f64,
    of_requests: f64,
    of_bytes: f64,
}

impl Meter {
    /// Adds work that has ended. Returns whether the price may have changed.
    pub fn add(&mut self, work: Work, now: Moment) -> bool {
        let Some(start) = self.start else {
            // The first to end were sent before.
            self.start = Some(now);
            return false;
        };
        self.work.requests += work.requests;
        self.work.bytes += work.bytes;
        self.work.full += work.full;
        let nanoseconds = now.nanoseconds_since(start);
        if nanoseconds < WINDOW.as_nanos() as u64 {
            return false;
        }
        let work = std::mem::take(&mut self.work);
        self.start = Some(now);
        let is_full = work.full as f64 >= nanoseconds as f64 * FULL;
        if is_full {
            let per_second = 1e9 / nanoseconds as f64;
            let before = self.decided();
            self.learn(work.requests as f64 * per_second, work.bytes as f64 * per_second);
            self.plan_trial(self.decided() != before);
        } else {
            // The next window begins with the next work.
            self.start = None;
        }
        is_full
    }

    fn learn(&mut self, requests: f64, bytes: f64) {
        if self.requests == 0.0 {
            (self.requests, self.bytes) = (requests, bytes);
            return;
        }
        let (of_requests, of_bytes) = (requests / self.requests, bytes / self.bytes);
        let shown = Shown { requests, bytes, of_requests, of_bytes };
        if of_requests + of_bytes < SLOWER {
            // The first may have begun before the change.
            if self.slower <= 1 || shown.shares() > self.best.shares() {
                self.best = shown;
            }
            self.slower += 1;
            if self.slower == SLOWER_WINDOWS {
                self.fall();
            }
            return;
        }
        self.slower = 0;
        // Not at once: a burst may be an exception.
        let rise = |known: &mut f64, shown: f64| *known += (shown - *known).max(0.0) * 0.75;
        rise(&mut self.requests, requests);
        rise(&mut self.bytes, bytes);
        // Far more requests and fewer bytes: before, bytes were the limit.
        let was_bytes = of_requests * OTHER_LIMIT > 1.0 && of_bytes < 1.0;
        self.is_bytes_known |= of_requests < OTHER_LIMIT || was_bytes;
    }

    fn fall(&mut self) {
        if !self.is_bytes_known {
            // Bytes were never the limit, and their lower bound was that of another disk.
            (self.requests, self.bytes) = (self.best.requests, self.best.bytes);
        } else if self.best.of_requests >= self.best.of_bytes {
            self.requests = self.best.requests;
        } else {
            self.bytes = self.best.bytes;
        }
        self.slower = 0;
    }

    /// Adds the duration of a flush.
    pub fn add_flush(&mut self, took: Duration, now: Moment) {
        self.flushes.add(took, now);
    }

    /// Returns the duration of a flush, less the time that the disk may lose to each.
    #[must_use]
    pub fn beside_flush(&self) -> Duration {
        self.flushes.beside()
    }

    /// Returns the price as far as it is known.
    #[must_use]
    pub fn price(&self) -> Price {
        Price {
            requests_per_second: self.requests.round() as u64,
            bytes_per_second: self.bytes.round() as u64,
            flush: self.flushes.least(),
        }
    }

    /// Returns the longest gap that is worth filling now, in pages.
    #[must_use]
    pub fn gap_pages(&self) -> u64 {
        match self.decided() {
            decided if !self.is_trial => decided,
            decided if decided > GAP_PAGES / 2 => 0,
            _ => GAP_PAGES,
        }
    }

    /// Returns the most pages of a request while callers wait for small ones: what the disk does in
    /// a millisecond, and at least as many as cost as much as the request itself.
    #[must_use]
    pub fn request_pages(&self) -> u64 {
        let in_time = self.bytes * BEFORE_SYNC.as_secs_f64();
        let own = if self.is_bytes_known { self.price().request_bytes() } else { 0 };
        (in_time as u64).max(own).div_ceil(PAGE).max(LEAST_PAGES)
    }

    /// A request may cost as many pages, or more.
    fn decided(&self) -> u64 {
        let pages =
            if self.is_bytes_known { self.price().request_bytes() / PAGE } else { u64::MAX };
        pages.min(GAP_PAGES)
    }

    fn plan_trial(&mut self, has_changed: bool) {
        if std::mem::take(&mut self.is_trial) || has_changed {
            let longer = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.pause = if has_changed { FIRST_PAUSE } else { longer };
            self.until_trial = self.pause;
        }
        self.is_trial = self.until_trial == 0;
        self.until_trial = self.until_trial.saturating_sub(1);
    }
}

impl Shown {
    fn shares(self) -> f64 {
        self.of_requests + self.of_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with two limits a second.
    #[derive(Clone, Copy, Debug)]
    struct Disk {
        requests: f64,
        bytes: f64,
    }

    impl Disk {
        /// Has the disk do requests of a size for a time, in bursts of a tenth of a second.
        fn works(self, meter: &mut Meter, clock: &mut u64, size: u64, seconds: f64) {
            let rate = self.requests.min(self.bytes / size as f64);
            let requests = (rate / 10.0).round() as u64;
            for _ in 0..(seconds * 10.0) as u64 {
                *clock += 100_000_000;
                let work = Work { requests, bytes: requests * size, full: 100_000_000 };
                meter.add(work, Moment::from_nanoseconds(*clock));
            }
        }
    }

    fn assert_near(found: u64, wanted: f64) {
        assert!((found as f64 / wanted - 1.0).abs() < 0.1, "{found}, and not {wanted}");
    }

    #[test]
    fn both_limits_are_found_and_a_change_within_two_seconds() {
        let (mut meter, mut clock) = (Meter::default(), 1);
        let disk = Disk { requests: 3000.0, bytes: 125e6 };
        disk.works(&mut meter, &mut clock, 4096, 2.0);
        assert_near(meter.price().requests_per_second, 3000.0);
        assert_eq!(meter.decided(), GAP_PAGES, "bytes were never the limit");
        // A hundred times slower, with requests that are a little larger, and back.
        let slow = Disk { requests: 30.0, bytes: 1.25e6 };
        slow.works(&mut meter, &mut clock, 6144, 2.0);
        assert_near(meter.price().requests_per_second, 30.0);
        disk.works(&mut meter, &mut clock, 4096, 2.0);
        assert_near(meter.price().requests_per_second, 3000.0);
        disk.works(&mut meter, &mut clock, 1 << 20, 2.0);
        assert_near(meter.price().bytes_per_second, 125e6);
        assert_near(meter.price().request_bytes(), 125e6 / 3000.0);
        // The same where both limits are known.
        slow.works(&mut meter, &mut clock, 4096, 2.0);
        assert_near(meter.price().requests_per_second, 30.0);
        disk.works(&mut meter, &mut clock, 4096, 2.0);
        assert_near(meter.price().requests_per_second, 3000.0);
    }

    #[test]
    fn a_disk_with_one_limit_shows_it() {
        let (mut meter, mut clock) = (Meter::default(), 1);
        let disk = Disk { requests: f64::INFINITY, bytes: 20e6 };
        disk.works(&mut meter, &mut clock, 64 << 10, 2.0);
        disk.works(&mut meter, &mut clock, 4096, 2.0);
        disk.works(&mut meter, &mut clock, 64 << 10, 2.0);
        assert_near(meter.price().bytes_per_second, 20e6);
        assert_near(meter.price().request_bytes(), 4096.0);
        assert_eq!(meter.decided(), 1);
    }

    /// Dirty pages with gaps of 1 to 9 pages: the mean size of a request follows from the gaps.
    fn writes(disk: Disk, meter: &mut Meter, clock: &mut u64, seconds: f64) -> f64 {
        let before = *clock;
        let mut sum = 0.0;
        while (*clock - before) as f64 / 1e9 < seconds {
            let gap = meter.gap_pages();
            // Of gaps of g in 1..=9 those up to the longest are filled.
            let size = (2..=1 + gap).sum::<u64>() * PAGE / (10 - gap).max(1) + PAGE;
            disk.works(meter, clock, size, 0.1);
            sum += gap as f64;
        }
        sum / (seconds * 10.0)
    }

    #[test]
    fn gaps_follow_the_price() {
        let requests = Disk { requests: 3000.0, bytes: 1e9 };
        let bytes = Disk { requests: 6000.0, bytes: 20e6 };
        let (mut meter, mut clock) = (Meter::default(), 1);
        let long = writes(requests, &mut meter, &mut clock, 60.0);
        assert!(long > 7.0, "requests are dear, and gaps are {long} pages long");
        writes(bytes, &mut meter, &mut clock, 60.0);
        let short = writes(bytes, &mut meter, &mut clock, 60.0);
        assert!(short < 2.0, "bytes are dear, and gaps are {short} pages long");
        writes(requests, &mut meter, &mut clock, 60.0);
        let long = writes(requests, &mut meter, &mut clock, 60.0);
        assert!(long > 7.0, "requests are dear again, and gaps are {long} pages long");
    }

    #[test]
    fn a_request_before_a_sync_takes_a_millisecond_or_costs_what_a_request_costs() {
        for (disk, pages) in [
            (Disk { requests: 3000.0, bytes: 125e6 }, 31),
            (Disk { requests: 500.0, bytes: 125e6 }, 62),
            (Disk { requests: 5000.0, bytes: 20e6 }, LEAST_PAGES),
        ] {
            let (mut meter, mut clock) = (Meter::default(), 1);
            disk.works(&mut meter, &mut clock, 1 << 20, 2.0);
            disk.works(&mut meter, &mut clock, 4096, 2.0);
            let found = meter.request_pages();
            assert!(found.abs_diff(pages) <= 6, "{disk:?}: {found} pages");
        }
    }

    #[test]
    fn an_idle_disk_and_one_that_stops_for_a_while_teach_little() {
        let (mut meter, mut clock) = (Meter::default(), 1);
        let disk = Disk { requests: 3000.0, bytes: 125e6 };
        disk.works(&mut meter, &mut clock, 4096, 2.0);
        let before = meter;
        for _ in 0..100 {
            clock += 10_000_000;
            meter.add(Work { requests: 1, bytes: 4096, full: 0 }, Moment::from_nanoseconds(clock));
        }
        assert_eq!(meter.price(), before.price());
        clock += 10_000_000_000;
        let stopped = Work { requests: 100, bytes: 409_600, full: 10_000_000_000 };
        meter.add(stopped, Moment::from_nanoseconds(clock));
        disk.works(&mut meter, &mut clock, 4096, 1.0);
        assert_near(meter.price().requests_per_second, 3000.0);
    }
}
