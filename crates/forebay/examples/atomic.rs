//! Changes three files together, all or none, and compares the cost with other ways that make the
//! same bytes durable, but can leave a part of them after a crash.
//!
//! ```text
//! cargo run --release --example atomic -- [DIRECTORY] [CALLS]
//! ```
//!
//! Prints the mean time of a call, in microseconds. The directory is `.` by default.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay::{Engine, File, OpenOptions, Options};

/// File, offset and length.
const RANGES: [(usize, u64, usize); 7] = [
    (0, 0, 4096),
    (0, 40_960, 4096),
    (0, 81_920, 8192),
    (1, 0, 4096),
    (1, 20_480, 512),
    (2, 8192, 4096),
    (2, 65_536, 100),
];

const FILES: [&str; 3] = ["table", "index", "journal"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| ".".to_owned());
    let calls: u64 = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let directory = tempfile::tempdir_in(directory)?;
    let data = [7; 8192];

    let engine = |log: bool| {
        let builder = Engine::builder(Options::default());
        if log { builder.intent_log(directory.path()) } else { builder }.build()
    };
    let with_log = engine(true)?;
    let files = open(&with_log, directory.path())?;
    let writes = RANGES.map(|(file, offset, length)| (&files[file], offset, &data[..length]));
    // The first one gives the files their marks.
    with_log.atomic(&writes)?;
    print("Engine::atomic", time(calls, || Ok(with_log.atomic(&writes)?))?);
    let written = with_log.stats().log_batches;
    let sync = || -> Result<(), Box<dyn std::error::Error>> {
        for (file, offset, data) in &writes {
            file.write_at(data, *offset)?;
        }
        Ok(with_log.sync_many(&files.each_ref())?)
    };
    print("write_at, sync_many, intent log", time(calls, sync)?);
    assert!(written >= calls, "each call is a batch of the log");
    files.into_iter().try_for_each(File::close)?;
    with_log.shutdown(Duration::from_secs(60))?;

    let without = engine(false)?;
    let files = open(&without, directory.path())?;
    let sync = || -> Result<(), Box<dyn std::error::Error>> {
        for (file, offset, length) in RANGES {
            files[file].write_at(&data[..length], offset)?;
        }
        Ok(without.sync_many(&files.each_ref())?)
    };
    print("write_at, sync_many, no log", time(calls, sync)?);
    files.into_iter().try_for_each(File::close)?;
    without.shutdown(Duration::from_secs(60))?;

    let open = |name| fs::File::options().write(true).open(directory.path().join(name));
    let files = [open(FILES[0])?, open(FILES[1])?, open(FILES[2])?];
    let sync = || -> Result<(), Box<dyn std::error::Error>> {
        for (file, offset, length) in RANGES {
            files[file].write_all_at(&data[..length], offset)?;
        }
        Ok(files.iter().try_for_each(fs::File::sync_data)?)
    };
    print("std: write_all_at, sync_data of each", time(calls, sync)?);
    Ok(())
}

fn open(engine: &Engine, directory: &Path) -> forebay::Result<[File; 3]> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let open = |name| engine.open(directory.join(name), &options);
    Ok([open(FILES[0])?, open(FILES[1])?, open(FILES[2])?])
}

fn time(
    calls: u64,
    mut call: impl FnMut() -> Result<(), Box<dyn std::error::Error>>,
) -> Result<Duration, Box<dyn std::error::Error>> {
    // The first calls of a way are not like the others.
    (0..5).try_for_each(|_| call())?;
    let begin = Instant::now();
    (0..calls).try_for_each(|_| call())?;
    Ok(begin.elapsed() / u32::try_from(calls)?)
}

fn print(way: &str, time: Duration) {
    println!("{way:40} {:8.1} us", time.as_secs_f64() * 1e6);
}
