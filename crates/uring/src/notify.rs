//! A service manager that keeps descriptors for the time in which a program is not running: it is
//! sent them, and hands them to the program when that is started again.
//!
//! The message is a datagram to the socket that the environment names, text with descriptors beside
//! it (`sd_notify(3)`); the program gets descriptors from 3 on, with their names in the environment
//! (`sd_listen_fds(3)`). A manager works messages off in their order, without an answer; it closes
//! a pipe when it has reached the message with that pipe.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::pipe::PipeFlags;

use crate::passing::{Deadline, poll};

/// Where the manager listens.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Descriptors that go with one message.
const MOST: usize = 4;

/// The first number that is handed over.
const FIRST: RawFd = 3;

/// Connection to the service manager (systemd).
#[derive(Debug)]
pub struct Manager {
    address: SocketAddrUnix,
    socket: OwnedFd,
}

impl Manager {
    /// Connects to the service manager of this process, or returns `None` if it has none.
    ///
    /// # Errors
    /// The error of the system; `InvalidInput` for an invalid address.
    pub fn of_this_process() -> io::Result<Option<Self>> {
        std::env::var_os(SOCKET).map(|address| Self::at(&address)).transpose()
    }

    fn at(address: &OsStr) -> io::Result<Self> {
        let address = match address.as_bytes() {
            // A name that is no path.
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
            [b'/', ..] => SocketAddrUnix::new(address)?,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "NOTIFY_SOCKET is no path",
                ));
            }
        };
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Self { address, socket })
    }

    /// Sends a message with duplicates of the descriptors. Waits while the manager has too many
    /// unread messages.
    ///
    /// # Errors
    /// The error of the system.
    ///
    /// # Panics
    /// If there are more descriptors than one message can carry.
    pub fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!(descriptors.len() <= MOST, "{} descriptors with one message", descriptors.len());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let pushed = control.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(pushed, "the space is for as many");
        }
        let text = [IoSlice::new(text.as_bytes())];
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg_addr(
                &self.socket,
                &self.address,
                &text,
                &mut control,
                SendFlags::NOSIGNAL,
            )
        })?;
        Ok(())
    }

    /// Waits until the manager has processed all earlier messages. Returns `false` after
    /// `patience`.
    ///
    /// # Errors
    /// As [`Manager::send`].
    pub fn catch_up(&self, patience: Duration) -> io::Result<bool> {
        let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        self.send("BARRIER=1", &[theirs.as_fd()])?;
        drop(theirs);
        let mut polled = [PollFd::new(&ours, PollFlags::IN)];
        poll(&mut polled, Deadline::after(Some(patience)))
    }
}

/// Takes the descriptors whose names start with `prefix` from those that the service manager passed
/// to this process, with their names. The other descriptors keep their numbers.
///
/// Call it before threads are started and descriptors are used.
///
/// # Errors
/// The error of the system, such as too many open files. Descriptors taken before it are closed.
pub fn take_stored(prefix: &str) -> io::Result<Vec<(String, OwnedFd)>> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("LISTEN_PID").parse() != Ok(std::process::id()) {
        return Ok(Vec::new());
    }
    let count: RawFd = variable("LISTEN_FDS").parse().unwrap_or(0);
    let names: OsString = std::env::var_os("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.to_string_lossy();
    let mut taken = Vec::new();
    for (number, name) in (FIRST..FIRST.saturating_add(count)).zip(names.split(':')) {
        if name.starts_with(prefix) {
            taken.push((name.to_owned(), take(number)?));
        }
    }
    Ok(taken)
}

/// A descriptor that this process was started with, whose number from then on is that of nothing in
/// particular.
fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: borrowed for this function alone; a number that is no open descriptor makes the first
    // call fail.
    let given = unsafe { BorrowedFd::borrow_raw(number) };
    let taken = rustix::io::fcntl_dupfd_cloexec(given, FIRST)?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: takes numbers. The number's descriptor was handed to this process for the code that
    // knows its name, which is the caller; nothing owns it.
    let result = unsafe { libc::dup3(nothing.as_raw_fd(), number, libc::O_CLOEXEC) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(taken) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_manager_hears_and_is_caught_up_with() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let manager = Manager::at(path.as_os_str()).unwrap();
        manager.send("FDSTORE=1\nFDNAME=a", &[listener.as_fd()]).unwrap();
        let mut bytes = [0; 64];
        let length = listener.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"FDSTORE=1\nFDNAME=a");
        assert!(!manager.catch_up(Duration::from_millis(20)).unwrap());
        // Descriptors that are not received are closed with the message.
        assert_eq!(listener.recv(&mut bytes).unwrap(), "BARRIER=1".len());
        let reader = std::thread::spawn(move || listener.recv(&mut [0; 64]).unwrap());
        assert!(manager.catch_up(Duration::from_secs(10)).unwrap());
        reader.join().unwrap();
        assert!(manager.send("READY=1", &[]).is_err(), "nobody listens");
        assert!(Manager::at(OsStr::new("no path")).is_err());
    }

    #[test]
    fn nothing_is_taken_that_was_not_handed_to_this_process() {
        assert!(take_stored("").unwrap().is_empty());
    }
}
