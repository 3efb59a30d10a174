//! Copies a file of any size in bounded memory.
//!
//! Usage: `copy FROM TO`
//!
//! The engine holds at most 16 MiB of data. Both handles are `uncached`: a page leaves memory once
//! it has been read or written, so a large copy evicts nothing else. The copy has the times of the
//! original, and gets its name once it is durable: an error leaves TO as it was.
//!
//! 4.58 [3.87-5.15] times the rate of `std::fs` if the page cache is slow, as on that machine:
//! `copy` of `forebay compare programs`, results/programs-ext4.txt.

use std::path::Path;
use std::time::Instant;

use forebay::{Engine, OpenOptions, Options, Times};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = arguments.as_slice() else { return Err("usage: copy FROM TO".into()) };
    let temporary = Path::new(to).with_file_name(format!(".copy-{}", std::process::id()));

    let start = Instant::now();
    let engine = Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() })?;
    let source = engine.open(from, OpenOptions::new().read(true).uncached(true))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).temporary(true).uncached(true);
    let target = engine.open(&temporary, &options)?;
    let copy = || {
        let copied = engine.copy(&source, &target)?;
        let of = source.metadata()?;
        target.set_times(Times { accessed: Some(of.accessed), modified: Some(of.modified) })?;
        // Reports every write error, and makes the copy and its times durable.
        target.sync_all().map(|()| copied)
    };
    let copied = copy().inspect_err(|_| drop(std::fs::remove_file(&temporary)))?;
    target.close()?;
    std::fs::rename(&temporary, to)?;
    // The new name is durable once its directory is.
    let directory = Path::new(to).parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;

    let (seconds, stats) = (start.elapsed().as_secs_f64(), engine.stats());
    println!("{copied} bytes in {seconds:.3} s, at most {} dirty", stats.peak_dirty_bytes);
    Ok(source.close()?)
}
