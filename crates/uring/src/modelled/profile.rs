//! Properties of a modelled device: a handful of numbers, each with its source.
//!
//! Rates of requests are published measurements. Rates of bytes are those of the link (16 and 32
//! GT/s on four lanes, 128 of 130 bits). Latencies, units, and the cost of a doorbell are
//! assumptions, said to be at each.

use std::time::Duration;

/// Timing of a modelled device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Name, see [`Profile::name`].
    pub name: &'static str,
    /// Time that a doorbell with staged requests takes the caller.
    pub doorbell: Duration,
    /// Time from the start of a request until its bytes can be transferred.
    pub latency: Duration,
    /// Number of requests served at the same time.
    pub units: u32,
    /// Maximum of requests per second (`None`: no limit).
    pub requests_per_second: Option<u32>,
    /// Maximum of bytes per second (`None`: no limit).
    pub bytes_per_second: Option<u64>,
}

/// Four lanes of 16 GT/s.
const FOUR_LANES_GEN4: u64 = 7_876_923_076;
/// Four lanes of 32 GT/s.
const FOUR_LANES_GEN5: u64 = 15_753_846_153;

/// A write to a device's register and the path to it, from a user-space driver: an assumption, of
/// the order of the saving of one doorbell per batch in the kernel.
const DOORBELL: Duration = Duration::from_nanos(500);

/// More than any queue here is deep, so that the ceiling and not the units bounds the rate: an
/// assumption.
const MANY_UNITS: u32 = 256;

impl Profile {
    /// A flash drive on a link of generation 4: 820 thousand requests a second (821 to
    /// 836 thousand were measured where the worth of the kernel's block plug was argued). Assumed:
    /// 80 us of latency, so the ceiling is reached at a depth of 66.
    pub const GEN4: Profile = Profile {
        name: "gen4",
        doorbell: DOORBELL,
        latency: Duration::from_micros(80),
        units: MANY_UNITS,
        requests_per_second: Some(820_000),
        bytes_per_second: Some(FOUR_LANES_GEN4),
    };

    /// A flash drive on a link of generation 5: 1.06 million requests a second (from the same
    /// discussion). Assumed: 60 us of latency, so the ceiling is reached at a depth of 64.
    pub const GEN5: Profile = Profile {
        name: "gen5",
        latency: Duration::from_micros(60),
        requests_per_second: Some(1_060_000),
        bytes_per_second: Some(FOUR_LANES_GEN5),
        ..Profile::GEN4
    };

    /// A drive without flash: 5 million requests of 512 bytes a second each (80 million with
    /// sixteen P5800X in SPDK's record of 2021; two of them gave the kernel's 10 million). Assumed:
    /// 10 us of latency, so the ceiling is reached at a depth of 50. With 4096 bytes a request the
    /// link is the bound.
    pub const OPTANE: Profile = Profile {
        name: "optane",
        latency: Duration::from_micros(10),
        requests_per_second: Some(5_000_000),
        ..Profile::GEN4
    };

    /// Returns a profile where only the doorbell takes time. Requests complete with it.
    #[must_use]
    pub const fn free(doorbell: Duration) -> Profile {
        Profile {
            name: "free",
            doorbell,
            latency: Duration::ZERO,
            units: u32::MAX,
            requests_per_second: None,
            bytes_per_second: None,
        }
    }

    /// All profiles without a parameter.
    pub const ALL: [Profile; 3] = [Profile::GEN4, Profile::GEN5, Profile::OPTANE];

    /// The names that [`Profile::by_name`] accepts, for an error message.
    pub const CHOICES: &'static str = "gen4, gen5, optane";

    /// Returns the name: `gen4`, `gen5`, `optane` or `free`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the profile with a name, or `None`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name == name)
    }

    /// Whether nothing but the doorbell takes time.
    pub(super) fn serves_at_once(&self) -> bool {
        let waits = self.latency.is_zero() && self.units == u32::MAX;
        waits && self.requests_per_second.is_none() && self.bytes_per_second.is_none()
    }

    /// The least time between two completions; rounded up, so that the ceiling is not exceeded.
    pub(super) fn gap(&self) -> Duration {
        self.requests_per_second.map_or(Duration::ZERO, |rate| {
            Duration::from_nanos(1_000_000_000u64.div_ceil(u64::from(rate.max(1))))
        })
    }

    /// Time for `bytes`; rounded up, as above.
    pub(super) fn moving(&self, bytes: u64) -> Duration {
        self.bytes_per_second.map_or(Duration::ZERO, |rate| {
            // Nearly always 64 bits are enough, and their division is several times as fast.
            let nanoseconds = match bytes.checked_mul(1_000_000_000) {
                Some(product) => product.div_ceil(rate.max(1)),
                None => {
                    let wide =
                        (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
                    u64::try_from(wide).unwrap_or(u64::MAX)
                }
            };
            Duration::from_nanos(nanoseconds)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_found_by_their_names() {
        for profile in Profile::ALL {
            assert_eq!(Profile::by_name(profile.name()), Some(profile));
            assert!(Profile::CHOICES.contains(profile.name()));
        }
        assert!(Profile::free(Duration::from_nanos(1)).serves_at_once());
        for unknown in ["", "GEN4", "free"] {
            assert_eq!(Profile::by_name(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn ceilings_are_rounded_down() {
        for profile in Profile::ALL {
            let rate = profile.requests_per_second.unwrap();
            assert!(profile.gap() * rate >= Duration::from_secs(1), "{}", profile.name());
            let rate = profile.bytes_per_second.unwrap();
            assert!(profile.moving(rate) >= Duration::from_secs(1));
            assert_eq!(profile.moving(0), Duration::ZERO);
            assert!(!profile.serves_at_once());
        }
    }
}
