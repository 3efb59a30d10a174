//! Does the order of deferred work matter? An echo server on io_uring that works off what a call of
//! the kernel returned in the order of arrival or in reverse, a server on epoll, and one client.
//!
//! ```text
//! client, one thread, epoll == N connections, M messages on each ==> server, one thread
//! ```
//!
//! Rate, latencies and reordering are the client's view. Idle and user time are of the server's
//! thread alone, as the kernel accounts them. No thread is pinned.

mod buffers;
mod client;
mod epoll;
mod form;
mod line;
mod link;
mod load;
mod pass;
mod ring;
mod server;
mod statistics;
mod table;

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use load::{Load, Order, Pace, Way};
use server::Server;

/// Run an echo server, and a client in a closed loop
#[derive(Parser, Debug)]
#[command(after_help = "\
Prints a line each second: messages and bytes that the server received, and how
long its thread was idle and in user mode. Percentiles follow at the end. An
ADDRESS is HOST:PORT.

Exit codes: 0 success, 1 failure, 2 invalid arguments.

Examples:
  forebay-bench-order --connections 32 --order lifo
  forebay-bench-order --rounds 10 --seconds 1
  forebay-bench-order --listen 0.0.0.0:7000
  forebay-bench-order --connect server:7000 --seconds 10")]
struct Typed {
    /// Open N connections
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: u32,
    /// Keep N messages in flight on each connection
    #[arg(long, value_name = "N", default_value_t = 2)]
    in_flight: u32,
    /// Send messages of this size
    #[arg(long, value_name = "BYTES", default_value_t = 9)]
    size: u32,
    /// Send all messages of a connection once all are answered
    #[arg(long)]
    together: bool,
    /// Serve through ring or epoll
    #[arg(long, value_enum, default_value_t = Way::Ring, hide_possible_values = true)]
    server: Way,
    /// Serve in this order: fifo or lifo
    #[arg(long, value_enum, default_value_t = Order::Fifo, hide_possible_values = true)]
    order: Order,
    /// Run only the server, at ADDRESS
    #[arg(long, value_name = "ADDRESS", conflicts_with = "connect")]
    listen: Option<String>,
    /// Run only the client, of a server at ADDRESS
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["server", "order"])]
    connect: Option<String>,
    /// Compare all servers under four loads in N rounds, and print tables
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000),
        conflicts_with_all = [
            "connections", "in_flight", "size", "together", "server", "order", "listen", "connect",
        ]
    )]
    rounds: Option<u32>,
    /// Stop after N seconds [default: 5; of a run in --rounds: 1; a server alone: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    seconds: Option<u64>,
}

/// Why the program ends early.
enum Failure {
    /// Invalid arguments.
    Usage(String),
    Failed(String),
}

fn main() -> ExitCode {
    match run(&Typed::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(why)) => {
            eprintln!("forebay-bench-order: {why}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(why)) => {
            eprintln!("forebay-bench-order: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(typed: &Typed) -> Result<(), Failure> {
    let pace = if typed.together { Pace::Together } else { Pace::Each };
    let Typed { connections, in_flight, size: message_bytes, server, order, .. } = *typed;
    let load = Load { connections, in_flight, message_bytes, pace };
    load.check().map_err(Failure::Usage)?;
    let address = |text: &Option<String>| text.as_deref().map(address).transpose();
    let (listen, connect) = (address(&typed.listen)?, address(&typed.connect)?);
    let time = typed.seconds.map(Duration::from_secs);
    let start = |address| Server::start(server, order, address);
    let ran = match (typed.rounds, listen, connect) {
        (Some(rounds), ..) => table::print(rounds, time.unwrap_or(Duration::from_secs(1))),
        (_, Some(address), _) => start(address).and_then(|server| line::serve(server, &load, time)),
        (_, _, connect) => {
            let server = match connect {
                Some(_) => Ok(None),
                None => start(([127, 0, 0, 1], 0).into()).map(Some),
            };
            let time = time.unwrap_or(Duration::from_secs(5));
            let ran = server.and_then(|server| line::lines(server, connect, &load, time));
            ran.map(|summary| println!("{summary}"))
        }
    };
    ran.map_err(Failure::Failed)
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let found = text.to_socket_addrs();
    let found =
        found.map_err(|error| Failure::Usage(format!("{text}: {error} (give HOST:PORT)")))?;
    found.into_iter().next().ok_or_else(|| Failure::Usage(format!("{text}: no such host")))
}
