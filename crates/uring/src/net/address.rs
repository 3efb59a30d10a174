//! Where sockets are: TCP and Unix stream sockets, and making them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, bind, listen,
    socket_with, sockopt,
};

/// Address of a stream socket.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// IP address and port. For listening, port 0 selects a free port, which
    /// [`local`](super::Sockets::local) returns.
    Tcp(SocketAddr),
    /// Path of a Unix socket. Listening creates the file; it is not removed.
    Unix(PathBuf),
    /// Unnamed end of a Unix connection.
    Unnamed,
}

/// Error of an operation on an address.
#[derive(Debug, thiserror::Error)]
#[error("could not {doing} {address}: {source}{remedy}", remedy = remedy(source))]
pub struct SocketError {
    /// Operation that failed: "listen on" or "connect to".
    pub doing: &'static str,
    /// Address of the socket.
    pub address: Address,
    /// Error of the kernel.
    pub source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            " (something listens there: choose another address, or remove the socket file of a program that is gone)"
        }
        Some(libc::EMFILE) => " (raise the limit of open files, `ulimit -n`)",
        Some(libc::EACCES | libc::EPERM) => {
            " (ports below 1024 and the path's directory need permission)"
        }
        _ => "",
    }
}

impl Address {
    /// Returns a socket that listens here. Up to `backlog` connections wait to be accepted. An
    /// accepted socket has its options: small sends are not delayed, and lost peers are found.
    ///
    /// # Errors
    /// The error of the kernel, such as an address in use.
    pub fn listen(&self, backlog: u32) -> Result<OwnedFd, SocketError> {
        listening(self, backlog, Calls::Block)
    }

    /// Returns the address of a socket's own end.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        Self::parse(rustix::net::getsockname(socket)?)
    }

    pub(super) fn raw(&self) -> io::Result<SocketAddrAny> {
        match self {
            Address::Tcp(address) => Ok((*address).into()),
            Address::Unix(path) => Ok(SocketAddrUnix::new(path.as_path())?.into()),
            Address::Unnamed => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    fn parse(raw: SocketAddrAny) -> io::Result<Self> {
        if raw.address_family() != AddressFamily::UNIX {
            return Ok(Address::Tcp(SocketAddr::try_from(raw)?));
        }
        let unix = SocketAddrUnix::try_from(raw)?;
        let path = unix.path_bytes().map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)));
        Ok(path.map_or(Address::Unnamed, Address::Unix))
    }

    fn error(&self, doing: &'static str, source: impl Into<io::Error>) -> SocketError {
        SocketError { doing, address: self.clone(), source: source.into() }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp(address)
    }
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Self {
        Address::Unix(path)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(formatter),
            Address::Unix(path) => path.display().fmt(formatter),
            Address::Unnamed => formatter.write_str("(unnamed)"),
        }
    }
}

/// Whether a socket's calls block. Those of the ring must not be told to come back later; those of
/// epoll must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Calls {
    Block,
    DoNotBlock,
}

impl Calls {
    pub(super) fn flags(self) -> SocketFlags {
        match self {
            Calls::Block => SocketFlags::CLOEXEC,
            Calls::DoNotBlock => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        }
    }
}

/// A socket that listens.
pub(super) fn listening(
    address: &Address,
    backlog: u32,
    calls: Calls,
) -> Result<OwnedFd, SocketError> {
    let listening = || -> io::Result<OwnedFd> {
        let raw = address.raw()?;
        let socket = stream(&raw, calls)?;
        if raw.address_family() != AddressFamily::UNIX {
            sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        bind(&socket, &raw)?;
        listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(socket)
    };
    listening().map_err(|error| address.error("listen on", error))
}

/// A socket to be connected, and where to.
pub(super) fn to_connect(
    address: &Address,
    calls: Calls,
) -> Result<(OwnedFd, SocketAddrAny), SocketError> {
    let made = || -> io::Result<_> {
        let raw = address.raw()?;
        Ok((stream(&raw, calls)?, raw))
    };
    made().map_err(|error| address.error("connect to", error))
}

/// A socket; what is accepted from one has its options.
fn stream(address: &SocketAddrAny, calls: Calls) -> io::Result<OwnedFd> {
    let family = address.address_family();
    let socket = socket_with(family, SocketType::STREAM, calls.flags(), None)?;
    if family != AddressFamily::UNIX {
        // Sends are gathered here; the kernel need not hold small ones back.
        sockopt::set_tcp_nodelay(&socket, true)?;
        // A peer that vanished is found, late, where no idle time is set.
        sockopt::set_socket_keepalive(&socket, true)?;
    }
    Ok(socket)
}

/// The address of a socket's other end.
pub(super) fn peer(socket: impl AsFd) -> io::Result<Address> {
    rustix::net::getpeername(socket)?.map_or(Ok(Address::Unnamed), Address::parse)
}
