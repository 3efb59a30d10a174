//! The process that made a value. A forked child must leave what its parent uses, and take no lock
//! that a thread of its parent may have held at the fork.
//!
//! Why not the process number: `getpid` is a system call, and every write asks. The kernel empties
//! one page in each forked child (`MADV_WIPEONFORK`), so the question is a plain load. The page has
//! a number that no ancestor of the process had. A child that shares the parent's memory (`vfork`)
//! sees the parent's page, as it sees all the rest.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use forebay_block::limits::PAGE;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The start of the page. It is mapped once, and never unmapped.
static NUMBER: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Largest number of this process and its ancestors.
static LAST: AtomicU32 = AtomicU32::new(0);

/// The process that made a value. If a forked child drops its copy of the value, the copy
/// must leave everything that the parent uses: the child has no mappings, and shares leases and
/// locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home(u32);

impl Home {
    /// Returns the calling process.
    ///
    /// # Panics
    /// If the kernel grants no page of memory at the first call.
    #[inline]
    #[must_use]
    pub fn here() -> Self {
        let number = NUMBER.load(Ordering::Acquire);
        // SAFETY: null, or the start of a page that stays mapped, aligned, and used only here.
        let number = unsafe { number.as_ref() }.unwrap_or_else(|| map());
        match number.load(Ordering::Relaxed) {
            0 => choose(number),
            number => Self(number),
        }
    }

    /// Returns whether the calling process is this one.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        // SAFETY: `here` has mapped the page before it made `self`, and it stays mapped, also in
        // forked children.
        let number = unsafe { &*NUMBER.load(Ordering::Acquire) };
        number.load(Ordering::Relaxed) == self.0
    }
}

/// Maps the page. Another thread may do the same, so the first one counts. It takes no lock: a
/// child would wait for ever for a thread of its parent that had it.
#[cold]
fn map() -> &'static AtomicU32 {
    let made = page().expect("the kernel grants a page that it empties in forked children");
    let before = ptr::null_mut();
    let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
    let kept = match NUMBER.compare_exchange(before, made, set, fetch) {
        Ok(_) => made,
        Err(first) => {
            // SAFETY: the page was made here, and no other thread has its address.
            let _ = unsafe { rustix::mm::munmap(made.cast(), PAGE) };
            first
        }
    };
    // SAFETY: the start of a page that stays mapped, aligned, and used only through this number.
    unsafe { &*kept }
}

fn page() -> io::Result<*mut AtomicU32> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, so no mapping that exists is touched.
    let page =
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, access, MapFlags::PRIVATE) }?;
    // SAFETY: the page is ours, and the advice changes nothing in this process.
    unsafe { rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork) }?;
    Ok(page.cast())
}

/// Chooses the number of this process. Threads that do so together end with the same one.
#[cold]
fn choose(number: &AtomicU32) -> Home {
    let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let chosen = number.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
    Home(chosen.map_or_else(|first| first, |_| next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_14_a_forked_child_is_another_home() {
        let home = Home::here();
        assert!(home.is_here());
        // SAFETY: the child does nothing but ask for its own number and leave, both allowed after a
        // fork of a program with threads.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", io::Error::last_os_error());
        if child == 0 {
            let code = i32::from(home.is_here() || !Home::here().is_here());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: `child` is our child, and the status is written during the call.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0), "the child took itself for the parent");
        assert!(home.is_here());
    }
}
