//! Batches whose process is killed, or whose machine loses its power, at a random moment.
//!
//! Each batch has a version. It replaces the same targets and adds new files. Batches of even
//! versions are ordered: the manifest is their last file, and files of an older version are removed
//! after it. The content of a file follows from its version, so a torn one is found.
//!
//! `FOREBAY_TEST_KILLS=N` makes N crashes in each test instead of a few.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{fs, panic, thread};

use forebay::{Engine, Keeper, Options};
use forebay_block::random::{Random, mix};
use support::faulty::{Disk, Fails};
use support::kept::{self, SOON, adopt_orphans, wait_for_orphan};
use support::load::{Power, count_engine_panics, no_engine_panics};
use support::mount::{FileSystem, Mount};
use support::{MIB, eventually, how, pattern, process, within};

/// Files that each batch replaces.
const TARGETS: u64 = 40;
/// Files that each batch adds.
const NEW: u64 = 3;
/// A batch removes the new files of the batch that is this much older.
const KEPT: u64 = 4;
/// Numbers of the manifest, of the file in a new directory, and of the first held file.
const MANIFEST: u64 = 1000;
const MADE: u64 = 1001;
const HELD: u64 = 1002;

/// Returns the content of a file. Its first eight bytes are its version.
fn content(version: u64, number: u64) -> Vec<u8> {
    let random = mix(version << 16 | number);
    let length = if random.is_multiple_of(64) { 600_000 } else { random % 20_000 };
    [version.to_le_bytes().to_vec(), pattern(random, length as usize)].concat()
}

/// Returns the version of a file, or 0 for a missing file. A file that is not whole is a failure.
fn version_of(path: &Path, number: u64) -> u64 {
    let Ok(found) = fs::read(path) else {
        assert!(!path.exists(), "{}: cannot be read", path.display());
        return 0;
    };
    let version = found.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let is_whole = found == content(version, number);
    assert!(is_whole, "{}: {} bytes, version {version}: torn", path.display(), found.len());
    version
}

fn target(at: &Path, number: u64) -> PathBuf {
    at.join(format!("{}/target-{number}", number % 2))
}

fn new(at: &Path, version: u64, number: u64) -> PathBuf {
    at.join(format!("0/new-{version}-{number}"))
}

fn manifest(at: &Path) -> PathBuf {
    at.join("0/manifest")
}

fn made(at: &Path, version: u64) -> PathBuf {
    at.join(format!("made-{version}/deep/file"))
}

fn publish(engine: &Engine, at: &Path, version: u64) -> forebay::Result<()> {
    let is_ordered = version.is_multiple_of(2);
    let batch = engine.batch();
    let batch = if is_ordered { batch.ordered() } else { batch };
    for number in 0..TARGETS {
        batch.write(target(at, number), &content(version, number))?;
    }
    for number in 0..NEW {
        batch.write(new(at, version, number), &content(version, number))?;
    }
    if version.is_multiple_of(8) {
        batch.create_dir(made(at, version).parent().unwrap())?;
        batch.write(made(at, version), &content(version, MADE))?;
    }
    if is_ordered {
        batch.write(manifest(at), &content(version, MANIFEST))?;
    }
    for number in 0..NEW {
        let old = new(at, version.saturating_sub(KEPT), number);
        if old.exists() {
            batch.remove(old)?;
        }
    }
    Ok(batch.commit()?)
}

/// Versions of the batches since a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Versions {
    first: u64,
    /// The last one whose commit returned.
    done: u64,
    /// The last one that began.
    begun: u64,
}

impl Versions {
    /// The next ones begin with an ordered batch.
    fn next(self) -> Self {
        Self { first: (self.begun + 2) & !1, ..self }
    }

    /// Checks everything that is found after a crash. Returns whether a commit was interrupted
    /// between two renames.
    fn check(self, at: &Path) -> bool {
        let Self { first, done, begun } = self;
        let targets: Vec<_> =
            (0..TARGETS).map(|number| version_of(&target(at, number), number)).collect();
        let (oldest, newest) = (*targets.iter().min().unwrap(), *targets.iter().max().unwrap());
        assert!(oldest >= done && newest <= begun, "{self:?}: found {targets:?}");
        let manifest = version_of(&manifest(at), MANIFEST);
        let durable = if done >= first { done & !1 } else { 0 };
        assert!(manifest >= durable && manifest <= begun, "{self:?}: manifest {manifest}");
        assert!(manifest <= oldest, "{self:?}: manifest {manifest} is before {targets:?}");
        for version in begun.saturating_sub(2 * KEPT)..=begun {
            let is_ordered = version.is_multiple_of(2);
            let is_removed = version + KEPT <= if is_ordered { manifest } else { begun };
            let is_done = (first..=done).contains(&version) || version == manifest;
            for number in 0..NEW {
                let found = version_of(&new(at, version, number), number);
                assert!(
                    found == version || found == 0 && (is_removed || !is_done),
                    "{self:?}, manifest {manifest}: new file of {version} has version {found}"
                );
            }
            let found = version_of(&made(at, version), MADE);
            let is_made = version.is_multiple_of(8) && is_done && version > 0;
            assert!(found == version || found == 0 && !is_made, "{self:?}: {version} made {found}");
        }
        newest > oldest
    }
}

/// Returns the names of batches in a directory.
fn temporary(directory: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with(".forebay-")).collect()
}

fn kills(by_default: usize) -> usize {
    support::number("FOREBAY_TEST_KILLS", by_default)
}

#[test]
fn keeper() {
    kept::serve();
}

#[test]
fn child_that_commits_until_it_is_killed() {
    let Some(task) = process::task() else { return };
    let [at, first, log] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let builder = Engine::builder(Options { cache_bytes: Some(8 << 20), ..Options::default() });
    let engine = if log.is_empty() {
        builder.build().unwrap()
    } else {
        builder.survive(Keeper { log: Some(log.into()), ..kept::keeper() }).build().unwrap()
    };
    let _file = engine.keeper().map(|keeper| {
        process::report(format_args!("keeper {}", keeper.process.unwrap()));
        let file = engine.open(Path::new(at).join("kept"), &how::create()).unwrap();
        file.write_at(&pattern(7, 100_000), 0).unwrap();
        file
    });
    for version in first.parse::<u64>().unwrap().. {
        process::report(format_args!("begun {version}"));
        publish(&engine, Path::new(at), version).unwrap();
        process::report(format_args!("done {version}"));
    }
}

/// Has a batch under way all the time. Commits it when a file appears, and begins the next.
#[test]
fn child_that_holds_a_batch() {
    let Some(task) = process::task() else { return };
    let at = Path::new(&task);
    let engine = Engine::new().unwrap();
    for round in 0..u64::MAX {
        let batch = engine.batch();
        for number in HELD..HELD + NEW {
            batch.write(at.join(format!("0/held-{number}")), &content(round, number)).unwrap();
        }
        process::report(format_args!("held {round}"));
        if !eventually(SOON, || at.join(format!("go-{round}")).exists()) {
            return;
        }
        batch.commit().unwrap();
    }
}

/// A child and the lines that it has printed. Killed when dropped.
struct Child(std::process::Child, Receiver<(String, u64)>);

impl Child {
    fn start(test: &str, task: &str) -> Self {
        let mut child = process::start_child(test, task);
        let output = BufReader::new(child.stdout.take().unwrap());
        let (report, reported) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some((what, number)) =
                    process::reported(&line).and_then(|reported| reported.split_once(' '))
                else {
                    continue;
                };
                let _ = report.send((what.to_owned(), number.parse().unwrap()));
            }
        });
        Self(child, reported)
    }

    fn next(&self) -> (String, u64) {
        self.1.recv_timeout(Duration::from_secs(20)).expect("the child goes on")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill_many(times: usize, has_keeper: bool) {
    adopt_orphans();
    let directory = support::directory();
    let at = &directory.path().canonicalize().unwrap();
    for name in ["0", "1"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    let engine = Engine::new().unwrap();
    let mut random = Random::new(support::seed());
    let mut versions = Versions::default();
    let (mut left, mut between) = (0, 0);
    let holder = Child::start("child_that_holds_a_batch", &at.display().to_string());
    for round in 0..times as u64 {
        assert_eq!(holder.next(), ("held".to_owned(), round));
        let live = temporary(&at.join("0"));
        // Nothing but the files of one batch and their lock.
        assert_eq!(live.len() as u64, NEW + 1, "{live:?}");
        assert_eq!(live.iter().map(|name| &name[..25]).collect::<BTreeSet<_>>().len(), 1);

        versions = versions.next();
        let log = if has_keeper { at.join("log") } else { PathBuf::new() };
        let task = format!("{}\n{}\n{}", at.display(), versions.first, log.display());
        let mut child = Child::start("child_that_commits_until_it_is_killed", &task);
        let keeper = has_keeper.then(|| child.next().1);
        assert_eq!(child.next().0, "begun");
        versions.begun = versions.first;
        thread::sleep(Duration::from_micros(random.below(150_000)));
        assert!(child.0.try_wait().unwrap().is_none(), "the child ended by itself");
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        for (what, number) in &child.1 {
            *if what == "begun" { &mut versions.begun } else { &mut versions.done } = number;
        }
        between += usize::from(versions.check(at));
        let names = temporary(&at.join("0"));
        assert!(names.is_superset(&live), "the names of a live batch: {live:?}, {names:?}");
        left += usize::from(names.len() > live.len());
        if let Some(keeper) = keeper {
            assert_eq!(wait_for_orphan(u32::try_from(keeper).unwrap(), SOON), 0);
            assert!(fs::read(at.join("kept")).unwrap() == pattern(7, 100_000));
        }
        // In other rounds, the next child and the batch that is held find the names of the dead.
        if round.is_multiple_of(2) {
            let version = versions.next().first;
            publish(&engine, at, version).unwrap();
            versions = Versions { first: version, done: version, begun: version };
            assert!(!versions.check(at));
            assert_eq!(temporary(&at.join("0")), live);
            assert_eq!(temporary(&at.join("1")), BTreeSet::new());
        }
        fs::write(at.join(format!("go-{round}")), "").unwrap();
        let held = || fs::metadata(at.join(format!("0/held-{}", HELD + NEW - 1))).is_ok();
        assert!(eventually(SOON, held));
    }
    assert_eq!(holder.next().1, times as u64);
    for number in HELD..HELD + NEW {
        assert_eq!(version_of(&at.join(format!("0/held-{number}")), number), times as u64 - 1);
    }
    println!("{times} kills, {left} left names, {between} between two renames, {versions:?}");
    assert!(left > times / 4, "too few kills hit a batch");
}

#[test]
fn contract_20_a_batch_whose_process_is_killed_is_old_or_whole() {
    kill_many(kills(8), false);
}

#[test]
fn contract_20_a_batch_whose_process_is_killed_beside_a_keeper() {
    kill_many(kills(8), true);
}

fn lose_power(disk: &mut impl Power, times: usize) {
    count_engine_panics();
    let at = disk.path();
    for name in ["0", "1"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    let mut random = Random::new(support::seed());
    let mut versions = Versions::default();
    let (mut left, mut between, mut committed) = (0, 0, 0);
    fs::File::open(&at).unwrap().sync_all().unwrap();
    for round in 1..=times {
        versions = versions.next();
        let Versions { first, done, .. } = versions;
        let state = Arc::new((AtomicBool::new(false), AtomicU64::new(done)));
        let (of_thread, path) = (Arc::clone(&state), at.clone());
        let writer = thread::spawn(move || {
            let (is_gone, done) = &*of_thread;
            let engine =
                Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() })
                    .unwrap();
            let begun = (first..).find(|version| {
                let result = publish(&engine, &path, *version);
                // A commit that returns after the power went is not counted.
                let is_over = is_gone.load(Ordering::SeqCst);
                if result.is_ok() && !is_over {
                    done.store(*version, Ordering::SeqCst);
                }
                assert!(result.is_ok() || is_over, "{}", result.unwrap_err());
                is_over
            });
            engine.shutdown(Duration::from_secs(10)).unwrap();
            begun.unwrap()
        });
        if round == times && committed == 0 {
            // On a slow machine no commit may have ended so far.
            assert!(eventually(SOON, || state.1.load(Ordering::SeqCst) >= first));
        }
        thread::sleep(Duration::from_micros(random.below(150_000)));
        state.0.store(true, Ordering::SeqCst);
        disk.cut();
        let begun = within(Duration::from_secs(20), "a batch on a dead file system", || {
            writer.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
        });
        no_engine_panics();
        disk.reboot();
        versions = Versions { first, done: state.1.load(Ordering::SeqCst), begun };
        between += usize::from(versions.check(&at));
        committed += (versions.done + 1).saturating_sub(first);
        left += usize::from(!temporary(&at.join("0")).is_empty());
    }
    let engine = Engine::new().unwrap();
    publish(&engine, &at, versions.begun + 1).unwrap();
    assert_eq!(temporary(&at.join("0")), BTreeSet::new());
    println!(
        "{times} losses of power, {committed} commits before them, {left} left names, {between} \
         between two renames"
    );
    assert!(committed > 0, "no commit ended before the power went");
}

#[test]
fn contract_20_a_batch_survives_a_power_cut() {
    for file_system in [FileSystem::Xfs, FileSystem::Ext4] {
        let Some(mut mount) = Mount::new("batch_power", file_system, 2048 * MIB) else { continue };
        lose_power(&mut mount, kills(4));
    }
}

#[test]
fn contract_20_a_batch_survives_a_disk_that_loses_its_cache() {
    for file_system in [FileSystem::Xfs, FileSystem::Ext4] {
        let disk = Disk::new("batch_lost_writes", file_system, 2048 * MIB, Fails::Writes);
        let Some(mut disk) = disk else { continue };
        lose_power(&mut disk, kills(4));
    }
}
