//! The server on Forebay's sockets: received bytes are sent back, in passes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_block::knobs::Order;
use forebay_net::{
    Address, Closing, Connection, Event, Options, Poster, SocketError, Sockets, SocketsError, What,
};

use super::BACKLOG;
use super::inversions::Pass;
use super::server::Served;
use super::work::Work;
use crate::echo::{EchoLoad, MOST_CONNECTIONS, WorkOrder};
use crate::load::{CellError, Context, system_error};

/// Bytes handed out by a pass where messages take long: answers leave between passes, so those who
/// were served first would wait for the work of all others.
const SHORT_PASS_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(super) struct Stop;

/// A server that listens.
#[derive(Debug)]
pub(super) struct EchoSockets {
    sockets: Sockets<Stop>,
    pub(super) address: Address,
    work: Work,
    served: Arc<Served>,
    /// Of each connection, bytes of the message that has begun to come.
    begun: HashMap<Connection, usize>,
}

impl EchoSockets {
    pub(super) fn new(
        order: WorkOrder,
        load: &EchoLoad,
        address: &Address,
        work: Work,
        served: Arc<Served>,
    ) -> Result<Self, CellError> {
        let order = match order {
            WorkOrder::Fifo => Order::Fifo,
            WorkOrder::Lifo => Order::Lifo,
        };
        let mut options =
            Options { order, connections: 2 * MOST_CONNECTIONS, ..Options::default() };
        if load.work_micros > 0 {
            options.pass_bytes = SHORT_PASS_BYTES;
            options.connection_bytes = SHORT_PASS_BYTES;
        }
        let mut sockets = Sockets::new(options).map_err(|error| match error {
            SocketsError::Ring(_) => CellError::unavailable(error.to_string()),
            _ => CellError::invalid(error.to_string()),
        })?;
        let listening = |error: SocketError| CellError::invalid(error.to_string());
        let listener = sockets.listen(address, BACKLOG).map_err(listening)?;
        let address = sockets.local(listener).context("cannot read the address of the socket")?;
        Ok(Self { sockets, address, work, served, begun: HashMap::new() })
    }

    pub(super) fn poster(&self) -> Poster<Stop> {
        self.sockets.poster()
    }

    /// Returns the runtime of the server in one line.
    pub(super) fn describe(&self) -> String {
        self.sockets.describe()
    }

    /// Serves until told to stop.
    pub(super) fn serve(mut self) -> Result<(), CellError> {
        let mut events = Vec::new();
        loop {
            let polled = self.sockets.poll(None, &mut events).map_err(system_error);
            polled.context("the sockets failed")?;
            let mut pass = Pass::default();
            for event in events.drain(..) {
                pass.serve(event.arrival);
                if self.take(event) == Goes::Off {
                    return Ok(());
                }
            }
            self.served.add(pass);
        }
    }

    fn take(&mut self, event: Event<Stop>) -> Goes {
        match event.what {
            What::Received { connection, bytes } => self.received(connection, &bytes),
            What::Accepted { .. } => {
                self.served.connections.fetch_add(1, Ordering::Relaxed);
            }
            What::Finished { connection } => self.sockets.close(connection, Closing::AfterSending),
            What::Closed { connection, .. } => {
                self.begun.remove(&connection);
                self.served.connections.fetch_sub(1, Ordering::Relaxed);
            }
            What::AcceptFailed { error, .. } => {
                self.served.accept_error.store(error.0, Ordering::Relaxed);
            }
            What::Posted(Stop) => return Goes::Off,
            // A connection that does not read gets no more data, so there is nothing to stop.
            What::Writable { .. } => {}
        }
        Goes::On
    }

    fn received(&mut self, connection: Connection, bytes: &[u8]) {
        if self.work.is_some() {
            self.work.received(self.begun.entry(connection).or_default(), bytes.len());
        }
        self.served.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        // Nothing is lost by a refusal: the connection is gone, or is one that reads nothing.
        if self.sockets.send(connection, bytes).is_err() {
            self.sockets.close(connection, Closing::Now);
        }
    }
}

/// Whether the server goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goes {
    On,
    Off,
}
