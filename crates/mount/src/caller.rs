//! Objects are made with the identity of the calling process: owner, group and umask.
#![allow(unsafe_code, reason = "setfsuid(2), setfsgid(2) and unshare(2) are here alone")]

use std::cell::Cell;
use std::io;

use forebay_uring::detached;
use fuser::Request;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::limits::DESCRIPTORS;

/// `PR_SET_IO_FLUSHER` of `linux/prctl.h`.
const SET_IO_FLUSHER: libc::c_int = 57;

thread_local! {
    /// Whether this thread has a umask of its own.
    static OWN_UMASK: Cell<bool> = const { Cell::new(false) };
}

/// Makes an object with the identity of the process that asks. The kernel has checked its rights
/// already.
pub(crate) fn as_caller<T>(
    request: &Request,
    umask: u32,
    make: impl FnOnce() -> rustix::io::Result<T>,
) -> io::Result<T> {
    own_umask()?;
    rustix::process::umask(Mode::from_raw_mode(umask & 0o777));
    let _identity = Identity::take(request)?;
    Ok(make()?)
}

/// Separates the umask of this thread from that of the process.
fn own_umask() -> io::Result<()> {
    if OWN_UMASK.get() {
        return Ok(());
    }
    // SAFETY: the call takes no memory. The thread gets its own umask and working directory.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    OWN_UMASK.set(true);
    Ok(())
}

/// Identity of another process for file system calls of this thread, until dropped.
struct Identity;

impl Identity {
    /// Takes the identity, unless it is this process's own, or this process may not.
    fn take(request: &Request) -> io::Result<Option<Self>> {
        let (user, group) = (request.uid(), request.gid());
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if (user, group) == own || own.0 != 0 {
            return Ok(None);
        }
        set_file_system_ids(user, group);
        let identity = Self;
        if user != 0 {
            // Another user loses the right to pass the source's permissions, which the kernel has
            // checked with all groups of the caller.
            let mut sets = capabilities(None)?;
            sets.effective |=
                sets.permitted & (CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets)?;
        }
        Ok(Some(identity))
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        set_file_system_ids(0, 0);
    }
}

/// Sets user and group of this thread for file system calls. The user returns to root last and
/// leaves it last: the group can be set by root alone.
fn set_file_system_ids(user: u32, group: u32) {
    if user == 0 {
        // SAFETY: the call takes no memory.
        unsafe { libc::setfsuid(user) };
    }
    // SAFETY: the call takes no memory.
    unsafe { libc::setfsgid(group) };
    if user != 0 {
        // SAFETY: the call takes no memory.
        unsafe { libc::setfsuid(user) };
    }
}

/// Sets a limit of this process. If it may not, sets it to the most that it may have.
fn raise(resource: Resource, to: Option<u64>) {
    if setrlimit(resource, Rlimit { current: to, maximum: to }).is_err() {
        let has = getrlimit(resource);
        let _ = setrlimit(resource, Rlimit { current: has.maximum, ..has });
    }
}

/// Makes this process one that writes back for others: the kernel does not wait for the mount when
/// this process needs memory. Without the right to write past limits, quotas of users hold for
/// what this process writes. Threads started later inherit both.
pub(crate) fn become_server() {
    // An ordinary user may not, and goes without it.
    // SAFETY: the arguments are numbers.
    let _ = unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
    raise(Resource::Nofile, Some(DESCRIPTORS));
    // Each caller has its own limit, which the kernel has checked.
    raise(Resource::Fsize, None);
    detached::pass_file_limit();
    // Files are created with the modes that the calls name, and the umask of the caller.
    rustix::process::umask(Mode::empty());
    if let Ok(mut sets) = capabilities(None) {
        sets.effective -= CapabilitySet::SYS_RESOURCE;
        // To give up a right is always permitted.
        let _ = set_capabilities(None, sets);
    }
}
