//! How often the pages of a chunk were read, and whether they stay: a few bits per page, so that a
//! use costs a reader some operations on words that it has locked anyway, and no other lock.
//!
//! Only reads count: a clean page is worth something to a reader alone. A read that brings its page
//! in is what the page is here for, not a use of it; so is the first read of one that was read
//! ahead.

use crate::bits::ones;

/// Whether pages stay in memory after they were written or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// Pages stay while there is room.
    Cached,
    /// Pages are dropped once they are written or read.
    Uncached,
}

/// A bit of each kind per page.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Uses {
    /// Uses up to three, in two digits.
    ones: u64,
    twos: u64,
    /// Brought in, or on the way, and not read since.
    unread: u64,
    /// Go when they are written, or read to their end.
    passing: u64,
}

impl Uses {
    /// Pages are being brought in for a reader.
    pub(crate) fn bring(&mut self, mask: u64, caching: Caching) {
        self.forget(mask);
        self.unread |= mask;
        self.pass(mask, caching);
    }

    /// Pages are read; those of `again` were just before, by the same reader. Returns how many were
    /// waiting for it.
    #[inline]
    pub(crate) fn read(&mut self, mask: u64, again: u64, caching: Caching) -> u32 {
        let waiting = self.unread & mask;
        self.unread &= !mask;
        if caching == Caching::Cached {
            self.passing &= !mask;
            self.count(mask & !waiting & !again);
        }
        ones(waiting)
    }

    /// Pages are written. Returns how many were waiting for a reader.
    pub(crate) fn write(&mut self, mask: u64, caching: Caching) -> u32 {
        self.pass(mask, caching);
        self.give_up(mask)
    }

    /// Forgets dropped pages. Returns how many were waiting for a reader.
    pub(crate) fn forget(&mut self, mask: u64) -> u32 {
        for bits in [&mut self.ones, &mut self.twos, &mut self.passing] {
            *bits &= !mask;
        }
        self.give_up(mask)
    }

    /// Ends the wait of pages for a reader. Returns how many waited.
    pub(crate) fn give_up(&mut self, mask: u64) -> u32 {
        let waiting = self.unread & mask;
        self.unread &= !mask;
        ones(waiting)
    }

    /// Returns the number of pages that wait for a reader.
    pub(crate) fn unread(&self) -> u32 {
        self.unread.count_ones()
    }

    /// Of these pages those that go.
    pub(crate) fn passing(&self, mask: u64) -> u64 {
        self.passing & mask
    }

    /// Uses of one page, up to three.
    pub(crate) fn of(&self, slot: usize) -> u8 {
        (self.ones >> slot & 1) as u8 + 2 * (self.twos >> slot & 1) as u8
    }

    pub(crate) fn set(&mut self, slot: usize, uses: u8) {
        let bit = 1 << slot;
        self.ones = self.ones & !bit | u64::from(uses & 1) << slot;
        self.twos = self.twos & !bit | u64::from(uses >> 1 & 1) << slot;
    }

    fn count(&mut self, mask: u64) {
        let most = self.ones & self.twos;
        let carry = self.ones & mask;
        self.ones = self.ones ^ mask | most & mask;
        self.twos |= carry;
    }

    fn pass(&mut self, mask: u64, caching: Caching) {
        match caching {
            Caching::Cached => self.passing &= !mask,
            Caching::Uncached => self.passing |= mask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_counter_per_page(steps in proptest::collection::vec((0_u8..5, any::<u64>(), any::<u64>(), any::<bool>()), 1..100)) {
            let mut uses = Uses::default();
            let mut plain = [(0_u8, false, false); 64];
            for (what, mask, again, cached) in steps {
                let caching = if cached { Caching::Cached } else { Caching::Uncached };
                let waiting = plain.iter().enumerate().filter(|(at, page)| mask >> at & 1 != 0 && page.1).count() as u32;
                let reported = match what {
                    0 => { uses.bring(mask, caching); waiting }
                    1 => uses.read(mask, again, caching),
                    2 => uses.write(mask, caching),
                    3 => uses.forget(mask),
                    _ => uses.give_up(mask),
                };
                prop_assert_eq!(reported, waiting);
                for (at, page) in plain.iter_mut().enumerate().filter(|(at, _)| mask >> at & 1 != 0) {
                    match what {
                        0 => *page = (0, true, !cached),
                        1 if cached => {
                            let counts = !page.1 && again >> at & 1 == 0;
                            *page = ((page.0 + u8::from(counts)).min(3), false, false);
                        }
                        1 | 4 => page.1 = false,
                        2 => *page = (page.0, false, !cached),
                        _ => *page = (0, false, false),
                    }
                }
                for (at, page) in plain.iter().enumerate() {
                    prop_assert_eq!((uses.of(at), uses.passing(1 << at) != 0), (page.0, page.2));
                }
            }
            uses.set(5, 2);
            uses.set(6, 1);
            prop_assert_eq!((uses.of(5), uses.of(6)), (2, 1));
        }
    }
}
