//! The calling process: objects are made with its owner, group and umask.
#![allow(unsafe_code, reason = "setfsuid(2), setfsgid(2) and unshare(2) are here alone")]

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;

use forebay_uring::detached;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::limits::DESCRIPTORS;
use crate::wire::{Request, write};

/// `PR_SET_IO_FLUSHER` of `linux/prctl.h`.
const SET_IO_FLUSHER: libc::c_int = 57;

/// Rights to pass the source's permissions, which the kernel has checked with all groups and
/// capabilities of the caller.
const CHECKED: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::MKNOD);

thread_local! {
    /// The umask of this thread, if it has one of its own.
    static OWN_UMASK: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The process that makes a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// User for calls of the file system.
    pub(crate) user: u32,
    /// Group for calls of the file system.
    pub(crate) group: u32,
    /// Its number here, or 0 if this process cannot see it.
    pub(crate) process: u32,
    /// Whether the kernel says that its writes remove set bits.
    pub(crate) loses_bits: bool,
}

/// The set-group-ID bit of a new file in a directory that passes its group on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupBit {
    /// The file system decides, by the group of the caller.
    AsThere,
    /// The caller may set it, by another group of its own or by a capability.
    Kept,
}

impl Caller {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let Request { user, group, process, .. } = *request;
        Self { user, group, process, loses_bits: false }
    }

    /// The caller of a write. `None` for pages of a map: a store through one removes no bits.
    pub(crate) fn of_write(request: &Request<'_>, flags: u32) -> Option<Self> {
        let caller = Self { loses_bits: flags & write::KILL_BITS != 0, ..Self::of(request) };
        (flags & write::CACHE == 0).then_some(caller)
    }

    /// This process.
    pub(crate) fn here() -> Self {
        static HERE: OnceLock<Caller> = OnceLock::new();
        *HERE.get_or_init(|| {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            let process = rustix::process::getpid().as_raw_pid().cast_unsigned();
            Self { user: user.as_raw(), group: group.as_raw(), process, loses_bits: false }
        })
    }

    /// Makes an object with the identity of the caller. The kernel has checked its rights already.
    /// `bit` is that of the group of the new object.
    ///
    /// # Errors
    /// `EPERM` if this process cannot take the identity. Nothing is made then.
    pub(crate) fn make<T>(
        &self,
        umask: u32,
        bit: GroupBit,
        make: impl FnOnce() -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        set_umask(umask & 0o777)?;
        let _identity = Identity::take(self, bit)?;
        Ok(make()?)
    }
}

/// Sets the umask of this thread, which it does not share with the process.
fn set_umask(umask: u32) -> io::Result<()> {
    let own = OWN_UMASK.get();
    if own == Some(umask) {
        return Ok(());
    }
    // SAFETY: the call takes no memory. The thread gets its own umask and working directory.
    if own.is_none() && unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::process::umask(Mode::from_raw_mode(umask));
    OWN_UMASK.set(Some(umask));
    Ok(())
}

/// Identity of another process for file system calls of this thread, until dropped.
struct Identity {
    own: Caller,
    sets: CapabilitySets,
}

impl Identity {
    /// Takes the identity, unless it is this process's own.
    fn take(caller: &Caller, bit: GroupBit) -> io::Result<Option<Self>> {
        let own = Caller::here();
        if (caller.user, caller.group) == (own.user, own.group) {
            return Ok(None);
        }
        // From here on, a return restores the own identity.
        let identity = Self { own, sets: capabilities(None)? };
        set_file_system_ids(caller.user, caller.group);
        // The calls report no error: without the capability, or for a number that is not mapped,
        // they change nothing.
        if file_system_ids() != (caller.user, caller.group) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        if caller.user != 0 {
            let permitted = identity.sets.permitted;
            let mut sets = capabilities(None)?;
            sets.effective |= permitted & CHECKED;
            // The thread is in no group but that of the caller.
            sets.effective.set(CapabilitySet::FSETID, bit == GroupBit::Kept);
            sets.effective &= permitted;
            set_capabilities(None, sets)?;
        }
        Ok(Some(identity))
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        // Always permitted: they are this process's own.
        set_file_system_ids(self.own.user, self.own.group);
        let restored = set_capabilities(None, self.sets);
        let own = (self.own.user, self.own.group);
        assert!(
            restored.is_ok() && file_system_ids() == own,
            "a thread that serves others has its own identity again"
        );
    }
}

/// Sets user and group of this thread for file system calls. Root changes the group first.
fn set_file_system_ids(user: u32, group: u32) {
    // SAFETY: the call takes no memory.
    unsafe { libc::setfsgid(group) };
    // SAFETY: the call takes no memory.
    unsafe { libc::setfsuid(user) };
}

/// Returns user and group of this thread for file system calls.
fn file_system_ids() -> (u32, u32) {
    // No user or group has the number -1, which changes nothing.
    // SAFETY: the call takes no memory.
    let user = unsafe { libc::setfsuid(u32::MAX) };
    // SAFETY: the call takes no memory.
    let group = unsafe { libc::setfsgid(u32::MAX) };
    (user.cast_unsigned(), group.cast_unsigned())
}

/// Raises a limit of this process as far as it may. `None` is no limit.
fn raise(resource: Resource, limit: Option<u64>) {
    let wanted = Rlimit { current: limit, maximum: limit };
    if setrlimit(resource, wanted).is_err() {
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
