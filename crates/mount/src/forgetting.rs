//! Each name that the kernel remembers takes a descriptor. Before they run out, the kernel is asked
//! to forget names, the longest unused first.
//!
//! ```text
//! nodes and open files > 3/4 of the limit --> "forget this name" --> kernel --forget--> Nodes
//! ```
//!
//! A thread of its own asks: the kernel takes the lock of the directory, which a request that is
//! being served may hold. Files that programs have open keep their names. A directory is asked for
//! last, because a program that works in it would see it without a name for a moment.

use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

use fuser::{INodeNo, Notifier};
use rustix::fs::{AtFlags, CWD, statat};
use rustix::io::Errno;

use crate::limits::{FORGET_AT_ONCE, FORGET_PAUSE, FORGET_TRIES, SLOW_LOOKUP};
use crate::node::{Node, Nodes, identity};

/// When the kernel is asked.
#[derive(Debug)]
pub(crate) struct Forgetting {
    /// Descriptors that this process may have.
    limit: usize,
    is_ended: Mutex<bool>,
    changed: Condvar,
}

impl Forgetting {
    pub(crate) fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { limit, is_ended: Mutex::new(false), changed: Condvar::new() }
    }

    /// Files that may stay open in the engine after their last close.
    pub(crate) fn kept_files(&self, most: usize) -> usize {
        most.min(self.limit / 16)
    }

    /// Has names forgotten if many descriptors are used after a lookup. Waits if lookups have to
    /// slow down.
    pub(crate) fn after_lookup(&self, used: usize) {
        if used > self.limit / 4 * 3 {
            self.changed.notify_one();
        }
        if used > self.limit / 8 * 7 {
            std::thread::sleep(SLOW_LOOKUP);
        }
    }

    /// Calls until a descriptor is free, if that takes no longer than names take to be forgotten.
    pub(crate) fn patiently<T>(
        &self,
        mut open: impl FnMut() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        for _ in 0..FORGET_TRIES {
            match open() {
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.changed.notify_one();
                    std::thread::sleep(FORGET_PAUSE);
                }
                opened => return opened,
            }
        }
        open()
    }

    /// Runs until [`Forgetting::end`], on a thread of its own.
    pub(crate) fn run(&self, nodes: &Nodes, used: impl Fn() -> usize, notifier: &Notifier) {
        let mut is_ended = self.is_ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_ended {
            let used = used();
            if used <= self.limit / 4 * 3 {
                is_ended = self.changed.wait(is_ended).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(is_ended);
            self.ask(nodes, used, notifier);
            is_ended = self.is_ended.lock().unwrap_or_else(PoisonError::into_inner);
            if !*is_ended {
                // The kernel's answers are requests, served by other threads.
                let paused = self.changed.wait_timeout(is_ended, FORGET_PAUSE);
                is_ended = paused.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Asks the kernel to forget names, until 5/8 of the limit are used.
    fn ask(&self, nodes: &Nodes, used: usize, notifier: &Notifier) {
        let wanted = used.saturating_sub(self.limit / 8 * 5).min(FORGET_AT_ONCE);
        for node in nodes.unused(wanted) {
            // A name that the kernel does not have under this path stays for the next time.
            let _ = forget(nodes, notifier, &node);
        }
    }

    pub(crate) fn end(&self) {
        *self.is_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// Asks the kernel to forget the name of a node.
fn forget(nodes: &Nodes, notifier: &Notifier, node: &Node) -> io::Result<()> {
    let path = node.name();
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let Some(parent) = number_of(nodes, above)? else { return Ok(()) };
    notifier.inval_entry(INodeNo(parent), name)
}

/// The number of a directory that the kernel knows.
fn number_of(nodes: &Nodes, directory: &Path) -> io::Result<Option<u64>> {
    let status = statat(CWD, directory, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(nodes.find(identity(&status)).map(|node| node.number))
}
