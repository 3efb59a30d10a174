//! A disk that charges for requests, bytes and flushes, imitated below a loop device.
//!
//! ```text
//! file system --> loop device --> image, served by FUSE --meter--> file, or memory
//!                 merges requests  (a process of its own)
//! ```
//!
//! Most disks charge: a cloud volume sells a number of requests and bytes a second, and a flush
//! takes its time on nearly all of them. The server stands below the kernel's merging, as such a
//! disk does, so a merged request is one request. It counts smoothly: an idle disk gathers
//! `meter::CREDIT` and no more.
//!
//! Not imitated: bursts that a provider grants for minutes, the time of a single request on an idle
//! disk, and a queue of limited depth. A loop device has one thread that submits, and this thread
//! waits for a flush, so requests that arrive meanwhile are submitted a flush later; those in
//! flight go on.
//!
//! Why not the limiter of a control group: it counts flushes before the kernel merges them, refills
//! in steps of 0.1 s, has a budget each for reads and writes, and does not delay flushes.

mod image;
mod meter;
mod server;
mod store;

use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use server::{Backing, Order, Server};
pub use server::{is_server, server_main};

/// A request of more bytes counts as several.
pub const REQUEST_BYTES: u64 = 256 << 10;

/// Charges of a disk. Nothing that is `None` is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Charges {
    /// Requests of at most [`REQUEST_BYTES`] a second, reads and writes together.
    pub requests_per_second: Option<u64>,
    /// Bytes a second, reads and writes together.
    pub bytes_per_second: Option<u64>,
    /// Duration of a flush in microseconds.
    pub flush_us: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    pub name: &'static str,
    /// Its kind, in a few words.
    pub means: &'static str,
    pub charges: Charges,
}

/// The disks that `--disk` knows.
pub const NAMED: [Named; 3] = [
    Named {
        name: "volume",
        means: "a general-purpose cloud volume: 3,000 requests/s, 125 MB/s, 1 ms a flush",
        charges: Charges {
            requests_per_second: Some(3000),
            bytes_per_second: Some(125_000_000),
            flush_us: Some(1000),
        },
    },
    Named {
        name: "consumer",
        means: "a consumer drive: 2 ms a flush",
        charges: Charges { flush_us: Some(2000), ..Charges::NONE },
    },
    Named { name: "fast", means: "a loop device, nothing added", charges: Charges::NONE },
];

/// Units of a rate, which is in decimal units, as disks are sold; and of a duration.
const RATES: [(&str, u64); 4] = [("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000), ("", 1)];
const DURATIONS: [(&str, u64); 3] = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];

impl Charges {
    pub const NONE: Self =
        Self { requests_per_second: None, bytes_per_second: None, flush_us: None };

    /// The keys of a text that [`Charges::set`] takes.
    pub(crate) const KEYS: [&'static str; 3] = ["iops", "rate", "flush"];

    /// Sets the charge of a key from its text, such as `iops=3000`, `rate=125m`, `flush=1ms`.
    /// Returns `None` for another key.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Option<Result<(), &'static str>> {
        let (charge, units, form) = match key {
            "iops" => (
                &mut self.requests_per_second,
                &[("", 1)][..],
                "not a number of requests a second, such as iops=3000",
            ),
            "rate" => (
                &mut self.bytes_per_second,
                &RATES[..],
                "not a number of bytes a second, such as rate=125m",
            ),
            "flush" => (
                &mut self.flush_us,
                &DURATIONS[..],
                "not a duration, such as flush=1ms or flush=500us",
            ),
            _ => return None,
        };
        *charge = number(value, units).filter(|number| *number > 0);
        Some(charge.map(drop).ok_or(form))
    }

    /// Returns these charges, completed by those of another disk.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            requests_per_second: self.requests_per_second.or(other.requests_per_second),
            bytes_per_second: self.bytes_per_second.or(other.bytes_per_second),
            flush_us: self.flush_us.or(other.flush_us),
        }
    }
}

/// As `Charges::set` takes them, each after a comma.
impl fmt::Display for Charges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("iops", self.requests_per_second, "", (1, "")),
            ("rate", self.bytes_per_second, "", (1_000_000, "m")),
            ("flush", self.flush_us, "us", (1000, "ms")),
        ];
        for (key, charge, unit, (many, larger)) in all {
            match charge {
                None => {}
                Some(charge) if charge.is_multiple_of(many) => {
                    write!(formatter, ",{key}={}{larger}", charge / many)?;
                }
                Some(charge) => write!(formatter, ",{key}={charge}{unit}")?,
            }
        }
        Ok(())
    }
}

/// Reads a number with one of these units: with `m` for a million, `125m` is 125,000,000.
fn number(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let of_unit = |(name, unit): &(&str, u64)| {
        text.strip_suffix(name)?.parse::<u64>().ok()?.checked_mul(*unit)
    };
    units.iter().find_map(of_unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[&str]) -> Result<Charges, &'static str> {
        let mut charges = Charges::NONE;
        for word in words {
            let (key, value) = word.split_once('=').unwrap();
            charges.set(key, value).expect("a key")?;
        }
        Ok(charges)
    }

    #[test]
    fn charges_are_read_and_written() {
        for words in [
            &["iops=3000", "rate=125m", "flush=1ms"][..],
            &["flush=1500us"],
            &["rate=1234567"],
            &[],
        ] {
            let charges = set(words).unwrap();
            let text = words.iter().map(|word| format!(",{word}")).collect::<String>();
            assert_eq!(charges.to_string(), text);
        }
        assert_eq!(set(&["rate=2g", "flush=1s"]).unwrap().to_string(), ",rate=2000m,flush=1000ms");
    }

    #[test]
    fn other_values_are_refused() {
        for word in ["iops=0", "iops=many", "rate=0", "rate=12x", "flush=1", "flush=0ms", "rate="] {
            assert!(set(&[word]).is_err(), "{word}");
        }
        assert!(Charges::NONE.clone().set("size", "1g").is_none());
    }
}
