//! Many small stores with one intent log: each commit is durable, and all of them share the writes
//! and the flushes of the log.
//!
//! ```text
//! cargo run --release --example many_databases -- DIRECTORY [STORES] [SECONDS] [ROUNDS]
//! ```
//!
//! Each of the stores (64) is a database of redb with a thread of its own, which commits 5 records
//! again and again for some seconds (5). A round (3 of them) runs redb over its own storage, over
//! Forebay, and over Forebay with an intent log. Each line has the commits a second of all stores.
//! The last lines are the ratios to redb's own storage.
//!
//! The log is used where a flush of the disk takes 0.2 ms or more. After a crash, the next engine
//! with the log in DIRECTORY, or `forebay recover DIRECTORY`, brings the stores into place. Before
//! that nobody may open them.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use forebay::{Engine, Options};
use forebay_redb::Backend;
use redb::{Database, TableDefinition};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");

const WAYS: [&str; 3] = ["std", "forebay", "forebay-log"];

/// Records of a commit, and commits before the clock starts.
const COMMIT: u64 = 5;
const WARM: u64 = 8;

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("DIRECTORY is missing")?;
    let mut number = |usual| arguments.next().map_or(Ok(usual), |given| given.parse::<u64>());
    let (stores, seconds, rounds) = (number(64)?, number(5)?, number(3)?);
    if stores == 0 || seconds == 0 || rounds == 0 {
        return Err("STORES, SECONDS and ROUNDS begin at 1".into());
    }
    let mut totals = [0.0; WAYS.len()];
    for round in 0..rounds {
        for (way, total) in WAYS.iter().zip(&mut totals) {
            let rate = run(directory.as_ref(), way, stores, Duration::from_secs(seconds))?;
            println!("round {round}: {way:12} {rate:8.0} commits/s");
            *total += rate;
        }
    }
    for (way, total) in WAYS.iter().zip(totals).skip(1) {
        println!("{way}: {:.2} times std", total / totals[0]);
    }
    Ok(())
}

/// Runs all stores in a directory of their own. Returns their commits a second.
fn run(directory: &Path, way: &str, stores: u64, time: Duration) -> Result<f64, Failed> {
    let directory = directory.join(way);
    fs::create_dir(&directory)?;
    let builder = Engine::builder(Options { cache_bytes: Some(256 << 20), ..Options::default() });
    let engine = match way {
        "forebay" => Some(builder.build()?),
        "forebay-log" => Some(builder.intent_log(&directory).build()?),
        _ => None,
    };
    let mut databases = Vec::new();
    for store in 0..stores {
        let path = directory.join(format!("store{store:03}"));
        let mut builder = Database::builder();
        builder.set_cache_size(4 << 20);
        let database = match &engine {
            Some(engine) => builder.create_with_backend(Backend::open(engine, &path)?)?,
            None => builder.create(&path)?,
        };
        for turn in 0..WARM {
            commit(&database, turn)?;
        }
        databases.push(database);
    }
    let begin = Instant::now();
    let commits = thread::scope(|scope| {
        let each = |database| {
            scope.spawn(move || {
                let mut turn = WARM;
                while begin.elapsed() < time {
                    commit(database, turn)?;
                    turn += 1;
                }
                Ok::<_, Failed>(turn - WARM)
            })
        };
        let threads: Vec<_> = databases.iter().map(each).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("no store panics"));
        ended.sum::<Result<u64, Failed>>()
    })?;
    let rate = commits as f64 / begin.elapsed().as_secs_f64();
    // Closes the files, which brings everything into place.
    drop(databases);
    if let Some(engine) = engine {
        engine.shutdown(Duration::from_secs(60))?;
    }
    fs::remove_dir_all(&directory)?;
    Ok(rate)
}

fn commit(database: &Database, turn: u64) -> Result<(), Failed> {
    let write = database.begin_write()?;
    let mut table = write.open_table(TABLE)?;
    for record in turn * COMMIT..(turn + 1) * COMMIT {
        // Neighbours in time are not neighbours in the tree.
        let key = record.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        table.insert(key, &[record as u8; 100][..])?;
    }
    drop(table);
    Ok(write.commit()?)
}
