//! Measures what the disk under a directory charges, in at most 3 s, unless a single request
//! takes longer, and [`MOST_BYTES`].
//!
//! A file without a name is written in full, so that nothing is allocated later. Then it is
//! overwritten past the page cache: in large requests, in small ones at random places, and in small
//! ones with a flush each. The rates are those of overwriting, the cheapest kind of write. The
//! first requests of each part are not counted: a disk may have saved credit.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay::intent_log::LOG_FLUSH;
use forebay_block::random::Random;
use forebay_cache::price::Price;
use forebay_uring::AlignedMemory;
use serde::{Deserialize, Serialize};

/// Bytes that a measurement writes.
pub const MOST_BYTES: u64 = FILE_BYTES + LARGE_BYTES + SMALL_BYTES;

/// Bytes of the file, and those that are overwritten in large and in small requests.
const FILE_BYTES: u64 = 16 << 20;
const LARGE_BYTES: u64 = 32 << 20;
const SMALL_BYTES: u64 = 16 << 20;

const LARGE: usize = 1 << 20;
const SMALL: usize = 4096;

/// Requests in flight: large ones reach the bandwidth of a disk with few, small ones need many.
const LARGE_IN_FLIGHT: u64 = 4;
const SMALL_IN_FLIGHT: u64 = 32;

/// Time for each part, and flushes that are enough.
const PART_TIME: Duration = Duration::from_millis(600);
const FLUSHES: usize = 200;

const _: () = assert!(MOST_BYTES <= 64 << 20, "a measurement writes 64 MiB at most");

/// Threads for an estimate of what an intent log is worth.
const LOG_THREADS: f64 = 32.0;

/// How many times as dear or as cheap a disk has to be at the end to be called another one. Rates
/// of a disk that others use drift by two within an hour.
const ANOTHER: f64 = 3.0;

/// A price as it is saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub requests_per_s: u64,
    pub bytes_per_s: u64,
    pub flush_us: u64,
}

impl Measured {
    /// Returns it in words: `this disk: about 3,000 requests/s, ...`.
    pub fn line(&self) -> String {
        format!("this disk: {}", self.price())
    }

    /// Returns what an intent log can be worth here, for threads that each sync small writes to
    /// files of their own. `None` where a flush is too cheap for a log.
    ///
    /// Without a log each sync is two requests, and the kernel merges flushes of threads that wait.
    /// With a log all that wait share a write and a flush, and each block is written twice.
    pub fn worth_of_log(&self) -> Option<String> {
        if u128::from(self.flush_us) < LOG_FLUSH.as_micros() {
            return None;
        }
        let (requests, flush) = (self.requests_per_s.max(1) as f64, self.flush_us as f64 / 1e6);
        let blocks = LOG_THREADS * 2.0 * SMALL as f64 / self.bytes_per_s.max(1) as f64;
        let without = (requests / 2.0).min(LOG_THREADS / (flush + 1.0 / requests));
        let with = LOG_THREADS / (flush + 2.0 / requests + blocks);
        let times = with / without;
        (times >= 1.5).then(|| {
            format!(
                "an intent log can make the small syncs of {LOG_THREADS} threads about {times:.0} \
                 times as fast here (docs/intent-log.md)"
            )
        })
    }

    fn price(&self) -> Price {
        Price {
            requests_per_second: self.requests_per_s,
            bytes_per_second: self.bytes_per_s,
            flush: Duration::from_micros(self.flush_us),
        }
    }

    /// Returns what to say of a disk that charges something else at the end than at the beginning.
    pub fn changed(&self, end: &Self) -> Option<String> {
        let pairs = [
            (self.requests_per_s, end.requests_per_s),
            (self.bytes_per_s, end.bytes_per_s),
            (self.flush_us, end.flush_us),
        ];
        let is_another = pairs.iter().any(|&(before, after)| {
            let (before, after) = (before.max(1) as f64, after.max(1) as f64);
            (after / before).max(before / after) >= ANOTHER
        });
        is_another.then(|| {
            format!(
                "the disk charges something else at the end: {}. Each figure is a mixture; run it \
                 again",
                end.price()
            )
        })
    }
}

impl From<Price> for Measured {
    fn from(price: Price) -> Self {
        let Price { requests_per_second, bytes_per_second, flush } = price;
        Self {
            requests_per_s: requests_per_second,
            bytes_per_s: bytes_per_second,
            flush_us: u64::try_from(flush.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// Measures the price of the disk under a directory. Blocks.
///
/// # Errors
/// The reason in a few words: no direct I/O, no space, no right to write.
pub fn measure(directory: &Path) -> io::Result<Price> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE | libc::O_DIRECT)
        .open(directory)
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("no file past the page cache can be made: {error}"),
            )
        })?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, FILE_BYTES)
        .or_else(|_| rustix::fs::ftruncate(&file, FILE_BYTES))?;
    // Also a disk that is too slow for all of it has a price.
    let (_, written) = overwrite(&file, LARGE, LARGE_IN_FLIGHT, FILE_BYTES, FILE_BYTES)?;
    if written == 0 {
        return Err(io::Error::other("the disk wrote nothing in time"));
    }
    file.sync_all()?;
    let (large, _) = overwrite(&file, LARGE, LARGE_IN_FLIGHT, written, LARGE_BYTES)?;
    let (small, _) = overwrite(&file, SMALL, SMALL_IN_FLIGHT, written, SMALL_BYTES)?;
    Ok(Price {
        requests_per_second: small.max(1),
        bytes_per_second: (large * LARGE as u64).max(1),
        flush: flush(&file)?,
    })
}

/// Overwrites the first `length` bytes in requests of `size` bytes: in order if they are large, at
/// random else. Returns requests per second, and the end of the bytes that were written in order.
fn overwrite(
    file: &File,
    size: usize,
    in_flight: u64,
    length: u64,
    most_bytes: u64,
) -> io::Result<(u64, u64)> {
    let (start, most, places) = (Instant::now(), most_bytes / size as u64, length / size as u64);
    let (begun, ends) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let write_some = |seed: u64| -> io::Result<()> {
        let (mut memory, mut random) = (AlignedMemory::new(size), Random::new(seed));
        memory.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        while start.elapsed() < PART_TIME {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            if number >= most {
                break;
            }
            let place = if size >= LARGE { number % places } else { random.below(places) };
            file.write_all_at(&memory, place * size as u64)?;
            ends.lock().expect("no panic holds it").push(Instant::now());
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let write_some = &write_some;
        let writers = (0..in_flight).map(|seed| scope.spawn(move || write_some(seed)));
        let writers: Vec<_> = writers.collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))
    })?;
    let mut ends = ends.into_inner().expect("no panic holds it");
    ends.sort_unstable();
    // In a file of few bytes there are still some to count.
    let uncounted = in_flight.min(most / 4) as usize;
    let (counted, from) = match uncounted {
        1.. if ends.len() > uncounted => (ends.len() - uncounted, ends[uncounted - 1]),
        // The disk is so slow that each one counts.
        _ => (ends.len(), start),
    };
    let within = ends.last().map_or(Duration::ZERO, |last| *last - from);
    let rate = counted as f64 / within.as_secs_f64().max(1e-9);
    Ok((rate as u64, places.min(ends.len() as u64) * size as u64))
}

/// Returns the median duration of a flush after a small write.
fn flush(file: &File) -> io::Result<Duration> {
    let (start, memory) = (Instant::now(), AlignedMemory::new(SMALL));
    let mut times = Vec::new();
    while times.is_empty() || times.len() < FLUSHES && start.elapsed() < PART_TIME {
        file.write_all_at(&memory, 0)?;
        let flushing = Instant::now();
        file.sync_data()?;
        times.push(flushing.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_the_build_has_a_price() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let start = Instant::now();
        match measure(directory.path()) {
            Ok(price) => {
                println!("{price}, measured in {:?}", start.elapsed());
                assert!(price.requests_per_second > 10 && price.bytes_per_second > 1_000_000);
            }
            Err(error) => println!("skipped: {error}"),
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_disk_that_charges_something_else_at_the_end_is_reported() {
        let before = Measured { requests_per_s: 3000, bytes_per_s: 125_000_000, flush_us: 1100 };
        let drifted = Measured { requests_per_s: 1500, bytes_per_s: 250_000_000, flush_us: 2000 };
        assert_eq!(before.changed(&before), None);
        assert_eq!(before.changed(&drifted), None, "disks drift by a factor of two");
        for after in [
            Measured { requests_per_s: 1000, ..before },
            Measured { bytes_per_s: 375_000_000, ..before },
            Measured { flush_us: 0, ..before },
        ] {
            for (before, after) in [(before, after), (after, before)] {
                let note = before.changed(&after).unwrap();
                assert!(note.contains(after.line().trim_start_matches("this disk: ")), "{note}");
            }
        }
    }

    #[test]
    fn a_log_is_worth_something_where_flushes_or_requests_are_dear() {
        let of = |requests_per_s, bytes_per_s, flush_us| {
            Measured { requests_per_s, bytes_per_s, flush_us }.worth_of_log()
        };
        assert_eq!(of(46_000, 1_800_000_000, 129), None);
        let volume = of(3000, 125_000_000, 1100).unwrap();
        assert!(volume.contains("32 threads about 6 times as fast"), "{volume}");
        // The kernel merges their flushes already.
        assert_eq!(of(400_000, 2_000_000_000, 2000), None);
    }

    #[test]
    fn a_file_system_in_memory_has_none() {
        // tmpfs has direct I/O since Linux 6.6, in name.
        if let Err(error) = measure(Path::new("/proc")) {
            assert!(error.to_string().contains("no file past the page cache"), "{error}");
        }
    }
}
