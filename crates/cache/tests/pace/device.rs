//! A device in closed form.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::SECOND;

/// A device in closed form: a request holds one of its units for the latency, then moves over a
/// link that carries one at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) units: usize,
    /// Nanoseconds at a unit.
    pub(crate) latency: u64,
    /// Bytes the link moves in a second.
    pub(crate) bandwidth: u64,
    /// Nanoseconds between two on the link, at least.
    pub(crate) gap: u64,
}

impl Profile {
    /// Nanoseconds of one request among very many.
    pub(crate) fn period(&self, bytes: u64) -> u64 {
        let moving = self.moving(bytes);
        moving.max((self.latency + moving).div_ceil(self.units as u64)).max(1)
    }

    pub(crate) fn moving(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(SECOND) / u128::from(self.bandwidth)) as u64 + self.gap
    }
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) profile: Profile,
    /// When each unit is free.
    pub(crate) units: BinaryHeap<Reverse<u64>>,
    pub(crate) link_free: u64,
    /// Duration of a flush, and of the time from its end to the next one; when that begins.
    pub(crate) flush: u64,
    pub(crate) next_flush: u64,
}

impl Device {
    pub(crate) fn new(profile: Profile) -> Self {
        let units = (0..profile.units).map(|_| Reverse(0)).collect();
        Self { profile, units, link_free: 0, flush: 0, next_flush: u64::MAX }
    }

    pub(crate) fn change(&mut self, profile: Profile, now: u64) {
        self.profile = profile;
        self.units = (0..profile.units).map(|_| Reverse(now)).collect();
    }

    /// When a request sent now ends.
    pub(crate) fn send(&mut self, bytes: u64, now: u64) -> u64 {
        let Reverse(free) = self.units.pop().expect("a unit");
        let served = now.max(free) + self.profile.latency;
        while self.next_flush <= served.max(self.link_free) {
            // The device moves nothing meanwhile.
            self.link_free = self.link_free.max(self.next_flush) + self.flush;
            self.next_flush = self.link_free + self.flush;
        }
        let end = served.max(self.link_free) + self.profile.moving(bytes);
        self.link_free = end;
        self.units.push(Reverse(end));
        end
    }
}
