//! Cost of a write of 4 KiB into a cached page, beside the `pwrite` of the kernel and a bare copy:
//! at random over the same bytes, all in memory and dirty. Rounds of all three in turn, so that a
//! change of the machine's speed hits all. The cost is processor time of the writing threads.
//!
//! ```text
//! cargo run --release -p forebay --example write_cost -- DIRECTORY [CACHE_MIB [THREADS [FILES]]]
//! ```
//!
//! By default one thread writes to one file over 2 MiB. With `CACHE_MIB` the bytes are an eighth of
//! the cache. Each thread writes to its own part of the files.

use std::fs::File as Plain;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use forebay::{Engine, File, OpenOptions, Options};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Of all threads together.
const WRITES: u64 = 200_000;
const ROUNDS: usize = 15;
/// Descriptors of the engine and of the program itself.
const DESCRIPTORS: u64 = 64;

fn main() -> forebay::Result<()> {
    let usage = "write_cost DIRECTORY [CACHE_MIB [THREADS [FILES]]]";
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect(usage);
    let mut number = || arguments.next().map(|text| text.parse::<u64>().expect(usage));
    let (cache, threads, files) = (number(), number().unwrap_or(1), number().unwrap_or(1));
    let pages = cache.map_or(2 * MIB, |mib| mib * MIB / 8) / PAGE;
    // Each thread has its own files if there are enough, and its own pages in any case.
    assert!(threads > 0 && files > 0 && pages >= files.max(threads), "{usage}");

    // Each file is open in the engine, and another one beside it.
    let needed = 2 * files + DESCRIPTORS;
    if let Some(limit) = getrlimit(Resource::Nofile).current.filter(|limit| *limit < needed) {
        eprintln!(
            "write_cost: {files} files need {needed} descriptors, and the limit is {limit}; raise \
             it with `ulimit -n {needed}`"
        );
        std::process::exit(2);
    }

    let directory = Path::new(&directory).join("write_cost");
    std::fs::create_dir(&directory).expect("a directory of its own");
    let engine = Engine::start(Options {
        cache_bytes: cache.map(|mib| mib * MIB),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    })?;
    let path = |kind: &str, file| directory.join(format!("{kind}{file}"));
    let open = |file| {
        engine.open(path("forebay", file), OpenOptions::new().read(true).write(true).create(true))
    };
    let ours: Vec<File> = (0..files).map(open).collect::<forebay::Result<_>>()?;
    let create = |file| Plain::create(path("plain", file)).expect("a directory to write to");
    let plain: Vec<Plain> = (0..files).map(create).collect();
    let mut memory = vec![0_u8; (pages * PAGE) as usize];
    let data = [7; PAGE as usize];

    // Page `n` of all is page `n / files` of file `n % files`.
    let place = |page: u64| ((page % files) as usize, page / files * PAGE);
    let mut costs = [Vec::new(), Vec::new(), Vec::new()];
    println!("{:>6} {:>10} {:>10} {:>10}", "round", "memcpy", "pwrite", "forebay");
    for round in 0..=ROUNDS {
        // The first round brings all memory in. The medians leave it out.
        let order = if round == 0 { Order::Once } else { Order::AtRandom };
        let part = memory.len() / threads as usize;
        let parts = memory.chunks_exact_mut(part).map(|part| {
            |page: u64| {
                let at = (page * PAGE) as usize % part.len();
                part[at..at + data.len()].copy_from_slice(black_box(&data));
            }
        });
        let copied = each(parts, pages / threads, order, |_, page| page);
        let write = |page| {
            let (file, offset) = place(page);
            plain[file].write_all_at(&data, offset).expect("a disk");
        };
        let shared = (0..threads).map(|_| write);
        let written = each(shared, pages / threads, order, |thread, page| page * threads + thread);
        let write = |page| {
            let (file, offset) = place(page);
            ours[file].write_at(&data, offset).expect("a disk");
        };
        let shared = (0..threads).map(|_| write);
        let accepted = each(shared, pages / threads, order, |thread, page| page * threads + thread);
        let name = if round == 0 { "fresh".to_owned() } else { round.to_string() };
        println!("{name:>6} {copied:>7.0} ns {written:>7.0} ns {accepted:>7.0} ns");
        if round > 0 {
            costs.iter_mut().zip([copied, written, accepted]).for_each(|(of, one)| of.push(one));
        }
    }
    let [copied, written, accepted] = costs.map(|mut of| {
        of.sort_by(f64::total_cmp);
        of[ROUNDS / 2]
    });
    println!("median {copied:>7.0} ns {written:>7.0} ns {accepted:>7.0} ns");
    ours.iter().try_for_each(|file| file.abandon_unwritten().map(drop))?;
    std::fs::remove_dir_all(&directory).expect("its own files go");
    Ok(())
}

#[derive(Clone, Copy)]
enum Order {
    /// Each page once.
    Once,
    AtRandom,
}

/// Returns the processor time of one of many writes, in nanoseconds. Each thread has a way to write
/// a page, and a part of the pages.
fn each<W: FnMut(u64) + Send>(
    writers: impl Iterator<Item = W>,
    pages: u64,
    order: Order,
    number: impl Fn(u64, u64) -> u64 + Sync,
) -> f64 {
    let writers: Vec<W> = writers.collect();
    let writes = match order {
        Order::Once => pages,
        Order::AtRandom => WRITES / writers.len() as u64,
    };
    let all = writes * writers.len() as u64;
    let write = |(thread, mut write): (usize, W)| {
        let mut random = thread as u64 + 1;
        let before = processor_time();
        for n in 0..writes {
            // Knuth's generator (The Art of Computer Programming 2, 3.3.4).
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let page = match order {
                Order::Once => n,
                Order::AtRandom => (random >> 32) % pages,
            };
            write(number(thread as u64, page));
        }
        processor_time() - before
    };
    let spent: u64 = std::thread::scope(|scope| {
        let begin = |writer| scope.spawn(|| write(writer));
        let running: Vec<_> = writers.into_iter().enumerate().map(begin).collect();
        running.into_iter().map(|thread| thread.join().expect("a writer")).sum()
    });
    spent as f64 / all as f64
}

/// Returns the processor time of this thread, in nanoseconds.
fn processor_time() -> u64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}
