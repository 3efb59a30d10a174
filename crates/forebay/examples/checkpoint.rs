//! Writes a checkpoint from several threads and replaces the last one atomically.
//!
//! Usage: `checkpoint FILE [MIB [THREADS]]`
//!
//! After a crash at any point, FILE holds the old checkpoint or the new one, whole. Declaring the
//! length first is the fast path: no write then moves the end of the file. The directory is synced
//! after the rename, because a rename is durable only then. For a checkpoint of many files see
//! `Batch::ordered`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use forebay::{Engine, OpenOptions};

const CHUNK: u64 = 4 << 20;

/// Fills a chunk with its own offset, so that a reader can check it.
fn chunk_at(offset: u64) -> Vec<u8> {
    offset.to_le_bytes().repeat(CHUNK as usize / 8)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("usage: checkpoint FILE [MIB [THREADS]]")?);
    let mib: u64 = arguments.next().map_or(Ok(256), |number| number.parse())?;
    let threads: u64 = arguments.next().map_or(Ok(4), |number| number.parse())?;
    // Not a longer form of its name, which may be as long as the file system allows.
    let temporary = path.with_file_name(format!(".checkpoint-{}", std::process::id()));
    let length = (mib << 20).next_multiple_of(CHUNK);

    let start = Instant::now();
    let engine = Engine::new()?;
    // A process of the same number may have died with it.
    let _ = std::fs::remove_file(&temporary);
    let file =
        engine.open(&temporary, OpenOptions::new().write(true).create_new(true).temporary(true))?;
    file.set_len(length)?;
    std::thread::scope(|scope| {
        let (file, step) = (&file, CHUNK * threads);
        let write = move |first| {
            let mut offsets = (first..length).step_by(step as usize);
            offsets.try_for_each(|offset| file.write_at(&chunk_at(offset), offset))
        };
        let writers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || write(thread * CHUNK))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap())
    })?;
    file.sync_data()?;
    file.close()?;
    std::fs::rename(&temporary, &path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;

    let seconds = start.elapsed().as_secs_f64();
    println!("{} MiB durable in {seconds:.3} s", length >> 20);
    Ok(())
}
