//! Rates of two examples beside the same program on `std::fs` or `tokio::fs`.
//!
//! ```text
//! cargo run --release -p forebay --example beside -- DIRECTORY
//! ```
//!
//! Ten rounds run both forms in turn, with new files. The ratio is the median of the rounds, with
//! the second smallest and the second largest (98 % confidence); ~ means that 1 lies between them.

use std::error::Error;
use std::fs::File as Plain;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use forebay::{Engine, File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

/// Seconds, from the first write to the last sync.
type Seconds = Result<f64, Box<dyn Error>>;
type Form = fn(&Path) -> Seconds;

const ROUNDS: usize = 10;
const WRITERS: u64 = 64;
const RECORDS: u64 = 50;
const RECORD: [u8; 64] = [7; 64];

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: beside DIRECTORY")?;
    let directory = Path::new(&directory).join("beside");
    println!("{:12} {:>15} {:>15}  ratio", "example", "standard, per s", "forebay, per s");
    let cases: [(&str, [Form; 2]); 2] =
        [("many_stores", [plain_stores, stores]), ("service", [plain_service, service])];
    for (name, forms) in cases {
        let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for round in 0..ROUNDS {
            // Each form is first in every second round.
            for form in [round % 2, 1 - round % 2] {
                std::fs::create_dir(&directory)?;
                rates[form].push((WRITERS * RECORDS) as f64 / forms[form](&directory)?);
                std::fs::remove_dir_all(&directory)?;
            }
            ratios.push(rates[1][round] / rates[0][round]);
        }
        let [plain, ours] = rates.map(|mut of| median(&mut of));
        let (ratio, low, high) = (median(&mut ratios), ratios[1], ratios[ROUNDS - 2]);
        let mark = if low <= 1.0 && high >= 1.0 { "~" } else { "" };
        println!("{name:12} {plain:>15.0} {ours:>15.0}  {mark}{ratio:.2} [{low:.2}-{high:.2}]");
    }
    Ok(())
}

/// Sorts the values, and returns the median.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[ROUNDS / 2 - 1] + values[ROUNDS / 2]) / 2.0
}

fn plain_stores(directory: &Path) -> Seconds {
    let create = |number: u64| Plain::create(directory.join(number.to_string()));
    let files = (0..WRITERS).map(create).collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    for record in 0..RECORDS {
        let put =
            |file: &Plain| file.write_all_at(&RECORD, record * 64).and_then(|()| file.sync_data());
        // Eight threads, whose syncs share flushes of the device and commits of the journal.
        std::thread::scope(|scope| {
            let part = |part| scope.spawn(move || <[Plain]>::iter(part).try_for_each(put));
            let threads: Vec<_> = files.chunks(8).map(part).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a writer ends"))
        })?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn stores(directory: &Path) -> Seconds {
    let engine = Engine::new()?;
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    let open = |number: u64| engine.open(directory.join(number.to_string()), &options);
    let files = (0..WRITERS).map(open).collect::<forebay::Result<Vec<_>>>()?;
    let all: Vec<&File> = files.iter().collect();
    let start = Instant::now();
    for record in 0..RECORDS {
        all.iter().try_for_each(|file| file.write_at(&RECORD, record * 64))?;
        engine.sync_many(&all)?;
    }
    Ok(start.elapsed().as_secs_f64())
}

#[tokio::main(flavor = "current_thread")]
async fn plain_service(directory: &Path) -> Seconds {
    let (start, mut clients) = (Instant::now(), JoinSet::new());
    for _ in 0..WRITERS {
        let path = directory.join("log");
        clients.spawn(async move {
            let mut log = tokio::fs::File::options().append(true).create(true).open(path).await?;
            for _ in 0..RECORDS {
                log.write_all(&RECORD).await?;
                log.flush().await?;
                log.sync_data().await?;
            }
            std::io::Result::Ok(())
        });
    }
    clients.join_all().await.into_iter().collect::<Result<(), _>>()?;
    Ok(start.elapsed().as_secs_f64())
}

#[tokio::main(flavor = "current_thread")]
async fn service(directory: &Path) -> Seconds {
    let engine = Engine::new()?;
    let mut options = OpenOptions::new();
    let log = engine.open(directory.join("log"), options.append(true).create(true))?;
    let (log, start, mut clients) = (Arc::new(log), Instant::now(), JoinSet::new());
    for _ in 0..WRITERS {
        let log = log.clone();
        clients.spawn(async move {
            for _ in 0..RECORDS {
                log.asynchronous().append(&RECORD).await?;
                log.asynchronous().sync_data().await?;
            }
            forebay::Result::Ok(())
        });
    }
    clients.join_all().await.into_iter().collect::<Result<(), _>>()?;
    Ok(start.elapsed().as_secs_f64())
}
