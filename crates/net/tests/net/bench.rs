//! Listening sockets, and peers that are plain sockets of the standard library.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_net::{
    Address, Closing, Connection, EndReason, Event, Listener, Options, Sockets, What,
};
use forebay_uring::probe::{KernelVersion, kernel_version};

/// Maximum duration of anything. Only a hang takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Wait of a poll, after which a test looks at its other conditions.
pub(crate) const A_LITTLE: Duration = Duration::from_millis(20);

/// Returns whether the kernel reports the completions of one call in reverse, as Linux 6.0 to 6.4
/// do. The last is then first in a pass, and waits in a flood are longer.
pub(crate) fn kernel_reverses() -> bool {
    kernel_version() < KernelVersion { major: 6, minor: 5 }
}

pub(crate) struct Bench {
    pub(crate) sockets: Sockets<u64>,
    pub(crate) listener: Listener,
    pub(crate) address: SocketAddr,
    pub(crate) connections: Vec<Connection>,
    /// All received bytes.
    pub(crate) received: HashMap<Connection, Vec<u8>>,
    pub(crate) finished: Vec<Connection>,
    pub(crate) closed: Vec<(Connection, EndReason)>,
}

impl Bench {
    pub(crate) fn new(options: Options) -> Self {
        Self::at(options, "127.0.0.1:0")
    }

    /// Listens at an address. No other test may use it if nobody may listen there afterwards.
    pub(crate) fn at(options: Options, address: &str) -> Self {
        let mut sockets = Sockets::new(options).unwrap();
        let any: SocketAddr = address.parse().unwrap();
        let listener = sockets.listen(&any.into(), 1024).unwrap();
        let Ok(Address::Tcp(address)) = sockets.local(listener) else { panic!("a port") };
        Self {
            sockets,
            listener,
            address,
            connections: Vec::new(),
            received: HashMap::new(),
            finished: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// Connects another peer.
    pub(crate) fn peer(&mut self) -> (TcpStream, Connection) {
        let before = self.connections.len();
        let peer = TcpStream::connect(self.address).unwrap();
        peer.set_nodelay(true).unwrap();
        self.until(|bench| bench.connections.len() > before);
        (peer, *self.connections.last().unwrap())
    }

    /// Polls once, and returns the events after noting them.
    pub(crate) fn poll(&mut self, wait: Duration) -> Vec<Event<u64>> {
        let mut events = Vec::new();
        self.sockets.poll(Some(wait), &mut events).unwrap();
        for event in &events {
            match &event.what {
                What::Accepted { connection, .. } => self.connections.push(*connection),
                What::Received { connection, bytes } => {
                    self.received.entry(*connection).or_default().extend_from_slice(bytes);
                }
                What::Finished { connection } => self.finished.push(*connection),
                What::Closed { connection, reason } => {
                    let twice = self.closed.iter().any(|(closed, _)| closed == connection);
                    assert!(!twice, "{connection:?} was closed twice");
                    self.closed.push((*connection, *reason));
                }
                _ => {}
            }
        }
        events
    }

    /// Polls until the condition holds.
    pub(crate) fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "hangs: {:?}", self.sockets.counters());
            self.poll(A_LITTLE);
        }
    }

    /// Polls once, sends all received bytes back, and closes finished connections.
    pub(crate) fn echo(&mut self) {
        for event in self.poll(A_LITTLE) {
            match event.what {
                What::Received { connection, bytes } => {
                    // A full connection returns no more bytes, so the rest of a pass has room.
                    self.sockets.send(connection, &bytes).unwrap();
                }
                What::Finished { connection } => {
                    self.sockets.close(connection, Closing::AfterSending);
                }
                _ => {}
            }
        }
    }

    pub(crate) fn echo_until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "hangs: {:?}", self.sockets.counters());
            self.echo();
        }
    }

    /// Closes all connections, and checks that nothing is left.
    pub(crate) fn end(mut self) {
        for connection in self.connections.clone() {
            self.sockets.close(connection, Closing::Now);
        }
        self.until(|bench| bench.sockets.counters().connections == 0);
        let counters = self.sockets.counters();
        assert_eq!(counters.buffers_out, 0, "{counters:?}");
        assert_eq!(counters.closes, counters.accepts, "{counters:?}");
    }

    pub(crate) fn got(&self, connection: Connection) -> &[u8] {
        self.received.get(&connection).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn reason(&self, connection: Connection) -> Option<EndReason> {
        self.closed.iter().find(|(closed, _)| *closed == connection).map(|(_, reason)| *reason)
    }
}

/// Waits until nobody listens there. A socket may live a moment longer, in a child that another
/// test has just forked.
pub(crate) fn until_refused(address: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "somebody listens at {address}");
    }
}

/// Reads without waiting long. Returns `None` at the end.
pub(crate) fn read_some(peer: &mut TcpStream, into: &mut [u8]) -> Option<usize> {
    peer.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    match peer.read(into) {
        Ok(0) => None,
        Ok(got) => Some(got),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Some(0)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Reads to the end on a thread of its own.
pub(crate) fn read_all(mut peer: TcpStream) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        got
    })
}

/// Writes everything, and then sends no more, on a thread of its own.
pub(crate) fn write_all(peer: &TcpStream, bytes: Vec<u8>) -> JoinHandle<()> {
    let mut peer = peer.try_clone().unwrap();
    thread::spawn(move || {
        peer.write_all(&bytes).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
    })
}

/// Closes the socket so that the other end is reset.
pub(crate) fn reset(peer: TcpStream) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option is a `linger`, read during the call.
    let set = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&peer),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const at_once).cast(),
            libc::socklen_t::try_from(size_of::<libc::linger>()).unwrap(),
        )
    };
    assert_eq!(set, 0);
    drop(peer);
}

/// Bytes that differ from their neighbours.
pub(crate) fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + (at >> 8) * 7 + seed * 101) & 0xff) as u8).collect()
}
