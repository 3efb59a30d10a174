//! Cost of a write of 4 KiB into a cached page, beside the `pwrite` of the kernel and a bare copy:
//! at random over the same 2 MiB, all in memory and dirty. Rounds of all three in turn, so that a
//! change of the machine's speed hits all.
//!
//! ```text
//! cargo run --release -p forebay --example write_cost -- DIRECTORY
//! ```

use std::fs::File as Plain;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay::{Engine, Open};

const PAGE: u64 = 4096;
const PAGES: u64 = (2 << 20) / PAGE;
const WRITES: u64 = 200_000;
const ROUNDS: usize = 15;

fn main() -> forebay::Result<()> {
    let directory = std::env::args().nth(1).expect("write_cost DIRECTORY");
    let directory = Path::new(&directory);
    let (ours, plain) = (directory.join("write_cost"), directory.join("write_cost.plain"));
    let engine = Engine::builder().dirty_age(Duration::from_secs(3600)).build()?;
    let file = engine.open(&ours, Open::create())?;
    let kernel = Plain::create(&plain).expect("a directory to write to");
    let mut memory = vec![0; (PAGES * PAGE) as usize];
    let data = [7; PAGE as usize];
    let mut costs = [Vec::new(), Vec::new(), Vec::new()];
    println!("{:>6} {:>10} {:>10} {:>10}", "round", "memcpy", "pwrite", "forebay");
    for round in 0..=ROUNDS {
        let copied = each(|offset| {
            let at = offset as usize;
            memory[at..at + data.len()].copy_from_slice(black_box(&data));
        });
        let written = each(|offset| kernel.write_all_at(&data, offset).expect("a disk"));
        let accepted = each(|offset| file.write_at(&data, offset).expect("a disk"));
        // The first round brings all memory in.
        if round > 0 {
            println!("{round:>6} {copied:>7.0} ns {written:>7.0} ns {accepted:>7.0} ns");
            costs.iter_mut().zip([copied, written, accepted]).for_each(|(of, one)| of.push(one));
        }
    }
    let [copied, written, accepted] = costs.map(|mut of| {
        of.sort_by(f64::total_cmp);
        of[ROUNDS / 2]
    });
    println!("median {copied:>7.0} ns {written:>7.0} ns {accepted:>7.0} ns");
    black_box(&memory);
    file.close()?;
    [ours, plain].iter().for_each(|path| std::fs::remove_file(path).expect("its own files go"));
    Ok(())
}

/// Cost of one of many, in nanoseconds.
fn each(mut write: impl FnMut(u64)) -> f64 {
    let mut random = 1_u64;
    let start = Instant::now();
    for _ in 0..WRITES {
        // Knuth's generator (The Art of Computer Programming 2, 3.3.4).
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write((random >> 32) % PAGES * PAGE);
    }
    start.elapsed().as_nanos() as f64 / WRITES as f64
}
