//! A program that commits and is killed: the database opens, is whole, and has every commit that
//! had returned. With a keeper, and without.
//!
//! `FOREBAY_TEST_KILLS=N` kills N times each (default 5).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forebay::{Engine, ErrorKind, Keeper, Options, keeper};
use forebay_redb::Backend;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("table");

/// Records per commit.
const RECORDS: u64 = 20;

fn main() {
    // The keeper of a child is this program.
    keeper::run_if_asked();
    if let Some(path) = std::env::var_os("FOREBAY_REDB_CHILD") {
        return commit_for_ever(
            Path::new(&path),
            std::env::var_os("FOREBAY_REDB_KEEPER").is_some(),
        );
    }
    let kills = std::env::var("FOREBAY_TEST_KILLS").map_or(5, |kills| kills.parse().unwrap());
    for has_keeper in [false, true] {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        for kill in 0..kills {
            let committed = run_and_kill(&path, has_keeper, kill);
            let found = check(&path);
            assert!(
                found >= committed,
                "{found} commits are left of {committed} that had returned"
            );
        }
        println!("killed {kills} times, keeper: {has_keeper}: {} commits", check(&path));
    }
}

/// Commits numbers in order, and prints each once its commit has returned.
fn commit_for_ever(path: &Path, has_keeper: bool) {
    let builder = Engine::builder(Options { cache_bytes: Some(8 << 20), ..Options::default() });
    let engine = match has_keeper {
        true => builder.survive(Keeper::this_program()).build(),
        false => builder.build(),
    };
    let backend = Backend::open(&engine.unwrap(), path).unwrap();
    let database = Database::builder().create_with_backend(backend).unwrap();
    let mut output = std::io::stdout().lock();
    for commit in last(&database) + 1.. {
        // One without a sync before each durable one.
        for durability in [Durability::None, Durability::Immediate] {
            let mut write = database.begin_write().unwrap();
            write.set_durability(durability).unwrap();
            let mut table = write.open_table(TABLE).unwrap();
            for record in 0..RECORDS {
                let value = commit.wrapping_mul(record + 1).to_le_bytes().repeat(40);
                table.insert(commit * RECORDS + record, &value[..]).unwrap();
            }
            drop(table);
            write.commit().unwrap();
        }
        writeln!(output, "{commit}").unwrap();
        output.flush().unwrap();
    }
}

/// Returns the last commit that had returned.
fn run_and_kill(path: &Path, has_keeper: bool, kill: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.env("FOREBAY_REDB_CHILD", path).stdout(Stdio::piped());
    if has_keeper {
        child.env("FOREBAY_REDB_KEEPER", "1");
    }
    let mut child = child.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut committed: u64 = lines.next().unwrap().unwrap().parse().unwrap();
    let start = Instant::now();
    let time = Duration::from_millis(kill * 37 % 150);
    while start.elapsed() < time {
        committed = lines.next().unwrap().unwrap().parse().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // Those printed before the kill.
    for line in lines.map_while(Result::ok) {
        committed = line.parse().unwrap_or(committed);
    }
    committed
}

/// Opens the database, as the next start of the program does, and returns its last commit.
fn check(path: &Path) -> u64 {
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let start = Instant::now();
    let backend = loop {
        match Backend::open(&engine, path) {
            Ok(backend) => break backend,
            // The keeper is still writing.
            Err(error) if error.kind() == ErrorKind::Busy => {
                assert!(start.elapsed() < Duration::from_secs(30), "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    };
    let mut database = Database::builder().create_with_backend(backend).unwrap();
    assert!(database.check_integrity().unwrap(), "the database is not whole");
    let last = last(&database);
    let read = database.begin_read().unwrap();
    let table = read.open_table(TABLE).unwrap();
    for commit in 1..=last {
        for record in 0..RECORDS {
            let value = table.get(commit * RECORDS + record).unwrap();
            let value = value.unwrap_or_else(|| panic!("commit {commit} lacks record {record}"));
            let wanted = commit.wrapping_mul(record + 1).to_le_bytes().repeat(40);
            assert!(value.value() == wanted, "commit {commit}, record {record}");
        }
    }
    last
}

fn last(database: &Database) -> u64 {
    let read = database.begin_read().unwrap();
    let Ok(table) = read.open_table(TABLE) else { return 0 };
    table.last().unwrap().map_or(0, |(key, _)| key.value() / RECORDS)
}
