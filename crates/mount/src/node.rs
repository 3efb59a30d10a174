//! The objects of the source that the kernel knows, by their number and by their inode.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags};
use rustix::fs::{Gid, Timestamps, Uid, fstat, statx};

use crate::in_place::{self, named, path_of};
use crate::open_file::OpenState;
use crate::places::MountNumber;

/// The number of the root. The kernel knows it without a lookup.
pub(crate) const ROOT: u64 = 1;

/// Device and inode number in the source.
pub(crate) type Identity = (u64, u64);

/// A file, directory or other object of the source.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its number in requests, which programs see as its inode number: that of the source, except
    /// for the root and for file systems mounted inside of the source.
    pub(crate) number: u64,
    pub(crate) identity: Identity,
    pub(crate) kind: FileType,
    /// Opened with `O_PATH`: it keeps the object, but neither breaks a lease nor reads.
    descriptor: OwnedFd,
    /// Identifies its entry in the order of nodes.
    serial: u64,
    /// Whether a request named it since the last look for unused nodes.
    is_used: AtomicBool,
    /// Time of the next look at its times, for its next read (`accessed.rs`).
    pub(crate) next_look: AtomicU64,
    /// Whether the kernel has read it itself, so that a map of it may be left.
    pub(crate) may_be_mapped: AtomicBool,
    /// Whether a request has removed one of its names.
    pub(crate) may_be_removed: AtomicBool,
    /// How often the kernel looked it up and has not forgotten it.
    lookups: AtomicU64,
    state: Mutex<OpenState>,
    /// Held while the file that it kept is closed: then its pages may not be written yet, although
    /// no open file has them.
    closing: Mutex<()>,
}

impl Node {
    /// Returns a path that stays valid when the object is renamed or removed.
    pub(crate) fn path(&self) -> PathBuf {
        path_of(self.as_fd())
    }

    /// Returns the name in the source, for messages.
    pub(crate) fn name(&self) -> PathBuf {
        named(&self.path())
    }

    /// Opens the object with these flags.
    pub(crate) fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        in_place::open(self.as_fd(), flags | OFlags::CLOEXEC)
    }

    /// Calls with a path of the object, which is valid until the call ends.
    pub(crate) fn at_path<T>(
        &self,
        call: impl FnOnce(&Path) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        Ok(in_place::at_path(self.as_fd(), call)?)
    }

    pub(crate) fn set_mode(&self, mode: Mode) -> io::Result<()> {
        self.at_path(|path| rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()))
    }

    pub(crate) fn set_owner(&self, user: Option<Uid>, group: Option<Gid>) -> io::Result<()> {
        Ok(rustix::fs::chownat(&self.descriptor, c"", user, group, AtFlags::EMPTY_PATH)?)
    }

    /// Sets times, without a look at data that is not written out.
    pub(crate) fn set_times(&self, times: &Timestamps) -> io::Result<()> {
        Ok(rustix::fs::utimensat(&self.descriptor, c"", times, AtFlags::EMPTY_PATH)?)
    }

    pub(crate) fn status(&self) -> io::Result<Stat> {
        Ok(fstat(&self.descriptor)?)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, OpenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps others from its content until the kept file is closed. Waits for a close in progress.
    pub(crate) fn closing(&self) -> MutexGuard<'_, ()> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the file may not change (`chattr +i`), or only grow (`chattr +a`). On a
    /// mount the kernel knows neither, and a descriptor that was opened before keeps its rights.
    pub(crate) fn protection(&self) -> io::Result<StatxAttributes> {
        let found = statx(&self.descriptor, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
        Ok(found.stx_attributes & (StatxAttributes::IMMUTABLE | StatxAttributes::APPEND))
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

pub(crate) fn identity(status: &Stat) -> Identity {
    (status.st_dev, status.st_ino)
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    inner: RwLock<Inner>,
}

#[derive(Debug)]
struct Inner {
    by_number: HashMap<u64, Arc<Node>>,
    by_identity: HashMap<Identity, Arc<Node>>,
    /// Lookups of removed files without a node, by their number. The kernel has not forgotten them.
    removed: HashMap<u64, u64>,
    /// Device of the source itself.
    device: u64,
    /// File systems mounted inside of the source, and the first directory known of each.
    foreign: BTreeMap<MountNumber, PathBuf>,
    /// Last number that is not one of the source.
    last: u64,
    /// Numbers and serial numbers of nodes, in the order of their age or last use. Those of
    /// forgotten nodes are removed later.
    order: VecDeque<(u64, u64)>,
    last_serial: u64,
}

impl Inner {
    /// A free number for an object.
    fn number(&mut self, (device, inode): Identity) -> u64 {
        let is_free = !self.removed.contains_key(&inode);
        if device == self.device && inode > ROOT && inode < FOREIGN && is_free {
            // The inode is not used again while the node has it open.
            return inode;
        }
        self.last += 1;
        self.last
    }

    fn add(&mut self, number: u64, descriptor: OwnedFd, status: &Stat, lookups: u64) -> Arc<Node> {
        self.last_serial += 1;
        let node = Arc::new(Node {
            number,
            serial: self.last_serial,
            is_used: AtomicBool::new(false),
            identity: identity(status),
            kind: FileType::from_raw_mode(status.st_mode),
            descriptor,
            next_look: AtomicU64::new(0),
            may_be_mapped: AtomicBool::new(false),
            may_be_removed: AtomicBool::new(false),
            lookups: AtomicU64::new(lookups),
            state: Mutex::default(),
            closing: Mutex::default(),
        });
        if node.kind == FileType::Directory
            && status.st_dev != self.device
            && let Ok(mount) = MountNumber::of(&node.descriptor)
        {
            self.foreign.entry(mount).or_insert_with(|| node.name());
        }
        if self.order.len() > 2 * self.by_number.len() + ORDER_SLACK {
            let by_number = &self.by_number;
            self.order.retain(|entry| found(by_number, *entry).is_some());
        }
        self.order.push_back((number, node.serial));
        self.by_number.insert(number, Arc::clone(&node));
        self.by_identity.insert(node.identity, Arc::clone(&node));
        node
    }
}

/// Returns the node of an entry of the order, unless it was forgotten.
fn found(by_number: &HashMap<u64, Arc<Node>>, (number, serial): (u64, u64)) -> Option<&Arc<Node>> {
    by_number.get(&number).filter(|node| node.serial == serial)
}

/// Entries of forgotten nodes in the order, besides one for each node.
const ORDER_SLACK: usize = 1024;

/// Numbers from here on are for objects of other file systems.
const FOREIGN: u64 = 1 << 62;

impl Nodes {
    /// The table with the root alone.
    pub(crate) fn new(root: OwnedFd) -> io::Result<Self> {
        let status = fstat(&root)?;
        let inner = Inner {
            by_number: HashMap::new(),
            by_identity: HashMap::new(),
            removed: HashMap::new(),
            device: status.st_dev,
            foreign: BTreeMap::new(),
            last: FOREIGN,
            order: VecDeque::new(),
            last_serial: 0,
        };
        let nodes = Self { inner: RwLock::new(inner) };
        nodes.change(|inner| inner.add(ROOT, root, &status, 1));
        Ok(nodes)
    }

    fn read<T>(&self, look: impl FnOnce(&Inner) -> T) -> T {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The node of a number that the kernel sent.
    ///
    /// # Errors
    /// `ESTALE` for a number that the kernel has forgotten.
    pub(crate) fn get(&self, number: u64) -> io::Result<Arc<Node>> {
        let found = self.read(|inner| inner.by_number.get(&number).cloned());
        let node = found.ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))?;
        if !node.is_used.load(Ordering::Relaxed) {
            node.is_used.store(true, Ordering::Relaxed);
        }
        Ok(node)
    }

    pub(crate) fn count(&self) -> usize {
        self.read(|inner| inner.by_number.len())
    }

    /// Returns at most this many nodes that nobody has open, the longest unused first. Directories
    /// are returned only if there are no others.
    pub(crate) fn unused(&self, most: usize) -> Vec<Arc<Node>> {
        self.change(|inner| {
            let (mut files, mut directories) = (Vec::new(), Vec::new());
            // The second time around finds those that were used lately.
            for _ in 0..2 * inner.order.len() {
                let Some(entry) = inner.order.pop_front() else { break };
                let Some(node) = found(&inner.by_number, entry) else { continue };
                inner.order.push_back(entry);
                let was_used = node.is_used.swap(false, Ordering::Relaxed);
                if was_used || node.number == ROOT || node.state().is_open() {
                    continue;
                }
                match node.kind {
                    FileType::Directory => directories.push(Arc::clone(node)),
                    _ => files.push(Arc::clone(node)),
                }
                if files.len() >= most {
                    break;
                }
            }
            if files.is_empty() {
                directories.truncate(most);
                return directories;
            }
            files
        })
    }

    /// Returns the file systems mounted inside of the source that were used: the number of each,
    /// and the name that a directory of it had.
    pub(crate) fn foreign(&self) -> Vec<(MountNumber, PathBuf)> {
        self.read(|inner| inner.foreign.iter().map(|(mount, at)| (*mount, at.clone())).collect())
    }

    pub(crate) fn find(&self, identity: Identity) -> Option<Arc<Node>> {
        self.read(|inner| inner.by_identity.get(&identity).cloned())
    }

    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.read(|inner| inner.by_number.values().cloned().collect())
    }

    /// Whether the kernel may know an object of the source by this number.
    pub(crate) fn is_known(&self, number: u64) -> bool {
        self.read(|inner| inner.by_number.contains_key(&number))
    }

    /// The node of an object, with `lookups` more lookups, and whether it is new. The descriptor is
    /// dropped if the object is known.
    pub(crate) fn enter(
        &self,
        descriptor: OwnedFd,
        status: &Stat,
        lookups: u64,
    ) -> (Arc<Node>, bool) {
        let identity = identity(status);
        self.change(|inner| {
            if let Some(node) = inner.by_identity.get(&identity) {
                node.lookups.fetch_add(lookups, Ordering::Relaxed);
                return (Arc::clone(node), false);
            }
            let number = inner.number(identity);
            (inner.add(number, descriptor, status, lookups), true)
        })
    }

    /// The node of a known object, with one more lookup.
    pub(crate) fn look_up(&self, identity: Identity) -> Option<Arc<Node>> {
        self.read(|inner| {
            let node = inner.by_identity.get(&identity)?;
            node.lookups.fetch_add(1, Ordering::Relaxed);
            Some(Arc::clone(node))
        })
    }

    /// The node of a known object, with one more lookup.
    ///
    /// # Errors
    /// A free number, if the object is not known.
    pub(crate) fn enter_again(&self, identity: Identity) -> Result<Arc<Node>, u64> {
        self.change(|inner| match inner.by_identity.get(&identity) {
            Some(node) => {
                node.lookups.fetch_add(1, Ordering::Relaxed);
                Ok(Arc::clone(node))
            }
            None => Err(inner.number(identity)),
        })
    }

    /// The node of an open file, as [`Nodes::enter`] returns it, and its status if it is new.
    pub(crate) fn enter_open(
        &self,
        file: &impl AsFd,
        lookups: u64,
    ) -> rustix::io::Result<(Arc<Node>, Option<Stat>)> {
        let descriptor = in_place::path_only(file.as_fd())?;
        let status = fstat(&descriptor)?;
        let (node, is_new) = self.enter(descriptor, &status, lookups);
        Ok((node, is_new.then_some(status)))
    }

    /// Takes back lookups of a node. Returns it if none are left.
    pub(crate) fn forget(&self, number: u64, lookups: u64) -> Option<Arc<Node>> {
        let node = self.change(|inner| {
            if let Some(left) = inner.removed.get_mut(&number) {
                *left = left.saturating_sub(lookups);
                if *left == 0 {
                    inner.removed.remove(&number);
                }
                return None;
            }
            let node = inner.by_number.get(&number)?;
            let left = node.lookups.load(Ordering::Relaxed).saturating_sub(lookups);
            node.lookups.store(left, Ordering::Relaxed);
            (left == 0).then(|| Arc::clone(node))
        })?;
        self.release(&node);
        Some(node)
    }

    /// Removes the node of a removed file, although the kernel has not forgotten it: its descriptor
    /// keeps the space of the file. Does nothing if something uses the node.
    pub(crate) fn release_removed(&self, node: Arc<Node>) {
        self.change(|inner| {
            let lookups = node.lookups.load(Ordering::Relaxed);
            // Two references are in the tables, which give out others under this lock alone.
            if lookups > 0 && Arc::strong_count(&node) == 3 {
                inner.by_number.remove(&node.number);
                inner.by_identity.remove(&node.identity);
                inner.removed.insert(node.number, lookups);
            }
        });
    }

    /// Removes a node that the kernel has forgotten and that nothing has open.
    pub(crate) fn release(&self, node: &Arc<Node>) {
        if node.number == ROOT {
            return;
        }
        self.change(|inner| {
            // Lookups are added under this lock alone.
            if node.lookups.load(Ordering::Relaxed) == 0 && node.state().is_unused() {
                inner.by_number.remove(&node.number);
                inner.by_identity.remove(&node.identity);
            }
        });
    }
}

#[cfg(test)]
mod tests;
