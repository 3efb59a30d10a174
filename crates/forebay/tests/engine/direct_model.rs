//! Direct operations against a byte array: random ones from several threads, whose bytes lie side
//! by side in the same blocks; many in flight at once; every policy changed under them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{self, MIB, assert_on_disk, block_on, how, knobs, pattern, within};
use forebay::{DirectFile, Engine, Options, Transfer};
use forebay_block::random::Random;

const SOON: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

/// Bytes of a stripe: threads take turns with them, so that every block belongs to several.
const STRIPE: u64 = 700;

/// Returns a range that one thread may touch: within one of its stripes, or any range if the thread
/// is alone.
fn place(random: &mut Random, thread: u64, threads: u64, bytes: u64) -> (u64, usize) {
    if threads == 1 {
        let (offset, magnitude) = (random.below(bytes), random.below(18));
        let length = 1 + random.below(1 << magnitude);
        return match random.below(3) {
            0 => (offset / 4096 * 4096, (length as usize).next_multiple_of(4096)),
            1 => (offset / 512 * 512, (length as usize).next_multiple_of(512)),
            _ => (offset, length as usize),
        };
    }
    let stripe = random.below(bytes / STRIPE / threads) * threads + thread;
    let (start, end) = (random.below(STRIPE), random.below(STRIPE));
    (stripe * STRIPE + start.min(end), (1 + start.abs_diff(end)) as usize)
}

enum Flying {
    /// And where it ends.
    Write(Transfer<Vec<u8>>, usize),
    /// Expected bytes, and the least number of bytes read: the end of the file may not have moved
    /// yet.
    Read(Transfer<Box<[u8]>>, Vec<u8>, usize),
}

/// One thread's operations, a few in flight, each seeing those before it. Returns its bytes.
fn run(file: &DirectFile, seed: u64, thread: u64, threads: u64, operations: usize) -> Vec<u8> {
    let mut random = Random::new(seed ^ thread << 40);
    let (mut model, mut flying) = (Vec::new(), VecDeque::new());
    // Where the file ends at least, as far as writes have been waited for.
    let mut reached = 0;
    let bytes = if threads == 1 { 300_000 } else { 60_000 };
    for operation in 0..operations {
        let (offset, length) = place(&mut random, thread, threads, bytes);
        let (start, end) = (offset as usize, offset as usize + length);
        match random.below(16) {
            0 => {
                file.sync_data().wait().unwrap();
                reached = model.len();
            }
            1 => {
                // Nobody waits for this write, and it still takes effect in its order.
                drop(file.write_at(vec![7; length], offset));
                model.resize(model.len().max(end), 0);
                model[start..end].fill(7);
            }
            2..=7 => {
                // Of others' bytes beyond our last nothing is known.
                let known = model.len().clamp(start, end);
                if known > start {
                    let expected = model[start..known].to_vec();
                    let least = reached.clamp(start, known) - start;
                    let buffer = vec![0; known - start].into_boxed_slice();
                    flying.push_back(Flying::Read(file.read_at(buffer, offset), expected, least));
                }
            }
            _ => {
                let data = pattern(seed ^ operation as u64, length);
                model.resize(model.len().max(end), 0);
                model[start..end].copy_from_slice(&data);
                flying.push_back(Flying::Write(file.write_at(data, offset), end));
            }
        }
        while flying.len() > random.below(24) as usize {
            match flying.pop_front().unwrap() {
                Flying::Write(transfer, end) => {
                    let (result, data) = block_on(transfer);
                    assert_eq!(result.unwrap(), data.len());
                    reached = reached.max(end);
                }
                Flying::Read(transfer, expected, least) => {
                    let (result, found) = block_on(transfer);
                    let read = result.unwrap();
                    assert!(
                        (least..=expected.len()).contains(&read),
                        "operation {operation}: {read} bytes"
                    );
                    let differs = found[..read]
                        .iter()
                        .zip(&expected)
                        .position(|(found, expected)| found != expected);
                    assert_eq!(
                        differs,
                        None,
                        "operation {operation}: {:?} for {:?}",
                        &found[..read],
                        &expected[..read]
                    );
                }
            }
        }
    }
    drop(flying);
    model
}

/// Stripes of a thread may have bytes of others between; only its own count.
fn merge(models: &[Vec<u8>]) -> Vec<u8> {
    let length = models.iter().map(Vec::len).max().unwrap_or(0);
    let threads = models.len() as u64;
    (0..length as u64)
        .map(|at| {
            let owner = if threads == 1 { 0 } else { (at / STRIPE % threads) as usize };
            models[owner].get(at as usize).copied().unwrap_or(0)
        })
        .collect()
}

fn check(threads: u64, rounds: u64, operations: usize) {
    let seed = support::seed();
    within(Duration::from_secs(100), "direct operations", move || {
        let directory = support::directory();
        let engine = engine();
        for round in 0..rounds {
            let path = directory.path().join(format!("{round}"));
            let file = engine.open_direct(&path, &how::create()).unwrap();
            if round % 2 == 1 {
                file.set_len(20_001).wait().unwrap();
            }
            let seed = seed ^ round << 20;
            let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
                let file = &file;
                let start =
                    |thread| scope.spawn(move || run(file, seed, thread, threads, operations));
                let running: Vec<_> = (0..threads).map(start).collect();
                running.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            file.sync_data().wait().unwrap();
            let mut expected = merge(&models);
            if round % 2 == 1 {
                expected.resize(expected.len().max(20_001), 0);
            }
            assert_eq!(file.len(), expected.len() as u64);
            file.close().wait().unwrap();
            assert_on_disk(&path, &expected, "model");
        }
        let stats = engine.stats();
        println!("{stats:?}");
        assert!(stats.bounced > 0 && stats.syncs > 0);
    });
}

#[test]
fn contract_15_operations_of_one_thread_take_effect_in_order() {
    check(1, 4, 1500);
}

#[test]
fn contract_15_writes_into_parts_of_one_block_keep_each_others_bytes() {
    check(4, 4, 400);
}

#[test]
fn contract_16_thousands_of_futures_at_once() {
    within(Duration::from_secs(100), "a deep queue", || {
        let directory = support::directory();
        let path = directory.path().join("file");
        let engine = engine();
        let file = engine.open_direct(&path, &how::create()).unwrap();
        const PARTS: u64 = 6000;
        let part = |number: u64| pattern(number, 1000 + (number % 7) as usize * 8);
        let writes: Vec<_> =
            (0..PARTS).rev().map(|number| file.write_at(part(number), number * 1100)).collect();
        // A cached file is served beside them.
        let cached = engine.open(directory.path().join("cached"), &how::create()).unwrap();
        cached.write_at(&pattern(1, MIB as usize), 0).unwrap();
        cached.sync_data().unwrap();
        let reads: Vec<_> = (0..PARTS)
            .map(|number| file.read_at(vec![0; part(number).len()], number * 1100))
            .collect();
        for write in writes {
            assert!(block_on(write).0.unwrap() >= 1000);
        }
        for (number, read) in reads.into_iter().enumerate() {
            let (result, found) = block_on(read);
            assert_eq!(result.unwrap(), part(number as u64).len());
            assert!(found == part(number as u64), "part {number}");
        }
        file.close().wait().unwrap();
    });
}

/// Small appends, thousands at once and in order: one request moves the end at a time, and touching
/// ones go together.
#[test]
fn contract_08_a_file_that_grows_in_order() {
    within(Duration::from_secs(100), "growing", || {
        let directory = support::directory();
        let path = directory.path().join("file");
        let engine = engine();
        let file = engine.open_direct(&path, &how::create()).unwrap();
        let expected = pattern(5, 4 << 20);
        let writes: Vec<_> = expected
            .chunks(4096)
            .enumerate()
            .map(|(number, chunk)| file.write_at(chunk.to_vec(), number as u64 * 4096))
            .collect();
        for write in writes {
            assert_eq!(block_on(write).0.unwrap(), 4096);
        }
        assert_eq!(file.len(), 4 << 20);
        assert_on_disk(&path, &expected, "grown");
        println!("{:?}", engine.stats());
    });
}

#[test]
fn knobs_change_under_load() {
    let seed = support::seed();
    within(Duration::from_secs(100), "changing knobs", move || {
        let directory = support::directory();
        let engine = engine();
        let path = directory.path().join("file");
        let file = engine.open_direct(&path, &how::create()).unwrap();
        let is_over = AtomicBool::new(false);
        let model = std::thread::scope(|scope| {
            let (engine, file, is_over) = (&engine, &file, &is_over);
            scope.spawn(move || {
                let forms: [(&str, &[&str]); 7] = [
                    ("plug", &["never", "always", "adaptive"]),
                    ("merge", &["off", "on"]),
                    ("tags", &["single", "sweep"]),
                    ("clock", &["each", "batch"]),
                    ("doorbell", &["each", "batch"]),
                    ("completion", &["immediate", "delay=100"]),
                    ("order", &["lifo", "fifo"]),
                ];
                let mut random = Random::new(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let (name, values) = forms[random.below(7) as usize];
                    let value = values[random.below(values.len() as u64) as usize];
                    knobs::set(engine, name, value).unwrap();
                    std::thread::yield_now();
                }
            });
            let model = run(file, seed, 0, 1, 3000);
            is_over.store(true, Ordering::Relaxed);
            model
        });
        file.close().wait().unwrap();
        assert_on_disk(&path, &model, "whatever the policies");
    });
}
