//! Turns a process into one that outlives its parent and holds none of its resources, as
//! `daemon(7)` describes.
//!
//! It is for the very beginning of a program: it closes all descriptors, also those in use.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};

/// Signals that end a program which does not say otherwise, and that are sent to all of a terminal,
/// a session or a service at once, or by the kernel at a limit inherited from its parent.
const IGNORED: [libc::c_int; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGXCPU,
];

/// The two processes after [`fork`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The process that called it.
    Caller,
    /// The new process, detached.
    Daemon,
}

/// Starts a copy of this process and detaches it. Its standard error is `errors`, and `kept` stay
/// open; other descriptors are closed in it, also those that a value of this process owns.
///
/// # Errors
/// The error of the system, and an error if this process has other threads, which the copy would
/// not have. In the new process an error is printed to `errors`, and it exits with status 1.
pub fn fork(errors: BorrowedFd<'_>, kept: &[BorrowedFd<'_>]) -> io::Result<Side> {
    if std::fs::read_dir("/proc/self/task")?.count() > 1 {
        return Err(io::Error::other("this process has several threads"));
    }
    // SAFETY: no other thread holds a lock or changes memory.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => match replace(2, errors).and_then(|()| detach(kept)) {
            Ok(()) => Ok(Side::Daemon),
            Err(error) => {
                eprintln!("could not detach from the caller: {error}");
                std::process::exit(1);
            }
        },
        _ => Ok(Side::Caller),
    }
}

/// Detaches this process from its parent: starts a new session, unblocks signals, sets the umask to
/// 0, changes to the root directory, and closes every descriptor except `kept` and standard error.
/// Standard input and output become `/dev/null`.
///
/// # Errors
/// The error of the system; the process may then be partly detached.
pub fn detach(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    // Refused if it leads a group already: then it has been started with care.
    let _ = rustix::process::setsid();
    unblock_signals()?;
    // Files of a daemon are created with the modes that the calls name.
    rustix::process::umask(Mode::empty());
    rustix::process::chdir("/")?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    replace(0, nothing.as_fd())?;
    replace(1, nothing.as_fd())?;
    drop(nothing);
    close_all_but(kept);
    Ok(())
}

/// Names this process, and ignores the signals that end programs: it ends by itself.
pub fn outlive(name: &str) {
    for signal in IGNORED {
        ignore(signal);
    }
    // The name of the process, from any thread.
    let _ = std::fs::write("/proc/self/comm", name);
    raise_limit(Resource::Nofile);
    pass_file_limit();
}

/// Raises the limit of the length of files as far as this process may. A write beyond it fails, and
/// no signal ends the process.
pub fn pass_file_limit() {
    ignore(libc::SIGXFSZ);
    raise_limit(Resource::Fsize);
}

/// Returns the limit of open descriptors of this process.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).current
}

fn ignore(signal: libc::c_int) {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

fn unblock_signals() -> io::Result<()> {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call writes the set.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    let (how, none) = (libc::SIG_SETMASK, none.as_ptr());
    // SAFETY: the set was written; the old one is not asked for.
    let failed = unsafe { libc::pthread_sigmask(how, none, std::ptr::null_mut()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
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
