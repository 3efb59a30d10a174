//! One load on one server: a line each second, in the form of the published figures of the kernel,
//! and the figures of the whole.
//!
//! ```text
//! io_uring port=10002: rps:205.48k Bps:  1.85M idle=140ms user=40ms
//! ```
//!
//! rps and Bps are messages and bytes that the server received in that second. idle and user are of
//! its thread. A client alone reports answered messages, and nothing of the server's thread.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Observer, Outcome, ask};
use crate::form::{Line, place};
use crate::load::{Load, Order, Way};
use crate::server::{Server, ThreadTime, Used};
use crate::statistics::{deviation, mean};

/// From line to line.
const EACH: Duration = Duration::from_secs(1);

/// A last second that is at least this long is compared with the others.
const NEARLY: Duration = Duration::from_millis(900);

/// Longest time before the clients are counted.
const RAMP: Duration = Duration::from_millis(100);

/// Figures of one load on one server.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// Messages per second.
    pub(crate) rate: f64,
    /// Shares of the time of the server's thread.
    pub(crate) idle: f64,
    pub(crate) user: f64,
    /// Microseconds of a processor that the server's thread used for a message.
    pub(crate) work_us: f64,
    /// Of the server's items, inversions per 1000.
    pub(crate) inversions: f64,
    /// Latencies in microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Messages sent later that were answered before, p99.
    pub(crate) passed: f64,
}

/// Runs a server and a client in this process, without lines.
pub(crate) fn measure(
    way: Way,
    order: Order,
    load: &Load,
    time: Duration,
) -> Result<Figures, String> {
    let server = Server::start(way, order, ([127, 0, 0, 1], 0).into())?;
    let (watch, outcome) = watched(Some(server), None, load, time, Print::No)?;
    let (span, seconds) = (watch.whole(), outcome.elapsed.as_secs_f64());
    let answered = outcome.answered as f64;
    let micros = |quantile| outcome.latencies.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Figures {
        rate: answered / seconds,
        idle: span.used.idle.as_secs_f64() / seconds,
        user: span.used.user.as_secs_f64() / seconds,
        work_us: span.used.running.as_secs_f64() * 1e6 / answered,
        inversions: span.inversions(),
        p50: micros(0.5),
        p99: micros(0.99),
        passed: outcome.passed.value_at_quantile(0.99) as f64,
    })
}

/// Runs a client, and a server if none is named, with a line each second. Returns the summary.
pub(crate) fn lines(
    server: Option<Server>,
    address: Option<SocketAddr>,
    load: &Load,
    time: Duration,
) -> Result<String, String> {
    let (watch, outcome) = watched(server, address, load, time, Print::Yes)?;
    Ok(summary(load, &outcome, &watch))
}

/// Runs a server alone, with a line for each second with messages, until the time is over.
pub(crate) fn serve(server: Server, load: &Load, time: Option<Duration>) -> Result<(), String> {
    let place = place(server.address);
    println!("{} listening on {place}", server.way.name());
    let began = Instant::now();
    let mut watch = Watch::new(Some(server), place, load, Print::Yes);
    while time.is_none_or(|time| began.elapsed() < time) {
        thread::sleep(Duration::from_millis(20));
        watch.ticks(0)?;
    }
    watch.stop()
}

fn watched(
    server: Option<Server>,
    address: Option<SocketAddr>,
    load: &Load,
    time: Duration,
    print: Print,
) -> Result<(Watch, Outcome), String> {
    let address = address.or(server.as_ref().map(|server| server.address)).expect("one is given");
    let mut watch = Watch::new(server, place(address), load, print);
    let asked = ask(address, load, ((time / 10).min(RAMP), time), &mut watch);
    // The failure of the server says more than that of the client.
    watch.stop()?;
    Ok((watch, asked?))
}

/// Whether lines are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Print {
    No,
    Yes,
}

/// Counts at a moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    answered: u64,
    bytes: u64,
    items: u64,
    inversions: u64,
    time: Option<ThreadTime>,
}

/// Counts between two moments.
#[derive(Clone, Copy, Debug)]
struct Span {
    elapsed: Duration,
    bytes: u64,
    items: u64,
    inverted: u64,
    used: Used,
}

impl Span {
    fn inversions(self) -> f64 {
        self.inverted as f64 * 1000.0 / self.items.max(1) as f64
    }
}

struct Watch {
    server: Option<Server>,
    name: &'static str,
    place: String,
    message_bytes: u64,
    print: Print,
    first: Moment,
    last: Moment,
    line: Moment,
    /// Messages per second, of each line.
    rates: Vec<f64>,
}

impl Watch {
    fn new(server: Option<Server>, place: String, load: &Load, print: Print) -> Self {
        let name = server.as_ref().map_or("client", |server| server.way.name());
        let now = moment(server.as_ref(), 0);
        Self {
            server,
            name,
            place,
            message_bytes: load.message_bytes.into(),
            print,
            first: now,
            last: now,
            line: now,
            rates: Vec::new(),
        }
    }

    fn whole(&self) -> Span {
        self.between(self.first, self.last)
    }

    fn between(&self, before: Moment, after: Moment) -> Span {
        let elapsed = after.at - before.at;
        let used = after.time.zip(before.time).map(|(now, before)| now.since(before, elapsed));
        let bytes = match self.server {
            Some(_) => after.bytes - before.bytes,
            None => (after.answered - before.answered) * self.message_bytes,
        };
        Span {
            elapsed,
            bytes,
            items: after.items - before.items,
            inverted: after.inversions - before.inversions,
            used: used.unwrap_or_default(),
        }
    }

    fn print_line(&mut self, answered: u64) {
        let now = moment(self.server.as_ref(), answered);
        let before = std::mem::replace(&mut self.line, now);
        let span = self.between(before, now);
        if span.bytes == 0 {
            return;
        }
        let per_second = span.bytes as f64 / span.elapsed.as_secs_f64();
        let line = Line {
            name: self.name,
            place: &self.place,
            requests_per_s: per_second / self.message_bytes as f64,
            bytes_per_s: per_second,
            used: self.server.is_some().then_some(span.used),
        };
        self.rates.push(line.requests_per_s);
        println!("{line}");
    }

    /// Stops the server, if it is in this process.
    fn stop(&mut self) -> Result<(), String> {
        self.server.take().map_or(Ok(()), Server::stop)
    }
}

impl Observer for Watch {
    fn begins(&mut self) {
        self.first = moment(self.server.as_ref(), 0);
        self.line = self.first;
    }

    fn ticks(&mut self, answered: u64) -> Result<(), String> {
        if self.server.as_ref().is_some_and(Server::has_ended) {
            return Err("the server has ended".to_owned());
        }
        if self.print == Print::Yes && self.line.at.elapsed() >= EACH {
            self.print_line(answered);
        }
        Ok(())
    }

    fn ends(&mut self, answered: u64) {
        self.last = moment(self.server.as_ref(), answered);
        if self.print == Print::Yes && self.line.at.elapsed() >= NEARLY {
            self.print_line(answered);
        }
    }
}

fn moment(server: Option<&Server>, answered: u64) -> Moment {
    let count = |of: fn(&Server) -> u64| server.map_or(0, of);
    Moment {
        at: Instant::now(),
        answered,
        bytes: count(|server| server.served.bytes.load(Ordering::Relaxed)),
        items: count(|server| server.served.items.load(Ordering::Relaxed)),
        inversions: count(|server| server.served.inversions.load(Ordering::Relaxed)),
        time: server.and_then(Server::thread_time),
    }
}

fn summary(load: &Load, outcome: &Outcome, watch: &Watch) -> String {
    let Outcome { answered, elapsed, latencies, passed } = outcome;
    let rate = *answered as f64 / elapsed.as_secs_f64() / 1e3;
    let varying = match deviation(&watch.rates) {
        Some(deviation) => {
            let share = deviation / mean(&watch.rates) * 100.0;
            format!(", cv {share:.1} % from second to second")
        }
        None => String::new(),
    };
    let micros = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
    let inversions = match watch.whole() {
        Span { items: 0, .. } => String::new(),
        span => format!("\ninversions in the server: {:.0} of 1000 items", span.inversions()),
    };
    format!(
        "{load} of {} bytes: {answered} answered in {:.1} s\n{rate:.2}k/s{varying}\n\
         latency us: p50 {:.1}, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, most {:.1}\n\
         passed by messages sent later: p50 {}, p99 {}, most {}{inversions}",
        load.message_bytes,
        elapsed.as_secs_f64(),
        micros(0.5),
        micros(0.9),
        micros(0.99),
        micros(0.999),
        latencies.max() as f64 / 1e3,
        passed.value_at_quantile(0.5),
        passed.value_at_quantile(0.99),
        passed.max(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Pace;
    use crate::load::tests::SMALL;

    /// The figures of a short run; `None` if there is no ring here.
    fn figures(way: Way, order: Order, load: Load) -> Option<Figures> {
        match measure(way, order, &load, Duration::from_millis(100)) {
            Ok(figures) => Some(figures),
            Err(error) if error.contains("could not set up io_uring") => {
                eprintln!("skipped {way:?}: {error}");
                None
            }
            Err(error) => panic!("{way:?} {order:?} {load}: {error}"),
        }
    }

    #[test]
    fn fifo_has_no_inversions_and_lifo_has_some() {
        let loads = [
            Load { connections: 1, ..SMALL },
            SMALL,
            Load { pace: Pace::Together, ..SMALL },
            Load { connections: 32, ..SMALL },
            Load { connections: 256, ..SMALL },
        ];
        for way in [Way::Ring, Way::Epoll] {
            for load in loads {
                let fifo = figures(way, Order::Fifo, load).map(|figures| figures.inversions);
                let lifo = figures(way, Order::Lifo, load).map(|figures| figures.inversions);
                assert!(fifo.is_none_or(|fifo| fifo == 0.0), "{way:?} {load}: {fifo:?}");
                // With one connection no pass has items of two. With 32, some passes must.
                match load.connections {
                    1 => assert!(lifo.is_none_or(|lifo| lifo == 0.0), "{way:?}: {lifo:?}"),
                    32.. => assert!(lifo.is_none_or(|lifo| lifo > 0.0), "{way:?} {load}"),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn every_server_answers_every_load() {
        let loads = [
            Load { connections: 1, in_flight: 1, message_bytes: 1, ..SMALL },
            Load { connections: 60, pace: Pace::Together, ..SMALL },
            Load { in_flight: 50, message_bytes: 1000, ..SMALL },
            // Larger than any buffer of a socket or of the server.
            Load { connections: 2, message_bytes: 3_000_001, ..SMALL },
        ];
        for way in [Way::Ring, Way::Epoll] {
            for order in [Order::Fifo, Order::Lifo] {
                for load in loads {
                    let figures = figures(way, order, load);
                    assert!(figures.is_none_or(|figures| figures.rate > 0.0));
                }
            }
        }
    }
}
