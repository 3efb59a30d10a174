//! Random operations on files against byte arrays, with the mix of the program fsx, while another
//! program opens the files and the knobs change.
//!
//! Operations of fsx that Forebay does not have are left out: it punches no holes in files, syncs
//! no ranges, and maps nothing.

mod exerciser;
mod operation;
mod part;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use exerciser::{Counts, Exerciser, Shape};
use forebay_block::random::Random;
use support::disturb::{self, Opens, Over};
use support::handle::Kind;
use support::mount::{FileSystem, on};
use support::other::{self, Other};
use support::within;

/// Operations of one engine; a longer run goes on with a new one, which has other sizes.
const ROUND: u64 = 25_000;

#[test]
fn another_program() {
    other::serve();
}

/// Several threads, each with a file of its own.
#[test]
fn contract_06_files_of_their_own_on_xfs() {
    exercise("own files", FileSystem::Xfs, 4, Shape { kind: Kind::Cached, threads: 1 });
}

#[test]
fn contract_06_files_of_their_own_on_ext4() {
    exercise("own files", FileSystem::Ext4, 4, Shape { kind: Kind::Cached, threads: 1 });
}

/// Two files, each with several handles that are used at the same time.
#[test]
fn contract_06_several_handles_of_a_file_on_xfs() {
    exercise("several handles", FileSystem::Xfs, 2, Shape { kind: Kind::Cached, threads: 3 });
}

#[test]
fn contract_06_several_handles_of_a_file_on_ext4() {
    exercise("several handles", FileSystem::Ext4, 2, Shape { kind: Kind::Cached, threads: 3 });
}

#[test]
fn contract_08_direct_files_on_xfs() {
    exercise("direct files", FileSystem::Xfs, 3, Shape { kind: Kind::Direct, threads: 1 });
}

#[test]
fn contract_08_direct_files_on_ext4() {
    exercise("direct files", FileSystem::Ext4, 3, Shape { kind: Kind::Direct, threads: 1 });
}

#[test]
fn contract_15_several_direct_handles_of_a_file_on_xfs() {
    exercise(
        "several direct handles",
        FileSystem::Xfs,
        2,
        Shape { kind: Kind::Direct, threads: 3 },
    );
}

#[test]
fn contract_15_several_direct_handles_of_a_file_on_ext4() {
    exercise(
        "several direct handles",
        FileSystem::Ext4,
        2,
        Shape { kind: Kind::Direct, threads: 3 },
    );
}

/// Runs the operations of `FOREBAY_TEST_OPERATIONS` on a file system, shared by the files.
fn exercise(test: &str, file_system: FileSystem, files: u64, shape: Shape) {
    let (seed, operations) = (support::seed(), support::operations(4000));
    on(test, file_system, |what, directory| {
        let (what, directory) = (what.to_owned(), directory.to_owned());
        let patience = Duration::from_secs(100) + Duration::from_millis(10) * operations as u32;
        within(patience, &what.clone(), move || {
            let start = Instant::now();
            let (mut counts, mut opens, mut changes) = (Counts::default(), Opens::default(), 0);
            let mut other = Other::start();
            for round in 0..operations.div_ceil(ROUND) {
                let operations = (operations - round * ROUND).min(ROUND).div_ceil(files);
                let round = Round { seed: seed ^ round << 32, files, operations, shape };
                let (of_files, of_other, of_knobs) = round.run(&directory, &mut other);
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

struct Round {
    seed: u64,
    files: u64,
    operations: u64,
    shape: Shape,
}

impl Round {
    fn run(&self, directory: &Path, other: &mut Other) -> (Counts, Opens, u64) {
        let mut random = Random::new(self.seed);
        let errors: &'static Mutex<Vec<String>> = Box::leak(Box::default());
        let engine = disturb::engine(&mut random, errors);
        let paths: Vec<PathBuf> =
            (0..self.files).map(|number| directory.join(number.to_string())).collect();
        let exercisers: Vec<Exerciser<'_>> = paths
            .iter()
            .map(|path| Exerciser::new(&engine, path, self.shape, random.draw()))
            .collect();
        let (knobs, opens) = (Random::new(random.draw()), Random::new(random.draw()));
        let is_over = AtomicBool::new(false);
        let (counts, opens, changes) = std::thread::scope(|scope| {
            let over = Over(&is_over);
            let changes = scope.spawn(|| disturb::change_knobs(&engine, knobs, &is_over));
            let opens = scope.spawn(|| disturb::open_elsewhere(other, &paths, opens, &is_over));
            let running: Vec<_> = exercisers
                .into_iter()
                .map(|exerciser| scope.spawn(|| exerciser.run(self.operations)))
                .collect();
            let mut counts = Counts::default();
            running.into_iter().for_each(|one| counts += disturb::joined(one));
            drop(over);
            (counts, disturb::joined(opens), disturb::joined(changes))
        });
        let stats = engine.stats();
        engine.shutdown(Duration::from_secs(60)).unwrap();
        let errors = errors.lock().unwrap();
        assert!(
            errors.is_empty(),
            "seed {}: reported to on_error: {errors:?}; {stats:?}",
            self.seed
        );
        paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        (counts, opens, changes)
    }
}
