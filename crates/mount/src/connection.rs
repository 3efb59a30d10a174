//! The connection with the kernel: it is mounted, and features are agreed on.
//!
//! The library `fuser` mounts, with `fusermount3` for ordinary users, answers the first request,
//! and sends notifications. All other requests are read and answered here, in `turns`.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{Config, Filesystem, InitFlags, KernelConfig, Notifier, Request, Session};

use crate::limits::REQUEST_BYTES;
use crate::wire::opened;

/// A connection that was mounted.
#[derive(Debug)]
pub(crate) struct Connection {
    session: Session<Agreement>,
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) agreed: Agreed,
}

/// Features of a connection.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Agreed {
    /// How files are opened: past the page cache if shared mappings work with that.
    pub(crate) opened: u32,
    /// Whether the kernel may be given files to read.
    pub(crate) passes: bool,
    /// Whether the kernel waits for rings, and sends no request before.
    pub(crate) rings: bool,
}

impl Connection {
    /// Mounts. Nothing is served yet, so the mount may not be looked at.
    pub(crate) fn mount(point: &Path, config: &Config, wanted: Wanted) -> io::Result<Self> {
        Self::new(wanted, |agreement| Session::new(agreement, point, config))
    }

    fn new(
        wanted: Wanted,
        begin: impl FnOnce(Agreement) -> io::Result<Session<Agreement>>,
    ) -> io::Result<Self> {
        let agreed = Arc::new(Mutex::default());
        let session = begin(Agreement { wanted, agreed: Arc::clone(&agreed) })?;
        let device = Arc::new(session.as_fd().try_clone_to_owned()?);
        let agreed = *agreed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Self { session, device, agreed })
    }

    pub(crate) fn notifier(&self) -> Notifier {
        self.session.notifier()
    }

    /// Leaves the mount to the threads that serve it. The library would unmount the path of the
    /// mount point, and so another file system that is mounted there by then.
    pub(crate) fn keep(self) {
        std::mem::forget(self.session);
    }
}

#[cfg(any(test, fuzzing))]
impl Connection {
    /// A connection with a peer that behaves like a kernel.
    pub(crate) fn with(peer: OwnedFd) -> io::Result<Self> {
        let acl = fuser::SessionACL::All;
        let wanted = Wanted { passes: false, rings: false };
        Self::new(wanted, |agreement| Session::from_fd(agreement, peer, acl, Config::default()))
    }
}

/// Features that are used if the kernel has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) passes: bool,
    pub(crate) rings: bool,
}

/// Answers the first request.
#[derive(Debug)]
struct Agreement {
    wanted: Wanted,
    agreed: Arc<Mutex<Agreed>>,
}

impl Filesystem for Agreement {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(REQUEST_BYTES);
        let wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO;
        let _ = config.add_capabilities(wanted & config.capabilities());
        if rustix::process::geteuid().is_root() {
            // Only root can look up each name that it can list.
            let wanted = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
            let _ = config.add_capabilities(wanted & config.capabilities());
        }
        // Linux 6.6. Before it, a file opened past the page cache has no shared mappings; then the
        // page cache is used, and each write still comes here at once.
        let maps = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        let passes = self.wanted.passes
            && config.set_max_stack_depth(1).is_ok()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
        // Offered if the parameter `enable_uring` of the kernel's module is set.
        let rings =
            self.wanted.rings && config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok();
        let opened = if maps { opened::DIRECT_IO } else { 0 };
        let agreed = Agreed { opened, passes, rings };
        *self.agreed.lock().unwrap_or_else(PoisonError::into_inner) = agreed;
        Ok(())
    }
}
