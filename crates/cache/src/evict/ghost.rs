//! Pages that were dropped lately: a page that is needed again soon was dropped too early.
//!
//! A table of hashes in sets of eight, one cache line each, with the time of each drop (counted in
//! dropped pages). An entry whose time is over is ignored and later overwritten. So the memory is
//! fixed, and there is no list beside it. The price: in a full set the oldest entry is lost early,
//! and one page in some hundred millions is mistaken for another.

/// Entries of a set.
const WAYS: usize = 8;

/// Pages dropped lately.
#[derive(Debug)]
pub(super) struct Ghost {
    /// A hash above, the time below; 0 is no entry.
    entries: Vec<u64>,
    now: u32,
    /// How long it is remembered.
    span: u32,
}

impl Ghost {
    /// Remembers the last `span` pages.
    pub(super) fn new(span: u32) -> Self {
        let sets = (span as usize).div_ceil(WAYS).next_power_of_two();
        Self { entries: vec![0; sets * WAYS], now: 0, span }
    }

    /// A page goes.
    pub(super) fn remember(&mut self, hash: u64) {
        self.now = self.now.wrapping_add(1);
        let (now, entry) = (self.now, u64::from(tag(hash)) << 32 | u64::from(self.now));
        let set = self.set(hash);
        let age = |entry: u64| if entry == 0 { u32::MAX } else { now.wrapping_sub(entry as u32) };
        let same = set.iter().position(|entry| (*entry >> 32) as u32 == tag(hash));
        let at =
            same.or_else(|| (0..WAYS).max_by_key(|at| age(set[*at]))).expect("a set has entries");
        set[at] = entry;
    }

    /// A page comes: whether it went lately. It is forgotten by this.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        let (now, span) = (self.now, self.span);
        let found = self.set(hash).iter_mut().find(|entry| (**entry >> 32) as u32 == tag(hash));
        let Some(entry) = found else { return false };
        let is_lately = now.wrapping_sub(*entry as u32) < span;
        *entry = 0;
        is_lately
    }

    fn set(&mut self, hash: u64) -> &mut [u64] {
        let first = hash as usize % (self.entries.len() / WAYS) * WAYS;
        &mut self.entries[first..first + WAYS]
    }
}

/// The part of a hash that differs within a set; never 0.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use forebay_block::random::mix;

    use super::*;

    #[test]
    fn what_went_lately_is_known_once_and_what_did_not_never() {
        let mut ghost = Ghost::new(1000);
        let mut went: HashMap<u64, u64> = HashMap::new();
        let (mut known, mut lately, mut time) = (0, 0, 0);
        for step in 0..200_000_u64 {
            let number = mix(step) % 3000;
            if step % 3 == 0 {
                time += 1;
                ghost.remember(mix(number));
                went.insert(number, time);
            } else {
                let is_lately = went.remove(&number).is_some_and(|then| time - then < 1000);
                let is_known = ghost.take(mix(number));
                assert!(is_lately || !is_known, "page {number} did not go lately");
                assert!(!ghost.take(mix(number)), "it comes once");
                known += u64::from(is_known);
                lately += u64::from(is_lately);
            }
        }
        assert!(lately > 10_000 && known * 10 > lately * 9, "{known} known of {lately}");
    }

    #[test]
    fn the_memory_is_fixed() {
        let mut ghost = Ghost::new(100);
        let before = ghost.entries.len();
        (0..10_000).for_each(|number| ghost.remember(mix(number)));
        assert_eq!(ghost.entries.len(), before);
        assert_eq!(before, 128);
    }
}
