//! Ranges and files that callers may not use for a while, so that something can be discarded.
//!
//! A fence is one range of pages that the device is asked to discard. From the request on nobody
//! starts to read or write there. A hold stops the whole file while its dirty pages are dropped, or
//! while bytes are appended past the cache.
//!
//! Invariants: every fence has pages; fences at the device do not overlap each other.

use std::ops::Range;

use crate::rare::Rare;
use crate::ticket::TicketId;

/// A range being discarded.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Fence {
    ticket: TicketId,
    pages: Range<u64>,
    /// The bio is at the device.
    is_sent: bool,
}

/// Fences and holds of one file.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    fences: Rare<Vec<Fence>>,
    /// Callers that hold the file.
    holds: u64,
}

impl Fences {
    pub(crate) fn hold(&mut self) {
        self.holds += 1;
    }

    pub(crate) fn end_hold(&mut self) {
        self.holds = self.holds.checked_sub(1).expect("a discard ends once");
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds > 0
    }

    /// Returns whether nobody holds the file, and no range of it is being discarded.
    pub(crate) fn are_down(&self) -> bool {
        !self.is_held() && self.fences.is_empty()
    }

    pub(crate) fn raise(&mut self, ticket: TicketId, pages: Range<u64>) {
        self.fences.push(Fence { ticket, pages, is_sent: false });
    }

    pub(crate) fn lower(&mut self, ticket: TicketId) {
        if !self.fences.is_empty() {
            self.fences.retain(|fence| fence.ticket != ticket);
            self.fences.tidy();
        }
    }

    /// Returns the number of pages from `page` on without a fence: 0 if it is behind one itself.
    pub(crate) fn unfenced_from(&self, page: u64) -> u64 {
        let ahead = self.fences.iter().filter(|fence| fence.pages.end > page);
        ahead.map(|fence| fence.pages.start.saturating_sub(page)).min().unwrap_or(u64::MAX)
    }

    /// Marks the first fence as sent that can be: its range is quiet, and no discard that overlaps
    /// it is at the device. Returns its ticket and its pages.
    pub(crate) fn send_next(
        &mut self,
        is_quiet: impl Fn(&Range<u64>) -> bool,
    ) -> Option<(TicketId, Range<u64>)> {
        let ready = |fence: &Fence| {
            let mut sent = self.fences.iter().filter(|other| other.is_sent);
            !fence.is_sent
                && !sent.any(|sent| overlap(&sent.pages, &fence.pages))
                && is_quiet(&fence.pages)
        };
        let at = self.fences.iter().position(ready)?;
        let fence = &mut self.fences[at];
        fence.is_sent = true;
        Some((fence.ticket, fence.pages.clone()))
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        let sent = || self.fences.iter().filter(|fence| fence.is_sent);
        for (at, fence) in sent().enumerate() {
            let overlaps = sent().skip(at + 1).any(|other| overlap(&fence.pages, &other.pages));
            assert!(!overlaps, "two discards of the same pages are at the device");
        }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_discards_go_one_after_the_other() {
        let mut fences = Fences::default();
        fences.raise(TicketId(0), 10..20);
        fences.raise(TicketId(1), 15..25);
        fences.raise(TicketId(2), 30..31);
        assert_eq!(
            (fences.unfenced_from(3), fences.unfenced_from(12), fences.unfenced_from(26)),
            (7, 0, 4)
        );
        assert_eq!(fences.send_next(|_| true), Some((TicketId(0), 10..20)));
        assert_eq!(fences.send_next(|_| true), Some((TicketId(2), 30..31)));
        assert_eq!(fences.send_next(|_| true), None);
        fences.verify();
        fences.lower(TicketId(0));
        assert_eq!(fences.send_next(|_| false), None, "the range is in use");
        assert_eq!(fences.send_next(|_| true), Some((TicketId(1), 15..25)));
    }

    #[test]
    #[should_panic(expected = "ends once")]
    fn a_hold_that_ends_twice_is_found() {
        Fences::default().end_hold();
    }
}
