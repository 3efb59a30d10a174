//! Price of a disk: the cost of requests, bytes and flushes.
//!
//! Where a request is dear, writing gaps along saves time; where bytes are dear, it wastes time.
//! [`Meter`](crate::meter::Meter) learns a price from the work that a disk has done.

use std::fmt;
use std::time::Duration;

/// Price of a disk. Zero stands for a rate or a time that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Price {
    /// Small requests that the disk makes in a second if many are in flight.
    pub requests_per_second: u64,
    /// Bytes that it takes in a second in large requests.
    pub bytes_per_second: u64,
    /// Duration of a flush after a small write.
    pub flush: Duration,
}

impl Price {
    /// Returns the number of bytes that cost as much as one request.
    #[must_use]
    pub fn request_bytes(&self) -> u64 {
        self.bytes_per_second / self.requests_per_second.max(1)
    }
}

/// `about 3,000 requests/s, 125 MB/s, a flush takes 1.1 ms; a request costs as much as 41 KiB`, as
/// far as it is known.
impl fmt::Display for Price {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flush = match self.flush.as_micros() {
            0 => String::new(),
            micros @ ..1_000 => format!("a flush takes {micros} us"),
            micros => format!("a flush takes {:.1} ms", micros as f64 / 1e3),
        };
        if self.bytes_per_second == 0 {
            return formatter.write_str(&flush);
        }
        let requests = grouped(two_digits(self.requests_per_second));
        write!(formatter, "about {requests} requests/s, ")?;
        match self.bytes_per_second {
            bytes @ ..10_000_000 => write!(formatter, "{:.1} MB/s", bytes as f64 / 1e6)?,
            bytes @ ..1_000_000_000 => write!(formatter, "{} MB/s", bytes / 1_000_000)?,
            bytes => write!(formatter, "{:.1} GB/s", bytes as f64 / 1e9)?,
        }
        write!(formatter, "{}{flush}", if flush.is_empty() { "" } else { ", " })?;
        let bytes = self.request_bytes();
        formatter.write_str("; a request costs as much as ")?;
        match (bytes + 512) >> 10 {
            kibibytes @ 0..10_240 => write!(formatter, "{kibibytes} KiB"),
            kibibytes => write!(formatter, "{} MiB", kibibytes >> 10),
        }
    }
}

/// Rounds to two significant digits.
fn two_digits(number: u64) -> u64 {
    let unit = 10_u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    (number + unit / 2) / unit * unit
}

/// Writes a number with commas: `3,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_one_line() {
        let text = |requests_per_second, bytes_per_second, micros| {
            let flush = Duration::from_micros(micros);
            Price { requests_per_second, bytes_per_second, flush }.to_string()
        };
        assert_eq!(
            text(3_004, 125_400_000, 1_080),
            "about 3,000 requests/s, 125 MB/s, a flush takes 1.1 ms; a request costs as much as \
             41 KiB"
        );
        assert_eq!(
            text(123_456, 2_340_000_000, 52),
            "about 120,000 requests/s, 2.3 GB/s, a flush takes 52 us; a request costs as much as \
             19 KiB"
        );
        assert_eq!(
            text(96, 1_200_000_000, 0),
            "about 96 requests/s, 1.2 GB/s; a request costs as much as 11 MiB"
        );
        assert_eq!(text(0, 0, 70), "a flush takes 70 us");
        assert!(text(0, 7_000_000, 1).starts_with("about 0 requests/s, 7.0 MB/s"));
    }
}
