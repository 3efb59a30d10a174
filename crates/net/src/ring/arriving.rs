//! Completions, turned into arrivals.

use std::os::fd::{FromRawFd, OwnedFd};

use forebay_block::Errno;
use io_uring::cqueue;

use super::{Arrival, End, Going, Kind, SocketRing, find};
use crate::table::Key;

impl SocketRing {
    /// Appends all arrivals.
    pub(crate) fn reap(&mut self, arrivals: &mut Vec<Arrival>) {
        self.collect();
        while let Some(completion) = self.completions.pop_front() {
            let word = completion.user_data();
            match Kind::of(word) {
                Some(Kind::Accept) => self.accepted(Key::of(word), &completion, arrivals),
                Some(Kind::Receive) => self.received(Key::of(word), &completion, arrivals),
                Some(Kind::Send) => self.sent(Key::of(word), &completion, arrivals),
                Some(Kind::Cancel) => {}
                Some(Kind::Wake) => self.wake_armed = false,
                None => tracing::error!(word, "a completion without a request"),
            }
        }
        // Dropping closes the sockets. The calls do not block, because no socket lingers.
        for key in self.closed.drain(..) {
            self.connections[key.index()] = None;
            arrivals.push(Arrival::Closed { connection: key });
        }
    }

    fn accepted(&mut self, key: Key, completion: &cqueue::Entry, arrivals: &mut Vec<Arrival>) {
        let result = result(completion);
        let more = cqueue::more(completion.flags());
        // SAFETY: the completion is of an accept, so its result is a new descriptor.
        let socket = result.ok().map(|_| unsafe { OwnedFd::from_raw_fd(completion.result()) });
        let Some(listening) = find(&mut self.listeners, key) else {
            tracing::error!(?key, ?result, "an accept without a listener");
            return;
        };
        arrivals.extend(socket.map(|socket| Arrival::Accepted { listener: key, socket }));
        if more {
            return;
        }
        self.under_way -= 1;
        listening.accept = Going::No;
        let error = result.err().filter(|error| error.0 != libc::ECANCELED);
        arrivals.push(Arrival::AcceptEnded { listener: key, error });
    }

    fn received(&mut self, key: Key, completion: &cqueue::Entry, arrivals: &mut Vec<Arrival>) {
        let result = result(completion);
        let provided = self.provided.as_mut().expect("until the drop");
        let bytes = cqueue::buffer_select(completion.flags())
            .map(|buffer| provided.take(buffer, result.unwrap_or(0)))
            .filter(|bytes| !bytes.is_empty());
        let Some(connected) = find(&mut self.connections, key) else {
            tracing::error!(?key, ?result, "a receive without a connection");
            return;
        };
        arrivals.extend(bytes.map(|bytes| Arrival::Received { connection: key, bytes }));
        if cqueue::more(completion.flags()) {
            return;
        }
        self.under_way -= 1;
        connected.receive = Going::No;
        let end = match result {
            Ok(0) => End::Finished,
            // The kernel ends a multishot request when its completion queue is full.
            Ok(_) => End::Stopped,
            Err(Errno(libc::ENOBUFS)) => End::NoBuffer,
            Err(Errno(libc::ECANCELED | libc::EINTR | libc::EAGAIN)) => End::Stopped,
            Err(error) => End::Failed(error),
        };
        arrivals.push(Arrival::ReceiveEnded { connection: key, end });
        self.close_when_quiet(key);
    }

    fn sent(&mut self, key: Key, completion: &cqueue::Entry, arrivals: &mut Vec<Arrival>) {
        let moved = result(completion);
        let departed = find(&mut self.connections, key).and_then(|connected| connected.send.take());
        let Some(departed) = departed else {
            tracing::error!(?key, ?moved, "a send without a connection");
            return;
        };
        self.under_way -= 1;
        arrivals.push(Arrival::Sent { connection: key, flight: departed.arrive(), moved });
        self.close_when_quiet(key);
    }

    fn close_when_quiet(&mut self, key: Key) {
        let connected = find(&mut self.connections, key).expect("found by the caller");
        if connected.closing && !connected.has_requests() {
            self.closed.push(key);
        }
    }
}

fn result(completion: &cqueue::Entry) -> Result<usize, Errno> {
    usize::try_from(completion.result()).map_err(|_| Errno(-completion.result()))
}
