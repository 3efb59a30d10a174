//! A socket that programs connect to, for messages: by the rules of [`local`](crate::local).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::net::SocketType;

use super::Channel;
use crate::local::{BindError, Bound, Peer};

/// Listening socket for [`Channel`] connections.
#[derive(Debug)]
pub struct Listener(Bound);

impl Listener {
    /// Creates the socket. Waits up to a second while another process does so in the same
    /// directory.
    ///
    /// # Errors
    /// [`BindError`]; anything at the path is then left unchanged.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        Bound::at(path, SocketType::SEQPACKET).map(Self)
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Accepts a connection, or returns `None` without one. Does not wait.
    ///
    /// # Errors
    /// The error of the system, such as too many open files.
    pub fn accept(&self) -> io::Result<Option<(Channel, Peer)>> {
        Ok(self.0.accept()?.map(|(socket, peer)| (Channel { socket }, peer)))
    }

    /// Removes the socket file, unless it was replaced.
    pub fn remove(&self) {
        self.0.remove();
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
