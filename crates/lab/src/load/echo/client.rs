//! The client: connections in a closed loop, on one thread, over epoll. Every arm is asked by this
//! one.
//!
//! ```text
//! connect all, fill them --> ramp --> [ wait, read, send again ] --> no more is sent --> all answered --> figures
//! ```
//!
//! The part in brackets is counted. Messages are numbered in the order they are sent, over all
//! connections; answers of a connection come in order, those of different ones in the order in
//! which the server served them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_net::Address;
use hdrhistogram::Histogram;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::link::{Flushed, Link, Sent};
use super::overtaken::Overtaken;
use super::stream;
use crate::echo::{EchoLoad, Pace};
use crate::load::{CellError, Context, Spans};

/// Latencies are kept up to this.
const LONGEST_LATENCY_NS: u64 = 60_000_000_000;

/// Distances are kept up to this.
const LONGEST_DISTANCE: u64 = 1 << 32;

/// A server that answers nothing for so long is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A wait returns at least this often, so that a stop request is noticed.
const LOOK_FOR_STOP: Duration = Duration::from_millis(100);

const WAIT: &str = "could not wait for sockets";
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Observer of the client: it learns when counting begins and ends, and may stop the client.
pub(crate) trait Watch {
    fn begins(&mut self);
    fn ends(&mut self);
    /// Now and then: whether somebody wants it to end.
    fn stops(&mut self) -> bool;
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) answered: u64,
    pub(crate) elapsed: Duration,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Messages sent later that were answered before.
    pub(crate) distances: Histogram<u64>,
}

/// Asks a server for so long. How many answers came, those that are not counted included, others
/// read in `progress`.
pub(crate) fn run(
    address: &Address,
    load: &EchoLoad,
    spans: Spans,
    progress: &AtomicU64,
    watch: &mut dyn Watch,
) -> Result<Outcome, CellError> {
    Client::connect(address, load, progress)?.run(spans, watch)
}

struct Client<'a> {
    load: &'a EchoLoad,
    progress: &'a AtomicU64,
    epoll: rustix::fd::OwnedFd,
    links: Vec<Link>,
    buffer: Vec<u8>,
    next_number: u64,
    overtaken: Overtaken,
    unanswered: u64,
    /// Whether answers let messages go.
    sending: bool,
    counting: Option<Counting>,
}

struct Counting {
    answered: u64,
    latencies: Histogram<u64>,
    distances: Histogram<u64>,
}

impl<'a> Client<'a> {
    fn connect(
        address: &Address,
        load: &'a EchoLoad,
        progress: &'a AtomicU64,
    ) -> Result<Self, CellError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context(WAIT)?;
        let mut links = Vec::new();
        for place in 0..load.connections {
            let stream =
                stream::connect(address).map_err(|error| refused(address, place, &error))?;
            let told = epoll::EventData::new_u64(place.into());
            epoll::add(&epoll, &stream, told, epoll::EventFlags::IN).context(WAIT)?;
            links.push(Link::new(stream, load.message_bytes as usize));
        }
        Ok(Self {
            load,
            progress,
            epoll,
            links,
            buffer: vec![0; READ_BYTES],
            next_number: 0,
            overtaken: Overtaken::default(),
            unanswered: 0,
            sending: true,
            counting: None,
        })
    }

    fn run(mut self, spans: Spans, watch: &mut dyn Watch) -> Result<Outcome, CellError> {
        for place in 0..self.links.len() {
            self.fill(place, self.load.in_flight, Instant::now());
            self.flush(place)?;
        }
        self.turn_until(Instant::now() + spans.ramp, watch)?;
        self.counting = Some(Counting::new());
        watch.begins();
        let began = Instant::now();
        self.turn_until(began + spans.counted, watch)?;
        let elapsed = began.elapsed();
        watch.ends();
        let counting = self.counting.take().expect("it was just made");
        self.sending = false;
        self.drain()?;
        let Counting { answered, latencies, distances } = counting;
        Ok(Outcome { answered, elapsed, latencies, distances })
    }

    /// Until then, and until at least one message is answered that counts.
    fn turn_until(&mut self, end: Instant, watch: &mut dyn Watch) -> Result<(), CellError> {
        loop {
            let now = Instant::now();
            let has_answer = self.counting.as_ref().is_none_or(|counting| counting.answered > 0);
            if (now >= end && has_answer) || watch.stops() {
                return Ok(());
            }
            if now >= end + PATIENCE {
                return Err(self.left_alone());
            }
            let left = end.saturating_duration_since(now);
            let longest = if left.is_zero() { LOOK_FOR_STOP } else { left.min(LOOK_FOR_STOP) };
            self.turn(longest)?;
        }
    }

    fn left_alone(&self) -> CellError {
        let unanswered = self.unanswered;
        CellError::invalid(format!("the server left {unanswered} messages without an answer"))
    }

    /// Until all is answered: a connection closed with answers on their way would be reset.
    fn drain(&mut self) -> Result<(), CellError> {
        let mut last = Instant::now();
        while self.unanswered > 0 {
            let before = self.unanswered;
            self.turn(LOOK_FOR_STOP)?;
            if self.unanswered < before {
                last = Instant::now();
            }
            if last.elapsed() > PATIENCE {
                return Err(self.left_alone());
            }
        }
        Ok(())
    }

    /// Waits so long at most, and does what there is to do.
    fn turn(&mut self, longest: Duration) -> Result<(), CellError> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 256];
        let longest = Timespec::try_from(longest).expect("it is short");
        let many = match epoll::wait(&self.epoll, &mut events[..], Some(&longest)) {
            Ok(many) => many,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(CellError::failed(WAIT, &error)),
        };
        for event in &events[..many] {
            let (place, flags) = (event.data.u64() as usize, event.flags);
            if flags.intersects(!epoll::EventFlags::OUT) {
                self.read(place)?;
            }
            self.flush(place)?;
        }
        Ok(())
    }

    fn read(&mut self, place: usize) -> Result<(), CellError> {
        let Self { links, buffer, overtaken, counting, .. } = self;
        let link = &mut links[place];
        let mut answers = 0;
        let mut now = None;
        link.read(buffer, |sent, came| {
            let passed_by = overtaken.answered(sent.number);
            if let Some(counting) = counting {
                counting.answered(came - sent.at, passed_by);
            }
            answers += 1;
            now = Some(came);
        })?;
        let Some(now) = now else { return Ok(()) };
        self.unanswered -= u64::from(answers);
        self.progress.fetch_add(answers.into(), Ordering::Relaxed);
        let again = match self.load.pace {
            _ if !self.sending => 0,
            Pace::Each => answers,
            Pace::Together if self.links[place].unanswered() == 0 => self.load.in_flight,
            Pace::Together => 0,
        };
        self.fill(place, again, now);
        Ok(())
    }

    fn fill(&mut self, place: usize, many: u32, at: Instant) {
        for _ in 0..many {
            self.links[place].put(Sent { number: self.next_number, at });
            self.next_number += 1;
        }
        self.unanswered += u64::from(many);
    }

    fn flush(&mut self, place: usize) -> Result<(), CellError> {
        let link = &mut self.links[place];
        let wants_room = link.flush()? == Flushed::InPart;
        if wants_room != link.wants_room {
            link.wants_room = wants_room;
            let room = if wants_room { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let told = epoll::EventData::new_u64(place as u64);
            epoll::modify(&self.epoll, &link.stream, told, epoll::EventFlags::IN | room)
                .context(WAIT)?;
        }
        Ok(())
    }
}

impl Counting {
    fn new() -> Self {
        let histogram = |most| Histogram::new_with_max(most, 3).expect("the bounds are fixed");
        Self {
            answered: 0,
            latencies: histogram(LONGEST_LATENCY_NS),
            distances: histogram(LONGEST_DISTANCE),
        }
    }

    fn answered(&mut self, latency: Duration, passed_by: u64) {
        self.answered += 1;
        self.latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        self.distances.saturating_record(passed_by);
    }
}

fn refused(address: &Address, place: u32, error: &std::io::Error) -> CellError {
    let remedy = match error.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ENOENT) => {
            " (nobody listens there: start the server first)"
        }
        Some(libc::EMFILE) => {
            " (raise the limit of open files, `ulimit -n`, or take fewer connections)"
        }
        Some(libc::EAGAIN) => " (the server accepts too slowly: its queue of connections is full)",
        _ => "",
    };
    let what = format!("connection {} to {address}: {error}{remedy}", place + 1);
    CellError::unavailable(what)
}
