//! The lease and the lock of an open file, against other programs and other engines.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::OpenFile;
use crate::coverage::Coverage;
use crate::lease::{self, LeaseWatch, Leased};
use crate::lock::{self, Lock};
use crate::open::Access;

impl OpenFile {
    /// Takes a lease of the file: a write lease, or a read lease if it is open for reading only.
    /// When another program opens the file, in the second case for writing, the callback of the
    /// watch gets `key`.
    ///
    /// # Errors
    /// The error of the kernel: `WouldBlock` if the file is open elsewhere, in the second case for
    /// writing; `PermissionDenied` if it belongs to another user; others if the file system has no
    /// leases.
    pub fn try_lease(&self, watch: &LeaseWatch, key: u64) -> io::Result<()> {
        let kind = match self.access() {
            Access::Read => lease::Kind::Read,
            Access::ReadWrite => lease::Kind::Write,
        };
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if lease.as_ref().is_some_and(|lease| !lease.is_whole()) {
            // Another program waits for it, and it is about to be released.
            return Err(Errno::AGAIN.into());
        }
        if lease.is_none() {
            self.end_appends();
            *lease = Some(watch.take(self.as_fd(), key, kind)?);
        }
        Ok(())
    }

    /// Returns the programs that a lease of this file holds off. Makes one system call, and a few
    /// more on an overlay.
    #[must_use]
    pub fn lease_coverage(&self) -> Coverage {
        Coverage::of(self.as_fd())
    }

    /// Watches the lease that a file from another process already has. If [`OpenFile::has_lease`]
    /// is false afterwards, the lease is gone or another program waits for it; call
    /// [`OpenFile::release_lease`] once everything is written.
    ///
    /// # Errors
    /// The error of the kernel; the lease then stays with the open file and is not watched.
    pub fn adopt_lease(&self, watch: &LeaseWatch, key: u64) -> io::Result<()> {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if lease.is_none() {
            *lease = Some(watch.adopt(self.as_fd(), key)?);
        }
        Ok(())
    }

    /// Returns whether the open file has a lease that no program waits for, in any process.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        lease::is_whole(self.as_fd())
    }

    /// Gives up the lease of the open file, in all processes. Does nothing without a
    /// lease.
    pub fn give_up_lease(&self) {
        lease::give_up(self.as_fd());
    }

    /// Returns whether this process holds the lease and no program waits for it.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().is_some_and(Leased::is_whole)
    }

    /// Returns whether the lease is held, even if another program waits for it. False if the kernel
    /// has taken it, or does not list it. Reads a file of `/proc`.
    #[must_use]
    pub fn has_lease_still(&self) -> bool {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().is_some_and(Leased::is_there)
    }

    /// Gives up the lease, which lets waiting programs continue. Does nothing without a lease.
    pub fn release_lease(&self) {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(lease);
    }

    /// Tries to lock the whole file against other engines, in this and other processes; for writing
    /// if the descriptor is writable. Does not wait.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn try_ofd_lock(&self) -> io::Result<Lock> {
        let lock = lock::try_take(self.as_fd(), self.access())?;
        self.locked.fetch_or(lock == Lock::Taken, Ordering::Relaxed);
        Ok(lock)
    }

    /// Releases the lock, unless it was [left](OpenFile::leave).
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn ofd_unlock(&self) -> io::Result<()> {
        if self.left.load(Ordering::Acquire) {
            return Ok(());
        }
        lock::release(self.as_fd())?;
        self.locked.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Leaves lease and lock to the other processes that share the open file. This process does not
    /// release them after that, not even on drop.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lease) = lease {
            lease.leave();
        }
    }
}
