//! The time of the last access of an open file.
//!
//! A descriptor with `O_NOATIME` leaves it as it is. A read would move it, but costs a request. The
//! kernel moves it for a new map, too, by the same rules of the mount and of the file.

use std::os::fd::AsFd as _;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::direct;
use crate::file::OpenFile;

/// Bytes of a map. Nothing of it is used, so the file may be shorter.
const MAPPED: usize = 4096;

impl OpenFile {
    /// Has reads of this file leave the time of the last access as it is, as far as the kernel
    /// permits that: the owner and root may ask for it.
    pub fn leave_accessed(&self) {
        if !self.leaves_accessed.swap(true, Ordering::Relaxed) {
            let _changing = self.changing_flags();
            let _ = direct::set_flags(self.as_fd(), OFlags::NOATIME);
        }
    }

    /// Moves the time of the last access to now, if a read of the file would do that: the options
    /// of its mount and its own attributes decide. The time of change stays.
    pub fn touch_accessed(&self) {
        let leaves = self.leaves_accessed.load(Ordering::Relaxed);
        if leaves {
            let _changing = self.changing_flags();
            let _ = direct::clear_flags(self.as_fd(), OFlags::NOATIME);
        }
        let (read, private) = (ProtFlags::READ, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses a free place.
        if let Ok(mapped) = unsafe { mmap(ptr::null_mut(), MAPPED, read, private, self, 0) } {
            // SAFETY: nothing refers to the place.
            let _ = unsafe { munmap(mapped, MAPPED) };
        }
        if leaves {
            let _changing = self.changing_flags();
            let _ = direct::set_flags(self.as_fd(), OFlags::NOATIME);
        }
    }

    /// Keeps others from changing the flags of the descriptor, which are read and then set.
    pub(crate) fn changing_flags(&self) -> MutexGuard<'_, ()> {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
