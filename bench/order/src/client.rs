//! The client: connections in a closed loop, on one thread, over epoll. It asks every server.
//!
//! ```text
//! connect all, fill them --> ramp --> [ wait, read, send again ] --> wait for the last answers
//! ```
//!
//! The part in brackets is counted. Messages are numbered in the order they are sent, over all
//! connections. A message consists of bytes made from its number, so every byte of an answer is
//! checked without a copy.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::link::{Link, Overtaken, Sent};
use crate::load::{Load, Pace};
use crate::server::with_remedy;

/// A server that answers nothing for this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A wait returns at least this often, so that the observer is called.
const TICK: Duration = Duration::from_millis(50);

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Observer of the client. Its error ends the client.
pub(crate) trait Observer {
    /// Counting begins.
    fn begins(&mut self);
    /// Called about every [`TICK`] while it counts, with the number of answers so far.
    fn ticks(&mut self, answered: u64) -> Result<(), String>;
    /// Counting ends.
    fn ends(&mut self, answered: u64);
}

/// Counts of the client.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) answered: u64,
    pub(crate) elapsed: Duration,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// For each message, the number of messages sent later that were answered before it.
    pub(crate) passed: Histogram<u64>,
}

/// Asks a server for a time, after an uncounted ramp.
///
/// # Errors
/// The server refuses a connection, closes one, or answers something else; or the observer's error.
pub(crate) fn ask(
    address: SocketAddr,
    load: &Load,
    (ramp, counted): (Duration, Duration),
    observer: &mut dyn Observer,
) -> Result<Outcome, String> {
    let mut client = Client::connect(address, load)?;
    client.run(ramp, counted, observer)?;
    client.drain()?;
    Ok(client.outcome)
}

struct Client<'a> {
    load: &'a Load,
    epoll: OwnedFd,
    links: Vec<Link>,
    buffer: Vec<u8>,
    next_number: u64,
    overtaken: Overtaken,
    unanswered: u64,
    /// Whether answers release messages.
    sending: bool,
    counting: bool,
    outcome: Outcome,
}

impl<'a> Client<'a> {
    fn connect(address: SocketAddr, load: &'a Load) -> Result<Self, String> {
        let mut links = Vec::new();
        let mut connected = || -> io::Result<OwnedFd> {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            for place in 0..load.connections {
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                epoll::add(&epoll, &stream, EventData::new_u64(place.into()), EventFlags::IN)?;
                links.push(Link::new(stream, load.message_bytes as usize));
            }
            Ok(epoll)
        };
        let epoll = connected();
        let number = links.len() + 1;
        let epoll = epoll.map_err(|error| {
            with_remedy(&format!("could not make connection {number} to {address}"), &error)
        })?;
        let histogram = |most| Histogram::new_with_max(most, 3).expect("the bounds are fixed");
        let outcome = Outcome {
            answered: 0,
            elapsed: Duration::ZERO,
            latencies: histogram(60_000_000_000),
            passed: histogram(1 << 32),
        };
        Ok(Self {
            load,
            epoll,
            links,
            buffer: vec![0; READ_BYTES],
            next_number: 0,
            overtaken: Overtaken::default(),
            unanswered: 0,
            sending: true,
            counting: false,
            outcome,
        })
    }

    fn run(
        &mut self,
        ramp: Duration,
        counted: Duration,
        observer: &mut dyn Observer,
    ) -> Result<(), String> {
        for place in 0..self.links.len() {
            self.fill(place, self.load.in_flight, Instant::now());
            self.flush(place)?;
        }
        self.turn_until(Instant::now() + ramp, &mut |_| Ok(()))?;
        self.counting = true;
        observer.begins();
        let began = Instant::now();
        self.turn_until(began + counted, &mut |answered| observer.ticks(answered))?;
        self.outcome.elapsed = began.elapsed();
        observer.ends(self.outcome.answered);
        self.counting = false;
        Ok(())
    }

    /// Goes on until then, and until at least one message is answered if it counts.
    fn turn_until(
        &mut self,
        end: Instant,
        ticks: &mut dyn FnMut(u64) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut ticked = Instant::now();
        loop {
            let now = Instant::now();
            if now >= end && (!self.counting || self.outcome.answered > 0) {
                return Ok(());
            }
            if now >= end + PATIENCE {
                return Err(self.left_alone());
            }
            if now - ticked >= TICK {
                ticked = now;
                ticks(self.outcome.answered)?;
            }
            let left = end.saturating_duration_since(now);
            self.turn(if left.is_zero() { TICK } else { left.min(TICK) })?;
        }
    }

    /// Waits until all is answered: a connection closed with answers in flight would be reset.
    fn drain(&mut self) -> Result<(), String> {
        self.sending = false;
        let mut last = Instant::now();
        while self.unanswered > 0 {
            let before = self.unanswered;
            self.turn(TICK)?;
            if self.unanswered < before {
                last = Instant::now();
            }
            if last.elapsed() > PATIENCE {
                return Err(self.left_alone());
            }
        }
        Ok(())
    }

    fn left_alone(&self) -> String {
        format!("the server did not answer {} messages in {PATIENCE:?}", self.unanswered)
    }

    /// Waits for up to `longest`, and serves the sockets that are ready.
    fn turn(&mut self, longest: Duration) -> Result<(), String> {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 256];
        let longest = Timespec::try_from(longest).expect("it is short");
        let count = match epoll::wait(&self.epoll, &mut events[..], Some(&longest)) {
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(format!("could not wait for sockets: {error}")),
        };
        for event in &events[..count] {
            let (place, flags) = (event.data.u64() as usize, event.flags);
            if flags.intersects(!EventFlags::OUT) {
                self.read(place)?;
            }
            self.flush(place)?;
        }
        Ok(())
    }

    fn read(&mut self, place: usize) -> Result<(), String> {
        let Self { links, buffer, overtaken, counting, outcome, .. } = self;
        let link = &mut links[place];
        let mut answers = 0;
        link.read(buffer, |sent, now| {
            let passed_by = overtaken.answered(sent.number);
            if *counting {
                outcome.answered += 1;
                let nanos = u64::try_from((now - sent.at).as_nanos()).unwrap_or(u64::MAX);
                outcome.latencies.saturating_record(nanos);
                outcome.passed.saturating_record(passed_by);
            }
            answers += 1;
        })?;
        self.unanswered -= u64::from(answers);
        let again = match self.load.pace {
            _ if !self.sending || answers == 0 => 0,
            Pace::Each => answers,
            Pace::Together if self.links[place].unanswered.is_empty() => self.load.in_flight,
            Pace::Together => 0,
        };
        self.fill(place, again, Instant::now());
        Ok(())
    }

    fn fill(&mut self, place: usize, count: u32, at: Instant) {
        for _ in 0..count {
            self.links[place].put(Sent { number: self.next_number, at });
            self.next_number += 1;
        }
        self.unanswered += u64::from(count);
    }

    fn flush(&mut self, place: usize) -> Result<(), String> {
        let link = &mut self.links[place];
        let wants_room = link.flush()?;
        if wants_room != link.wants_room {
            link.wants_room = wants_room;
            let room = if wants_room { EventFlags::OUT } else { EventFlags::empty() };
            let data = EventData::new_u64(place as u64);
            epoll::modify(&self.epoll, &link.stream, data, EventFlags::IN | room)
                .map_err(|error| format!("could not wait for sockets: {error}"))?;
        }
        Ok(())
    }
}
