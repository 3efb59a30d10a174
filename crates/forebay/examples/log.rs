//! Appends records from many threads. Each thread waits until its own record is durable before it
//! sends the next one.
//!
//! Usage: `log FILE [THREADS [RECORDS]]`, with RECORDS per thread.
//!
//! A sync covers every record appended before it started. Threads that sync at the same time share
//! a flush, so there are fewer flushes than records.

use std::time::Instant;

use forebay::{Engine, File, OpenOptions, Result};

/// Appends a record and returns once it is durable. After an error the record may be there, in
/// part or as a whole.
fn commit(log: &File, record: &[u8]) -> Result<()> {
    log.append(record)?;
    log.sync_data()
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: log FILE [THREADS [RECORDS]]")?;
    let threads: u64 = arguments.next().map_or(Ok(8), |number| number.parse())?;
    let records: u64 = arguments.next().map_or(Ok(100), |number| number.parse())?;

    let engine = Engine::new()?;
    let log = engine.open(&path, OpenOptions::new().append(true).create(true))?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let write = |thread| {
            (0..records).try_for_each(|number| {
                commit(&log, format!("thread {thread} record {number}\n").as_bytes())
            })
        };
        let writers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || write(thread))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap())
    })?;
    let (total, stats) = (threads * records, engine.stats());
    println!(
        "{total} records in {:.3} s, {} flushes",
        start.elapsed().as_secs_f64(),
        stats.flushes
    );
    log.close()?;
    Ok(())
}
