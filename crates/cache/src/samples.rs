//! Latencies of writes until they reach the device and until they are durable, from a sample.
//!
//! A stamp on every write would cost more than the write. So one in [`ONE_IN`] is stamped with its
//! page and the time, and the first after the file had nothing dirty, in a list with few places.
//! The first latency is known when that page has been written. The second is known when a flush has
//! ended well that began after that: only then the write was durable. Time is an argument, and only
//! needed for stamped writes.

use std::collections::VecDeque;
use std::ops::Range;

use forebay_block::{Bio, Errno, Moment, Operation};

use crate::limits::PAGE;
use crate::rare::{Empty, Rare};

/// One in this many writes is sampled.
pub const ONE_IN: u32 = 64;

/// Stamps a file has at a time, on their way and waiting for a flush each. The oldest give way.
const PLACES: usize = 32;

/// A write that was accepted and is not written.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    page: u64,
    since: Moment,
}

/// A write that was written and is not known to be durable.
#[derive(Clone, Copy, Debug)]
struct Written {
    since: Moment,
    /// Flushes that had begun before.
    flushes: u64,
}

/// Sampled writes of one file.
#[derive(Debug, Default)]
pub struct Samples {
    /// Writes until the next one is stamped.
    left: u32,
    stamped: Rare<Stamped>,
}

/// Samples that have not ended.
#[derive(Debug, Default)]
struct Stamped {
    accepted: VecDeque<Accepted>,
    written: VecDeque<Written>,
    /// Flushes that have begun since there are samples.
    flushes: u64,
}

impl Empty for Stamped {
    const EMPTY: &'static Self =
        &Self { accepted: VecDeque::new(), written: VecDeque::new(), flushes: 0 };

    fn is_empty(&self) -> bool {
        self.accepted.is_empty() && self.written.is_empty()
    }
}

/// Latencies of sampled writes, in nanoseconds.
#[derive(Debug, Default)]
pub struct Reported {
    /// Times from acceptance until the device had written the data.
    pub written: Vec<u64>,
    /// Times from acceptance until the data was durable.
    pub durable: Vec<u64>,
}

impl Reported {
    /// Returns whether there are no latencies.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.durable.is_empty()
    }
}

impl Samples {
    /// Returns whether a write is to be sampled with [`Samples::accepted`]. `first` says that the
    /// file had no dirty page before.
    #[inline]
    pub fn is_due(&mut self, first: bool) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0 || first
    }

    /// Starts the sample of a write to a page that is not in flight.
    pub fn accepted(&mut self, page: u64, now: Moment) {
        self.left = ONE_IN;
        let accepted = &mut self.stamped.accepted;
        if accepted.iter().any(|accepted| accepted.page == page) {
            return;
        }
        match accepted.len() {
            // Most files have one at a time.
            0 => accepted.reserve_exact(1),
            PLACES => drop(accepted.pop_front()),
            _ => {}
        }
        accepted.push_back(Accepted { page, since: now });
    }

    /// Records the end of a bio of the file.
    pub fn ended(
        &mut self,
        bio: &Bio,
        result: Result<u64, Errno>,
        now: Moment,
        reported: &mut Reported,
    ) {
        let Ok(moved) = result else { return };
        match bio.operation {
            Operation::Write | Operation::WriteBuffered if moved == bio.length => {
                self.wrote(&(bio.offset / PAGE..bio.end().div_ceil(PAGE)), now, reported);
            }
            Operation::FlushData | Operation::FlushAll => self.flushed(now, reported),
            Operation::SetLength => self.cut(bio.offset.div_ceil(PAGE)),
            _ => {}
        }
    }

    /// Records that pages have been written.
    pub fn wrote(&mut self, pages: &Range<u64>, now: Moment, reported: &mut Reported) {
        if self.stamped.accepted.is_empty() {
            return;
        }
        let Stamped { accepted, written, flushes } = &mut *self.stamped;
        let flushes = *flushes;
        accepted.retain(|accepted| {
            let is_written = pages.contains(&accepted.page);
            if is_written {
                reported.written.push(now.nanoseconds_since(accepted.since));
                if written.len() == PLACES {
                    written.pop_front();
                }
                written.push_back(Written { since: accepted.since, flushes });
            }
            !is_written
        });
    }

    /// Records the start of a flush.
    pub fn flush_begins(&mut self) {
        if !self.stamped.is_empty() {
            self.stamped.flushes += 1;
        }
    }

    /// Records that the last flush has succeeded.
    pub fn flushed(&mut self, now: Moment, reported: &mut Reported) {
        if self.stamped.written.is_empty() {
            return;
        }
        let Stamped { written, flushes, .. } = &mut *self.stamped;
        let covered = written.iter().take_while(|written| written.flushes < *flushes).count();
        let ended = written.drain(..covered);
        reported.durable.extend(ended.map(|written| now.nanoseconds_since(written.since)));
        self.stamped.tidy();
    }

    /// Drops the samples of pages from `from` on, after the file was truncated.
    pub fn cut(&mut self, from: u64) {
        if !self.stamped.accepted.is_empty() {
            self.stamped.accepted.retain(|accepted| accepted.page < from);
            self.stamped.tidy();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(microseconds: u64) -> Moment {
        Moment::from_nanoseconds(microseconds * 1000)
    }

    #[test]
    fn one_write_in_so_many_is_stamped_and_the_first_after_idling() {
        let mut samples = Samples::default();
        let mut stamped = Vec::new();
        for write in 0..200u32 {
            if samples.is_due(write == 0 || write == 30) {
                samples.accepted(u64::from(write), at(0));
                stamped.push(write);
            }
        }
        assert_eq!(stamped, [0, 30, 30 + ONE_IN, 30 + 2 * ONE_IN]);
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it_began() {
        let (mut samples, mut reported) = (Samples::default(), Reported::default());
        samples.accepted(3, at(10));
        samples.accepted(7, at(20));
        samples.wrote(&(0..5), at(100), &mut reported);
        assert_eq!(reported.written, [90_000]);
        samples.flush_begins();
        samples.wrote(&(5..9), at(150), &mut reported);
        samples.flushed(at(200), &mut reported);
        assert_eq!(reported.durable, [190_000], "page 7 was written while the flush was under way");
        samples.flush_begins();
        samples.flushed(at(300), &mut reported);
        assert_eq!(reported.durable, [190_000, 280_000]);
        assert_eq!(reported.written, [90_000, 130_000]);
    }

    #[test]
    fn a_flush_that_failed_makes_nothing_durable() {
        let (mut samples, mut reported) = (Samples::default(), Reported::default());
        samples.accepted(1, at(0));
        samples.wrote(&(0..5), at(1), &mut reported);
        samples.flush_begins();
        // It failed: nobody says that it ended well. The next one may.
        samples.flush_begins();
        samples.flushed(at(9), &mut reported);
        assert_eq!(reported.durable, [9_000]);
    }

    #[test]
    fn places_are_few_and_pages_that_are_gone_leave_theirs() {
        let (mut samples, mut reported) = (Samples::default(), Reported::default());
        for page in 0..1000 {
            samples.accepted(page, at(page));
        }
        samples.cut(990);
        samples.wrote(&(0..2000), at(1000), &mut reported);
        assert_eq!(reported.written.len(), PLACES - 10);
        samples.accepted(5, at(0));
        samples.accepted(5, at(7));
        reported = Reported::default();
        samples.wrote(&(5..6), at(10), &mut reported);
        assert_eq!(reported.written, [10_000], "the first write of a page counts");
    }
}
