//! A poll: what was asked for goes to the kernel, what arrived is numbered, and one pass is handed
//! out.

use std::time::Duration;

use forebay_block::{Errno, Moment};
use forebay_lists::Rest;

use super::{Receiving, Sockets, Stage, source};
use crate::clock;
use crate::net::event::{EndReason, Event, What};
use crate::net::limits::POSTED;
use crate::net::table::Key;
use crate::net::work::{Bounds, Gate, Source};

impl<W> Sockets<W> {
    /// Hands out one pass, behind what is in `events` already. Where there is nothing to hand out
    /// it waits so long for something to arrive, without a limit as long as it takes; it blocks for
    /// nothing else. What was sent since the last poll goes now.
    ///
    /// # Errors
    /// What the kernel said to a call it must not refuse. Nothing is lost: poll again.
    ///
    /// # Panics
    /// When another thread polled first.
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
            self.start_what_is_asked();
            let limit = self.limit(deadline);
            self.transport.enter(limit)?;
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

    /// How long the kernel may wait.
    fn limit(&mut self, deadline: Option<Moment>) -> Option<Duration> {
        if self.work.is_ready() || self.all_posted != Rest::Empty {
            return Some(Duration::ZERO);
        }
        if !self.starved.is_empty() {
            self.pool.await_one();
            if self.transport.recycle() > 0 {
                // One came back meanwhile: start who needs it.
                return Some(Duration::ZERO);
            }
        }
        let next =
            [deadline, self.timers.next(), self.resting_until()].into_iter().flatten().min()?;
        if next > self.now {
            // The caller may have done much since the last poll.
            self.now = clock::now();
        }
        Some(next.since(self.now))
    }

    /// Starts accepts, receives and sends, as there are places, buffers and bytes.
    fn start_what_is_asked(&mut self) {
        self.admit_from_lobby();
        self.start_accepts();
        let mut free = self.transport.recycle();
        let mut active = std::mem::take(&mut self.active);
        // Those who found no buffer go first, in the order they asked, as many as there are
        // buffers.
        while free > 0
            && let Some(key) = self.starved.pop_front()
        {
            let starved =
                self.connections.get_mut(key).filter(|link| link.receiving == Receiving::Starved);
            let Some(link) = starved else { continue };
            link.receiving = Receiving::No;
            self.look_at(key);
            let started =
                self.connections.get(key).is_some_and(|link| link.receiving == Receiving::Yes);
            free -= u32::from(started);
        }
        for key in active.drain(..) {
            if let Some(link) = self.connections.get_mut(key) {
                link.listed = false;
                self.look_at(key);
            }
        }
        // What was put in the list meanwhile is there with the next poll.
        active.append(&mut self.active);
        self.active = active;
    }

    /// Starts or stops a connection's receive, starts its send, or closes it when all is sent.
    fn look_at(&mut self, key: Key) {
        let link = self.connections.get_mut(key).expect("looked at by the caller");
        if !matches!(link.stage, Stage::Open | Stage::Draining) {
            return;
        }
        if link.outgoing.is_ready() {
            let flight = link.outgoing.depart();
            self.transport.send(key, flight);
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
                self.transport.receive(key);
            }
            // A connection that is ahead by two shares is not read on: the buffers are for all.
            Receiving::Yes if full || held >= share.saturating_mul(2) => {
                link.receiving = Receiving::Stopping;
                self.counters.pauses += 1;
                self.transport.stop_receiving(key);
            }
            _ => {}
        }
    }

    /// Closes what moved nothing for too long.
    fn time_out(&mut self) {
        while let Some((at, key)) = self.timers.take(self.now) {
            let Some(link) = self.connections.get_mut(key).filter(|link| link.timer == Some(at))
            else {
                continue;
            };
            link.timer = None;
            if matches!(link.stage, Stage::Closing(_) | Stage::Closed) {
                continue;
            }
            if link.idle.is_some_and(|idle| link.moved + idle <= self.now) {
                self.end(key, EndReason::TimedOut);
                // The transport may have closed it at once.
                self.take_arrivals();
            } else {
                self.set_timer(key);
            }
        }
    }

    /// Numbers what other threads posted.
    fn take_posted(&mut self) {
        let work = &mut self.work;
        let cost = crate::net::limits::EVENT_COST_BYTES;
        let take = |posted| work.push(crate::net::work::LOOSE, cost, What::Posted(posted));
        self.all_posted = self.posted.drain(POSTED, take);
        if self.all_posted == Rest::Busy {
            // Its pusher was interrupted between two instructions: let it go on.
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
                    // It may be read on.
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

    /// A connection has less to send than before.
    pub(super) fn has_room(&mut self, key: Key) {
        let limit = self.options.outgoing_bytes;
        let Some(link) = self.connections.get_mut(key) else { return };
        if link.stage == Stage::Open && link.stopped && link.outgoing.bytes() <= limit / 2 {
            link.stopped = false;
            self.work.set_gate(source(key), Gate::Open);
            self.tell(key, 0, What::Writable { connection: crate::net::Connection(key) });
        }
        self.activate(key);
    }
}
