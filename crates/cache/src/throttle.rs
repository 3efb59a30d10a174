//! Slowing writers near the dirty limit.
//!
//! ```text
//!  dirty pages   0 ......... background ................ limit .... limit + spare .... cache
//!  writers       run         run, writeback works        wait       small files wait too
//!
//!  rate of a     memory |--------------------------------,
//!  writer               |                                |
//!                device |. . . . . . . . . . . . . . . . `------------------   in grants of some milliseconds
//!                       0                              limit
//! ```
//!
//! The price of a bound on memory is that a writer faster than the device waits. Up to the limit no
//! writer is slowed: the room is there to take bursts. At the limit writers share the rate of the
//! device. They are served in order of arrival. A grant is the number of pages that the device
//! writes in [`GRANT_TIME`], divided by the number of waiting writers, so that a round of all of
//! them takes about that long. On a slow device grants are small and waits no longer. On a fast one
//! they are large, so that not every page pays for a wake. Writers begin to wait when the largest
//! grant does not fit. So a later writer finds no room that is too small for a waiting one, and
//! overtakes nobody. A file with few dirty pages (a log beside a bulk load) does not wait for
//! others: it uses the room between the limit and the cache.
//!
//! # Several devices
//! One limit for all would be filled by the slowest device: its pages stay longest. So each that is
//! written may have the part of the limit that its measured rate earns, and a least part; alone it
//! has all. (The kernel divides its limit by each device's share of recent completions: P.
//! Zijlstra, "per device dirty throttling", 2007. A rate measured while the device was busy says
//! the same at once, and of a device that was idle too.) The least part is there for each even
//! where others fill the limit, as one that hangs may have done before.

use std::time::Duration;

/// Approximate time of one round of grants to all waiting writers.
pub const GRANT_TIME: Duration = Duration::from_millis(8);

/// Any device may have one in this many pages of the limit.
const LEAST_ONE_IN: u64 = 32;

/// A grant is at most one in this many pages of the limit.
const GRANT_ONE_IN: u64 = 64;

/// Small files may have one in this many pages of the limit beyond it.
const SPARE_ONE_IN: u64 = 16;

/// Whether a writer may dirty pages now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It may go on.
    Granted,
    /// It must wait for a grant.
    Wait,
}

/// Levels of dirty pages for the whole cache, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle {
    /// Dirty pages at which writers wait.
    pub limit: u64,
    /// Dirty pages at which background writeback starts.
    pub background: u64,
    /// A file with fewer dirty pages than this does not wait at the limit.
    pub small: u64,
    /// Pages per grant while the rate of the device is unknown.
    pub grant: u64,
}

/// Share of one device in the levels, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DevicePart {
    /// Dirty pages of the device at which its writers wait.
    pub limit: u64,
    /// Dirty pages of the device at which background writeback to it starts.
    pub background: u64,
}

/// Numbers of dirty pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirty {
    /// Dirty pages of all devices.
    pub all: u64,
    /// Dirty pages of the device of the writer.
    pub of_device: u64,
    /// Dirty pages of the file of the writer.
    pub of_file: u64,
}

impl Throttle {
    /// Creates the levels from a limit and a background level, in pages.
    #[must_use]
    pub fn new(limit: u64, background: u64) -> Self {
        let (small, grant) = ((limit / 256).max(16), (limit / 256).clamp(16, 1024));
        // Below where writers begin to wait, or nothing would be written for them.
        Self { limit, background: background.min(limit - limit / 32), small, grant }
    }

    /// Returns the share of a device if no other device is written.
    #[must_use]
    pub fn whole(&self) -> DevicePart {
        DevicePart { limit: self.limit, background: self.background }
    }

    /// Returns the shares of devices that are written at the same time, from the pages that each
    /// writes per second. A device with an unknown rate counts as the fastest.
    #[must_use]
    pub fn parts(&self, rates: &[Option<u64>]) -> Vec<DevicePart> {
        if let [_] = rates {
            return vec![self.whole()];
        }
        let fastest = rates.iter().flatten().copied().max().unwrap_or(1).max(1);
        let rate = |rate: &Option<u64>| u128::from(rate.unwrap_or(fastest));
        let all: u128 = rates.iter().map(rate).sum();
        let part = |of: u128| {
            let earned = (u128::from(self.limit) * of / all.max(1)) as u64;
            let limit = earned.max(self.least());
            let background =
                u128::from(limit) * u128::from(self.background) / u128::from(self.limit.max(1));
            DevicePart { limit, background: (background as u64).max(1) }
        };
        rates.iter().map(|of| part(rate(of))).collect()
    }

    /// Returns whether a writer may dirty pages now, given the share of its device.
    #[must_use]
    pub fn admit(&self, dirty: Dirty, part: DevicePart) -> Admission {
        let is_small = || self.is_small(dirty) && self.fits_small(dirty, part, 1);
        let has_room = self.fits(dirty, part, self.largest_grant());
        if has_room || is_small() { Admission::Granted } else { Admission::Wait }
    }

    /// Returns whether a file has so few dirty pages that it need not wait at the limit.
    #[must_use]
    pub fn is_small(&self, dirty: Dirty) -> bool {
        dirty.of_file < self.small
    }

    /// Returns whether this many pages of small files fit between the limit and the cache.
    #[must_use]
    pub fn fits_small(&self, dirty: Dirty, part: DevicePart, pages: u64) -> bool {
        let spare = self.limit / SPARE_ONE_IN + self.small;
        dirty.of_device + pages <= part.limit.saturating_add(spare)
    }

    /// Returns the pages per grant, from the pages that the device writes per second and the number
    /// of waiting writers.
    #[must_use]
    pub fn grant(&self, rate: Option<u64>, waiting: u64) -> u64 {
        let Some(rate) = rate else { return self.grant };
        let round = u128::from(rate) * GRANT_TIME.as_nanos() / 1_000_000_000;
        let each = (round / u128::from(waiting.max(1))) as u64;
        each.clamp(1, self.largest_grant())
    }

    fn largest_grant(&self) -> u64 {
        (self.limit / GRANT_ONE_IN).max(1)
    }

    /// Returns whether a grant of this many pages fits below the limit.
    #[must_use]
    pub fn fits(&self, dirty: Dirty, part: DevicePart, grant: u64) -> bool {
        let of_device = dirty.of_device + grant;
        (dirty.all + grant <= self.limit || of_device <= self.least())
            && of_device <= part.limit.max(grant)
    }

    /// The least part of a device.
    fn least(&self) -> u64 {
        (self.limit / LEAST_ONE_IN).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirty(all: u64, of_file: u64) -> Dirty {
        Dirty { all, of_device: all, of_file }
    }

    #[test]
    fn small_files_pass_where_bulk_waits() {
        let throttle = Throttle::new(1024, 512);
        let whole = throttle.whole();
        assert_eq!(throttle.admit(dirty(1008, 900), whole), Admission::Granted);
        assert_eq!(throttle.admit(dirty(1009, 900), whole), Admission::Wait);
        assert_eq!(throttle.admit(dirty(1024, 1), whole), Admission::Granted);
        assert_eq!(
            throttle.admit(dirty(1024 + 64 + 16, 1), whole),
            Admission::Wait,
            "many small ones"
        );
    }

    #[test]
    fn alone_a_device_has_all_however_slow() {
        let throttle = Throttle::new(43_008, 21_504);
        for rate in [None, Some(0), Some(1), Some(1_000_000)] {
            assert_eq!(throttle.parts(&[rate]), [throttle.whole()]);
        }
    }

    #[test]
    fn contract_18_a_slow_device_cannot_fill_the_limit() {
        let throttle = Throttle::new(43_008, 21_504);
        // 3 GB/s beside 1 MB/s, and an unknown rate.
        let [fast, slow] = throttle.parts(&[Some(750_000), Some(250)])[..] else { unreachable!() };
        assert!(fast.limit >= 42_000 && fast.background >= 21_000, "{fast:?}");
        assert_eq!(slow, DevicePart { limit: 1344, background: 672 });
        let [known, unknown] = throttle.parts(&[Some(1000), None])[..] else { unreachable!() };
        assert_eq!(known, unknown);
        assert_eq!(known.limit, 21_504);
        let full = Dirty { all: 3000, of_device: 1344, of_file: 1000 };
        assert_eq!(throttle.admit(full, slow), Admission::Wait, "the slow one's writer");
        assert_eq!(throttle.admit(Dirty { of_device: 1656, ..full }, fast), Admission::Granted);
    }

    #[test]
    fn contract_15_a_device_that_hangs_holds_up_no_other() {
        let throttle = Throttle::new(43_008, 21_504);
        // It was written alone, and has all of the limit.
        let mut dirty = Dirty { all: 43_008, of_device: 43_008, of_file: 43_008 };
        assert_eq!(throttle.admit(dirty, throttle.parts(&[None, None])[0]), Admission::Wait);
        dirty.of_device = 0;
        let part = throttle.parts(&[None, None])[1];
        assert_eq!(throttle.admit(dirty, part), Admission::Granted);
        assert!(throttle.fits(dirty, part, throttle.grant(None, 1)));
        dirty.of_device = 1344 - 671;
        assert_eq!(throttle.admit(dirty, part), Admission::Wait);
        assert!(!throttle.fits(dirty, part, 672));
    }

    /// No later writer passes one that waits for a grant.
    #[test]
    fn contract_15_who_comes_later_overtakes_nobody() {
        for limit in [15, 72, 1024, 43_008] {
            let throttle = Throttle::new(limit, limit / 2);
            for rate in [Some(1), Some(10_000), Some(10_000_000)] {
                let grant = throttle.grant(rate, 1);
                for all in 0..=limit {
                    let dirty = Dirty { all, of_device: all, of_file: 1000 };
                    let waits = !throttle.fits(dirty, throttle.whole(), grant);
                    let is_let_on = throttle.admit(dirty, throttle.whole()) == Admission::Granted;
                    assert!(!(waits && is_let_on), "{all} of {limit}, a grant of {grant}");
                }
            }
        }
    }

    #[test]
    fn parts_are_as_the_rates_are() {
        let throttle = Throttle::new(10_000, 4_000);
        let parts = throttle.parts(&[Some(100), Some(300), Some(600)]);
        assert_eq!(parts.iter().map(|part| part.limit).collect::<Vec<_>>(), [1000, 3000, 6000]);
        assert_eq!(parts[1].background, 1200);
        for rates in [vec![Some(0), Some(0)], vec![None, None, None], vec![Some(u64::MAX); 3]] {
            let parts = throttle.parts(&rates);
            assert!(
                parts.iter().all(|part| (312..=10_000).contains(&part.limit)),
                "{rates:?}: {parts:?}"
            );
            assert!(parts.windows(2).all(|two| two[0] == two[1]), "{rates:?}: {parts:?}");
        }
    }

    /// A round of grants takes the set time, at every rate and number of waiting writers.
    #[test]
    fn a_round_of_grants_takes_some_milliseconds() {
        let throttle = Throttle::new(43_008, 21_504);
        for rate in [250, 2_500, 25_000, 250_000, 2_500_000] {
            for waiting in [1, 2, 8, 64] {
                let grant = throttle.grant(Some(rate), waiting);
                let round = grant as f64 * waiting as f64 / rate as f64;
                assert!((1..=672).contains(&grant));
                // A page each is the least.
                let most = 0.008f64.max(waiting as f64 / rate as f64);
                assert!(round <= most, "{rate} pages a second, {waiting} wait: {round} s");
            }
        }
        assert_eq!(throttle.grant(None, 8), 168);
        assert!(throttle.fits(dirty(43_000, 0), throttle.whole(), 8));
        assert!(!throttle.fits(dirty(43_001, 0), throttle.whole(), 8));
    }
}
