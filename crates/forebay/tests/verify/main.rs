//! Blocks that carry their number, a sequence and a checksum, as fio writes them for
//! `verify=crc32c`.
//!
//! Threads overwrite and read them. The standard library reads them from the file, with and without
//! `O_DIRECT`. Meanwhile another program opens the files and the knobs change.

mod block;
#[path = "../support/mod.rs"]
mod support;
mod verified;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use forebay_block::random::Random;
use support::disturb::{self, Opens, Over};
use support::handle::Kind;
use support::mount::{FileSystem, on};
use support::other::{self, Other};
use support::within;
use verified::{Counts, Verified};

/// Operations of one engine; a longer run goes on with a new one, which has other sizes.
const ROUND: u64 = 25_000;

/// Files of a round.
const FILES: u64 = 2;

#[test]
fn another_program() {
    other::serve();
}

#[test]
fn contract_11_blocks_of_cached_files_are_whole_on_xfs() {
    verify("verified cached files", FileSystem::Xfs, Kind::Cached);
}

#[test]
fn contract_11_blocks_of_cached_files_are_whole_on_ext4() {
    verify("verified cached files", FileSystem::Ext4, Kind::Cached);
}

#[test]
fn contract_15_blocks_of_direct_files_are_whole_on_xfs() {
    verify("verified direct files", FileSystem::Xfs, Kind::Direct);
}

#[test]
fn contract_15_blocks_of_direct_files_are_whole_on_ext4() {
    verify("verified direct files", FileSystem::Ext4, Kind::Direct);
}

/// Runs the operations of `FOREBAY_TEST_OPERATIONS` on a file system, shared by the files.
fn verify(test: &str, file_system: FileSystem, kind: Kind) {
    let (seed, operations) = (support::seed(), support::operations(4000));
    on(test, file_system, |what, directory| {
        let (what, directory) = (what.to_owned(), directory.to_owned());
        let patience = Duration::from_secs(100) + Duration::from_millis(10) * operations as u32;
        within(patience, &what.clone(), move || {
            let start = Instant::now();
            let (mut counts, mut opens, mut changes) = (Counts::default(), Opens::default(), 0);
            let mut other = Other::start();
            for round in 0..operations.div_ceil(ROUND) {
                let operations = (operations - round * ROUND).min(ROUND).div_ceil(FILES);
                let (of_files, of_other, of_knobs) =
                    run(seed ^ round << 32, kind, operations, &directory, &mut other);
                counts += of_files;
                opens += of_other;
                changes += of_knobs;
                println!("{what}: {} operations after {:?}", counts.operations, start.elapsed());
            }
            println!("{what}: {counts:?}; {opens:?}; {changes} changes of knobs");
            assert!(counts.operations >= operations);
        });
    });
}

/// One engine and its files.
fn run(
    seed: u64,
    kind: Kind,
    operations: u64,
    directory: &Path,
    other: &mut Other,
) -> (Counts, Opens, u64) {
    let mut random = Random::new(seed);
    let errors: &'static Mutex<Vec<String>> = Box::leak(Box::default());
    let engine = disturb::engine(&mut random, errors);
    let paths: Vec<PathBuf> = (0..FILES).map(|number| directory.join(number.to_string())).collect();
    let mut create = |path| Verified::create(&engine, kind, path, random.draw());
    let files: Vec<Verified<'_>> = paths.iter().map(|path| create(path)).collect();
    let (knobs, opens) = (Random::new(random.draw()), Random::new(random.draw()));
    let is_over = AtomicBool::new(false);
    let (counts, opens, changes) = std::thread::scope(|scope| {
        let over = Over(&is_over);
        let changes = scope.spawn(|| disturb::change_knobs(&engine, knobs, &is_over));
        let opens = scope.spawn(|| disturb::open_elsewhere(other, &paths, opens, &is_over));
        let running: Vec<_> =
            files.into_iter().map(|file| scope.spawn(move || file.run(operations))).collect();
        let mut counts = Counts::default();
        running.into_iter().for_each(|one| counts += disturb::joined(one));
        drop(over);
        (counts, disturb::joined(opens), disturb::joined(changes))
    });
    let stats = engine.stats();
    engine.shutdown(Duration::from_secs(60)).unwrap();
    let errors = errors.lock().unwrap();
    assert!(errors.is_empty(), "seed {seed}: reported to on_error: {errors:?}; {stats:?}");
    paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    (counts, opens, changes)
}
