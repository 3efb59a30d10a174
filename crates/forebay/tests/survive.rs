//! The program dies at a random moment, killed, aborted or by a fault. One thread for each of
//! several files writes until then, and none syncs. When the keeper has ended, each file holds
//! every write that had returned, in full. A write that was under way may be there in part, as with
//! the kernel's own writes. Nothing else is in the file.
//!
//! Beside an intent log the threads sync now and then, and such syncs are logged. The keeper brings
//! all files into place, and a recovery of the log finds nothing to do.
//!
//! The child reports its progress in a shared mapping of a file. A report costs one store, and the
//! file outlives the child.
//!
//! `FOREBAY_TEST_KILLS=N` has it die N times on each file system instead of a few.

mod support;

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::intent_log::{self, Ask, Fate};
use forebay::{Engine, File, Keeper, Options};
use forebay_block::random::{Random, mix};
use support::kept::{self, SOON, adopt_orphans, wait_for_orphan};
use support::mount::{FileSystem, Mount};
use support::{MIB, directory, eventually, how, process};

const CHILD: &str = "child_that_dies";

/// Files, and threads that write them.
const FILES: usize = 4;

/// Where a file's length is brought back.
const LONGEST: u64 = 12 * MIB;

#[test]
fn keeper() {
    kept::serve();
}

/// How a program dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    Killed,
    Aborts,
    Faults,
}

/// Whether the program has an intent log beside its keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beside {
    Nothing,
    /// Its threads sync now and then.
    Log,
}

const DEATHS: [Death; 3] = [Death::Killed, Death::Aborts, Death::Faults];

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Offset, length.
    Write(u64, usize),
    Append(usize),
    SetLength(u64),
    Reopen,
}

/// Endless sequence of steps for one file. The child and the checker make the same sequence.
#[derive(Debug)]
struct Workload {
    random: Random,
    number: u64,
    length: u64,
}

impl Workload {
    fn new(seed: u64, length: u64) -> Self {
        Self { random: Random::new(seed), number: 0, length }
    }

    /// The bytes of a step: no other has them.
    fn data(&self, length: usize) -> Vec<u8> {
        let salt = mix(self.number ^ self.random.clone().draw());
        let words =
            (0..length.div_ceil(8) as u64).map(|at| mix(salt.wrapping_add(at)).to_le_bytes());
        words.flatten().take(length).collect()
    }

    fn next(&mut self) -> Step {
        self.number += 1;
        let random = &mut self.random;
        let small = 1 + random.below(9000) as usize;
        let offset = random.below(LONGEST / 2);
        let step = match random.below(1000) {
            _ if self.length > LONGEST => Step::SetLength(offset / 4),
            0..4 => Step::SetLength(offset),
            4..6 => Step::Reopen,
            6..12 => Step::Write(offset / 4096 * 4096, 2 << 20),
            12..40 => Step::Append(70_000),
            40..440 => Step::Append(small),
            440..520 => Step::Write(offset / 4096 * 4096, 4096),
            _ => Step::Write(offset, small),
        };
        match step {
            Step::Write(offset, length) => self.length = self.length.max(offset + length as u64),
            Step::Append(length) => self.length += length as u64,
            Step::SetLength(length) => self.length = length,
            Step::Reopen => {}
        }
        step
    }

    /// Makes a step in memory.
    fn apply(&self, step: &Step, content: &mut Vec<u8>) {
        match step {
            Step::Write(offset, length) => {
                let (offset, end) = (*offset as usize, *offset as usize + length);
                content.resize(content.len().max(end), 0);
                content[offset..end].copy_from_slice(&self.data(*length));
            }
            Step::Append(length) => content.extend(self.data(*length)),
            Step::SetLength(length) => content.resize(*length as usize, 0),
            Step::Reopen => {}
        }
    }
}

/// How far each thread is: numbers in a mapped file.
struct Reported(*const AtomicU64);

// SAFETY: it is an address of atomics, mapped as long as the process lives.
unsafe impl Send for Reported {}
// SAFETY: as above.
unsafe impl Sync for Reported {}

impl Reported {
    fn map(path: &Path) -> Self {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (how, bytes) = (libc::PROT_READ | libc::PROT_WRITE, FILES * 16);
        // SAFETY: the kernel chooses the address.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, how, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(at.cast_const().cast())
    }

    fn set(&self, index: usize, number: u64) {
        assert!(index < 2 * FILES);
        // SAFETY: `2 * FILES` words are mapped.
        let word = unsafe { self.0.add(index) };
        // SAFETY: it is mapped as long as the process lives, and used as an atomic alone.
        unsafe { &*word }.store(number, Ordering::SeqCst);
    }
}

/// The child's task: its directory, its seed, and the way it dies.
struct Task {
    directory: PathBuf,
    seed: u64,
    death: Death,
    beside: Beside,
}

impl Task {
    fn to_line(&self) -> String {
        let death = DEATHS.iter().position(|death| *death == self.death).unwrap();
        let is_logged = u8::from(self.beside == Beside::Log);
        format!("{}\n{}\n{death}\n{is_logged}", self.directory.display(), self.seed)
    }

    fn of(line: &str) -> Self {
        let [directory, seed, death, is_logged] =
            line.split('\n').collect::<Vec<_>>().try_into().unwrap();
        let death = DEATHS[death.parse::<usize>().unwrap()];
        let beside = if is_logged == "1" { Beside::Log } else { Beside::Nothing };
        Self { directory: directory.into(), seed: seed.parse().unwrap(), death, beside }
    }

    fn file(&self, number: usize) -> PathBuf {
        self.directory.join(format!("file-{number}"))
    }

    fn progress(&self) -> PathBuf {
        self.directory.join("progress")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Time until it dies at most, in microseconds. The first syncs of a file are not logged.
    fn longest(&self) -> u64 {
        if self.beside == Beside::Log { 400_000 } else { 90_000 }
    }

    fn workload(&self, number: usize, length: u64) -> Workload {
        Workload::new(mix(self.seed ^ number as u64), length)
    }

    /// Content of a file before the child starts. The first two files are not empty, so that they
    /// have bytes that are not in the cache.
    fn before(&self, number: usize) -> Vec<u8> {
        let length = if number < 2 { 3 << 20 } else { 0 };
        support::pattern(self.seed ^ number as u64, length)
    }
}

#[test]
fn child_that_dies() {
    let Some(task) = process::task() else { return };
    let task = Task::of(&task);
    no_core();
    let mut random = Random::new(task.seed);
    let builder = Engine::builder(Options {
        cache_bytes: Some(24 << 20),
        dirty_bytes: Some(6 << 20),
        background_bytes: Some((1 + random.below(6)) << 20),
        dirty_age: Duration::from_millis(1 + random.below(60)),
        ..Options::default()
    })
    .survive(Keeper { log: Some(task.log()), ..kept::keeper() });
    let builder = match task.beside {
        Beside::Log => builder.intent_log_always(&task.directory),
        Beside::Nothing => builder,
    };
    let engine = builder.build().unwrap();
    let reported = Reported::map(&task.progress());
    // Of the last one there is no lease: somebody else has it open.
    let _other = std::fs::File::open(task.file(FILES - 1)).unwrap();
    let gone = engine.open(task.directory.join("gone"), &how::create_new()).unwrap();
    std::fs::remove_file(task.directory.join("gone")).unwrap();
    gone.write_at(&[1; 100_000], 50_000).unwrap();
    process::report(format_args!("{}", engine.keeper().unwrap().process.unwrap()));
    std::thread::scope(|scope| {
        for number in 0..FILES {
            let (engine, task, reported) = (&engine, &task, &reported);
            scope.spawn(move || write_on(engine, task, number, reported));
        }
        let moment = Duration::from_micros(random.below(task.longest()));
        match task.death {
            Death::Killed => {}
            Death::Aborts => {
                std::thread::sleep(moment);
                std::process::abort();
            }
            Death::Faults => {
                std::thread::sleep(moment);
                // SAFETY: none: this is how a program dies of a bug of its own.
                unsafe { std::ptr::null_mut::<u8>().write_volatile(1) };
            }
        }
    });
}

fn no_core() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads the limits during the call.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}

fn write_on(engine: &Engine, task: &Task, number: usize, reported: &Reported) {
    let path = task.file(number);
    let open = || engine.open(&path, &how::write()).unwrap();
    let mut file = open();
    let mut workload = task.workload(number, file.len().unwrap());
    loop {
        let step = workload.next();
        reported.set(2 * number, workload.number);
        take(&mut file, &workload, &step, &open);
        reported.set(2 * number + 1, workload.number);
        if task.beside == Beside::Log && workload.number.is_multiple_of(8) {
            file.sync_data().unwrap();
        }
    }
}

fn take(file: &mut File, workload: &Workload, step: &Step, open: &dyn Fn() -> File) {
    match step {
        Step::Write(offset, length) => file.write_at(&workload.data(*length), *offset).unwrap(),
        Step::Append(length) => assert!(file.append(&workload.data(*length)).is_ok()),
        Step::SetLength(length) => file.set_len(*length).unwrap(),
        Step::Reopen => *file = open(),
    }
}

/// Counts over all deaths; the test fails if they show that it tested nothing.
#[derive(Debug, Default)]
struct Tally {
    steps: u64,
    under_way: usize,
    written: usize,
    marked: usize,
    /// Batches in intent logs.
    batches: usize,
}

/// Whether a file system takes space ahead of a growing file by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ahead {
    Nothing,
    Some,
}

fn die_many_times(directory: &Path, times: usize, ahead: Ahead, beside: Beside) {
    adopt_orphans();
    let seed = support::seed();
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    for at in 0..times {
        let directory = directory.join(format!("death-{at}"));
        std::fs::create_dir(&directory).unwrap();
        let directory = directory.canonicalize().unwrap();
        let (seed, death) = (random.draw() >> 1, DEATHS[at % DEATHS.len()]);
        let task = Task { directory, seed, death, beside };
        let context = format!("death {at}, {:?}, seed {}", task.death, task.seed);
        die_once(&task, &mut random, &context, ahead, &mut tally);
        std::fs::remove_dir_all(&task.directory).unwrap();
    }
    let file_system = forebay_uring::probe::file_system(directory).unwrap();
    let Tally { steps, under_way, written, batches, .. } = tally;
    println!(
        "{file_system}: {times} deaths after {steps} steps, {written} with something left to write, {under_way} steps \
         under way, {batches} batches in intent logs; no file is wrong"
    );
    assert_eq!(batches > 0, beside == Beside::Log, "{tally:?}");
    assert!(tally.written > times / 2, "too few keepers had anything to write: {tally:?}");
}

fn die_once(task: &Task, random: &mut Random, context: &str, ahead: Ahead, tally: &mut Tally) {
    for number in 0..FILES {
        std::fs::write(task.file(number), task.before(number)).unwrap();
    }
    std::fs::write(task.progress(), [0; FILES * 16]).unwrap();
    let mut child = process::start_child(CHILD, &task.to_line());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reported =
        |line: std::io::Result<String>| process::reported(&line.unwrap()).map(str::to_owned);
    let keeper = lines.find_map(reported).expect("the child starts").parse().unwrap();
    if task.death == Death::Killed {
        std::thread::sleep(Duration::from_micros(random.below(task.longest())));
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    assert!(!status.success() && status.code().is_none(), "{context}: {status}");
    let marked = (0..FILES).filter(|number| support::mark(&task.file(*number)).is_some()).count();
    tally.marked += usize::from(marked > 0);
    let status = wait_for_orphan(keeper, SOON);
    let said = kept::said(&task.log());
    assert_eq!(status, 0, "{context}: {said}");
    tally.written += usize::from(said.contains("wrote"));
    let check = |tally: &mut Tally| {
        for number in 0..FILES {
            check_file(task, number, &format!("{context}, file {number}: {said}"), ahead, tally);
        }
    };
    check(tally);
    if task.beside == Beside::Log {
        let recovery = intent_log::recover(&task.directory, &Ask::default()).unwrap();
        assert!(recovery.is_empty, "{context}: {recovery:?}");
        let is_done = |fate: &Fate| matches!(fate, Fate::InPlace | Fate::Deleted);
        let has_left = recovery.files.iter().find(|file| !is_done(&file.fate) || file.bytes > 0);
        assert!(has_left.is_none(), "{context}: {has_left:?}: {said}");
        tally.batches += recovery.batches;
        check(&mut Tally::default());
    }
}

fn check_file(task: &Task, number: usize, context: &str, ahead: Ahead, tally: &mut Tally) {
    let path = task.file(number);
    let progress = std::fs::File::open(task.progress()).unwrap();
    let word = |index: usize| {
        let mut bytes = [0; 8];
        progress.read_exact_at(&mut bytes, 8 * index as u64).unwrap();
        u64::from_ne_bytes(bytes)
    };
    let (begun, returned) = (word(2 * number), word(2 * number + 1));
    assert!(begun == returned || begun == returned + 1, "{context}");
    let mut old = task.before(number);
    let mut workload = task.workload(number, old.len() as u64);
    for _ in 0..returned {
        let step = workload.next();
        workload.apply(&step, &mut old);
    }
    let mut new = old.clone();
    let mut under_way = None;
    if begun > returned {
        let step = workload.next();
        workload.apply(&step, &mut new);
        under_way = Some(step);
    }
    tally.steps += returned;
    tally.under_way += usize::from(under_way.is_some());
    let context = format!("{context}, after {returned} steps, under way {under_way:?}");
    let found = std::fs::read(&path).unwrap();
    check(&found, &old, &new, &under_way).unwrap_or_else(|wrong| panic!("{context}: {wrong}"));
    // Of the one that somebody else has open too nothing is taken back before the next open.
    if number < FILES - 1 {
        assert_eq!(support::mark(&path), None, "{context}: the mark stands");
        let given_back = || support::allocated(&path) <= found.len() as u64 + (128 << 10);
        let is_ours = ahead == Ahead::Nothing;
        assert!(
            !is_ours || eventually(Duration::from_secs(2), given_back),
            "{context}: space is left"
        );
    }
}

/// Whether a file is as it was before the step that was under way, or after it, or each byte as
/// before or after.
fn check(found: &[u8], old: &[u8], new: &[u8], step: &Option<Step>) -> Result<(), String> {
    let (short, long) = (old.len().min(new.len()), old.len().max(new.len()));
    let may_be = match step {
        // The engine accepts a write page by page, so a part of it may be there.
        Some(Step::Write(..) | Step::Append(_)) => (short..=long).contains(&found.len()),
        _ => found.len() == old.len() || found.len() == new.len(),
    };
    if !may_be {
        return Err(format!("{} bytes, not {} or {}", found.len(), old.len(), new.len()));
    }
    let wrong = (0..found.len()).find(|at| {
        let byte = Some(&found[*at]);
        byte != old.get(*at) && byte != new.get(*at)
    });
    match wrong {
        None => Ok(()),
        Some(at) => {
            let differ = (at..found.len()).filter(|at| Some(&found[*at]) != old.get(*at)).count();
            let zeroes = found[at..].iter().take_while(|byte| **byte == 0).count();
            Err(format!(
                "byte {at} of {} (before: {}, after: {}) is neither as before nor as after; {zeroes} zeroes from \
                 there, {differ} bytes that are not as before",
                found.len(),
                old.len(),
                new.len()
            ))
        }
    }
}

/// How often it dies: as often as told, else so many times.
fn deaths(by_default: usize) -> usize {
    support::number("FOREBAY_TEST_KILLS", by_default)
}

#[test]
fn contract_04_and_08_and_09_dead_here() {
    if process::task().is_none() {
        let directory = directory();
        // It may be any file system.
        die_many_times(directory.path(), deaths(9), Ahead::Some, Beside::Nothing);
    }
}

#[test]
fn contract_04_and_08_and_09_dead_on_xfs() {
    if process::task().is_none()
        && let Some(mount) = Mount::new("dead_on_xfs", FileSystem::Xfs, 2048 * MIB)
    {
        die_many_times(&mount.path(), deaths(9), Ahead::Some, Beside::Nothing);
    }
}

#[test]
fn contract_04_and_08_and_09_dead_on_ext4() {
    if process::task().is_none()
        && let Some(mount) = Mount::new("dead_on_ext4", FileSystem::Ext4, 256 * MIB)
    {
        die_many_times(&mount.path(), deaths(9), Ahead::Nothing, Beside::Nothing);
    }
}

#[test]
fn contract_25_dead_on_xfs_beside_a_log() {
    if process::task().is_none()
        && let Some(mount) = Mount::new("dead_on_xfs_with_log", FileSystem::Xfs, 2048 * MIB)
    {
        die_many_times(&mount.path(), deaths(9), Ahead::Some, Beside::Log);
    }
}

#[test]
fn contract_25_dead_on_ext4_beside_a_log() {
    if process::task().is_none()
        && let Some(mount) = Mount::new("dead_on_ext4_with_log", FileSystem::Ext4, 512 * MIB)
    {
        die_many_times(&mount.path(), deaths(9), Ahead::Nothing, Beside::Log);
    }
}
