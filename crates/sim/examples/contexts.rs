//! Prints the rate of writeback by the number of contexts and of processors. The engine is the one
//! that ships; time is virtual, and work has a price (`crates/sim/src/world/machine/prices.rs`).
//!
//! ```sh
//! cargo run --release -p forebay-sim --example contexts
//! ```
//!
//! Each row has the rates of a number of contexts in MB/s. The last row is the rule
//! (`contexts=adaptive`), with the number that it found. The lines below it compare its rate with
//! that of the best row and of one context.

use std::sync::mpsc;
use std::thread;

use forebay_sim::run::contexts::{Case, Found, Space, measure};
use forebay_sim::world::machine::Prices;

const PROCESSORS: [usize; 5] = [1, 2, 4, 12, 32];
const CONTEXTS: [usize; 5] = [1, 2, 4, 8, 16];

/// The disk of the measurements: 10 us a request, 2.1 GB/s (`docs/measurements/spine.md`).
const MEASURED: Prices = Prices { requests_per_second: 100_000, bytes_per_second: 2_100_000_000 };

/// A flash drive on a link of generation 5, as `uring::modelled` has it.
const GEN5: Prices = Prices { requests_per_second: 1_060_000, bytes_per_second: 15_753_846_153 };

fn main() {
    let tables = [
        ("the disk of the measurements, allocated files", MEASURED, Space::Allocated),
        ("a drive of generation 5, allocated files", GEN5, Space::Allocated),
        ("a drive of generation 5, files with holes", GEN5, Space::Holes),
    ];
    let only = std::env::args().nth(1).map(|at| at.parse::<usize>().expect("a number of a table"));
    for (at, (title, device, space)) in tables.into_iter().enumerate() {
        if only.is_none_or(|only| only == at) {
            table(title, device, space);
        }
    }
}

fn table(title: &str, device: Prices, space: Space) {
    let rows: Vec<Option<usize>> = CONTEXTS.into_iter().map(Some).chain([None]).collect();
    let cases: Vec<Case> = rows
        .iter()
        .flat_map(|contexts| {
            PROCESSORS.map(|processors| Case { processors, contexts: *contexts, space, device })
        })
        .collect();
    let found = all(&cases);
    let cell = |row: usize, column: usize| found[row * PROCESSORS.len() + column];
    let columns = || 0..PROCESSORS.len();
    println!("\nrandom 4k, 12 callers x 12 files, 16 groups: {title}");
    print!("{:<12}", "processors");
    PROCESSORS.iter().for_each(|processors| print!("{processors:>12}"));
    println!();
    for (row, contexts) in rows.iter().enumerate() {
        print!("{:<12}", contexts.map_or("adaptive".to_owned(), |contexts| contexts.to_string()));
        for column in columns() {
            let Found { rate, contexts: number, .. } = cell(row, column);
            let rate = format!("{:.0}", rate / 1e6);
            let rate = if contexts.is_none() { format!("{rate} ({number})") } else { rate };
            print!("{rate:>12}");
        }
        println!();
    }
    let rule = rows.len() - 1;
    let best = |column| (0..rule).map(|row| cell(row, column).rate).fold(0.0, f64::max);
    print!("{:<12}", "rule : best");
    columns().for_each(|column| print!("{:>12.2}", cell(rule, column).rate / best(column)));
    print!("\n{:<12}", "rule : one");
    columns().for_each(|column| print!("{:>12.2}", cell(rule, column).rate / cell(0, column).rate));
    print!("\n{:<12}", "found after");
    columns().for_each(|column| print!("{:>10} ms", cell(rule, column).settled.as_millis()));
    println!();
}

/// Runs the cells on two threads of the operating system. Each cell is its own world.
fn all(cases: &[Case]) -> Vec<Found> {
    let (send, results) = mpsc::channel();
    thread::scope(|scope| {
        for first in 0..2 {
            let send = send.clone();
            scope.spawn(move || {
                for at in (first..cases.len()).step_by(2) {
                    send.send((at, measure(cases[at]))).expect("the receiver waits");
                }
            });
        }
    });
    drop(send);
    let mut found: Vec<_> = results.iter().collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, found)| found).collect()
}
