//! Messages between two processes of this machine, which carry descriptors; and the end of the
//! other side.
//!
//! Why messages and not a stream: a message arrives whole, so nothing has to be cut apart, and a
//! descriptor comes with the bytes that say what it is. A descriptor that is sent is the same open
//! file at the other end: its flags, lease and locks are shared, and last until both have closed
//! it.
//!
//! The guarantees. A message comes whole, in order, or not at all; descriptors that found no place
//! (the process has as many as it may) are reported as lost, and none stays open unseen. The end is
//! reported when the other side is closed and all its messages were received. Nothing here blocks
//! longer than its limit; no signal is raised.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::local::{self, Peer};

mod listener;
mod process;
mod wait_for;

pub use listener::Listener;
pub use process::Process;
pub(crate) use wait_for::{Deadline, poll};
pub use wait_for::{WaitFor, wait};

/// Maximum of bytes in a message.
pub const MESSAGE_BYTES: usize = 4096;

/// Maximum of descriptors in a message.
pub const MESSAGE_DESCRIPTORS: usize = 16;

/// Time that [`Channel::send`] waits for room.
pub const SEND_PATIENCE: Duration = Duration::from_secs(1);

/// How often a connection is tried, a few milliseconds apart, whose listener has no place for it.
const CONNECT_TRIES: u32 = 200;

/// One end of a connection that carries messages and descriptors between processes.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// Received message.
#[derive(Debug)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors, in order, closed on exec.
    pub descriptors: Vec<OwnedFd>,
    /// Whether descriptors were lost, because of the limit of this process or of
    /// [`MESSAGE_DESCRIPTORS`].
    pub lost: bool,
}

/// Result of waiting for a message.
#[derive(Debug)]
pub enum Received {
    /// A message was received.
    Message(Message),
    /// No message arrived in time.
    Nothing,
    /// The peer has closed its end, and all its messages were received.
    End,
}

impl Channel {
    /// Creates both ends of a connection.
    ///
    /// # Errors
    /// The error of the system, such as too many open files.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self { socket: one }, Self { socket: other }))
    }

    /// Connects to the process that listens at a path. Waits up to a second if its queue is full.
    ///
    /// # Errors
    /// The error of the system: `NotFound` or `ConnectionRefused` if no process listens, and
    /// others.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let socket = local::new_socket(SocketType::SEQPACKET)?;
        for _ in 0..CONNECT_TRIES {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => return Ok(Self { socket }),
                Err(Errno::AGAIN | Errno::INTR) => std::thread::sleep(Duration::from_millis(5)),
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "too many others wait to be connected"))
    }

    /// Takes over a descriptor of a channel.
    ///
    /// # Errors
    /// `InvalidInput` if it is not a channel. The descriptor is then closed.
    pub fn of_descriptor(socket: OwnedFd) -> io::Result<Self> {
        let kind = rustix::net::sockopt::socket_type(&socket).map_err(|_| not_a_channel())?;
        let family = rustix::net::sockopt::socket_domain(&socket).map_err(|_| not_a_channel())?;
        if kind != SocketType::SEQPACKET || family != AddressFamily::UNIX {
            return Err(not_a_channel());
        }
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        Ok(Self { socket })
    }

    /// Takes over a channel that this process inherited under this descriptor number. Call it once,
    /// before anything else is opened. A standard descriptor stays open beside it.
    ///
    /// # Errors
    /// `InvalidInput` if the descriptor is not a channel. It is then left unchanged.
    pub fn inherited(number: RawFd) -> io::Result<Self> {
        if number < 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no number of a descriptor"));
        }
        // SAFETY: borrowed for the next call alone, which fails where the number is that of no open
        // descriptor.
        let inherited = unsafe { BorrowedFd::borrow_raw(number) };
        // Duplicated first, so that what is somebody else's is not closed.
        let duplicate =
            rustix::io::fcntl_dupfd_cloexec(inherited, 3).map_err(|_| not_a_channel())?;
        let channel = Self::of_descriptor(duplicate)?;
        if number > 2 {
            // SAFETY: it is the socket that this process was started with, which nobody else here
            // knows of.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
        Ok(channel)
    }

    /// Sends a message with duplicates of the descriptors. Waits up to [`SEND_PATIENCE`] while the
    /// peer has too many unread messages.
    ///
    /// # Errors
    /// `InvalidInput` for an empty message, more than [`MESSAGE_BYTES`], or more than
    /// [`MESSAGE_DESCRIPTORS`]; `BrokenPipe` or `ConnectionReset` if the peer is closed;
    /// `TimedOut`; others of the system.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.is_empty()
            || bytes.len() > MESSAGE_BYTES
            || descriptors.len() > MESSAGE_DESCRIPTORS
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "empty, or too large for a message",
            ));
        }
        let left = Deadline::after(Some(SEND_PATIENCE));
        loop {
            match self.try_send(bytes, descriptors) {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) => {
                    let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
                    if !poll(&mut polled, left)? {
                        return Err(io::Error::new(
                            io::ErrorKind::TimedOut,
                            "the other end does not receive",
                        ));
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn try_send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let pushed = control.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(pushed, "the space is for as many");
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let bytes = [IoSlice::new(bytes)];
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.socket, &bytes, &mut control, flags)
        })?;
        Ok(())
    }

    /// Receives the next message. Waits for it up to `timeout`, or forever without one.
    ///
    /// # Errors
    /// `InvalidData` for a message of more than [`MESSAGE_BYTES`], which is then dropped; the error
    /// of the system.
    pub fn receive(&self, timeout: Option<Duration>) -> io::Result<Received> {
        let left = Deadline::after(timeout);
        loop {
            match self.try_receive() {
                Ok(message) if message.is_nothing() && self.is_closed()? => {
                    return Ok(Received::End);
                }
                Ok(message) => return Ok(Received::Message(message)),
                // Reported once if the other end was closed with unread messages; its own messages
                // come after that.
                Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
                    if !poll(&mut polled, left)? {
                        return Ok(Received::Nothing);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn try_receive(&self) -> io::Result<Message> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let came = rustix::io::retry_on_intr(|| {
            let mut into = [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(&self.socket, &mut into, &mut control, flags)
        })?;
        let descriptors = control.drain().flat_map(descriptors_of).collect();
        if came.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too large"));
        }
        bytes.truncate(came.bytes);
        Ok(Message { bytes, descriptors, lost: came.flags.contains(ReturnFlags::CTRUNC) })
    }

    /// Whether the other end is closed.
    fn is_closed(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        let left = Deadline::after(Some(Duration::ZERO));
        poll(&mut polled, left)?;
        Ok(polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
    }

    /// Returns the peer, at the time when the two were connected.
    ///
    /// # Errors
    /// The error of the system.
    pub fn peer(&self) -> io::Result<Peer> {
        local::peer(self.as_fd())
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// For handing it to a program that is started.
impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.socket
    }
}

impl Message {
    /// As what comes when nothing is left, and when somebody sent nothing.
    fn is_nothing(&self) -> bool {
        self.bytes.is_empty() && self.descriptors.is_empty() && !self.lost
    }
}

fn not_a_channel() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no socket that carries messages")
}

fn descriptors_of(control: RecvAncillaryMessage<'_>) -> Vec<OwnedFd> {
    match control {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    }
}
