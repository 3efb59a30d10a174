//! Growth rate of a file, measured between two reservations of space beyond its end.
//!
//! Space reserved beyond the end of a stream should last for some seconds. With less, allocations
//! are many and small, between those of other files. With more, space lies idle that other files
//! need, and it must be given back. The rate is the growth of the file since the reservation
//! before. Nothing here reads a clock, and only one point is kept: a stream that has become slow
//! reserves too much once.

use forebay_block::Moment;

/// Measured growth of one file.
#[derive(Clone, Copy, Default, Debug)]
pub struct Growth {
    /// How large it was, and when, at the last reservation.
    last: Option<(u64, Moment)>,
    bytes_per_second: Option<u64>,
}

impl Growth {
    /// Records the size of the file at the time of a reservation.
    pub fn note(&mut self, size: u64, now: Moment) {
        let last = self.last.replace((size, now));
        self.bytes_per_second = last.and_then(|(before, then)| {
            let grown = size.checked_sub(before)?;
            let nanoseconds = now.nanoseconds_since(then);
            let rate = u128::from(grown) * 1_000_000_000 / u128::from(nanoseconds.max(1));
            Some(u64::try_from(rate).unwrap_or(u64::MAX))
        });
    }

    /// Returns the growth in bytes per second, if known.
    #[must_use]
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.bytes_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_stretch() {
        let at = |seconds: u64| Moment::from_nanoseconds(seconds * 1_000_000_000);
        let mut growth = Growth::default();
        growth.note(100, at(10));
        assert_eq!(growth.bytes_per_second(), None, "one point has no rate");
        growth.note(1100, at(12));
        assert_eq!(growth.bytes_per_second(), Some(500));
        growth.note(1110, at(22));
        assert_eq!(growth.bytes_per_second(), Some(1));
        growth.note(1110, at(23));
        assert_eq!(growth.bytes_per_second(), Some(0));
        growth.note(10, at(24));
        assert_eq!(growth.bytes_per_second(), None, "it was cut");
        growth.note(u64::MAX, at(24));
        assert_eq!(growth.bytes_per_second(), Some(u64::MAX), "at once");
    }
}
