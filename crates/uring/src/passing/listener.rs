//! A socket that programs connect to, for messages: by the rules of [`local`](crate::local).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::net::SocketType;

use super::Channel;
use crate::local::{BindError, Bound, Peer};

/// A socket that programs connect to.
#[derive(Debug)]
pub struct Listener(Bound);

impl Listener {
    /// Makes the socket. Waits, for a second at most, while another does the same in that
    /// directory.
    ///
    /// # Errors
    /// See [`BindError`]; what stands at the path is left as it is then.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        Bound::at(path, SocketType::SEQPACKET).map(Self)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The next who connected, and who that is; `None` where nobody did. Does not wait.
    ///
    /// # Errors
    /// The system's, such as too many open files.
    pub fn accept(&self) -> io::Result<Option<(Channel, Peer)>> {
        Ok(self.0.accept()?.map(|(socket, peer)| (Channel { socket }, peer)))
    }

    /// Takes the socket away, where it is still ours.
    pub fn remove(&self) {
        self.0.remove();
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
