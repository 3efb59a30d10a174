//! The effect of each arrival.

use std::mem;
use std::os::fd::OwnedFd;

use forebay_block::{Errno, Moment};

use super::{Receiving, Sockets, Stage};
use crate::event::{Connection, EndReason, Listener, What};
use crate::limits::ACCEPT_REST;
use crate::outgoing::Flight;
use crate::pool::Received;
use crate::ring::{Arrival, End};
use crate::table::Key;

impl<W> Sockets<W> {
    /// Takes all arrivals, in order.
    pub(super) fn take_arrivals(&mut self) {
        let mut arrivals = mem::take(&mut self.arrivals);
        self.ring.reap(&mut arrivals);
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Accepted { listener, socket } => self.accepted(listener, socket),
                Arrival::AcceptEnded { listener, error } => self.accept_ended(listener, error),
                Arrival::Received { connection, bytes } => self.received(connection, bytes),
                Arrival::ReceiveEnded { connection, end } => self.receive_ended(connection, end),
                Arrival::Sent { connection, flight, moved } => self.sent(connection, flight, moved),
                Arrival::Closed { connection } => self.closed(connection),
            }
        }
        self.arrivals = arrivals;
    }

    fn accepted(&mut self, listener: Key, socket: OwnedFd) {
        if self.is_full() || !self.lobby.is_empty() {
            self.lobby.push_back((listener, socket));
        } else {
            self.welcome(listener, socket);
        }
        if self.is_full() {
            self.stop_accepts();
        }
    }

    fn welcome(&mut self, listener: Key, socket: OwnedFd) {
        let (listener, key) = (Listener(listener), self.admit(socket));
        self.counters.accepts += 1;
        self.report(key, 0, What::Accepted { listener, connection: Connection(key) });
        self.activate(key);
    }

    pub(super) fn admit_from_lobby(&mut self) {
        while !self.is_full()
            && let Some((listener, socket)) = self.lobby.pop_front()
        {
            self.welcome(listener, socket);
        }
    }

    fn is_full(&self) -> bool {
        self.connections.len() >= self.options.connections as usize
    }

    fn stop_accepts(&mut self) {
        for (key, ear) in self.listeners.iter_mut() {
            if ear.accepting && !mem::replace(&mut ear.stopping, true) {
                self.ring.stop_accepting(key);
            }
        }
    }

    pub(super) fn start_accepts(&mut self) {
        if self.is_full() || !self.lobby.is_empty() {
            return;
        }
        for (key, ear) in self.listeners.iter_mut() {
            let rests = ear.rests_until.is_some_and(|until| until > self.now);
            if !ear.accepting && !rests {
                (ear.accepting, ear.rests_until) = (true, None);
                self.ring.accept(key);
            }
        }
    }

    /// Returns the end of the first rest of a listener.
    pub(super) fn resting_until(&self) -> Option<Moment> {
        self.listeners.iter().filter_map(|ear| ear.rests_until).min()
    }

    fn accept_ended(&mut self, listener: Key, error: Option<Errno>) {
        let Some(ear) = self.listeners.get_mut(listener) else { return };
        (ear.accepting, ear.stopping) = (false, false);
        match error {
            None => {}
            // The accepted connection had failed already. The listener has not.
            Some(Errno(
                libc::ECONNABORTED | libc::EPROTO | libc::EPERM | libc::EINTR | libc::EAGAIN,
            )) => {}
            Some(error) => {
                ear.rests_until = Some(self.now + ACCEPT_REST);
                self.report_loose(What::AcceptFailed { listener: Listener(listener), error });
            }
        }
    }

    fn received(&mut self, key: Key, bytes: Received) {
        let Some(link) = self.connections.get_mut(key) else { return };
        link.moved = self.now;
        if link.stage != Stage::Open {
            return;
        }
        self.counters.receives += 1;
        self.counters.received_bytes += bytes.len() as u64;
        self.report(key, bytes.len(), What::Received { connection: Connection(key), bytes });
        self.activate(key);
    }

    fn receive_ended(&mut self, key: Key, end: End) {
        let Some(link) = self.connections.get_mut(key) else { return };
        link.receiving = Receiving::No;
        if !matches!(link.stage, Stage::Open | Stage::Draining) {
            return;
        }
        match end {
            End::Stopped => self.activate(key),
            End::NoBuffer => {
                link.receiving = Receiving::Starved;
                self.counters.exhausted += 1;
                self.starved.push_back(key);
            }
            End::Finished => {
                link.receiving = Receiving::Finished;
                if link.stage == Stage::Open {
                    self.report(key, 0, What::Finished { connection: Connection(key) });
                }
            }
            End::Failed(error) => self.end(key, EndReason::Failed(error)),
        }
    }

    fn sent(&mut self, key: Key, flight: Flight, moved: Result<usize, Errno>) {
        let Some(link) = self.connections.get_mut(key) else { return };
        link.outgoing.arrive(flight, moved.unwrap_or(0));
        match moved {
            Ok(bytes) => {
                link.moved = self.now;
                self.counters.sends += 1;
                self.counters.sent_bytes += bytes as u64;
                self.has_room(key);
            }
            Err(error)
                if error.is_passing()
                    || matches!(error.0, libc::ECANCELED | libc::ENOBUFS | libc::ENOMEM) =>
            {
                self.activate(key);
            }
            Err(error) => self.end(key, EndReason::Failed(error)),
        }
    }

    fn closed(&mut self, key: Key) {
        let Some(link) = self.connections.get_mut(key) else { return };
        let Stage::Closing(reason) = mem::replace(&mut link.stage, Stage::Closed) else {
            panic!("{key:?} was not asked to close")
        };
        self.report(key, 0, What::Closed { connection: Connection(key), reason });
        // A descriptor is free again.
        for (_, ear) in self.listeners.iter_mut() {
            ear.rests_until = None;
        }
    }
}
