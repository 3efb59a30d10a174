//! The program is killed in the middle of its writes, many times. Afterwards all synced data is
//! there, the file is no longer than it ever was, and the next open gives back space reserved
//! ahead.
//!
//! Also with an intent log, and with a keeper beside it that is killed, too: then the next recovery
//! of the log has all synced data.
//!
//! The child is this program executed again. It reports the number of each step before the step,
//! and again after each sync that succeeds. The parent makes the same sequence of steps, so it
//! knows the contents that the file may have.
//!
//! `FOREBAY_TEST_KILLS=N` kills N times on each file system instead of a few: 200 take half a
//! minute on each.

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use forebay::intent_log::{self, Ask, Fate};
use forebay::{Engine, ErrorKind, File, Options};
use forebay_block::random::Random;
use support::history::{History, SHAPES, Shape, Step, Workload};
use support::kept::{self, SOON, adopt_orphans};
use support::load::Syncs;
use support::mount::{FileSystem, Mount};
use support::{MIB, eventually, how, knobs, process};

const CHILD: &str = "child_that_writes_until_it_is_killed";

/// The last steps that a child reported before it died.
#[derive(Debug, Default)]
struct Said {
    begun: usize,
    synced: usize,
    keeper: Option<u32>,
}

#[test]
fn keeper() {
    kept::serve();
}

#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(task) = process::task() else { return };
    let [path, seed, shape, dirty_age, syncs, has_keeper] =
        task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let builder = Engine::builder(Options {
        cache_bytes: Some(24 << 20),
        dirty_bytes: Some(6 << 20),
        background_bytes: Some(2 << 20),
        dirty_age: Duration::from_millis(dirty_age.parse().unwrap()),
        ..Options::default()
    });
    let builder = match syncs {
        "Logged" => builder.intent_log_always(Path::new(path).parent().unwrap()),
        _ => builder,
    };
    let builder = match has_keeper {
        "true" => builder.survive(kept::keeper()),
        _ => builder,
    };
    let engine = builder.build().unwrap();
    if let Some(keeper) = engine.keeper() {
        process::report(format_args!("keeper {}", keeper.process.unwrap()));
    }
    if seed.parse::<u64>().unwrap() % 2 == 1 {
        keep_changing_contexts(&engine);
    }
    let file = engine.open(path, &how::create_new()).unwrap();
    let workload = Workload::new(seed.parse().unwrap(), SHAPES[shape.parse::<usize>().unwrap()]);
    process::report(format_args!("begun 0"));
    for (number, step) in workload.enumerate() {
        process::report(format_args!("begun {}", number + 1));
        take(&file, &step).unwrap();
        if step == Step::Sync {
            process::report(format_args!("synced {}", number + 1));
        }
    }
}

/// In every second child the file goes from context to context all the time.
fn keep_changing_contexts(engine: &Engine) {
    knobs::set(engine, "affinity", "hash").unwrap();
    let engine = engine.clone();
    std::thread::spawn(move || {
        for number in ["1", "8", "2", "5", "3"].iter().cycle() {
            knobs::set(&engine, "contexts", number).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

fn take(file: &File, step: &Step) -> forebay::Result<()> {
    match step {
        Step::Write { offset, data } => file.write_at(data, *offset),
        Step::Append { data } => file.append(data).map(drop),
        Step::SetLength(length) => file.set_len(*length),
        Step::Sync => file.sync_data(),
    }
}

/// Starts a child, kills it after a while, and returns its last reports.
fn kill_one(path: &Path, seed: u64, shape: usize, killed: Killed, random: &mut Random) -> Said {
    let Killed { syncs, has_keeper } = killed;
    let age = 1 + random.below(60);
    let task = format!("{}\n{seed}\n{shape}\n{age}\n{syncs:?}\n{has_keeper}", path.display());
    let mut child = process::start_child(CHILD, &task);
    let output = BufReader::new(child.stdout.take().unwrap());
    let (started, has_started) = std::sync::mpsc::channel();
    let (of_keeper, keeper) = std::sync::mpsc::channel::<libc::pid_t>();
    let listener = std::thread::spawn(move || {
        let mut said = Said::default();
        // A line cut by the kill has no end, and is not counted.
        for line in output.split(b'\n').map(|line| String::from_utf8(line.unwrap()).unwrap()) {
            match process::reported(&line).and_then(|reported| reported.split_once(' ')) {
                Some(("begun", number)) => said.begun = number.parse().unwrap(),
                Some(("synced", number)) => said.synced = number.parse().unwrap(),
                Some(("keeper", number)) => {
                    said.keeper = Some(number.parse().unwrap());
                    let _ = of_keeper.send(number.parse().unwrap());
                }
                _ => {}
            }
            let _ = started.send(());
        }
        said
    });
    has_started.recv_timeout(Duration::from_secs(20)).expect("the child starts");
    // The first syncs of a file are not logged.
    let longest = if syncs == Syncs::Logged { 500_000 } else { 90_000 };
    std::thread::sleep(Duration::from_micros(random.below(longest)));
    assert!(
        child.try_wait().unwrap().is_none(),
        "the child ended by itself, shape {shape}, seed {seed}"
    );
    if let Ok(keeper) = keeper.try_recv() {
        // Before its program, which may start another one, or later, in the middle of its work.
        if random.below(2) == 0 {
            kill_process(keeper);
            child.kill().unwrap();
        } else {
            child.kill().unwrap();
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            kill_process(keeper);
        }
        child.wait().unwrap();
        wait_for_process(keeper);
    } else {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    listener.join().unwrap()
}

fn kill_process(process: libc::pid_t) {
    // SAFETY: takes numbers. The process was not waited for, so its number is its own.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

/// Waits until a keeper is gone. Its program has waited for it, or it is an orphan.
fn wait_for_process(process: libc::pid_t) {
    let is_gone = || {
        // SAFETY: no status is asked for.
        let waited = unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG) };
        waited == process || !Path::new(&format!("/proc/{process}")).exists()
    };
    assert!(eventually(SOON, is_gone), "keeper {process} has not ended");
}

/// Contents that the file may have after these reports.
fn history(seed: u64, shape: Shape, said: &Said) -> History {
    let mut history = History::default();
    for (number, step) in (1..=said.begun).zip(Workload::new(seed, shape)) {
        history.begin(&step);
        if number == said.synced {
            history.synced();
        }
    }
    history
}

/// Opens as the next program would; the kernel may still be putting away what the killed one had in
/// flight.
fn open_again(engine: &Engine, path: &Path, tally: &mut Tally) -> File {
    let patience = Instant::now() + Duration::from_secs(5);
    loop {
        match engine.open(path, &how::write()) {
            Err(error) if error.kind() == ErrorKind::Busy && Instant::now() < patience => {
                tally.busy += 1;
            }
            result => return result.unwrap(),
        }
    }
}

/// Counts over a series of kills; the test fails if they show that it tested nothing.
#[derive(Debug, Default)]
struct Tally {
    synced: usize,
    marked: usize,
    busy: usize,
    steps: usize,
    /// Bytes from an intent log.
    put_back: u64,
}

/// Whether the file system itself reserves space ahead of a growing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ahead {
    Nothing,
    Some,
}

/// The program that is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Killed {
    syncs: Syncs,
    /// A keeper is killed, too.
    has_keeper: bool,
}

const PLAIN: Killed = Killed { syncs: Syncs::InPlace, has_keeper: false };
const LOGGED: Killed = Killed { syncs: Syncs::Logged, has_keeper: false };
const WITH_KEEPER: Killed = Killed { syncs: Syncs::Logged, has_keeper: true };

/// Returns the number of kills: `FOREBAY_TEST_KILLS` if it is set, otherwise `by_default`.
fn kills(by_default: usize) -> usize {
    support::number("FOREBAY_TEST_KILLS", by_default)
}

fn kill_many(directory: &Path, times: usize, ahead: Ahead, killed: Killed) {
    adopt_orphans();
    let syncs = killed.syncs;
    let seed = support::seed();
    let mut random = Random::new(seed);
    let engine =
        Engine::start(Options { cache_bytes: Some(8 << 20), ..Options::default() }).unwrap();
    let mut tally = Tally::default();
    for at in 0..times {
        let path = directory.join(format!("file-{at}"));
        let (seed, shape) = (random.draw() >> 1, at % SHAPES.len());
        let said = kill_one(&path, seed, shape, killed, &mut random);
        let context = format!("kill {at}, {:?}, seed {seed}, {said:?}", SHAPES[shape]);
        tally.synced += usize::from(said.synced > 0);
        tally.steps += said.begun;
        if !path.exists() {
            assert_eq!(said.begun, 0, "{context}: the file is not there");
            continue;
        }
        if syncs == Syncs::Logged {
            tally.put_back += put_back(directory);
        }
        let history = history(seed, SHAPES[shape], &said);
        let found = std::fs::read(&path).unwrap();
        history.check(&found).unwrap_or_else(|wrong| panic!("{context}: {wrong}"));

        let was_marked = support::mark(&path).is_some();
        tally.marked += usize::from(was_marked);
        let reserved = support::allocated(&path).saturating_sub(found.len() as u64);
        let is_ours = was_marked || ahead == Ahead::Nothing;
        assert!(
            was_marked || !is_ours || reserved < 128 << 10,
            "{context}: {reserved} bytes without a mark"
        );
        let file = open_again(&engine, &path, &mut tally);
        assert!(
            !was_marked || !file.describe().contains("shared"),
            "{context}: shared with the dead"
        );
        assert_eq!(file.len().unwrap(), found.len() as u64, "{context}");
        let mut through = vec![0; found.len()];
        assert_eq!(file.read_at(&mut through, 0).unwrap(), found.len());
        assert!(through == found, "{context}: another content through the library");
        file.close().unwrap();
        assert_eq!(support::mark(&path), None, "{context}: the mark stands after the next close");
        let given_back =
            || !is_ours || support::allocated(&path) <= found.len() as u64 + (128 << 10);
        assert!(
            eventually(Duration::from_secs(2), given_back),
            "{context}: {} bytes allocated for {}",
            support::allocated(&path),
            found.len()
        );
        assert!(
            std::fs::read(&path).unwrap() == found,
            "{context}: the next open changed the content"
        );
        std::fs::remove_file(&path).unwrap();
    }
    println!("{times} kills: {tally:?}");
    assert_eq!(tally.put_back > 0, syncs == Syncs::Logged, "{tally:?}");
    assert!(tally.synced > times / 4, "too few children got as far as a sync: {tally:?}");
    assert!(
        tally.marked > 0 || !support::can_mark(directory),
        "no child was killed with space reserved: {tally:?}"
    );
}

/// Recovers the log of a directory. Returns the bytes of files in its records.
fn put_back(directory: &Path) -> u64 {
    let recovery = intent_log::recover(directory, &Ask::default()).unwrap();
    assert!(recovery.is_empty, "{recovery:?}");
    let restored = recovery.files.iter().map(|file| match file.fate {
        Fate::InPlace => file.bytes,
        _ => panic!("{file:?}"),
    });
    restored.sum()
}

#[test]
fn contract_04_and_01_and_09_killed_here() {
    if process::task().is_none() {
        let directory = support::directory();
        // It may be any file system.
        kill_many(directory.path(), kills(50), Ahead::Some, PLAIN);
    }
}

#[test]
fn contract_04_and_01_and_09_killed_on_xfs() {
    if let Some(mount) = Mount::new("killed_on_xfs", FileSystem::Xfs, 2048 * MIB) {
        kill_many(&mount.path(), kills(40), Ahead::Some, PLAIN);
    }
}

#[test]
fn contract_04_and_01_and_09_killed_on_ext4() {
    if let Some(mount) = Mount::new("killed_on_ext4", FileSystem::Ext4, 256 * MIB) {
        kill_many(&mount.path(), kills(40), Ahead::Nothing, PLAIN);
    }
}

#[test]
fn contract_23_and_24_logged_syncs_killed_on_xfs() {
    if let Some(mount) = Mount::new("logged_killed_on_xfs", FileSystem::Xfs, 2048 * MIB) {
        kill_many(&mount.path(), kills(30), Ahead::Some, LOGGED);
    }
}

#[test]
fn contract_23_and_24_logged_syncs_killed_on_ext4() {
    if let Some(mount) = Mount::new("logged_killed_on_ext4", FileSystem::Ext4, 512 * MIB) {
        kill_many(&mount.path(), kills(30), Ahead::Nothing, LOGGED);
    }
}

#[test]
fn contract_25_killed_with_the_keeper_on_xfs() {
    if let Some(mount) = Mount::new("killed_with_keeper_on_xfs", FileSystem::Xfs, 2048 * MIB) {
        kill_many(&mount.path(), kills(20), Ahead::Some, WITH_KEEPER);
    }
}

#[test]
fn contract_25_killed_with_the_keeper_on_ext4() {
    if let Some(mount) = Mount::new("killed_with_keeper_on_ext4", FileSystem::Ext4, 512 * MIB) {
        kill_many(&mount.path(), kills(20), Ahead::Nothing, WITH_KEEPER);
    }
}
