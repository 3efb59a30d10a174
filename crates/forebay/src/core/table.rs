//! The open inodes of an engine, through the cache or past it: by identity for another handle or a
//! hard link, and by number for leases and the evictor.
//!
//! [`Entries`] are directory entries that the engine created, that are not durable yet, and whose
//! files are closed. The first sync of a file we created also syncs its directory. If the file is
//! closed before that, the next open finds an existing file, and its sync would not cover the
//! directory. So the engine remembers such files.
//!
//! The memory is bounded. When it is full, it is cleared, and only that fact is kept. From then on
//! the first sync after any open also syncs the directory, which is never wrong and costs one
//! flush. A removed file leaves its identity here, and the next file with that identity costs the
//! same flush.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use forebay_block::Target;
use forebay_cache::file;
use forebay_cache::price::Price;

use crate::core::direct::direct_inode::DirectInode;
use crate::core::inode::Inode;
use crate::core::limits::{ADAPTIVE_FILES, UNSYNCED_ENTRIES};
use crate::core::open::common::Common;
use crate::core::space::volume::Volume;
use crate::core::threads::Workers;
use crate::platform::collections::{HashMap, HashSet};
use crate::platform::{Identity, Kind};

/// An open file, by the strategy that serves it.
#[derive(Clone, Debug)]
pub(crate) enum AnyInode {
    /// Through the cache.
    Cached(Arc<Inode>),
    /// Past the cache.
    Direct(Arc<DirectInode>),
}

impl AnyInode {
    /// Returns the file if it is open through the cache.
    pub(crate) fn cached(self) -> Option<Arc<Inode>> {
        match self {
            Self::Cached(inode) => Some(inode),
            Self::Direct(_) => None,
        }
    }

    /// Returns the file if it is open past the cache.
    pub(crate) fn direct(self) -> Option<Arc<DirectInode>> {
        match self {
            Self::Direct(inode) => Some(inode),
            Self::Cached(_) => None,
        }
    }
}

impl Deref for AnyInode {
    type Target = Common;

    fn deref(&self) -> &Common {
        match self {
            Self::Cached(inode) => inode,
            Self::Direct(inode) => inode,
        }
    }
}

/// Table of open inodes.
#[derive(Debug, Default)]
pub(crate) struct Table {
    by_identity: HashMap<Identity, Entry>,
    /// The files with a cache: leases and the evictor name them by number.
    by_target: HashMap<Target, Arc<Inode>>,
    /// Files without handles that are being closed.
    closing: HashMap<Identity, AnyInode>,
    /// Files that are being opened, each by one open at a time.
    opening: HashSet<Identity>,
    /// Unsynced entries of files that are no longer open.
    pub(crate) unsynced: Entries,
    /// Callers that wait until an open or a closing ends.
    pub(crate) waiting: usize,
    free_targets: Vec<u32>,
    next_target: u32,
    volumes: HashMap<(u64, Kind), Arc<Volume>>,
    asides: HashMap<(u64, Kind), Arc<Workers>>,
}

#[derive(Debug)]
struct Entry {
    inode: AnyInode,
    handles: usize,
}

/// Whether a handle was the last of its inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    /// It was the last.
    Yes,
    /// Other handles are left.
    No,
}

impl Table {
    /// Begins an open of a file. Returns false while another one is in progress.
    pub(crate) fn begin_opening(&mut self, identity: Identity) -> bool {
        self.opening.insert(identity)
    }

    pub(crate) fn end_opening(&mut self, identity: Identity) {
        assert!(self.opening.remove(&identity), "an open ends once");
    }

    /// Returns an open inode.
    pub(crate) fn get(&self, identity: Identity) -> Option<AnyInode> {
        self.by_identity.get(&identity).map(|entry| entry.inode.clone())
    }

    /// Adds a handle to an open inode.
    pub(crate) fn add_handle(&mut self, identity: Identity) {
        debug_assert!(!self.is_closing(identity), "the handle is of a closed file");
        self.entry(identity).handles += 1;
    }

    /// Enters an inode with its first handle.
    pub(crate) fn insert(&mut self, inode: AnyInode) {
        assert!(!self.is_closing(inode.identity), "two descriptors of a file break its lease");
        if let AnyInode::Cached(cached) = &inode {
            let before = self.by_target.insert(inode.target, Arc::clone(cached));
            // Checked in every build: otherwise bios of one file would go to another.
            assert!(before.is_none(), "a number belongs to one inode");
        }
        let before = self.by_identity.insert(inode.identity, Entry { inode, handles: 1 });
        assert!(before.is_none(), "an inode has one cache, or one lane");
    }

    /// Returns whether a handle about to be dropped is the last. Its requests are made before the
    /// drop, while the inode is still held.
    pub(crate) fn is_last(&self, identity: Identity) -> Last {
        match self.by_identity.get(&identity) {
            Some(entry) if entry.handles > 1 => Last::No,
            _ => Last::Yes,
        }
    }

    /// Drops a handle. Returns whether it was the last.
    pub(crate) fn drop_handle(&mut self, identity: Identity) -> Last {
        let entry = self.entry(identity);
        // Checked in every build: with a wrong count, a file that is being written could be closed.
        assert!(entry.handles > 0, "a handle goes once");
        entry.handles -= 1;
        if entry.handles == 0 { Last::Yes } else { Last::No }
    }

    fn entry(&mut self, identity: Identity) -> &mut Entry {
        self.by_identity.get_mut(&identity).expect("an open handle's inode is in the table")
    }

    /// Removes an inode without handles. Until [`Table::end_closing`] its file is being closed, and
    /// opens of it wait.
    pub(crate) fn begin_closing(&mut self, inode: &Common) -> bool {
        if self.handles(inode) != Some(0) {
            return false;
        }
        let entry = self.by_identity.remove(&inode.identity).expect("found above");
        let removed = self.by_target.remove(&inode.target);
        let is_removed = match &entry.inode {
            AnyInode::Cached(inode) => removed.is_some_and(|removed| Arc::ptr_eq(&removed, inode)),
            AnyInode::Direct(_) => removed.is_none(),
        };
        assert!(is_removed, "a number belongs to one inode");
        let before = self.closing.insert(inode.identity, entry.inode);
        assert!(before.is_none(), "the end of one close would end another");
        true
    }

    /// Notes that a file is closed, and frees the number of its target.
    pub(crate) fn end_closing(&mut self, identity: Identity, target: Target) {
        let was_closing = self.closing.remove(&identity).is_some();
        assert!(was_closing, "a file is closed once");
        self.free_target(target);
    }

    /// Remembers that the entry of a file that is closed may not be durable.
    pub(crate) fn keep_entry(&mut self, identity: Identity, entry: file::Entry) {
        if entry == file::Entry::New {
            self.unsynced.remember(identity);
        }
    }

    /// Returns whether a file is being closed.
    pub(crate) fn is_closing(&self, identity: Identity) -> bool {
        self.closing.contains_key(&identity)
    }

    /// Returns whether an inode has handles: it may have been opened again before its close began.
    pub(crate) fn is_held(&self, inode: &Common) -> bool {
        self.handles(inode).is_some_and(|handles| handles > 0)
    }

    /// Returns the number of handles of an inode, if it is in the table. A later inode of the same
    /// file is another one.
    fn handles(&self, inode: &Common) -> Option<usize> {
        let entry = self.by_identity.get(&inode.identity)?;
        std::ptr::eq::<Common>(&*entry.inode, inode).then_some(entry.handles)
    }

    /// Returns whether a file is open or being closed.
    pub(crate) fn has(&self, identity: Identity) -> bool {
        self.by_identity.contains_key(&identity) || self.is_closing(identity)
    }

    /// Returns the inodes that are open.
    fn open(&self) -> impl Iterator<Item = AnyInode> {
        self.by_identity.values().map(|entry| entry.inode.clone())
    }

    /// Returns the open inodes past the cache.
    pub(crate) fn direct_inodes(&self) -> Vec<Arc<DirectInode>> {
        self.open().filter_map(AnyInode::direct).collect()
    }

    /// Returns the open inodes with a cache.
    pub(crate) fn inodes(&self) -> Vec<Arc<Inode>> {
        self.open().filter_map(AnyInode::cached).collect()
    }

    /// Returns all inodes, also those whose files are being closed.
    pub(crate) fn all(&self) -> Vec<AnyInode> {
        self.open().chain(self.closing.values().cloned()).collect()
    }

    /// Returns the number of places that can be written in parallel: the cached files, or the
    /// allocation groups of the file system that has most of them. `None` if there are too many
    /// files to be moved between contexts.
    pub(crate) fn places(&self) -> Option<usize> {
        let files = self.by_target.len();
        let groups = self.volumes.values().map(|volume| volume.groups()).max();
        (files <= ADAPTIVE_FILES).then_some(groups.unwrap_or(1).min(files))
    }

    /// Returns an open inode with a cache.
    pub(crate) fn by_target(&self, target: Target) -> Option<Arc<Inode>> {
        self.by_target.get(&target).map(Arc::clone)
    }

    /// Returns a number that no open inode has.
    pub(crate) fn new_target(&mut self) -> Target {
        let target = Target(self.free_targets.pop().unwrap_or_else(|| {
            self.next_target += 1;
            self.next_target - 1
        }));
        assert!(!self.by_target.contains_key(&target), "bios of one file would go to another");
        target
    }

    /// Marks exactly these numbers as taken.
    pub(crate) fn take_targets(&mut self, taken: &BTreeSet<u32>) {
        self.next_target = taken.last().map_or(0, |last| last + 1);
        self.free_targets =
            (0..self.next_target).rev().filter(|number| !taken.contains(number)).collect();
    }

    pub(crate) fn free_target(&mut self, target: Target) {
        assert!(!self.by_target.contains_key(&target), "bios of two files: {target:?} is in use");
        debug_assert!(!self.free_targets.contains(&target.0), "{target:?} is free");
        self.free_targets.push(target.0);
    }

    /// Returns the file system with a device number, or the block device itself.
    pub(crate) fn volume(&mut self, device: u64, kind: Kind) -> Arc<Volume> {
        let (number, aside) = (self.volumes.len(), self.aside(device, kind));
        let volume = self.volumes.entry((device, kind));
        Arc::clone(volume.or_insert_with(|| Arc::new(Volume::new(number, aside))))
    }

    /// Returns the aside of a file system or device.
    pub(crate) fn aside(&mut self, device: u64, kind: Kind) -> Arc<Workers> {
        Arc::clone(self.asides.entry((device, kind)).or_default())
    }

    /// Returns all asides.
    pub(crate) fn asides(&self) -> Vec<Arc<Workers>> {
        self.asides.values().map(Arc::clone).collect()
    }

    /// Returns all file systems used so far, if there are several.
    pub(crate) fn volumes(&self) -> Option<Vec<Arc<Volume>>> {
        (self.volumes.len() > 1).then(|| self.volumes.values().map(Arc::clone).collect())
    }

    /// Returns the prices that are known, with the number of each device, in that order.
    pub(crate) fn prices(&self) -> Vec<(u64, Price)> {
        let prices = self.volumes.iter().map(|((device, _), volume)| (*device, volume.price()));
        let mut prices: Vec<_> = prices.filter(|(_, price)| *price != Price::default()).collect();
        prices.sort_unstable_by_key(|(device, _)| *device);
        prices
    }
}

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
        debug_assert!(self.unsynced.len() <= UNSYNCED_ENTRIES, "the memory would grow for ever");
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

    #[test]
    fn taken_numbers_are_not_given_again() {
        let mut table = Table::default();
        table.take_targets(&BTreeSet::from([1, 4]));
        let given: Vec<u32> = (0..5).map(|_| table.new_target().0).collect();
        assert_eq!(given, [0, 2, 3, 5, 6]);
    }

    #[test]
    fn contract_15_a_device_and_a_file_system_have_different_volumes() {
        let mut table = Table::default();
        let asked = [
            (7, Kind::Regular),
            (7, Kind::Block),
            (8, Kind::Block),
            (7, Kind::Regular),
            (7, Kind::Block),
        ];
        let numbers = asked.map(|(device, kind)| table.volume(device, kind).number());
        assert_eq!(numbers, [0, 1, 2, 0, 1]);
    }

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
