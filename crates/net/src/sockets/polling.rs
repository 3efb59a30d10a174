//! A poll: it submits the requests, numbers the arrivals, and returns one pass of events.

use std::time::Duration;

use forebay_block::{Errno, Moment};
use forebay_lists::Rest;
use forebay_uring::clock;

use super::{Receiving, Sockets, Stage, source};
use crate::event::{Connection, EndReason, Event, What};
use crate::limits::{EVENT_COST_BYTES, LINGER, POSTED};
use crate::table::Key;
use crate::work::{Bounds, Gate, LOOSE, Source};

impl<W> Sockets<W> {
    /// Appends one pass to `events`, and submits the sends since the last poll. If there are no
    /// events, waits for one: up to `wait`, or without a limit. Blocks for nothing else.
    ///
    /// # Errors
    /// An unexpected error of the kernel. Nothing is lost: poll again.
    ///
    /// # Panics
    /// If another thread polled first.
    pub fn poll(
        &mut self,
        wait: Option<Duration>,
        events: &mut Vec<Event<W>>,
    ) -> Result<(), Errno> {
        let before = events.len();
        let deadline = match wait {
            None => None,
            Some(Duration::ZERO) => Some(self.now),
            Some(wait) => Some(clock::now() + wait),
        };
        loop {
            self.start_requests();
            let limit = self.limit(deadline);
            self.ring.enter(limit)?;
            self.now = clock::now();
            self.take_arrivals();
            self.time_out();
            self.take_posted();
            self.pass(events);
            if events.len() > before || deadline.is_some_and(|deadline| deadline <= self.now) {
                return Ok(());
            }
        }
    }

    /// Returns the longest time that the kernel may wait.
    fn limit(&mut self, deadline: Option<Moment>) -> Option<Duration> {
        if self.work.is_ready() || self.all_posted != Rest::Empty {
            return Some(Duration::ZERO);
        }
        if !self.starved.is_empty() {
            self.pool.await_one();
            if self.ring.recycle() > 0 {
                // A buffer was returned meanwhile: start a receive.
                return Some(Duration::ZERO);
            }
        }
        let timer = self.timers.first().map(|(due, _)| *due);
        let next = [deadline, timer, self.resting_until()].into_iter().flatten().min()?;
        if next > self.now {
            // The caller may have worked for long since the last poll.
            self.now = clock::now();
        }
        Some(next.since(self.now))
    }

    /// Starts accepts, receives and sends, as far as there are places, buffers and bytes.
    fn start_requests(&mut self) {
        self.admit_from_lobby();
        self.start_accepts();
        let mut free = self.ring.recycle();
        let mut active = std::mem::take(&mut self.active);
        // Connections that found no buffer go first, in their order, one per free buffer.
        while free > 0
            && let Some(key) = self.starved.pop_front()
        {
            let starved =
                self.connections.get_mut(key).filter(|link| link.receiving == Receiving::Starved);
            let Some(link) = starved else { continue };
            link.receiving = Receiving::No;
            self.start(key);
            let started =
                self.connections.get(key).is_some_and(|link| link.receiving == Receiving::Yes);
            free -= u32::from(started);
        }
        for key in active.drain(..) {
            if let Some(link) = self.connections.get_mut(key) {
                link.listed = false;
                self.start(key);
            }
        }
        // Connections that were added meanwhile wait for the next poll.
        active.append(&mut self.active);
        self.active = active;
    }

    /// Starts or stops the receive of a connection, starts its send, or closes it if everything is
    /// sent.
    fn start(&mut self, key: Key) {
        let link = self.connections.get_mut(key).expect("found by the caller");
        if !matches!(link.stage, Stage::Open | Stage::Draining) {
            return;
        }
        if link.outgoing.is_ready() {
            let flight = link.outgoing.depart();
            self.ring.send(key, flight);
        }
        if link.stage == Stage::Draining && link.outgoing.bytes() == 0 {
            self.end(key, EndReason::Asked);
            return;
        }
        let held = self.work.bytes(source(key));
        let full = link.stage == Stage::Draining || link.stopped;
        let share = self.options.connection_bytes;
        match link.receiving {
            Receiving::No if !full && held < share => {
                link.receiving = Receiving::Yes;
                self.ring.receive(key);
            }
            // A connection that is ahead by two shares pauses, because all share the buffers.
            Receiving::Yes if full || held >= share.saturating_mul(2) => {
                link.receiving = Receiving::Stopping;
                self.counters.pauses += 1;
                self.ring.stop_receiving(key);
            }
            _ => {}
        }
    }

    /// Closes connections that were to send the rest and have moved nothing for too long.
    fn time_out(&mut self) {
        while let Some(&(_, key)) = self.timers.first().filter(|(due, _)| *due <= self.now) {
            self.timers.pop_first();
            let link = self.connections.get_mut(key).expect("its end removes the timer");
            link.timer = None;
            if link.moved + LINGER <= self.now {
                self.end(key, EndReason::TimedOut);
                // The ring closes it at once if it has no requests.
                self.take_arrivals();
            } else {
                self.set_timer(key);
            }
        }
    }

    /// Numbers the work that other threads posted.
    fn take_posted(&mut self) {
        let work = &mut self.work;
        let take = |posted| work.push(LOOSE, EVENT_COST_BYTES, What::Posted(posted));
        self.all_posted = self.posted.drain(POSTED, take);
        if self.all_posted == Rest::Busy {
            // A pusher was interrupted between two instructions: let it run.
            std::thread::yield_now();
        }
    }

    fn pass(&mut self, events: &mut Vec<Event<W>>) {
        let bounds =
            Bounds { share: self.options.connection_bytes, budget: self.options.pass_bytes };
        let before = events.len();
        let (connections, counters, active) =
            (&mut self.connections, &mut self.counters, &mut self.active);
        let hand = |arrival, _: Source, what: What<W>| {
            match &what {
                What::Closed { connection, .. } => {
                    connections.remove(connection.0);
                    counters.closes += 1;
                }
                What::Received { connection, .. } => {
                    // Its receive may have to be started again.
                    if let Some(link) = connections.get_mut(connection.0)
                        && !std::mem::replace(&mut link.listed, true)
                    {
                        active.push(connection.0);
                    }
                }
                _ => {}
            }
            events.push(Event { arrival, what });
        };
        self.work.pass(bounds, self.options.order, hand);
        if events.len() > before {
            self.counters.passes += 1;
            self.counters.passes_bounded += u64::from(self.work.is_ready());
        }
    }

    /// Reports that a connection has room again, after a send.
    pub(super) fn has_room(&mut self, key: Key) {
        let limit = self.options.outgoing_bytes;
        let Some(link) = self.connections.get_mut(key) else { return };
        if link.stage == Stage::Open && link.stopped && link.outgoing.bytes() <= limit / 2 {
            link.stopped = false;
            self.work.set_gate(source(key), Gate::Open);
            self.report(key, 0, What::Writable { connection: Connection(key) });
        }
        self.activate(key);
    }
}
