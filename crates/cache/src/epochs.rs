//! Epochs of dirty pages, which decide the pages that a sync covers.
//!
//! Each page carries the epoch that was current when it became dirty. A sync closes the current
//! epoch and waits until no page of that epoch or an older one is left. A page that is written and
//! becomes dirty again gets a younger epoch, so later writes cannot keep a sync from ending.

/// Counts of unwritten pages by epoch.
#[derive(Debug, Default)]
pub struct Epochs {
    current: u64,
    /// The youngest epoch with pages, and their number; 0 if no page is left.
    youngest: (u64, usize),
    /// Older epochs with pages, in order.
    older: Vec<(u64, usize)>,
}

impl Epochs {
    /// Returns the epoch of a page that becomes dirty now.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.current
    }

    /// Ends the current epoch and returns its number, which a sync called now must cover.
    pub fn close(&mut self) -> u64 {
        let closed = self.current;
        self.current += 1;
        closed
    }

    /// Adds pages that became dirty in an epoch.
    pub fn add(&mut self, epoch: u64, pages: usize) {
        if pages == 0 {
            return;
        }
        debug_assert!(epoch <= self.current, "a page becomes dirty in an epoch to come");
        let (youngest, count) = self.youngest;
        if count == 0 || epoch == youngest {
            self.youngest = (epoch, count + pages);
        } else if epoch > youngest {
            self.older.push(std::mem::replace(&mut self.youngest, (epoch, pages)));
        } else {
            match self.older.binary_search_by_key(&epoch, |entry| entry.0) {
                Ok(at) => self.older[at].1 += pages,
                Err(at) => self.older.insert(at, (epoch, pages)),
            }
        }
    }

    /// Removes pages of an epoch that were written or dropped.
    ///
    /// # Panics
    /// If the epoch has fewer pages, because a sync could then return too early.
    pub fn remove(&mut self, epoch: u64, pages: usize) {
        let left = |count: usize| count.checked_sub(pages).expect("a page was counted");
        if epoch == self.youngest.0 {
            self.youngest.1 = left(self.youngest.1);
            if self.youngest.1 == 0 {
                self.youngest = self.older.pop().unwrap_or_default();
            }
            return;
        }
        let at = self.older.binary_search_by_key(&epoch, |entry| entry.0);
        let at = at.expect("a page was counted");
        self.older[at].1 = left(self.older[at].1);
        if self.older[at].1 == 0 {
            self.older.remove(at);
        }
    }

    /// Returns whether all pages of `epoch` and earlier ones are written.
    #[must_use]
    pub fn is_written(&self, epoch: u64) -> bool {
        self.counts().next().is_none_or(|(oldest, _)| oldest > epoch)
    }

    /// Returns the number of pages of all epochs.
    pub(crate) fn total(&self) -> u64 {
        self.counts().map(|(_, pages)| pages as u64).sum()
    }

    /// Asserts that epochs are in order, have pages, and are not after the current one.
    pub(crate) fn verify(&self) {
        let mut before = None;
        for (epoch, pages) in self.counts() {
            assert!(pages > 0, "epoch {epoch} has no pages");
            assert!(before < Some(epoch), "epochs are in order");
            before = Some(epoch);
        }
        assert!(self.older.is_empty() || !self.is_empty(), "older epochs without a youngest one");
        assert!(before <= Some(self.current), "a page is of an epoch to come");
    }

    /// Returns whether no page is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.youngest.1 == 0
    }

    /// Epochs with pages, in order, and the number of their pages.
    fn counts(&self) -> impl Iterator<Item = (u64, usize)> {
        let youngest = (!self.is_empty()).then_some(self.youngest);
        self.older.iter().copied().chain(youngest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirtying_does_not_hold_a_sync() {
        let mut epochs = Epochs::default();
        epochs.add(epochs.current(), 1);
        let covered = epochs.close();
        assert!(!epochs.is_written(covered));
        epochs.add(epochs.current(), 1);
        epochs.remove(covered, 1);
        assert!(epochs.is_written(covered));
        assert!(!epochs.is_empty());
    }
}
