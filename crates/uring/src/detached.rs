//! Turns a process that was just started into one that outlives its parent and holds none of its
//! resources.
//!
//! It is for the very beginning of a program: it closes all descriptors, also those in use.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};

/// Signals that end a program which does not say otherwise, and that are sent to all of a terminal,
/// a session or a service at once, or by the kernel at a limit inherited from its parent: a write
/// beyond the most that a file may have fails, then, and others go on.
const IGNORED: [libc::c_int; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Detaches this process from its parent: starts a new session, ignores the signals that end
/// programs, changes to the root directory, and closes every descriptor except `kept` and standard
/// error. Standard input and output become `/dev/null`.
///
/// # Errors
/// The error of the system; the process may then be partly detached.
pub fn detach(name: &str, kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    // Refused where it leads a group already: then it has been started with care.
    let _ = rustix::process::setsid();
    for signal in IGNORED {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    rustix::process::chdir("/")?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    replace(0, nothing.as_fd())?;
    replace(1, nothing.as_fd())?;
    drop(nothing);
    close_all_but(kept);
    // The name of the process, from any thread.
    let _ = std::fs::write("/proc/self/comm", name);
    raise_limit(Resource::Nofile);
    raise_limit(Resource::Fsize);
    Ok(())
}

/// Redirects standard error to `/dev/null`.
///
/// # Errors
/// The error of the system.
pub fn be_silent() -> io::Result<()> {
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    replace(2, nothing.as_fd())
}

/// Returns the limit of open descriptors of this process.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).current
}

/// One of the standard descriptors.
fn replace(number: RawFd, by: BorrowedFd<'_>) -> io::Result<()> {
    assert!((0..3).contains(&number), "they have no owner");
    // SAFETY: the standard descriptors are nobody's to own, so what they name may change.
    let result = unsafe { libc::dup2(by.as_raw_fd(), number) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn close_all_but(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<u32> = kept.iter().map(|kept| kept.as_raw_fd().cast_unsigned()).collect();
    kept.sort_unstable();
    let mut first = 3;
    for number in kept.into_iter().chain([u32::MAX]) {
        if first < number {
            close_range(first, number - 1);
        }
        first = first.max(number.saturating_add(1));
    }
}

fn close_range(first: u32, last: u32) {
    // SAFETY: closes descriptors alone. Those of them that something in this process owns would be
    // missed; the process has only begun, as the module says.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// As much as it may have: as many descriptors, as long files.
fn raise_limit(resource: Resource) {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(resource);
    let _ = rustix::process::setrlimit(resource, Rlimit { current: maximum, maximum });
}
