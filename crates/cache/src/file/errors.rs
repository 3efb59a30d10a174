//! Errors of a file that callers have yet to see.
//!
//! A failed page write is reported once to each handle, also to handles opened later: every handle
//! keeps the number of the last error it has seen. A page that could not be read fails the next
//! read that needs it, once.
//!
//! Invariant: there is a last write error exactly if at least one was recorded.
//!
//! A failed flush is not here: it makes every later sync fail (`flush.rs` beside this file).

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_block::Errno;

use crate::rare::{Empty, Rare};

/// Errors of one file.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    /// Number of failed page writes so far.
    sequence: u64,
    found: Rare<Found>,
}

#[derive(Debug, Default)]
struct Found {
    /// Offset and error of the last page write that failed.
    last_write: Option<(u64, Errno)>,
    /// Pages that could not be read and that no reader has asked for since.
    unreadable: BTreeMap<u64, Errno>,
}

impl Empty for Found {
    const EMPTY: &'static Self = &Self { last_write: None, unreadable: BTreeMap::new() };

    fn is_empty(&self) -> bool {
        self.last_write.is_none() && self.unreadable.is_empty()
    }
}

impl Errors {
    pub(crate) fn last_write(&self) -> Option<(u64, Errno)> {
        self.found.last_write
    }

    /// Records a page write that failed.
    pub(crate) fn note_write(&mut self, offset: u64, errno: Errno) {
        self.found.last_write = Some((offset, errno));
        self.sequence += 1;
    }

    /// Returns the last error if it is newer than `seen`, and moves `seen` on.
    pub(crate) fn unreported(&self, seen: &mut u64) -> Option<(u64, Errno)> {
        debug_assert!(*seen <= self.sequence, "a handle has seen an error of another file");
        let is_unreported = std::mem::replace(seen, self.sequence) < self.sequence;
        if is_unreported { self.found.last_write } else { None }
    }

    /// Records that a page could not be read.
    pub(crate) fn note_unreadable(&mut self, page: u64, errno: Errno) {
        self.found.unreadable.insert(page, errno);
    }

    pub(crate) fn is_unreadable(&self, page: u64) -> bool {
        self.found.unreadable.contains_key(&page)
    }

    /// Removes and returns the read error of a page.
    pub(crate) fn take_unreadable(&mut self, page: u64) -> Option<Errno> {
        if self.found.unreadable.is_empty() {
            return None;
        }
        let errno = self.found.unreadable.remove(&page);
        self.found.tidy();
        errno
    }

    /// Forgets the read errors of pages that have content again.
    pub(crate) fn forget_unreadable(&mut self, pages: &Range<u64>) {
        if !self.found.unreadable.is_empty() {
            self.found.unreadable.retain(|page, _| !pages.contains(page));
            self.found.tidy();
        }
    }

    /// Returns the pages that could not be read.
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = u64> + '_ {
        self.found.unreadable.keys().copied()
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        assert_eq!(self.found.last_write.is_some(), self.sequence > 0, "an error is counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_02_each_handle_sees_an_error_once() {
        let mut errors = Errors::default();
        let (mut one, mut other) = (0, 0);
        assert_eq!(errors.unreported(&mut one), None);
        errors.note_write(4096, Errno::IO);
        errors.verify();
        assert_eq!(errors.unreported(&mut one), Some((4096, Errno::IO)));
        assert_eq!(errors.unreported(&mut one), None);
        errors.note_write(8192, Errno::IO);
        for seen in [&mut one, &mut other] {
            assert_eq!(errors.unreported(seen), Some((8192, Errno::IO)));
        }
    }

    #[test]
    fn a_read_error_is_forgotten_with_its_page() {
        let mut errors = Errors::default();
        (3..6).for_each(|page| errors.note_unreadable(page, Errno::IO));
        errors.forget_unreadable(&(4..9));
        assert_eq!(errors.unreadable().collect::<Vec<_>>(), [3]);
        assert_eq!((errors.take_unreadable(3), errors.take_unreadable(3)), (Some(Errno::IO), None));
    }
}
