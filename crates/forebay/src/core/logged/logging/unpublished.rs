//! The record of an atomic write, whose bytes are not in the cache yet.
//!
//! ```text
//! begun: live --batch durable--> bytes enter the cache --> ended: an ordinary live record
//!   |                                |
//!   |                                +-- they cannot: uncertain
//!   +--batch failed--> uncertain: in the log or not --head behind it--> excluded
//! ```
//!
//! Until it has ended, the file gets no other record, which would lack its bytes. No mark moves
//! behind it: this file alone would lose its part of the whole.

use super::{Live, Logging, Parts};

/// The record of an atomic write that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unpublished {
    sequence: u64,
    /// The file cannot be brought into place before the record is excluded, or put back.
    is_uncertain: bool,
}

impl Logging {
    /// Notes a record whose bytes are not in the cache.
    pub(crate) fn begin_atomic(&mut self, record: Live) {
        let parts = self.parts();
        assert!(parts.unpublished.is_none(), "two of them would have one mark");
        parts.push_live(record);
        let sequence = record.sequence;
        parts.unpublished = Some(Unpublished { sequence, is_uncertain: false });
    }

    /// Notes that the bytes of the record are in the cache.
    pub(crate) fn end_atomic(&mut self) {
        self.parts().unpublished = None;
    }

    /// Removes the record, which was not written or is excluded.
    pub(crate) fn remove_atomic(&mut self) {
        let parts = self.parts();
        let sequence = parts.unpublished.map(|record| record.sequence);
        if let Some(last) = parts.live.back().filter(|last| Some(last.sequence) == sequence) {
            parts.live_bytes -= last.bytes;
            parts.live.pop_back();
        }
        if parts.is_uncertain() {
            parts.failure = None;
        }
        parts.unpublished = None;
    }

    /// Notes that the record may be in the log, or that its bytes cannot enter the cache.
    pub(crate) fn fail_atomic(&mut self) {
        if let Some(record) = &mut self.parts().unpublished {
            record.is_uncertain = true;
        }
    }

    /// Returns whether a record is in the log, or may be, whose bytes are not in the cache.
    pub(crate) fn is_unpublished(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| parts.unpublished.is_some())
    }

    /// Returns whether the bytes of such a record will soon be in the cache.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_unpublished() && !self.is_uncertain()
    }

    /// Returns whether the file has a record that may be in the log, and not in the cache.
    #[inline]
    pub(crate) fn is_uncertain(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| parts.is_uncertain())
    }
}

impl Parts {
    pub(super) fn is_uncertain(&self) -> bool {
        self.unpublished.is_some_and(|record| record.is_uncertain)
    }

    /// Returns the number of the record that no mark moves behind.
    pub(super) fn first_unpublished(&self) -> Option<u64> {
        self.unpublished.map(|record| record.sequence)
    }
}
