//! Sockets that listen, and peers of them that are plain sockets of the standard library.
#![allow(dead_code)]

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use forebay_uring::net::{Address, Closing, Connection, Event, Listener, Options, Reason, Sockets, What};

/// How long anything may take. Only a hang takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Bench {
    pub(crate) sockets: Sockets<u64>,
    pub(crate) listener: Listener,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) connections: Vec<Connection>,
    /// What was received and not looked at.
    pub(crate) received: HashMap<Connection, Vec<u8>>,
    pub(crate) closed: Vec<(Connection, Reason)>,
}

impl Bench {
    pub(crate) fn new(options: Options) -> Self {
        let mut sockets = Sockets::new(options).unwrap();
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = sockets.listen(&any.into(), 1024).unwrap();
        let Ok(Address::Tcp(address)) = sockets.local(listener) else { panic!("a port") };
        Self {
            sockets,
            listener,
            address,
            connections: Vec::new(),
            received: HashMap::new(),
            closed: Vec::new(),
        }
    }

    /// Another peer, and its connection at the end of `connections`.
    pub(crate) fn peer(&mut self) -> TcpStream {
        let before = self.connections.len();
        let peer = TcpStream::connect(self.address).unwrap();
        peer.set_nodelay(true).unwrap();
        self.until(|bench| bench.connections.len() > before);
        peer
    }

    /// One poll that waits; events come noted, and are given back.
    pub(crate) fn poll(&mut self, wait: Duration) -> Vec<Event<u64>> {
        let mut events = Vec::new();
        self.sockets.poll(Some(wait), &mut events).unwrap();
        for event in &events {
            match &event.what {
                What::Accepted { connection, .. } | What::Connected { connection } => {
                    self.connections.push(*connection);
                }
                What::Received { connection, bytes } => {
                    self.received.entry(*connection).or_default().extend_from_slice(bytes);
                }
                What::Closed { connection, reason } => self.closed.push((*connection, *reason)),
                _ => {}
            }
        }
        events
    }

    /// Polls until it is so.
    pub(crate) fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "hangs: {:?}", self.sockets.counters());
            self.poll(Duration::from_millis(50));
        }
    }

    /// One poll, after which everything is sent back, and who has finished is closed.
    pub(crate) fn echo(&mut self) {
        for event in self.poll(Duration::from_millis(50)) {
            match event.what {
                What::Received { connection, bytes } => {
                    self.sockets.send(connection, &bytes).unwrap();
                }
                What::Finished { connection } => {
                    self.sockets.close(connection, Closing::AfterSending).unwrap();
                }
                _ => {}
            }
        }
    }

    pub(crate) fn until_closed(&mut self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.closed.len() < count {
            assert!(Instant::now() < deadline, "hangs: {:?}", self.sockets.counters());
            self.echo();
        }
    }

    /// No buffer is out and no connection there.
    pub(crate) fn assert_clean(&self) {
        let counters = self.sockets.counters();
        assert_eq!((counters.buffers_out, counters.connections), (0, 0), "{counters:?}");
    }
}

/// Reads what is there, without waiting long.
pub(crate) fn read_some(peer: &mut TcpStream, into: &mut [u8]) -> usize {
    peer.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    match peer.read(into) {
        Ok(got) => got,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
        Err(error) => panic!("{error}"),
    }
}
