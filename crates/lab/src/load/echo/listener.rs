//! The listening socket of the servers that Forebay's sockets are compared with.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;

use forebay_net::Address;

use super::BACKLOG;
use super::stream::Stream;
use crate::load::CellError;

/// A listening socket of the standard library whose calls do not block.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens, and returns the address too, with the port that the kernel chose.
    pub(super) fn bind(address: &Address) -> Result<(Self, Address), CellError> {
        let socket =
            address.listen(BACKLOG).map_err(|error| CellError::invalid(error.to_string()))?;
        let ready = || -> io::Result<(Self, Address)> {
            let bound = Address::of(&socket)?;
            rustix::io::ioctl_fionbio(&socket, true)?;
            let listener = match address {
                Address::Unix(_) => Self::Unix(socket.into()),
                Address::Tcp(_) => Self::Tcp(socket.into()),
            };
            Ok((listener, bound))
        };
        ready().map_err(|error| CellError::system("cannot set up the listening socket", &error))
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Stream::tcp(listener.accept()?.0),
            Self::Unix(listener) => Stream::unix(listener.accept()?.0),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}
