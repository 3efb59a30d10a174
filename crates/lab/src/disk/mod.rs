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
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use server::{Backing, Server};
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

/// A disk with a name.
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
        charges: Charges {
            requests_per_second: None,
            bytes_per_second: None,
            flush_us: Some(2000),
        },
    },
    Named { name: "fast", means: "a loop device, nothing added", charges: Charges::NONE },
];

impl Charges {
    pub const NONE: Self =
        Self { requests_per_second: None, bytes_per_second: None, flush_us: None };

    /// The keys of a text that [`Charges::set`] takes.
    pub(crate) const KEYS: [&'static str; 3] = ["iops", "rate", "flush"];

    /// Sets the charge of a key from its text, such as `iops=3000`, `rate=125m`, `flush=1ms`.
    /// Returns `None` for another key. A rate is in decimal units, as disks are sold.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Option<Result<(), String>> {
        let positive = |number: Option<u64>| number.filter(|number| *number > 0);
        Some(match key {
            "iops" => match positive(value.parse().ok()) {
                Some(number) => {
                    self.requests_per_second = Some(number);
                    Ok(())
                }
                None => Err("not a number of requests a second, such as iops=3000".to_owned()),
            },
            "rate" => match positive(decimal(value)) {
                Some(bytes) => {
                    self.bytes_per_second = Some(bytes);
                    Ok(())
                }
                None => Err("not a number of bytes a second, such as rate=125m".to_owned()),
            },
            "flush" => match positive(micros(value)) {
                Some(duration) => {
                    self.flush_us = Some(duration);
                    Ok(())
                }
                None => Err("not a duration, such as flush=1ms or flush=500us".to_owned()),
            },
            _ => return None,
        })
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

    pub(crate) fn flush(self) -> Duration {
        Duration::from_micros(self.flush_us.unwrap_or(0))
    }
}

/// As `Charges::set` takes them, each after a comma.
impl fmt::Display for Charges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(requests) = self.requests_per_second {
            write!(formatter, ",iops={requests}")?;
        }
        match self.bytes_per_second {
            None => {}
            Some(bytes) if bytes.is_multiple_of(1_000_000) => {
                write!(formatter, ",rate={}m", bytes / 1_000_000)?;
            }
            Some(bytes) => write!(formatter, ",rate={bytes}")?,
        }
        match self.flush_us {
            None => Ok(()),
            Some(duration) if duration.is_multiple_of(1000) => {
                write!(formatter, ",flush={}ms", duration / 1000)
            }
            Some(duration) => write!(formatter, ",flush={duration}us"),
        }
    }
}

/// A number with a decimal unit: `125m` is 125,000,000.
fn decimal(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let units = [("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000), ("", 1)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn micros(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix("us") {
        Some(number) => (number, 1),
        None => match text.strip_suffix("ms") {
            Some(number) => (number, 1_000),
            None => (text.strip_suffix('s')?, 1_000_000),
        },
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[&str]) -> Result<Charges, String> {
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
