//! Whether this is still the process that made the engine: a plain load on every call.
//!
//! Why not the process number: `getpid` is a system call, and a thousandth of a write's cost is
//! still paid by every write. The kernel empties one page in each forked child (`MADV_WIPEONFORK`);
//! the parent's still says yes. A child that shares the parent's memory (`vfork`) sees the parent's
//! page, as it sees all the rest.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_block::limits::PAGE;
use rustix::mm::{Advice, ProtFlags};

use crate::mapping::Mapping;

const PARENT: u32 = 1;

/// Detector for a forked child process.
#[derive(Debug)]
pub struct ForkGuard {
    page: Mapping,
}

impl ForkGuard {
    /// Creates a guard. The calling process is the parent from now on.
    ///
    /// # Errors
    /// The error of the kernel if it grants no memory.
    pub fn new() -> io::Result<Self> {
        let page = Mapping::anonymous(PAGE, ProtFlags::READ | ProtFlags::WRITE)?;
        page.advise(Advice::LinuxWipeOnFork)?;
        let guard = Self { page };
        guard.word().store(PARENT, Ordering::Relaxed);
        Ok(guard)
    }

    /// Returns whether this process created the guard, and is not a forked child of it.
    #[must_use]
    pub fn is_parent(&self) -> bool {
        self.word().load(Ordering::Relaxed) == PARENT
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped for reading and writing as long as `self` lives, aligned, and
        // used in no other way.
        unsafe { AtomicU32::from_ptr(self.page.start().cast()) }
    }
}

/// The process that made a value. If a forked child drops its copy of the value, the copy
/// must leave everything that the parent uses: the child has no mappings, and shares leases and
/// locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    process: u32,
}

impl Home {
    /// Returns the calling process.
    #[must_use]
    pub(crate) fn here() -> Self {
        Self { process: std::process::id() }
    }

    /// Returns whether the calling process is this one.
    #[must_use]
    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_14_a_forked_child_is_not_the_parent() {
        let guard = ForkGuard::new().unwrap();
        assert!(guard.is_parent());
        // SAFETY: the child does nothing but look at the guard and leave, both allowed after a fork
        // of a program with threads.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", io::Error::last_os_error());
        if child == 0 {
            let code = i32::from(guard.is_parent());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: `child` is our child, and the status is written during the call.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0), "the child took itself for the parent");
        assert!(guard.is_parent());
    }
}
