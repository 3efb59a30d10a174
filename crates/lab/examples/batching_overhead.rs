//! The cost of counting batches: the same direct reads of a file with and without it, in paired
//! rounds.
//!
//! ```text
//! cargo run --release -p forebay-lab --example batching_overhead -- DIR [ROUNDS [SECONDS]]
//! ```
//!
//! Random 4k reads of a new file of 256 MiB in DIR: over the kernel's ring at a depth of 128, 32
//! handed over at a time, and by single calls. Three cells a round in an order that turns: without,
//! with, and without once more, which gives the noise floor.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use forebay_lab::batching::Batching;
use forebay_lab::cell::Cell;
use forebay_lab::child::{cell_main, is_cell, run_cell};
use forebay_lab::probes::request_cell;
use forebay_lab::request::{RequestCell, RequestDevice, RequestSpec, Switch, Way};
use forebay_lab::statistics::{Paired, mean, noise_floor, ratio};

/// The arms of a round.
const ARMS: [(&str, Batching); 3] =
    [("without", Batching::Off), ("with", Batching::Counted), ("without-again", Batching::Off)];

const FIGURES: [&str; 2] = ["iops", "cpu_us_per_io"];

fn main() -> ExitCode {
    if is_cell(std::env::args_os()) {
        return cell_main();
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word =
        |place: usize, default: &str| words.get(place).map_or(default, String::as_str).to_owned();
    let rounds: usize = word(1, "10").parse().map_err(|_| "ROUNDS is no number")?;
    let seconds: f64 = word(2, "1").parse().map_err(|_| "SECONDS is no number")?;
    let directory = tempfile::tempdir_in(word(0, ".")).map_err(|error| error.to_string())?;
    for (title, way, depth, batch) in [
        ("ring, depth 128, batch 32", Way::Uring, 128, Some(32)),
        ("single calls", Way::Pread, 1, None),
    ] {
        let spec = RequestSpec {
            depth,
            fixed_files: Switch::On,
            batch,
            file_bytes: 256 << 20,
            seconds,
            seed: 1,
            ..RequestSpec::random_reads(RequestDevice::file())
        };
        let cell = cell(way, spec, directory.path());
        compare(title, &cell, rounds)?;
    }
    Ok(())
}

fn cell(way: Way, spec: RequestSpec, directory: &Path) -> Cell {
    let directory = directory.to_owned();
    request_cell(RequestCell { directory, ..RequestCell::of(way, spec) })
}

fn compare(title: &str, cell: &Cell, rounds: usize) -> Result<(), String> {
    let mut measured = vec![vec![Vec::new(); FIGURES.len()]; ARMS.len()];
    for round in 0..rounds {
        for place in 0..ARMS.len() {
            let arm = (round + place) % ARMS.len();
            let report = run_cell(cell, &[], ARMS[arm].1, &AtomicBool::new(false));
            let report = report.map_err(|error| error.to_string())?;
            if let Some(note) =
                report.total.notes.iter().find(|note| note.starts_with("batching: "))
            {
                return Err(note.clone());
            }
            for (figure, values) in FIGURES.iter().zip(&mut measured[arm]) {
                values.push(report.total.metrics[*figure]);
            }
        }
    }
    println!("{title}, {rounds} rounds:");
    for (place, figure) in FIGURES.iter().enumerate() {
        let [without, with, again] = [0, 1, 2].map(|arm: usize| &measured[arm][place]);
        let found = ratio(Paired { arm: with, base: without }, 1).ok_or("nothing to compare")?;
        let floor = noise_floor(Paired { arm: again, base: without }).unwrap_or(f64::NAN);
        println!(
            "  {figure:<14} {:>9.2} {}, {:>9.2} {}: {:.3} [{:.3}-{:.3}], noise floor {:.1} %",
            mean(without).unwrap_or(f64::NAN),
            ARMS[0].0,
            mean(with).unwrap_or(f64::NAN),
            ARMS[1].0,
            found.value,
            found.low,
            found.high,
            floor * 100.0,
        );
    }
    Ok(())
}
