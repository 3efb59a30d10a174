//! Directory entries that the engine created, that are not durable yet, and whose files are closed.
//!
//! The first sync of a file we created also syncs its directory. If the file is closed before that,
//! the next open finds an existing file, and its sync would not cover the directory. So the engine
//! remembers such files.
//!
//! The memory is bounded. When it is full, it is cleared, and only that fact is kept. From then on
//! the first sync after any open also syncs the directory, which is never wrong and costs one
//! flush. A removed file leaves its identity here, and the next file with that identity costs the
//! same flush.

use crate::core::limits::UNSYNCED_ENTRIES;
use crate::platform::Identity;
use crate::platform::collections::HashSet;

/// Identities of the closed files whose entries are not durable.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    unsynced: HashSet<Identity>,
    has_forgotten: bool,
    /// Number of opens that may be creating a file. The identity of such a file is known, and
    /// remembered if necessary, only after its creation. Another open may find the file before.
    creating: u32,
}

impl Entries {
    /// Adds a file that this engine created, and closes without a sync of its directory.
    pub(crate) fn remember(&mut self, identity: Identity) {
        if self.unsynced.len() >= UNSYNCED_ENTRIES {
            self.forget();
        }
        self.unsynced.insert(identity);
    }

    /// Notes that an open is about to create a file.
    pub(crate) fn begin_creating(&mut self) {
        self.creating += 1;
    }

    /// Notes that this open has ended: it has entered or remembered the file, if it created one.
    pub(crate) fn end_creating(&mut self) {
        assert!(self.creating > 0, "an open that creates a file ends once");
        self.creating -= 1;
    }

    /// Clears the memory. Also called if a dead program, whose memory is lost, created files.
    pub(crate) fn forget(&mut self) {
        self.unsynced = HashSet::default();
        self.has_forgotten = true;
    }

    /// Returns whether the directory entry of an existing file may not be durable. From then on,
    /// the caller is responsible for the sync of the directory.
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
    fn contract_01_an_unsynced_entry_is_taken_once() {
        let mut entries = Entries::default();
        entries.remember(identity(7));
        assert!(!entries.take(identity(8)));
        assert!(entries.take(identity(7)));
        assert!(!entries.take(identity(7)));
    }

    #[test]
    fn contract_01_during_a_creation_any_entry_may_not_be_durable() {
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
