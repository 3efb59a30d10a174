//! Direct handles whose completions are polled for. The test of a device that polls runs in a
//! guest: `tools/kernel-tests --module "nvme poll_queues=2" -- -p forebay --test polled`.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use forebay::{DirectFile, Engine, ErrorKind, Open};
use forebay_block::random::Random;
use support::{assert_on_disk, kind_of, pattern, seed, skip};

const SOON: Duration = Duration::from_secs(60);
const THREADS: usize = 4;
const PART: usize = 256 << 10;
/// Bytes of the file, once all parts are written.
const MIB: usize = THREADS * PART;

fn engine() -> Engine {
    Engine::builder().cache_bytes(8 << 20).close_timeout(SOON).build().unwrap()
}

fn write(file: &DirectFile, data: &[u8], offset: u64) {
    assert_eq!(file.write_at(data.to_vec(), offset).0.unwrap(), data.len());
}

fn read(file: &DirectFile, length: usize, offset: u64) -> Vec<u8> {
    let (result, mut data) = file.read_at(vec![0xee; length], offset);
    data.truncate(result.unwrap());
    data
}

/// Interrupts of NVMe queues since the machine started.
fn interrupts() -> u64 {
    let table = fs::read_to_string("/proc/interrupts").unwrap();
    let lines = table.lines().filter(|line| line.contains("nvme"));
    let words = lines.flat_map(str::split_whitespace);
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[test]
fn contract_17_a_refusal_says_why_and_what_to_do() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine();
    match engine.open_direct(&path, Open::create().polled(true)) {
        Ok(file) => assert_eq!(file.describe(), "direct, polled"),
        Err(error) => {
            println!("{error}");
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(text.contains("cannot poll") && text.contains("Open::polled"), "{text}");
        }
    }
    // The handle that was refused holds nothing.
    let file = engine.open_direct(&path, Open::create()).unwrap();
    assert!(file.is_empty());
    file.close().unwrap();
    let cached = engine.open(&path, Open::create().polled(true));
    assert_eq!(kind_of(cached), ErrorKind::InvalidInput);
    let pool = Engine::builder().set("engine", "threads").unwrap().build().unwrap();
    let other = directory.path().join("other");
    let error = pool.open_direct(&other, Open::create().polled(true)).unwrap_err();
    assert!(error.to_string().contains("set the knob `engine`"), "{error}");
}

/// Random reads and writes of any alignment in one part of the file, some of them together and some
/// with futures that are dropped, against a copy in memory.
fn verify(engine: &Engine, file: &DirectFile, seed: u64, start: u64, rounds: u64) {
    let mut random = Random::new(seed);
    let mut model = vec![0; PART];
    write(file, &model, start);
    for round in 0..rounds {
        let length = 1 + random.below(16 << 10) as usize;
        let mut at = random.below((PART - length) as u64) as usize;
        let mut length = length;
        if round % 2 == 0 {
            (at, length) = (at / 4096 * 4096, length.next_multiple_of(4096).min(PART));
            length = length.min(PART - at);
        }
        let offset = start + at as u64;
        match random.below(4) {
            0 => assert!(read(file, length, offset) == model[at..at + length], "round {round}"),
            1 => {
                let data = pattern(seed ^ round, length);
                model[at..at + length].copy_from_slice(&data);
                drop(file.write_at_async(data, offset));
            }
            2 => {
                let plug = engine.plug();
                let reads: Vec<_> = (0..8)
                    .map(|page| file.read_at_async(vec![0; 4096], start + page * 4096))
                    .collect();
                drop(plug);
                for (page, read) in reads.into_iter().enumerate() {
                    let (result, data) = read.wait();
                    assert_eq!(result.unwrap(), 4096);
                    assert!(data == model[page * 4096..][..4096], "round {round}");
                }
            }
            _ => {
                let data = pattern(seed ^ round, length);
                model[at..at + length].copy_from_slice(&data);
                write(file, &data, offset);
            }
        }
        if round % 50 == 49 {
            file.sync_data().unwrap();
        }
    }
    assert!(read(file, PART, start) == model);
}

fn loaded(engine: &Engine, file: &DirectFile, beside: &Path) {
    let (seed, stop) = (seed(), AtomicBool::new(false));
    thread::scope(|scope| {
        // A cached file in the same engine, whose writes and flushes use the ordinary ring.
        let cached = scope.spawn(|| {
            let cached = engine.open(beside, Open::create()).unwrap();
            let mut syncs = 0;
            while !stop.load(Ordering::Relaxed) || syncs < 3 {
                cached.write_at(&pattern(syncs, 10_000), syncs * 10_000).unwrap();
                cached.sync_data().unwrap();
                syncs += 1;
            }
            cached.close().unwrap();
            syncs
        });
        let parts: Vec<_> = (0..THREADS as u64)
            .map(|part| {
                let start = part * PART as u64;
                scope.spawn(move || verify(engine, file, seed ^ part, start, 100))
            })
            .collect();
        parts.into_iter().for_each(|part| part.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        println!("syncs of the cached file meanwhile: {}", cached.join().unwrap());
    });
}

/// The queues for polling of an NVMe device, which a reset takes away and gives back.
struct Queues(PathBuf);

impl Queues {
    fn set(&self, number: &str) -> std::io::Result<()> {
        fs::write("/sys/module/nvme/parameters/poll_queues", number)?;
        fs::write(self.0.join("device/reset_controller"), "1")
    }
}

#[test]
fn contract_13_a_device_that_polls_serves_a_mixed_load() {
    const TEST: &str = "contract_13_a_device_that_polls_serves_a_mixed_load";
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = engine();
    let file = match engine.open_direct(&path, Open::create().polled(true)) {
        Ok(file) => file,
        Err(error) => return skip(TEST, &error.to_string()),
    };
    // Grows while it is written, then is written in place.
    for _ in 0..2 {
        loaded(&engine, &file, &directory.path().join("cached"));
    }
    assert_eq!(file.describe(), "direct, polled", "nothing was refused");
    // Another handle of the file is polled, too.
    let second = engine.open_direct(&path, Open::read()).unwrap();
    assert_eq!(second.describe(), "direct, polled");

    let reads = 2000;
    let before = interrupts();
    let data = read(&second, MIB, 0);
    for at in 0..reads {
        let page = at % 200 * 4096;
        assert!(read(&second, 4096, page) == data[page as usize..][..4096]);
    }
    let polled = interrupts() - before;
    println!("{reads} polled reads: {polled} interrupts of the device");
    assert!(polled < reads / 4, "{polled} interrupts");
    second.close().unwrap();

    // Operations in flight at the close: it waits for them, and polls.
    let data = pattern(9, MIB);
    for (at, part) in data.chunks(64 << 10).enumerate() {
        drop(file.write_at_async(part.to_vec(), (at * (64 << 10)) as u64));
    }
    file.close().unwrap();
    assert_on_disk(&path, &data, "closed");

    // The last close ends polling.
    let file = engine.open_direct(&path, Open::write()).unwrap();
    assert_eq!(file.describe(), "direct");
    file.close().unwrap();

    // And dropped with all in flight.
    let file = engine.open_direct(&path, Open::write().polled(true)).unwrap();
    let reads: Vec<_> = (0..64).map(|at| file.read_at_async(vec![0; 4096], at * 4096)).collect();
    drop(reads);
    engine.shutdown(SOON).unwrap();
    assert_eq!(kind_of(file.read_at(vec![0; 4096], 0).0), ErrorKind::Shutdown);
    drop((file, engine));
    going_queues(&path, &data);
}

/// The device loses its queues for polling: operations go on without.
fn going_queues(path: &Path, data: &[u8]) {
    const TEST: &str = "the device loses its queues for polling";
    let queues = Queues("/sys/block/nvme0n1".into());
    let engine = engine();
    let file = engine.open_direct(path, Open::write().polled(true)).unwrap();
    assert!(read(&file, MIB, 0) == data);
    if let Err(error) = queues.set("0") {
        return skip(TEST, &error.to_string());
    }
    for round in 0..20 {
        let part = pattern(round, 8192);
        write(&file, &part, round * 8192);
        assert!(read(&file, 8192, round * 8192) == part);
    }
    println!("without queues for polling: {}", file.describe());
    let setting = fs::read_to_string(queues.0.join("queue/io_poll")).unwrap();
    file.close().unwrap();
    if setting.trim() == "0" {
        let error = engine.open_direct(path, Open::write().polled(true)).unwrap_err();
        assert!(error.to_string().contains("io_poll is not 1"), "{error}");
    }
    queues.set("2").unwrap();
}
