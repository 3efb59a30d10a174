//! Which writes a sync covers: those accepted before it, and no later ones.
//!
//! Each page carries the epoch in which it first became dirty; a sync closes the running epoch and waits until no
//! page of that epoch or an older one is left. Redirtying puts a page into a younger epoch, so it cannot keep a
//! sync from ending.

use std::collections::VecDeque;

/// Pages not yet written, counted by epoch.
#[derive(Debug, Default)]
pub struct Epochs {
    current: u64,
    counts: VecDeque<(u64, usize)>,
}

impl Epochs {
    /// The epoch of a page that becomes dirty now.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.current
    }

    /// Ends the running epoch and returns it: what a sync asked for now has to cover.
    pub fn close(&mut self) -> u64 {
        let closed = self.current;
        self.current += 1;
        closed
    }

    /// A page became dirty in an epoch.
    pub fn add(&mut self, epoch: u64) {
        match self.counts.binary_search_by_key(&epoch, |entry| entry.0) {
            Ok(at) => self.counts[at].1 += 1,
            Err(at) => self.counts.insert(at, (epoch, 1)),
        }
    }

    /// A page of an epoch was written, or dropped.
    ///
    /// # Panics
    /// When none was counted: then a sync could return too early.
    pub fn remove(&mut self, epoch: u64) {
        let at = self.counts.binary_search_by_key(&epoch, |entry| entry.0).expect("a page was counted");
        self.counts[at].1 -= 1;
        if self.counts[at].1 == 0 {
            self.counts.remove(at);
        }
    }

    /// Whether everything of `epoch` and before is written.
    #[must_use]
    pub fn is_written(&self, epoch: u64) -> bool {
        self.counts.front().is_none_or(|oldest| oldest.0 > epoch)
    }

    /// Whether nothing at all is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirtying_does_not_hold_a_sync() {
        let mut epochs = Epochs::default();
        epochs.add(epochs.current());
        let covered = epochs.close();
        assert!(!epochs.is_written(covered));
        epochs.add(epochs.current());
        epochs.remove(covered);
        assert!(epochs.is_written(covered));
        assert!(!epochs.is_empty());
    }
}
