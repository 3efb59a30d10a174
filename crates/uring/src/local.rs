//! A socket in the file system, through which programs of this machine talk to this one:
//! permissions and waiting.
//!
//! It is made with mode 0600 before it can be seen, and the kernel identifies a client ([`Peer`]).
//! A name in use stays with its owner: a path that is no socket, that belongs to another user, or
//! that a process answers is refused. Only a socket of this user that no process listens on any
//! more, as a killed one leaves it, is removed. Two that find the same leftover go one after the
//! other: the directory is locked meanwhile.
//!
//! Streams here; [`passing`](crate::passing) has messages, by the same rules.
//!
//! Nothing here blocks but [`wait`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// Tries for the directory's lock, a few milliseconds apart: its holder will soon release it.
const LOCK_TRIES: u32 = 200;

/// Error of creating a listening socket at a path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A process listens at the path.
    #[error("in use by a live process{}", reported(*process))]
    InUse {
        /// Process id, if visible.
        process: Option<u32>,
    },
    /// The path exists and is not a socket.
    #[error("there is something else, which is no socket")]
    NotASocket,
    /// The path is a socket of another user.
    #[error("another user's socket (user {user})")]
    Anothers {
        /// User id of the owner.
        user: u32,
    },
    /// The system reported an error.
    #[error(transparent)]
    System(#[from] io::Error),
}

fn reported(process: Option<u32>) -> String {
    process.map_or(String::new(), |process| format!(" ({process})"))
}

impl From<Errno> for BindError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Peer of a connection, at the time when it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// User id.
    pub user: u32,
    /// Process id, if visible.
    pub process: Option<u32>,
}

impl Peer {
    /// Returns whether it is the user of this process, or root.
    #[must_use]
    pub fn is_trusted(self) -> bool {
        self.user == this_user() || self.user == 0
    }
}

/// Returns the effective user id of this process.
#[must_use]
pub fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Listening socket at a path.
#[derive(Debug)]
pub struct Listener(Bound);

impl Listener {
    /// Creates the socket. Waits up to a second while another process does so in the same
    /// directory.
    ///
    /// # Errors
    /// [`BindError`]; anything at the path is then left unchanged.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        Bound::at(path, SocketType::STREAM).map(Self)
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Accepts a connection, or returns `None` without one. The stream is nonblocking.
    ///
    /// # Errors
    /// The error of the system, such as too many open files.
    pub fn accept(&self) -> io::Result<Option<(UnixStream, Peer)>> {
        Ok(self.0.accept()?.map(|(stream, peer)| (UnixStream::from(stream), peer)))
    }

    /// Removes the socket file, unless it was replaced.
    pub fn remove(&self) {
        self.0.remove();
    }
}

/// A socket with a name, of either type.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: OwnedFd,
    /// Not relative: the process may go elsewhere.
    path: PathBuf,
    /// Device and inode, so that no other file is removed in its place.
    identity: (u64, u64),
}

impl Bound {
    pub(crate) fn at(path: &Path, kind: SocketType) -> Result<Self, BindError> {
        let path = std::path::absolute(path)?;
        let address = SocketAddrUnix::new(&path)?;
        let _lock = lock_directory(path.parent().unwrap_or(Path::new("/")))?;
        let socket = new_socket(kind)?;
        // The bound name gets the mode of its descriptor.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        if let Err(errno) = rustix::net::bind(&socket, &address) {
            if errno != Errno::ADDRINUSE {
                return Err(errno.into());
            }
            remove_left(&path, &address)?;
            rustix::net::bind(&socket, &address)?;
        }
        // Under the lock: bound and not listened on it looks as if it had been left.
        rustix::net::listen(&socket, BACKLOG)?;
        let status = rustix::fs::lstat(&path)?;
        Ok(Self { socket, path, identity: (status.st_dev, status.st_ino) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn accept(&self) -> io::Result<Option<(OwnedFd, Peer)>> {
        match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(connection) => {
                let peer = peer(connection.as_fd())?;
                Ok(Some((connection, peer)))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn remove(&self) {
        let found = rustix::fs::lstat(&self.path);
        if found.is_ok_and(|status| (status.st_dev, status.st_ino) == self.identity) {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Removes a socket that a killed process of this user left at a path. Returns whether there was
/// one.
///
/// # Errors
/// [`BindError`] if anything else is at the path.
pub fn remove_leftover(path: &Path) -> Result<bool, BindError> {
    let path = std::path::absolute(path)?;
    if !path.try_exists()? {
        return Ok(false);
    }
    let address = SocketAddrUnix::new(&path)?;
    let _lock = lock_directory(path.parent().unwrap_or(Path::new("/")))?;
    remove_left(&path, &address).map(|()| true)
}

/// Takes away a socket of this user that nobody listens on. The directory is locked.
fn remove_left(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let status = match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        status => status?,
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err(BindError::NotASocket);
    }
    if status.st_uid != this_user() {
        return Err(BindError::Anothers { user: status.st_uid });
    }
    match who_answers(address, SocketType::STREAM) {
        // Not streams: then messages.
        Err(Errno::PROTOTYPE) => judge(path, who_answers(address, SocketType::SEQPACKET)),
        answered => judge(path, answered),
    }
}

/// Connects, and returns the answering process if it is visible from here.
fn who_answers(address: &SocketAddrUnix, kind: SocketType) -> Result<Option<u32>, Errno> {
    let probe = new_socket(kind)?;
    rustix::net::connect(&probe, address)?;
    Ok(peer(probe.as_fd()).ok().and_then(|peer| peer.process))
}

/// Takes the socket away if nobody answered.
fn judge(path: &Path, answered: Result<Option<u32>, Errno>) -> Result<(), BindError> {
    match answered {
        Err(Errno::CONNREFUSED) => Ok(rustix::fs::unlink(path)?),
        Err(Errno::NOENT) => Ok(()),
        Ok(process) => Err(BindError::InUse { process }),
        // Its queue is full.
        Err(Errno::AGAIN) => Err(BindError::InUse { process: None }),
        Err(errno) => Err(errno.into()),
    }
}

pub(crate) fn new_socket(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// Held until it is dropped. Not waited for without end: any program that may read the directory
/// can hold it.
fn lock_directory(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(Duration::from_millis(5)),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "another program has the directory locked"))
}

/// Returns the process at the other end.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the call, and both pointers are to values
    // that live as long; the second says how many bytes may be written to the first.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // Zero where it is of another tree of processes.
    let process = u32::try_from(found.pid).ok().filter(|process| *process > 0);
    Ok(Peer { user: found.uid, process })
}

/// Handle that ends a [`wait`] from another thread.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// Creates a bell.
    ///
    /// # Errors
    /// The error of the system, such as too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes every `wait` on it return from now on.
    pub fn ring(&self) {
        // Fails only when it has been rung 2^64 - 1 times.
        let _ = rustix::io::retry_on_intr(|| rustix::io::write(&self.0, &1u64.to_ne_bytes()));
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Event of a stream to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Readable, or closed by the peer.
    Read,
    /// Writable, or closed by the peer.
    Write,
}

/// Result of [`wait`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ready {
    /// Whether the bell was rung.
    pub rung: bool,
    /// Whether a program connected.
    pub came: bool,
    /// Whether each stream is ready, in order.
    pub streams: Vec<bool>,
}

/// Blocks until the bell is rung, a program connects, or a stream is ready.
///
/// # Errors
/// The error of the system: out of memory.
pub fn wait(
    bell: &Bell,
    listener: &Listener,
    streams: &[(&UnixStream, Interest)],
) -> io::Result<Ready> {
    let flags = |interest: &Interest| match interest {
        Interest::Read => PollFlags::IN,
        Interest::Write => PollFlags::OUT,
    };
    let mut polled =
        vec![PollFd::new(&bell.0, PollFlags::IN), PollFd::new(&listener.0.socket, PollFlags::IN)];
    polled.extend(streams.iter().map(|(stream, interest)| PollFd::new(*stream, flags(interest))));
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None))?;
    let mut is_ready = polled.iter().map(|polled| !polled.revents().is_empty());
    let (rung, came) = (is_ready.next() == Some(true), is_ready.next() == Some(true));
    Ok(Ready { rung, came, streams: is_ready.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn who_connects_is_reported_and_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let listener = Listener::bind(&directory.path().join("socket")).unwrap();
        assert_eq!(
            std::fs::symlink_metadata(listener.path()).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let bell = Bell::new().unwrap();
        assert!(listener.accept().unwrap().is_none());
        let mut client = UnixStream::connect(listener.path()).unwrap();
        assert_eq!(
            wait(&bell, &listener, &[]).unwrap(),
            Ready { rung: false, came: true, streams: vec![] }
        );
        let (mut stream, peer) = listener.accept().unwrap().unwrap();
        assert_eq!(peer, Peer { user: this_user(), process: Some(std::process::id()) });
        assert!(peer.is_trusted());
        assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.write_all(b"hello").unwrap();
        let ready = wait(&bell, &listener, &[(&stream, Interest::Read)]).unwrap();
        assert_eq!(ready, Ready { rung: false, came: false, streams: vec![true] });
        bell.ring();
        assert!(wait(&bell, &listener, &[]).unwrap().rung);
        listener.remove();
        assert!(std::fs::symlink_metadata(listener.path()).is_err());
    }

    #[test]
    fn a_name_that_is_taken_stays_with_whoever_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let listener = Listener::bind(&at("socket")).unwrap();
        let refused = Listener::bind(&at("socket")).unwrap_err();
        assert!(
            matches!(refused, BindError::InUse { process } if process == Some(std::process::id()))
        );
        assert!(UnixStream::connect(at("socket")).is_ok(), "it is still there");
        std::fs::write(at("file"), "data").unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("link")).unwrap();
        for name in ["file", "link", "."] {
            assert!(matches!(Listener::bind(&at(name)), Err(BindError::NotASocket)), "{name}");
        }
        assert_eq!(std::fs::read(at("file")).unwrap(), b"data");
        // Another's, in its place: it stays.
        std::fs::remove_file(at("socket")).unwrap();
        let other = Listener::bind(&at("socket")).unwrap();
        listener.remove();
        assert!(UnixStream::connect(other.path()).is_ok());
        assert!(matches!(Listener::bind(&at(&"x".repeat(200))), Err(BindError::System(_))));
        assert!(matches!(Listener::bind(&at("no/such")), Err(BindError::System(_))));
    }

    #[test]
    fn what_a_killed_process_left_is_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert!(!remove_leftover(&path).unwrap());
        drop(Listener::bind(&path).unwrap());
        assert!(UnixStream::connect(&path).is_err());
        let listener = Listener::bind(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        assert!(matches!(remove_leftover(&path), Err(BindError::InUse { .. })));
        drop(listener);
        assert!(remove_leftover(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn another_users_socket_stays() {
        if this_user() != 0 {
            eprintln!("skipped: giving a socket to another user needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        drop(Listener::bind(&path).unwrap());
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        assert!(matches!(Listener::bind(&path), Err(BindError::Anothers { user: 65_534 })));
        assert!(path.exists());
    }

    #[test]
    fn of_many_that_find_the_same_leftover_one_gets_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        for _ in 0..20 {
            drop(Listener::bind(&path).unwrap());
            let bound: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| Listener::bind(&path))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let listeners: Vec<_> = bound.iter().flatten().collect();
            assert_eq!(listeners.len(), 1);
            assert!(UnixStream::connect(&path).is_ok());
        }
    }
}
