//! Durable puts: this store, and `LocalFileSystem` with `fsync`, in paired rounds.
//!
//! ```text
//! cargo run --release --example puts -- DIRECTORY [ROUNDS]
//! ```
//!
//! Each job puts objects for two seconds, from some tasks at once. Each cell has a directory of its
//! own, and nothing is removed: ext4 becomes slow for minutes after many removals. The result is a
//! table: puts per second, the 99th percentile of a put, and the geometric mean of the ratios of
//! the rounds, with the smallest and the largest.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::Engine;
use forebay_object_store::Store;
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};

const TIME: Duration = Duration::from_secs(2);

/// Name, bytes of an object, tasks.
const JOBS: [(&str, usize, usize); 3] = [
    ("16 KiB, 1 task", 16 << 10, 1),
    ("16 KiB, 32 tasks", 16 << 10, 32),
    ("1 MiB, 8 tasks", 1 << 20, 8),
];

/// Result of one job on one store.
#[derive(Clone, Copy, Debug)]
struct Cell {
    per_second: f64,
    p99_us: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("DIRECTORY is missing")?;
    let rounds: usize = arguments.next().map_or(Ok(4), |rounds| rounds.parse())?;
    println!("| puts of | `LocalFileSystem` | this store | ratio |\n|---|---|---|---|");
    for (job, (name, bytes, tasks)) in JOBS.into_iter().enumerate() {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let place = |arm: &str| {
                let path = Path::new(&directory).join(format!("{job}-{round}-{arm}"));
                std::fs::create_dir_all(&path).map(|()| path)
            };
            for arm in [round % 2, 1 - round % 2] {
                if arm == 0 {
                    let store = LocalFileSystem::new_with_prefix(place("local")?)?.with_fsync(true);
                    theirs.push(run(Arc::new(store), bytes, tasks).await?);
                } else {
                    let store = Store::new(Engine::new()?, place("forebay")?)?;
                    ours.push(run(Arc::new(store), bytes, tasks).await?);
                }
            }
        }
        println!("{}", row(name, &theirs, &ours));
    }
    Ok(())
}

async fn run(
    store: Arc<dyn ObjectStore>,
    bytes: usize,
    tasks: usize,
) -> Result<Cell, Box<dyn Error>> {
    let payload = PutPayload::from(vec![7; bytes]);
    let start = Instant::now();
    let putting: Vec<_> = (0..tasks)
        .map(|task| {
            let (store, payload) = (Arc::clone(&store), payload.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while start.elapsed() < TIME {
                    let begin = Instant::now();
                    let name = format!("{task}-{}", times.len()).into();
                    store.put(&name, payload.clone()).await?;
                    times.push(begin.elapsed());
                }
                Ok::<_, object_store::Error>(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in putting {
        times.extend(task.await??);
    }
    let per_second = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort_unstable();
    let p99_us = times[times.len() * 99 / 100].as_secs_f64() * 1e6;
    Ok(Cell { per_second, p99_us })
}

fn row(name: &str, theirs: &[Cell], ours: &[Cell]) -> String {
    let mean = |cells: &[Cell], of: fn(&Cell) -> f64| {
        cells.iter().map(of).sum::<f64>() / cells.len() as f64
    };
    let cell = |cells: &[Cell]| {
        let (rate, p99) = (mean(cells, |cell| cell.per_second), mean(cells, |cell| cell.p99_us));
        format!("{rate:.0}/s, p99 {:.1} ms", p99 / 1000.0)
    };
    let ratios: Vec<f64> =
        theirs.iter().zip(ours).map(|(theirs, ours)| ours.per_second / theirs.per_second).collect();
    let middle = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let (least, most) = ratios
        .iter()
        .fold((f64::MAX, 0.0_f64), |(least, most), ratio| (least.min(*ratio), most.max(*ratio)));
    format!(
        "| {name} | {} | {} | {middle:.2} ({least:.2} to {most:.2}) |",
        cell(theirs),
        cell(ours)
    )
}
