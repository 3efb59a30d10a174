//! Directory entries that an engine made and that are not durable yet, of files it has closed
//! since.
//!
//! The first sync of a file we created also syncs its directory. Where the file is closed before
//! that sync, the next open finds a file that is there, and would promise what no flush has
//! covered: so the engine remembers.
//!
//! The memory is bounded. When it is full it forgets, and remembers that it has: from then on the
//! first sync after any open syncs the directory too, which is never wrong and costs one flush. A
//! file that was removed meanwhile leaves its identity here, and whoever gets that identity next
//! pays the same.

use crate::core::limits::UNSYNCED_ENTRIES;
use crate::platform::Identity;
use crate::platform::collections::HashSet;

/// The memory.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    unsynced: HashSet<Identity>,
    has_forgotten: bool,
    /// Opens that are creating a file. Its identity is known, and remembered if need be, when they
    /// have created it: another open may have found the file before.
    creating: u32,
}

impl Entries {
    /// A file we made is closed, and its directory was never synced.
    pub(crate) fn remember(&mut self, identity: Identity) {
        if self.unsynced.len() >= UNSYNCED_ENTRIES {
            self.forget();
        }
        self.unsynced.insert(identity);
    }

    /// An open is about to create a file.
    pub(crate) fn begin_creating(&mut self) {
        self.creating += 1;
    }

    /// That open has created it or not, and has entered or remembered it.
    pub(crate) fn end_creating(&mut self) {
        self.creating -= 1;
    }

    /// Others were made by a program that took its memory of them with it.
    pub(crate) fn forget(&mut self) {
        self.unsynced = HashSet::default();
        self.has_forgotten = true;
    }

    /// A file that was there is opened: whether its directory entry may not be durable. Whoever
    /// asks has it to see to from now on.
    pub(crate) fn take(&mut self, identity: Identity) -> bool {
        self.unsynced.remove(&identity) || self.has_forgotten || self.creating > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(inode: u64) -> Identity {
        Identity { device: 1, inode }
    }

    #[test]
    fn contract_01_what_is_remembered_is_taken_once() {
        let mut entries = Entries::default();
        entries.remember(identity(7));
        assert!(!entries.take(identity(8)));
        assert!(entries.take(identity(7)));
        assert!(!entries.take(identity(7)));
    }

    #[test]
    fn contract_01_a_file_that_an_open_under_way_has_created_may_not_be_durable() {
        let mut entries = Entries::default();
        entries.begin_creating();
        assert!(entries.take(identity(7)) && entries.take(identity(7)));
        entries.end_creating();
        assert!(!entries.take(identity(7)));
    }

    #[test]
    fn contract_01_and_18_a_full_memory_errs_on_the_safe_side() {
        let mut entries = Entries::default();
        (0..=UNSYNCED_ENTRIES as u64).for_each(|inode| entries.remember(identity(inode)));
        assert!(entries.unsynced.len() <= UNSYNCED_ENTRIES);
        assert!((0..=UNSYNCED_ENTRIES as u64).all(|inode| entries.take(identity(inode))));
    }
}
