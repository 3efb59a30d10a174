//! Addresses of TCP and Unix stream sockets, and listening at them.

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
}

/// Error of listening at an address.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {address}: {source}{remedy}", remedy = remedy(source))]
pub struct SocketError {
    /// Address of the socket.
    pub address: Address,
    /// Error of the kernel.
    pub source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            " (something listens there: choose another address, or remove the socket file of a \
             program that has ended)"
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
        let listening = || -> io::Result<OwnedFd> {
            let raw = self.raw()?;
            let family = raw.address_family();
            let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            if family != AddressFamily::UNIX {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                // Sends are gathered here; the kernel need not hold small ones back.
                sockopt::set_tcp_nodelay(&socket, true)?;
                // Without an idle time, this is the only way to find a lost peer.
                sockopt::set_socket_keepalive(&socket, true)?;
            }
            bind(&socket, &raw)?;
            listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
            Ok(socket)
        };
        listening().map_err(|source| SocketError { address: self.clone(), source })
    }

    /// Returns the address of a socket's own end.
    ///
    /// # Errors
    /// The error of the kernel, or that the socket has no name.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let raw = rustix::net::getsockname(socket)?;
        if raw.address_family() != AddressFamily::UNIX {
            return Ok(Address::Tcp(SocketAddr::try_from(raw)?));
        }
        let unix = SocketAddrUnix::try_from(raw)?;
        let path = unix.path_bytes().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Address::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(path))))
    }

    fn raw(&self) -> io::Result<SocketAddrAny> {
        match self {
            Address::Tcp(address) => Ok((*address).into()),
            Address::Unix(path) => Ok(SocketAddrUnix::new(path.as_path())?.into()),
        }
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
        }
    }
}
