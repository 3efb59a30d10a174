//! Appends records from many threads and makes them durable in groups.
//!
//! Usage: `log FILE [THREADS [RECORDS]]`, with RECORDS per thread.
//!
//! Each thread waits until its own record is durable before it sends the next one. One thread at a
//! time syncs; a sync covers every record appended before it started, so threads that arrive while
//! one runs share the next.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use forebay::{Engine, File, OpenOptions, Result};

/// A file whose bytes below `durable` are durable.
struct Log {
    file: File,
    durable: AtomicU64,
    syncing: Mutex<()>,
}

impl Log {
    /// Appends a record and returns once it is durable.
    fn commit(&self, record: &[u8]) -> Result<()> {
        let end = self.file.append(record)? + record.len() as u64;
        let _one = self.syncing.lock().unwrap();
        if self.durable.load(Ordering::Acquire) < end {
            let covered = self.file.len()?;
            self.file.sync_data()?;
            self.durable.store(covered, Ordering::Release);
        }
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: log FILE [THREADS [RECORDS]]")?;
    let threads: u64 = arguments.next().map_or(Ok(8), |number| number.parse())?;
    let records: u64 = arguments.next().map_or(Ok(100), |number| number.parse())?;

    let engine = Engine::new()?;
    let file = engine.open(&path, OpenOptions::new().append(true).create(true))?;
    let log = Log { file, durable: AtomicU64::new(0), syncing: Mutex::new(()) };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let write = |thread| {
            (0..records).try_for_each(|number| {
                log.commit(format!("thread {thread} record {number}\n").as_bytes())
            })
        };
        let writers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || write(thread))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap())
    })?;
    let (total, stats) = (threads * records, engine.stats());
    println!("{total} records in {:.3} s, {} syncs", start.elapsed().as_secs_f64(), stats.syncs);
    log.file.close()?;
    Ok(())
}
