//! `forebay netbench`: a server that sends back all messages, and a client in a closed loop. It
//! prints a line each second, in the form of the kernel discussion about the order of work:
//!
//! ```text
//! io_uring port=10002: rps:205.48k Bps:  1.85M idle=140ms user=40ms
//! ```
//!
//! rps and Bps are messages and bytes that came to the server in that second; idle and user are of
//! its one thread, idle being neither on a processor nor waiting for one. Both ends may be in this
//! program, or each in one of its own. A client alone reports answered messages, and nothing of the
//! server's time.

mod address;
mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use forebay_net::Address;

use crate::echo::{EchoLoad, EchoWay, WorkOrder};
use crate::load::CellError;
use crate::load::Spans;
use crate::load::echo::{Outcome, Server, ServerPlan, ThreadUse, Watch, ask};
use crate::statistics::{mean, sample_stddev};

pub use address::parse as parse_address;
use line::Line;

/// From line to line.
const EACH: Duration = Duration::from_secs(1);

const NO_END: Duration = Duration::from_secs(365 * 24 * 3600);

/// How often it is looked whether to stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Netbench {
    pub load: EchoLoad,
    pub ends: Ends,
    /// How long; a server that is alone serves until it is ended, if none.
    pub time: Option<Duration>,
    pub seed: u64,
}

/// Ends in this program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ends {
    /// Both, the server listening there.
    Both(ServerEnd),
    Server(ServerEnd),
    /// The client, of a server that listens there.
    Client(Address),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerEnd {
    /// Through what it does its I/O.
    pub way: EchoWay,
    /// In which order it works off a pass.
    pub order: WorkOrder,
    /// Where it listens.
    pub address: Address,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The client's summary; none of a server alone.
    Done(Option<String>),
    Interrupted,
}

/// Runs it, and reports each line at once. Blocks until the end. `stop`, once set, ends it soon.
///
/// # Errors
///
/// Invalid values, a refusal of the system (an address in use, too many connections), a peer that
/// left or sent something else.
pub fn run(
    bench: &Netbench,
    stop: &Arc<AtomicBool>,
    tell: &mut dyn FnMut(&str),
) -> Result<Ended, CellError> {
    bench.load.check().map_err(CellError::invalid)?;
    let server = match &bench.ends {
        Ends::Both(end) | Ends::Server(end) => Some(start(bench, end)?),
        Ends::Client(_) => None,
    };
    let _socket_file = SocketFile(server.as_ref().map(|server| server.address.clone()));
    let mut course = Course { bench, server: server.as_ref(), stop, tell };
    let ran = match (&bench.ends, &server) {
        (Ends::Server(_), Some(server)) => course.serve(server),
        (Ends::Client(address), _) => course.ask(address),
        (_, Some(server)) => course.ask(&server.address),
        (_, None) => unreachable!("started above"),
    };
    match server {
        // Why the server failed says more than that the client was left alone.
        Some(server) => server.stop().and(ran),
        None => ran,
    }
}

fn start(bench: &Netbench, end: &ServerEnd) -> Result<Server, CellError> {
    let ServerEnd { way, order, ref address } = *end;
    Server::start(ServerPlan { way, order, load: &bench.load, address, seed: bench.seed })
}

struct Course<'a> {
    bench: &'a Netbench,
    /// If it is in this program.
    server: Option<&'a Server>,
    stop: &'a Arc<AtomicBool>,
    tell: &'a mut dyn FnMut(&str),
}

impl Course<'_> {
    /// A server alone: a line for each second with messages.
    fn serve(&mut self, server: &Server) -> Result<Ended, CellError> {
        (self.tell)(&format!("{} listening on {}", server.describe, line::place(&server.address)));
        let began = Instant::now();
        let mut clock = Clock::new(self.bench, Some(server), began);
        while !self.stop.load(Ordering::Relaxed) && !server.has_ended() {
            if self.bench.time.is_some_and(|time| began.elapsed() >= time) {
                return Ok(Ended::Done(None));
            }
            if let Some(error) = server.served.take_accept_error() {
                (self.tell)(&format!("a connection was not accepted: {error}; it is tried again"));
            }
            if let Some(line) = clock.line(0).filter(Line::moved) {
                (self.tell)(&line.to_string());
            }
            thread::sleep(LOOK_FOR_STOP);
        }
        // A server ends by being told to: this is how.
        Ok(Ended::Done(None))
    }

    /// A client, and the server if that is here too.
    fn ask(&mut self, address: &Address) -> Result<Ended, CellError> {
        let (load, stop) = (&self.bench.load, self.stop);
        let spans = Spans::of(self.bench.time.unwrap_or(NO_END));
        let progress = AtomicU64::new(0);
        thread::scope(|scope| {
            let (tell_begun, begun) = mpsc::channel();
            let mut watch = Watcher { stop: Arc::clone(stop), begun: tell_begun };
            let progress = &progress;
            // The watch goes when it has ended, however that was.
            let asked = scope.spawn(move || ask(address, load, spans, progress, &mut watch));
            let rates = self.lines(address, &begun, progress);
            let outcome = match asked.join() {
                Ok(outcome) => outcome?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            if stop.load(Ordering::Relaxed) {
                return Ok(Ended::Interrupted);
            }
            Ok(Ended::Done(Some(summary(load, &outcome, &rates))))
        })
    }

    /// A line each second from when the client begins to count until it has ended. The rates.
    fn lines(&mut self, address: &Address, begun: &Receiver<()>, progress: &AtomicU64) -> Vec<f64> {
        let mut rates = Vec::new();
        if begun.recv().is_err() {
            // It never came to that.
            return rates;
        }
        let mut clock = Clock::new(self.bench, self.server, Instant::now());
        clock.answered = progress.load(Ordering::Relaxed);
        clock.place = line::place(address);
        let mut say = |line: Option<Line>| {
            let Some(line) = line else { return };
            rates.push(line.requests_per_s);
            (self.tell)(&line.to_string());
        };
        // Told when counting ends, too.
        while begun.recv_timeout(LOOK_FOR_STOP) == Err(RecvTimeoutError::Timeout) {
            say(clock.line(progress.load(Ordering::Relaxed)));
        }
        // Of a last second that is nearly whole.
        say(clock.last_line(progress.load(Ordering::Relaxed)));
        rates
    }
}

/// The client's side of it.
struct Watcher {
    stop: Arc<AtomicBool>,
    begun: Sender<()>,
}

impl Watch for Watcher {
    fn begins(&mut self) {
        let _ = self.begun.send(());
    }

    fn ends(&mut self) {
        let _ = self.begun.send(());
    }

    fn stops(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

struct Clock<'a> {
    server: Option<&'a Server>,
    name: String,
    place: String,
    message_bytes: u64,
    since: Instant,
    bytes: u64,
    answered: u64,
    used: Option<ThreadUse>,
}

impl<'a> Clock<'a> {
    fn new(bench: &Netbench, server: Option<&'a Server>, since: Instant) -> Self {
        let described = server.map_or("client", |server| server.describe.as_str());
        let name = described.split([':', ',', ' ']).next().unwrap_or_default().to_owned();
        let place = server.map(|server| line::place(&server.address)).unwrap_or_default();
        let bytes = server.map_or(0, |server| server.served.bytes());
        let used = server.and_then(|server| server.thread_use().ok());
        let message_bytes = bench.load.message_bytes.into();
        Self { server, name, place, message_bytes, since, bytes, answered: 0, used }
    }

    /// One if it is due, given how many messages were answered to a client here.
    fn line(&mut self, answered: u64) -> Option<Line> {
        (self.since.elapsed() >= EACH).then(|| self.make(answered))
    }

    /// One of the rest, if that is long enough to be compared with the others.
    fn last_line(&mut self, answered: u64) -> Option<Line> {
        (self.since.elapsed() >= EACH.mul_f64(0.9)).then(|| self.make(answered))
    }

    fn make(&mut self, answered: u64) -> Line {
        let (now, before) = (Instant::now(), self.since);
        let elapsed = now - before;
        let bytes = match self.server {
            Some(server) => server.served.bytes(),
            None => answered * self.message_bytes,
        };
        let moved = match self.server {
            Some(_) => bytes - self.bytes,
            None => (answered - self.answered) * self.message_bytes,
        };
        let used = self.server.and_then(|server| server.thread_use().ok());
        let line = Line {
            name: self.name.clone(),
            place: self.place.clone(),
            requests_per_s: moved as f64 / self.message_bytes as f64 / elapsed.as_secs_f64(),
            bytes_per_s: moved as f64 / elapsed.as_secs_f64(),
            used: used.zip(self.used).map(|(now, before)| now.since(before, elapsed)),
        };
        (self.since, self.bytes, self.answered, self.used) = (now, bytes, answered, used);
        line
    }
}

fn summary(load: &EchoLoad, outcome: &Outcome, rates: &[f64]) -> String {
    let seconds = outcome.elapsed.as_secs_f64();
    let micros = |quantile| outcome.latencies.value_at_quantile(quantile) as f64 / 1e3;
    let varying = match (mean(rates), sample_stddev(rates)) {
        (Some(mean), Some(deviation)) if mean > 0.0 => {
            format!(", cv {:.1} % from second to second", deviation / mean * 100.0)
        }
        _ => String::new(),
    };
    let EchoLoad { connections, in_flight, message_bytes, .. } = load;
    format!(
        "{connections} connections x {in_flight} messages of {message_bytes} bytes: {} answered in {seconds:.1} s\n\
         {:.2}k/s{varying}\n\
         latency us: p50 {:.1}, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, most {:.1}\n\
         passed by messages sent later: p50 {}, p99 {}, most {}\n",
        outcome.answered,
        outcome.answered as f64 / seconds / 1e3,
        micros(0.5),
        micros(0.9),
        micros(0.99),
        micros(0.999),
        outcome.latencies.max() as f64 / 1e3,
        outcome.distances.value_at_quantile(0.5),
        outcome.distances.value_at_quantile(0.99),
        outcome.distances.max(),
    )
}

/// The file a Unix socket listens by, removed in the end.
struct SocketFile(Option<Address>);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(Address::Unix(path)) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
