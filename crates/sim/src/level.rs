//! The level of dirty pages and who waits for it to fall, as the engine keeps it: freed room goes to whoever waits
//! longest, in shares that are charged when they are granted.

use std::collections::{BTreeMap, VecDeque};

use forebay_cache::{Admission, Throttle};

/// The level.
#[derive(Debug)]
pub(crate) struct Level {
    throttle: Throttle,
    share: u64,
    dirty: u64,
    waiting: VecDeque<usize>,
    granted: BTreeMap<usize, u64>,
}

impl Level {
    pub(crate) fn new(throttle: Throttle, share: u64) -> Self {
        Self { throttle, share, dirty: 0, waiting: VecDeque::new(), granted: BTreeMap::new() }
    }

    pub(crate) fn dirty(&self) -> u64 {
        self.dirty
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn wants_writeback(&self) -> bool {
        self.dirty >= self.throttle.background
    }

    pub(crate) fn admit(&self, file_dirty: u64) -> Admission {
        self.throttle.admit(self.dirty, file_dirty)
    }

    /// Pages became dirty; true when the background level was crossed by it.
    pub(crate) fn add(&mut self, pages: u64) -> bool {
        let before = self.dirty;
        self.dirty += pages;
        before < self.throttle.background && self.wants_writeback()
    }

    /// Pages are dirty no more; returns whom that lets on.
    pub(crate) fn remove(&mut self, pages: u64) -> Vec<usize> {
        assert!(self.dirty >= pages, "more pages cleaned than were dirty");
        self.dirty -= pages;
        let mut woken = Vec::new();
        while self.dirty + self.share <= self.throttle.limit {
            let Some(caller) = self.waiting.pop_front() else { break };
            self.add(self.share);
            self.granted.insert(caller, self.share);
            woken.push(caller);
        }
        woken
    }

    /// A caller waits for a share; returns whom that lets on, perhaps itself.
    pub(crate) fn queue(&mut self, caller: usize) -> Vec<usize> {
        self.waiting.push_back(caller);
        self.remove(0)
    }

    /// What a caller was granted.
    pub(crate) fn take_grant(&mut self, caller: usize) -> u64 {
        self.granted.remove(&caller).unwrap_or(0)
    }
}
