//! Writes a checkpoint from several threads and replaces the last one atomically.
//!
//! Usage: `checkpoint [FILE [MIB [THREADS]]]`; FILE is in the temporary directory by default.
//!
//! After an error or a crash, FILE holds the old checkpoint or the new one, whole. For many files
//! see `Batch::ordered`.
//!
//! No difference to the best form on the kernel is shown, ~0.84 [0.67-1.10]: `forebay-declared` of
//! the job `C-6-one-directory-sequential`, results/writeback-ways-ext4.txt.

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
    let path = arguments.next().map_or(std::env::temp_dir().join("checkpoint"), PathBuf::from);
    let mib: u64 = arguments.next().map_or(Ok(256), |number| number.parse())?;
    let threads: u64 = arguments.next().map_or(Ok(4), |number| number.parse())?;
    let temporary = path.with_file_name(format!(".checkpoint-{}", std::process::id()));
    let length = (mib << 20).next_multiple_of(CHUNK);
    let start = Instant::now();
    let engine = Engine::new()?;
    // A process of the same number may have left it.
    let _ = std::fs::remove_file(&temporary);
    let file =
        engine.open(&temporary, OpenOptions::new().write(true).create_new(true).temporary(true))?;
    // The fast path: no write moves the end of the file.
    file.set_len(length)?;
    let written = std::thread::scope(|scope| {
        let (file, step) = (&file, CHUNK * threads);
        let write = move |first| {
            let mut offsets = (first..length).step_by(step as usize);
            offsets.try_for_each(|offset| file.write_at(&chunk_at(offset), offset))
        };
        let writers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || write(thread * CHUNK))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap())
    });
    // After any error, a full disk or a failed flush, the old checkpoint stays.
    let durable = written.and_then(|()| file.sync_data());
    durable.inspect_err(|_| drop(std::fs::remove_file(&temporary)))?;
    file.close()?;
    std::fs::rename(&temporary, &path)?;
    // A rename is durable once the directory is.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;

    println!("{} MiB durable in {:.3} s", length >> 20, start.elapsed().as_secs_f64());
    Ok(())
}
