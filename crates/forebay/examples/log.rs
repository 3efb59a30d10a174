//! A log of records with checksums. Each thread waits until its own record is durable.
//!
//! Usage: `log [FILE [THREADS [RECORDS]]]`; FILE is in the temporary directory by default.
//!
//! Threads that sync at the same time share a flush. A record starts with a new line, so a part of
//! one, left by an error or a crash, damages no other. 1.19 [1.15-1.24] times the rate of `std::fs`
//! with a group commit: `log-each` of `forebay compare programs`, results/programs-ext4.txt.

use std::time::{Duration, Instant};

use forebay::{Engine, ErrorKind, File, OpenOptions, Result};

/// Appends a record and returns once it is durable. After an error the record may be there.
fn commit(log: &File, record: &str) -> Result<()> {
    log.append(format!("\n{:08x} {record}", crc32c::crc32c(record.as_bytes())).as_bytes())?;
    for _ in 0..10 {
        match log.sync_data() {
            // The record stays in memory. Once there is space, a sync writes it.
            Err(error) if error.kind() == ErrorKind::NoSpace => eprintln!("waiting: {error}"),
            // After `Poisoned` no sync succeeds: end, start again and append the record anew.
            result => return result,
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    log.sync_data()
}

fn is_whole(line: &str) -> bool {
    let Some((sum, record)) = line.split_once(' ') else { return false };
    u32::from_str_radix(sum, 16) == Ok(crc32c::crc32c(record.as_bytes()))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().map_or(std::env::temp_dir().join("forebay.log"), Into::into);
    let threads: u64 = arguments.next().map_or(Ok(8), |number| number.parse())?;
    let records: u64 = arguments.next().map_or(Ok(100), |number| number.parse())?;

    let engine = Engine::new()?;
    let log = engine.open(&path, OpenOptions::new().read(true).append(true).create(true))?;
    // Records that a killed program wrote can be read, but may not be durable yet.
    log.sync_data()?;
    let mut content = vec![0; log.len()? as usize];
    log.read_exact_at(&mut content, 0)?;
    let content = String::from_utf8_lossy(&content);
    println!("{} old records", content.lines().filter(|line| is_whole(line)).count());
    let start = Instant::now();
    let write = &|thread: u64| {
        let mut records = (0..records).map(|number| format!("thread {thread} record {number}"));
        records.try_for_each(|record| commit(&log, &record))
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads).map(|n| scope.spawn(move || write(n))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap())
    })?;
    let (total, seconds) = (threads * records, start.elapsed().as_secs_f64());
    println!("{total} records in {seconds:.3} s, {} flushes", engine.stats().flushes);
    Ok(log.close()?)
}
