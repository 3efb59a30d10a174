//! Stream sockets over either transport whose calls do not block: the client's, and those of the
//! servers that Forebay's sockets are compared with.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use forebay_net::Address;
use rustix::io::ioctl_fionbio;

use super::BACKLOG;
use crate::load::{CellError, Context};

/// How long a server may take to accept.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn connect(address: &Address) -> io::Result<OwnedFd> {
    let socket: OwnedFd = match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.into()
        }
        Address::Unix(path) => UnixStream::connect(path)?.into(),
    };
    ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Listens, and returns the address too, with the port that the kernel chose.
pub(super) fn listen(address: &Address) -> Result<(OwnedFd, Address), CellError> {
    let socket = address.listen(BACKLOG).map_err(|error| CellError::invalid(error.to_string()))?;
    let ready = || -> io::Result<Address> {
        ioctl_fionbio(&socket, true)?;
        Address::of(&socket)
    };
    let bound = ready().context("cannot set up the listening socket")?;
    Ok((socket, bound))
}
