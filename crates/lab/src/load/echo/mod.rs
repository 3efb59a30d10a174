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
mod inversions;
mod link;
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

use super::{CellError, Context, Spans};
use crate::cell::CellResult;
use crate::echo::{EchoCell, MOST_CONNECTIONS, Transport};
use crate::metric;
use crate::processors;
pub(crate) use client::{Outcome, Watch};
pub(crate) use server::{Server, ServerPlan};
pub(crate) use thread_use::{ThreadUse, Used};

/// Connections that may wait in the kernel to be accepted: as many as a client may open at once.
const BACKLOG: u32 = MOST_CONNECTIONS;

/// Bytes that a server reads at once: a buffer of Forebay's sockets.
const READ_BYTES: usize = 16 << 10;

/// Metric of the order inside a server.
const INVERSIONS: &str = "inversions_per_1000_items";

/// Asks a server for so long: see [`client::run`].
pub(crate) use client::run as ask;

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
    let pin =
        |processors: &[u32]| processors::pin(processors).context("could not run on its processors");
    pin(of_server)?;
    let server = Server::start(plan)?;
    pin(of_client)?;
    let spans = Spans::of(counted);
    let mut span = Span { server: &server, before: None, after: None, served: [(0, 0); 2] };
    let asked = ask(&server.address, &cell.load, spans, &AtomicU64::new(0), &mut span);
    let (before, after, served) = (span.before, span.after, span.served);
    let notes = vec![server.describe.clone()];
    // Why the server failed says more than that the client was left alone.
    if server.has_ended() {
        server.stop()?;
        return asked.map(|_| unreachable!("a server that ended by itself has failed"));
    }
    server.stop()?;
    let outcome = asked?;
    let used = before.zip(after).map(|(before, after)| after.since(before, outcome.elapsed));
    let mut metrics = figures(&outcome, used);
    metrics.extend(inversions(served));
    Ok(CellResult { metrics, notes, detail: None })
}

/// The server's thread over the time that is counted.
struct Span<'a> {
    server: &'a Server,
    before: Option<ThreadUse>,
    after: Option<ThreadUse>,
    /// Items and inversions of the server when counting began, and when it ended.
    served: [(u64, u64); 2],
}

impl Watch for Span<'_> {
    fn begins(&mut self) {
        self.before = self.server.thread_use().ok();
        self.served[0] = self.server.served.order();
    }

    fn ends(&mut self) {
        self.after = self.server.thread_use().ok();
        self.served[1] = self.server.served.order();
    }

    fn stops(&mut self) -> bool {
        self.server.has_ended()
    }
}

/// Returns the inversions per 1000 items, if the server counts them.
fn inversions([before, after]: [(u64, u64); 2]) -> Option<(String, f64)> {
    let items = after.0.saturating_sub(before.0);
    let inversions = after.1.saturating_sub(before.1);
    (items > 0).then(|| (INVERSIONS.to_owned(), inversions as f64 * 1000.0 / items as f64))
}

fn figures(outcome: &Outcome, used: Option<Used>) -> std::collections::BTreeMap<String, f64> {
    let seconds = outcome.elapsed.as_secs_f64();
    let mut metrics = std::collections::BTreeMap::new();
    if !outcome.latencies.is_empty() {
        metric::put_latencies(&mut metrics, "", &outcome.latencies);
        let distance = outcome.distances.value_at_quantile(0.99);
        metric::put(&mut metrics, "reorder_distance_p99", distance as f64);
    }
    let mut put = |name: &str, value: f64| metric::put(&mut metrics, name, value);
    put("elapsed_s", seconds);
    put("requests_per_s", outcome.answered as f64 / seconds);
    if let Some(used) = used {
        put("idle_share", used.idle.as_secs_f64() / seconds);
        put("user_share", used.user.as_secs_f64() / seconds);
        put("system_share", used.system.as_secs_f64() / seconds);
        // Unlike a rate this does not depend on the processor time that other programs left to the
        // server.
        let worked = (used.user + used.system).as_secs_f64();
        put("server_us_per_message", worked * 1e6 / outcome.answered as f64);
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::{EchoLoad, EchoWay, Pace, WorkOrder, tests::SMALL};

    fn inversions_of(way: EchoWay, order: WorkOrder, load: EchoLoad) -> Option<f64> {
        let cell = EchoCell {
            way,
            order,
            load,
            seconds: 0.1,
            seed: 1,
            directory: std::env::temp_dir(),
            processors: Vec::new(),
        };
        match run(&cell) {
            Ok(result) => Some(result.metrics[INVERSIONS]),
            Err(CellError::Unavailable { reason }) => {
                eprintln!("skipped {way:?}: {reason}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn fifo_has_no_inversions_and_lifo_has_some() {
        let loads = [
            EchoLoad { connections: 1, ..SMALL },
            SMALL,
            EchoLoad { pace: Pace::Together, ..SMALL },
            EchoLoad { connections: 32, ..SMALL },
            EchoLoad { connections: 256, ..SMALL },
            // Short passes: the order holds within each.
            EchoLoad { connections: 32, work_micros: 5, ..SMALL },
        ];
        for way in [EchoWay::Ring, EchoWay::Epoll] {
            for load in loads {
                let fifo = inversions_of(way, WorkOrder::Fifo, load);
                let lifo = inversions_of(way, WorkOrder::Lifo, load);
                println!("{way:?} {load:?}: {fifo:?} {lifo:?}");
                assert!(fifo.is_none_or(|fifo| fifo == 0.0), "{way:?} {load:?}: {fifo:?}");
                // With one connection no pass has items of two. With 32, some passes must.
                match load.connections {
                    1 => assert!(lifo.is_none_or(|lifo| lifo == 0.0), "{way:?}: {lifo:?}"),
                    32.. => assert!(lifo.is_none_or(|lifo| lifo > 0.0), "{way:?} {load:?}"),
                    _ => {}
                }
            }
        }
    }
}
