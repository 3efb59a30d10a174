//! Compares the cost of a write with many files open to the cost with one file: 4 KiB writes at
//! random offsets, over the same number of bytes. The time runs until all writes are accepted.
//! Every file was written once before, and the writes stay below the threshold that starts
//! writeback, so the cost of small files on the device does not count. Rounds of both kinds
//! alternate, so that drift affects both.
//!
//! ```text
//! ulimit -n 20000; cargo run --release -p forebay --example many_files -- DIRECTORY 10000
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use forebay::{Engine, File, OpenOptions, Options};

const PAGE: u64 = 4096;
/// Of each of the many.
const FILE_PAGES: u64 = 4;
const WRITES: u64 = 15_000;
const ROUNDS: usize = 5;

fn main() -> forebay::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "many_files DIRECTORY FILES";
    let directory = arguments.next().expect(usage);
    let count: u64 = arguments.next().expect(usage).parse().expect(usage);
    let directory = Path::new(&directory).join("many_files");
    std::fs::create_dir_all(&directory).expect("a directory to write to");
    println!("{:>8} {:>14} {:>14} {:>6}", "round", "one file", "many files", "ratio");
    for round in 1..=ROUNDS {
        let [one, many] = [1, count].map(|files| one_round(&directory, files, count * FILE_PAGES));
        let (one, many) = (one?.as_nanos() as u64 / WRITES, many?.as_nanos() as u64 / WRITES);
        println!("{round:>8} {one:>11} ns {many:>11} ns {:>6.2}", many as f64 / one as f64);
    }
    std::fs::remove_dir_all(&directory).expect("its own files go");
    Ok(())
}

/// How long all writes took.
fn one_round(directory: &Path, count: u64, pages: u64) -> forebay::Result<Duration> {
    let engine = Engine::start(Options { cache_bytes: Some(256 << 20), ..Options::default() })?;
    let open = |number: u64| -> forebay::Result<File> {
        let file = engine.open(
            directory.join(format!("{count}-{number}")),
            OpenOptions::new().read(true).write(true).create(true),
        )?;
        file.set_len(pages / count * PAGE)?;
        Ok(file)
    };
    let files: Vec<File> = (0..count).map(open).collect::<forebay::Result<_>>()?;
    let data = [7; PAGE as usize];
    let write = |page: u64| files[(page % count) as usize].write_at(&data, page / count * PAGE);
    // The first page of each of the many, and the same ones of the one.
    (0..pages / FILE_PAGES).try_for_each(write)?;
    let mut random = 1_u64;
    let start = Instant::now();
    for _ in 0..WRITES {
        // Knuth's generator (The Art of Computer Programming 2, 3.3.4).
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write((random >> 32) % pages)?;
    }
    let accepted = start.elapsed();
    files.into_iter().try_for_each(File::close)?;
    Ok(accepted)
}
