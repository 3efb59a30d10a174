//! Shared parts of the tests: seeded randomness, directories, skips that print a reason, other
//! processes, and helpers in modules: `device` (a loop device), `mount` (file systems on loop
//! devices), `faulty` (disks that lose, fail and hang), `other` (another program that follows
//! commands), `kept` (programs with keepers), `stopped` (a stopped process and its memory),
//! `refused` (a system call that the kernel refuses), `handle` (a file opened cached or direct),
//! `disturb` (another program and the knobs, during a long run), `history` (the contents that a
//! file may have after a crash), `load` (writers that lose their power) and `progress` (how far a
//! child process is).
#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod device;
pub(crate) mod disturb;
pub(crate) mod faulty;
pub(crate) mod handle;
pub(crate) mod history;
pub(crate) mod how;
pub(crate) mod kept;
pub(crate) mod knobs;
pub(crate) mod load;
pub(crate) mod mount;
pub(crate) mod other;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod refused;
pub(crate) mod stopped;
pub(crate) mod threads;

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use forebay_block::random::mix;
use tempfile::TempDir;

pub(crate) const PAGE: u64 = 4096;
pub(crate) const MIB: u64 = 1 << 20;

/// Bytes that tell where they belong.
pub(crate) fn pattern(salt: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (mix(salt ^ (at / 8)) >> (8 * (at % 8))) as u8).collect()
}

/// Checks the content of the file as another program reads it.
pub(crate) fn assert_on_disk(path: &Path, expected: &[u8], what: &str) {
    let found = std::fs::read(path).unwrap();
    assert_eq!(found.len(), expected.len(), "{what}: size on disk");
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!(differs, None, "{what}: first byte that differs");
}

/// The kind of a failure that was expected; its text is in the output of the test.
pub(crate) fn kind_of<T>(result: forebay::Result<T>) -> forebay::ErrorKind {
    match result {
        Ok(_) => panic!("it was served"),
        Err(error) => {
            println!("{error}");
            error.kind()
        }
    }
}

/// A seed that differs from run to run, printed so that a failure can be run again with
/// `FOREBAY_TEST_SEED`.
pub(crate) fn seed() -> u64 {
    let reported = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = reported.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        mix(now.as_nanos() as u64) >> 16
    });
    println!("FOREBAY_TEST_SEED={seed}");
    seed
}

/// Returns the number of operations of each random test: `FOREBAY_TEST_OPERATIONS`, or `default`.
pub(crate) fn operations(default: u64) -> u64 {
    number("FOREBAY_TEST_OPERATIONS", default)
}

/// Returns the number in an environment variable, or `default` if it is not set.
pub(crate) fn number<T: FromStr>(variable: &str, default: T) -> T {
    let number = std::env::var(variable);
    number.map_or(default, |number| {
        number.parse().unwrap_or_else(|_| panic!("{variable}={number} is not a number"))
    })
}

/// A directory on the file system of the current one, which is the one that is built on: not a
/// memory file system.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in(".").unwrap()
}

/// Says, past the capturing of output, why a test did not run.
#[allow(clippy::explicit_write, reason = "the macro's output is captured")]
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("skipped {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Makes a thing that only root can make. Returns `None`, and prints the reason, if that is not
/// possible. In continuous integration as root it must be possible.
pub(crate) fn made_by_root<T>(
    test: &str,
    what: &str,
    make: impl FnOnce() -> Result<T, String>,
) -> Option<T> {
    if !is_root() {
        skip(test, &format!("only root can {what}"));
        return None;
    }
    match make() {
        Ok(made) => Some(made),
        Err(error) if std::env::var_os("CI").is_some_and(|value| value == "true") => {
            panic!("{test} must run here, and cannot: {error}")
        }
        Err(error) => {
            skip(test, &error);
            None
        }
    }
}

/// Refuses or allows writes to a file for everybody, even for programs that have it open. The
/// program `chattr` would open the file and break a lease.
pub(crate) fn set_immutable(file: &std::fs::File, is_immutable: bool) {
    use std::os::fd::AsRawFd as _;
    const IMMUTABLE: libc::c_int = 0x10;
    let mut flags: libc::c_int = 0;
    let check = |result| assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is open, and the call writes the flags.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) });
    let flags = if is_immutable { flags | IMMUTABLE } else { flags & !IMMUTABLE };
    // SAFETY: the descriptor is open, and the call reads the flags.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) });
}

pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Bytes of space a file takes.
pub(crate) fn allocated(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// The reservation mark of a file, if it stands.
pub(crate) fn mark(path: &Path) -> Option<String> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut text = [0u8; 64];
    // SAFETY: both names end in zero, and the buffer is as long as said.
    let length = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"user.forebay.reserved".as_ptr(),
            text.as_mut_ptr().cast(),
            text.len(),
        )
    };
    let length = usize::try_from(length).ok()?;
    Some(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// Whether files there can carry the mark.
pub(crate) fn can_mark(directory: &Path) -> bool {
    set_mark(tempfile::NamedTempFile::new_in(directory).unwrap().path())
}

/// Leaves the mark on a file, as a crash does; false where it cannot be set.
pub(crate) fn set_mark(path: &Path) -> bool {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: both names end in zero, and the value is one byte long.
    let result = unsafe {
        libc::setxattr(path.as_ptr(), c"user.forebay.reserved".as_ptr(), c"0".as_ptr().cast(), 1, 0)
    };
    result == 0
}

/// Allocates space with the size kept, as a user would before writing.
pub(crate) fn preallocate(path: &Path, offset: u64, length: u64) {
    use std::os::fd::AsRawFd as _;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let (offset, length) =
        (libc::off_t::try_from(offset).unwrap(), libc::off_t::try_from(length).unwrap());
    // SAFETY: the descriptor is open during the call, which takes numbers.
    let result =
        unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, offset, length) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Waits until something holds; false when it does not in time.
pub(crate) fn eventually(patience: Duration, holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Runs something on a thread of its own and panics when it does not end in time: a hang is a
/// failure with a name.
pub(crate) fn within<T: Send + 'static>(
    patience: Duration,
    what: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (reported, report) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = run();
        // The waiter may have given up.
        let _ = reported.send(());
        result
    });
    match report.recv_timeout(patience) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
            panic!("{what} hangs: not done after {patience:?}")
        }
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}
