//! Echo cells: one server that sends back what comes, on a thread of its own, and a client in a
//! closed loop beside it.
//!
//! ```text
//! client, one thread, epoll == N connections, M messages on each ==> server, one thread: ring, epoll, or a peer
//! ```
//!
//! The same client asks every arm. Rate, latencies and reordering are its view; idle, user and
//! system time are the server's thread alone, as the kernel accounts them. Nothing is pinned unless
//! the cell says so: where the threads run is the scheduler's.

mod client;
mod epoll;
mod link;
mod listener;
mod message;
mod overtaken;
#[cfg(feature = "peers")]
mod peers;
mod server;
mod sockets;
mod stream;
mod thread_use;
mod work;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forebay_net::Address;

use super::CellError;
use crate::cell::CellResult;
use crate::echo::{EchoCell, MOST_CONNECTIONS, Transport};
use crate::processors;
pub(crate) use client::{Outcome, Spans, Watch};
pub(crate) use server::{Server, ServerPlan};
pub(crate) use thread_use::{ThreadUse, Used};

/// Connections that may wait in the kernel to be accepted: as many as a client may open at once.
const BACKLOG: u32 = MOST_CONNECTIONS;

/// Bytes that a server reads at once: a buffer of Forebay's sockets.
const READ_BYTES: usize = 16 << 10;

/// Uncounted at the start: a tenth of the time, but not longer than this.
const LONGEST_RAMP: Duration = Duration::from_millis(100);

/// Asks a server for so long: see [`client::run`].
pub(crate) use client::run as ask;

/// Runs one cell in this process.
pub(super) fn run(cell: &EchoCell) -> Result<CellResult, CellError> {
    cell.load.check().map_err(CellError::invalid)?;
    let counted = Duration::try_from_secs_f64(cell.seconds).ok().filter(|span| !span.is_zero());
    let Some(counted) = counted else {
        return Err(CellError::invalid(format!("seconds={}: not a time", cell.seconds)));
    };
    let address = match cell.load.transport {
        Transport::Tcp => Address::Tcp(([127, 0, 0, 1], 0).into()),
        Transport::Unix => Address::Unix(cell.directory.join("echo")),
    };
    let plan = ServerPlan {
        way: cell.way,
        order: cell.order,
        load: &cell.load,
        address: &address,
        seed: cell.seed,
    };
    // A server's threads are where they are started from.
    let (of_server, of_client) = cell.processors.split_at(usize::from(cell.processors.len() > 1));
    let pin = |processors: &[u32]| {
        processors::pin(processors)
            .map_err(|error| CellError::system("could not run on its processors", &error))
    };
    pin(of_server)?;
    let server = Server::start(plan)?;
    pin(of_client)?;
    let spans = Spans { ramp: (counted / 10).min(LONGEST_RAMP), counted };
    let mut span = Span { server: &server, before: None, after: None };
    let asked = ask(server.address(), &cell.load, spans, &AtomicU64::new(0), &mut span);
    let (before, after) = (span.before, span.after);
    let notes = vec![server.describe().to_owned()];
    // Why the server failed says more than that the client was left alone.
    if server.has_ended() {
        server.stop()?;
        return asked.map(|_| unreachable!("a server that ended by itself has failed"));
    }
    server.stop()?;
    let outcome = asked?;
    let used = before.zip(after).map(|(before, after)| after.since(before, outcome.elapsed));
    Ok(CellResult { metrics: figures(&outcome, used), notes, detail: None })
}

/// The server's thread over the time that is counted.
struct Span<'a> {
    server: &'a Server,
    before: Option<ThreadUse>,
    after: Option<ThreadUse>,
}

impl Watch for Span<'_> {
    fn begins(&mut self) {
        self.before = self.server.thread_use().ok();
    }

    fn ends(&mut self) {
        self.after = self.server.thread_use().ok();
    }

    fn stops(&mut self) -> bool {
        self.server.has_ended()
    }
}

/// Everything that is defined for this cell.
fn figures(outcome: &Outcome, used: Option<Used>) -> std::collections::BTreeMap<String, f64> {
    let seconds = outcome.elapsed.as_secs_f64();
    let mut metrics = std::collections::BTreeMap::new();
    let mut put = |name: &str, value: f64| {
        debug_assert!(crate::metric::find(name).is_some(), "{name}");
        if value.is_finite() {
            metrics.insert(name.to_owned(), value);
        }
    };
    put("elapsed_s", seconds);
    put("requests_per_s", outcome.answered as f64 / seconds);
    if !outcome.latencies.is_empty() {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            let micros = outcome.latencies.value_at_quantile(quantile) as f64 / 1000.0;
            put(&format!("latency_{name}_us"), micros);
        }
        put("reorder_distance_p99", outcome.distances.value_at_quantile(0.99) as f64);
    }
    if let Some(used) = used {
        put("idle_share", used.idle.as_secs_f64() / seconds);
        put("user_share", used.user.as_secs_f64() / seconds);
        put("system_share", used.system.as_secs_f64() / seconds);
        // What a rate is not: independent of how much of a processor the client or another program
        // left the server.
        let worked = (used.user + used.system).as_secs_f64();
        put("server_us_per_message", worked * 1e6 / outcome.answered as f64);
    }
    metrics
}
