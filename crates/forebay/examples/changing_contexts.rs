//! The longest that a write waits while the number of writeback contexts goes 1, 8, 2, 1, ... every
//! 100 ms, beside the longest with one context all the time: eight threads write 4 KiB at random
//! into two files each, slower than the device takes it, so that nobody waits for room. Rounds of
//! both in turn, so that what drifts hits both.
//!
//! ```text
//! cargo run --release -p forebay --example changing_contexts -- DIRECTORY 60
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay::options::Contexts;
use forebay::{Engine, File, OpenOptions, Options};

const PAGE: u64 = 4096;
const THREADS: u64 = 8;
const FILES: u64 = 2 * THREADS;
const FILE_PAGES: u64 = 2048;
/// Between two writes of a thread: 8,000 a second together.
const PAUSE: Duration = Duration::from_millis(1);
const CHANGE: Duration = Duration::from_millis(100);
const ROUNDS: u64 = 3;

fn main() -> forebay::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "changing_contexts DIRECTORY SECONDS";
    let directory = arguments.next().expect(usage);
    let seconds: u64 = arguments.next().expect(usage).parse().expect(usage);
    let directory = Path::new(&directory).join("changing_contexts");
    std::fs::create_dir_all(&directory).expect("a directory to write to");
    let length = Duration::from_secs(seconds) / ROUNDS as u32;
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "contexts", "changes", "writes", "p99.9", "longest", "handovers"
    );
    for _ in 0..ROUNDS {
        for numbers in [&[1][..], &[1, 8, 2]] {
            one_round(&directory, length, numbers)?;
        }
    }
    std::fs::remove_dir_all(&directory).expect("its own files go");
    Ok(())
}

fn one_round(directory: &Path, length: Duration, numbers: &[usize]) -> forebay::Result<()> {
    let engine = Engine::start(Options {
        cache_bytes: Some(512 << 20),
        dirty_age: Duration::from_millis(50),
        ..Options::default()
    })?;
    let open = |number: u64| {
        engine.open(
            directory.join(number.to_string()),
            OpenOptions::new().read(true).write(true).create(true),
        )
    };
    let files: Vec<File> = (0..FILES).map(open).collect::<forebay::Result<_>>()?;
    let (has_ended, numbered) = (&AtomicBool::new(false), 1..);
    let (mut waits, changes) = thread::scope(|scope| {
        let writers: Vec<_> = files
            .chunks((FILES / THREADS) as usize)
            .zip(numbered)
            .map(|(files, seed)| scope.spawn(move || write(files, seed, has_ended)))
            .collect();
        let (start, mut changes) = (Instant::now(), 0);
        while start.elapsed() < length {
            let contexts = Contexts::Fixed(numbers[changes % numbers.len()]);
            engine
                .set_options(Options { contexts, ..engine.options() })
                .expect("a number of contexts");
            changes += 1;
            thread::sleep(CHANGE);
        }
        has_ended.store(true, Ordering::Relaxed);
        let waits: Vec<Duration> =
            writers.into_iter().flat_map(|writer| writer.join().expect("a writer ends")).collect();
        (waits, if numbers.len() > 1 { changes } else { 0 })
    });
    waits.sort_unstable();
    let (tail, longest) = (waits[waits.len() * 999 / 1000], waits[waits.len() - 1]);
    println!(
        "{:>8} {changes:>10} {:>10} {:>7} us {:>7} us {:>10}",
        numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
        waits.len(),
        tail.as_micros(),
        longest.as_micros(),
        engine.stats().handovers
    );
    files.into_iter().try_for_each(File::close)
}

/// How long each write took.
fn write(files: &[File], seed: u64, has_ended: &AtomicBool) -> Vec<Duration> {
    let (data, mut random) = ([7; PAGE as usize], seed);
    let mut waits = Vec::new();
    while !has_ended.load(Ordering::Relaxed) {
        // Knuth's generator (The Art of Computer Programming 2, 3.3.4).
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let file = &files[(random >> 60) as usize % files.len()];
        let start = Instant::now();
        file.write_at(&data, (random >> 32) % FILE_PAGES * PAGE).expect("a write is accepted");
        waits.push(start.elapsed());
        thread::sleep(PAUSE);
    }
    waits
}
