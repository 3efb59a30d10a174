//! Compares the cost of a write that stays in memory with a keeper and without: 4 KiB writes, at
//! random and in order, over the same 64 MiB, with no writeback in between. Rounds of both kinds
//! alternate, so that drift affects both. Also prints the memory and processor time that the keeper
//! took.
//!
//! ```text
//! cargo run --release -p forebay --example survive_cost -- DIRECTORY
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use forebay::{Engine, Keeper, OpenOptions, Options, keeper};

const PAGE: u64 = 4096;
const PAGES: u64 = (64 << 20) / PAGE;
/// Over all pages, each time.
const PASSES: u64 = 16;
const ROUNDS: usize = 10;

#[derive(Clone, Copy, PartialEq)]
enum Kept {
    No,
    Yes,
}

fn main() -> forebay::Result<()> {
    keeper::run_if_asked();
    let directory = std::env::args().nth(1).expect("survive_cost DIRECTORY");
    let path = Path::new(&directory).join("survive_cost");
    println!(
        "{:>6} {:>22} {:>22} {:>16}",
        "round", "at random (ns)", "in order (ns)", "without : with"
    );
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 1..=ROUNDS {
        // The order within a round alternates, too.
        let order = if round % 2 == 0 { [Kept::No, Kept::Yes] } else { [Kept::Yes, Kept::No] };
        let mut costs = [[0.0; 2]; 2];
        for kept in order {
            costs[usize::from(kept == Kept::Yes)] = one_round(&path, kept)?;
        }
        let [without, with] = costs;
        let ratio = [without[0] / with[0], without[1] / with[1]];
        println!(
            "{round:>6} {:>10.0} {:>11.0} {:>10.0} {:>11.0} {:>8.2} {:>7.2}",
            without[0], with[0], without[1], with[1], ratio[0], ratio[1]
        );
        ratios.iter_mut().zip(ratio).for_each(|(all, one)| all.push(one));
    }
    for (what, mut all) in ["at random", "in order"].into_iter().zip(ratios) {
        all.sort_by(f64::total_cmp);
        println!("speed with a keeper, of that without, {what}: median {:.3}", all[ROUNDS / 2]);
    }
    std::fs::remove_file(&path).expect("its own file goes");
    Ok(())
}

/// Returns the nanoseconds per write, at random and in order.
fn one_round(path: &Path, kept: Kept) -> forebay::Result<[f64; 2]> {
    let builder = Engine::builder(Options {
        cache_bytes: Some(256 << 20),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    });
    let engine = match kept {
        Kept::No => builder.build()?,
        Kept::Yes => builder.survive(Keeper::this_program()).build()?,
    };
    let file = engine.open(path, OpenOptions::new().read(true).write(true).create(true))?;
    let data = [7; PAGE as usize];
    // Each page once, so that all memory is there.
    (0..PAGES).try_for_each(|page| file.write_at(&data, page * PAGE))?;
    let mut random = 1_u64;
    let start = Instant::now();
    for _ in 0..PASSES * PAGES {
        // Knuth's generator (The Art of Computer Programming 2, 3.3.4).
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.write_at(&data, (random >> 32) % PAGES * PAGE)?;
    }
    let at_random = start.elapsed();
    let start = Instant::now();
    for _ in 0..PASSES {
        (0..PAGES).try_for_each(|page| file.write_at(&data, page * PAGE))?;
    }
    let in_order = start.elapsed();
    if let Some(process) = engine.keeper().and_then(|state| state.process) {
        report_keeper(process);
    }
    file.close()?;
    Ok([at_random, in_order].map(|took| took.as_nanos() as f64 / (PASSES * PAGES) as f64))
}

fn report_keeper(process: u32) {
    let read =
        |what: &str| std::fs::read_to_string(format!("/proc/{process}/{what}")).unwrap_or_default();
    let own = read("status")
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:").map(str::trim).map(str::to_owned));
    // Fields 14 and 15, in ticks: see proc(5).
    let ticks: Vec<String> = read("stat").split(' ').skip(13).take(2).map(str::to_owned).collect();
    eprintln!(
        "keeper: {} in memory, {} ticks of a processor",
        own.unwrap_or_default(),
        ticks.join("+")
    );
}
