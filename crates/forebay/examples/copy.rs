//! Copies a file of any size in bounded memory.
//!
//! Usage: `copy FROM TO`
//!
//! The engine holds at most 16 MiB of data. Both handles are `uncached`: a page leaves memory once
//! it has been read or written, so a large copy evicts nothing else. Reading runs ahead of the
//! writer, and the writer waits when the dirty limit is reached. The copy gets the times of the
//! original.

use std::time::Instant;

use forebay::{Engine, OpenOptions, Options, Times};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = arguments.as_slice() else { return Err("usage: copy FROM TO".into()) };

    let start = Instant::now();
    let engine = Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() })?;
    let source = engine.open(from, OpenOptions::new().read(true).uncached(true))?;
    let target = engine
        .open(to, OpenOptions::new().write(true).create(true).truncate(true).uncached(true))?;
    let copied = engine.copy(&source, &target)?;
    let metadata = source.metadata()?;
    target.set_times(Times {
        accessed: Some(metadata.accessed),
        modified: Some(metadata.modified),
    })?;
    // Reports every write error, and makes the copy and its times durable.
    target.sync_all()?;
    target.close()?;
    source.close()?;

    let (seconds, stats) = (start.elapsed().as_secs_f64(), engine.stats());
    println!("{copied} bytes in {seconds:.3} s, at most {} dirty", stats.peak_dirty_bytes);
    Ok(())
}
