//! A program is stopped at random moments, as death would stop it, and inspected. The unwritten
//! data in its memory, put over its files as the kernel has them, makes exactly the files that the
//! program wrote.
//!
//! `FOREBAY_TEST_STOPS=N` stops N times each instead of a few.

mod support;

use std::fs::File;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay::{Engine, Options, inside};
use forebay_block::random::{Random, mix};
use forebay_uring::arena::Arena;
use forebay_uring::header::FrameState;
use forebay_uring::records::FileRecord;
use support::progress::Progress;
use support::stopped::{Account, Stopped, accounts};
use support::{MIB, PAGE, how, knobs, process};

const CHILD: &str = "child_that_is_stopped";

const FILES: usize = 2;

/// No file gets longer, but by appends.
const LONGEST: u64 = 6 * MIB;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Verb {
    /// Offset, length, and what the bytes are made of.
    Write(u64, usize, u64),
    Append(usize, u64),
    Read(u64, usize),
    SetLength(u64),
    Sync,
    Reopen {
        uncached: bool,
    },
    Pause(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Step {
    file: usize,
    verb: Verb,
}

/// A row of steps without end: child and parent make the same.
struct Workload(Random);

impl Iterator for Workload {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let random = &mut self.0;
        let salt = random.draw();
        let offset = random.below(LONGEST);
        // Few places, so that they are met again while what was written there is on its way.
        let near = random.below(24) * PAGE + random.below(PAGE);
        let small = 1 + random.below(9000) as usize;
        let verb = match random.below(100) {
            0..30 => Verb::Write(near, 1 + small % 700, salt),
            30..40 => Verb::Write(near, small, salt),
            40..48 => Verb::Write(near / PAGE * PAGE, (1 + small / 1000) * PAGE as usize, salt),
            48..58 => Verb::Write(offset, small, salt),
            58..61 => Verb::Write(offset / PAGE * PAGE, (1 + small % 40) * PAGE as usize, salt),
            61..64 => Verb::Write(offset / MIB * MIB, (1 + small % 4) * MIB as usize, salt),
            64..74 => Verb::Append(small, salt),
            74..84 => Verb::Read(near, small * 4),
            84..86 => Verb::Read(offset, small * 40),
            86..88 => Verb::SetLength(near),
            88..90 => Verb::SetLength(offset),
            90..92 => Verb::Sync,
            92..94 => Verb::Reopen { uncached: small.is_multiple_of(3) },
            _ => Verb::Pause(random.below(6000)),
        };
        Some(Step { file: random.below(FILES as u64) as usize, verb })
    }
}

fn bytes_of(salt: u64, length: usize) -> Vec<u8> {
    let words =
        (0..length.div_ceil(8) as u64).map(|at| mix(salt.wrapping_add(at)) | 0x0101_0101_0101_0101);
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

fn path_of(directory: &Path, file: usize) -> PathBuf {
    directory.join(format!("file-{file}"))
}

const ALL: u64 = u64::MAX;

#[test]
fn child_that_is_stopped() {
    let Some(task) = process::task() else { return };
    let [directory, seed, by, steps, are_shared] =
        task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let (directory, seed): (&Path, u64) = (directory.as_ref(), seed.parse().unwrap());
    let builder = Engine::builder(knobs::named(
        Options {
            cache_bytes: Some(8 << 20),
            dirty_bytes: Some(4 << 20),
            background_bytes: Some(1 << 20),
            buffer_bytes: 16 << 20,
            dirty_age: Duration::from_millis(1 + seed % 20),
            ..Options::default()
        },
        [("backend", by)],
    ));
    let engine = inside::survivable(builder).build().unwrap();
    let open = |file, uncached| {
        Some(engine.open(path_of(directory, file), how::create().uncached(uncached)).unwrap())
    };
    if seed.is_multiple_of(3) {
        keep_changing_contexts(&engine);
    }
    let progress = Progress::at(directory);
    let mut handles: Vec<_> = (0..FILES).map(|file| open(file, false)).collect();
    let (steps, are_shared): (u64, bool) = (steps.parse().unwrap(), are_shared.parse().unwrap());
    for (number, Step { file, verb }) in (1..=20 * steps).zip(Workload(Random::new(seed))) {
        // Only where a large write finds no room, and nothing of it in use, does it go past the
        // cache.
        if number > steps && (are_shared || engine.stats().bypassed_bytes > 0) {
            break;
        }
        progress.report(0, number);
        let handle = handles[file].as_ref().unwrap();
        match verb {
            Verb::Write(offset, length, salt) => {
                // Aligned, so that it may go past the cache.
                let mut buffer = engine.buffer(length).unwrap();
                buffer.copy_from_slice(&bytes_of(salt, length));
                handle.write_at(&buffer, offset).unwrap();
            }
            Verb::Append(length, salt) => _ = handle.append(&bytes_of(salt, length)).unwrap(),
            Verb::Read(offset, length) => _ = handle.read_at(&mut vec![0; length], offset).unwrap(),
            Verb::SetLength(length) => handle.set_len(length).unwrap(),
            Verb::Sync => handle.sync_data().unwrap(),
            Verb::Reopen { uncached } => {
                handles[file].take().unwrap().close().unwrap();
                handles[file] = open(file, uncached);
            }
            Verb::Pause(time) => std::thread::sleep(Duration::from_micros(time)),
        }
        progress.report(1, number);
    }
    handles.into_iter().for_each(|handle| handle.unwrap().close().unwrap());
    process::report(format_args!("bypassed {}", engine.stats().bypassed_bytes));
    progress.report(0, ALL);
    std::thread::sleep(Duration::from_secs(100));
}

/// Files go from context to context all the time.
fn keep_changing_contexts(engine: &Engine) {
    knobs::set(engine, "affinity", "hash").unwrap();
    let engine = engine.clone();
    std::thread::spawn(move || {
        for number in ["1", "4", "2", "3"].iter().cycle() {
            knobs::set(&engine, "contexts", number).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
}

/// Expected contents of the files.
struct Model {
    files: [Vec<u8>; FILES],
    steps: Peekable<Workload>,
    /// Steps that have returned.
    done: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self { files: Default::default(), steps: Workload(Random::new(seed)).peekable(), done: 0 }
    }

    fn go_to(&mut self, done: u64) {
        for _ in self.done..done {
            let step = self.steps.next().unwrap();
            take(&mut self.files[step.file], &step.verb);
        }
        self.done = done;
    }

    /// A file as it would be with the next step, where that concerns it.
    fn next(&mut self, file: usize) -> Option<Vec<u8>> {
        let step = self.steps.peek().filter(|step| step.file == file)?;
        let mut next = self.files[file].clone();
        take(&mut next, &step.verb);
        Some(next)
    }
}

fn take(bytes: &mut Vec<u8>, verb: &Verb) {
    let mut write = |offset: usize, data: &[u8]| {
        bytes.resize(bytes.len().max(offset + data.len()), 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
    };
    match verb {
        Verb::Write(offset, length, salt) => write(*offset as usize, &bytes_of(*salt, *length)),
        Verb::Append(length, salt) => bytes.extend(bytes_of(*salt, *length)),
        Verb::SetLength(length) => bytes.resize(*length as usize, 0),
        Verb::Read(..) | Verb::Sync | Verb::Reopen { .. } | Verb::Pause(_) => {}
    }
}

/// Whether each byte from `at` on is one that the file had before a step or has after it.
fn check_bytes(found: &[u8], at: usize, before: &[u8], after: &[u8]) -> Result<(), String> {
    for (index, piece) in found.chunks(PAGE as usize).enumerate() {
        let start = at + index * PAGE as usize;
        let range = start..start + piece.len();
        if before.get(range.clone()) == Some(piece) || after.get(range) == Some(piece) {
            continue;
        }
        for (at, byte) in (start..).zip(piece) {
            if before.get(at) != Some(byte) && after.get(at) != Some(byte) {
                let (before, after) = (before.get(at), after.get(at));
                return Err(format!(
                    "byte {at} (page {}) is {byte}, not {before:?} or {after:?}",
                    at as u64 / PAGE
                ));
            }
        }
    }
    Ok(())
}

/// Counts over all stops; the test fails if they show that it tested nothing.
#[derive(Default, Debug)]
struct Tally {
    stops: usize,
    under_way: usize,
    /// Files that the kernel alone had otherwise.
    saved: usize,
    dirty: usize,
    partial: usize,
    clean: usize,
    cut: usize,
}

impl Tally {
    fn count(&mut self, account: &Account) {
        let partial = account
            .dirty
            .values()
            .filter(|(_, header)| header.state == FrameState::Partial)
            .count();
        self.partial += partial;
        self.dirty += account.dirty.len() - partial;
        self.clean += account.clean.len();
        self.cut += usize::from(account.record.cut.is_some());
    }
}

/// Looks at one file of a child that is stopped.
fn check_file(
    stopped: &Stopped,
    (arena, account): (&Arena, Option<&Account>),
    path: &Path,
    (before, after): (&[u8], &[u8]),
    tally: &mut Tally,
) -> Result<(), String> {
    let kernel = stopped.content(path);
    let Some(account) = account else {
        return check_whole(&kernel, before, after)
            .map_err(|wrong| format!("not entered: {wrong}"));
    };
    tally.count(account);
    let found = account.recover(arena, kernel.clone());
    tally.saved += usize::from(found != kernel);
    let FileRecord { size, cut, .. } = &account.record;
    let about = format!("record: size {size}, cut {cut:?}; {} in the kernel", kernel.len());
    check_whole(&found, before, after).map_err(|wrong| format!("{wrong}; {}", about))?;
    if account.record.cut.is_none() {
        let mut kernel = kernel;
        kernel.resize(kernel.len().max(found.len()), 0);
        for (at, bytes) in account.clean_pages(arena) {
            if kernel[at..at + bytes.len()] != bytes {
                return Err(format!(
                    "clean page {} is another in the kernel; {}",
                    at as u64 / PAGE,
                    about
                ));
            }
        }
    }
    Ok(())
}

fn check_whole(found: &[u8], before: &[u8], after: &[u8]) -> Result<(), String> {
    // A long write has its steps.
    let (least, most) = (before.len().min(after.len()), before.len().max(after.len()));
    if found.len() < least || found.len() > most {
        return Err(format!("{} bytes long, not {least} to {most}", found.len()));
    }
    check_bytes(found, 0, before, after)
}

fn stop_often(test: &str, by: &str, are_shared: bool) {
    if process::task().is_some() {
        return;
    }
    let stops = support::number("FOREBAY_TEST_STOPS", 60);
    let seed = support::seed();
    let directory = support::directory();
    let path = directory.path().canonicalize().unwrap();
    let others: Vec<File> = if are_shared {
        (0..FILES).map(|file| File::create(path_of(&path, file)).unwrap()).collect()
    } else {
        Vec::new()
    };
    let task = format!("{}\n{seed}\n{by}\n{}\n{are_shared}", path.display(), 20 * stops);
    let mut child = process::start_child(CHILD, &task);
    let (mut model, mut tally) = (Model::new(seed), Tally::default());
    let mut random = Random::new(!seed);
    let progress = Progress::at(&path);
    let patience = Instant::now() + Duration::from_secs(300);
    loop {
        assert!(Instant::now() < patience, "{test}: it does not get on: {tally:?}");
        std::thread::sleep(Duration::from_micros(random.below(4000)));
        let stopped = Stopped::new(&child).expect("the child ended by itself");
        if !stopped.may_be_looked_at() {
            drop(stopped);
            child.kill().unwrap();
            child.wait().unwrap();
            return support::skip(test, "what another process has open is not to be had here");
        }
        if progress.reported(0) == 0 {
            continue;
        }
        let arena = stopped.arena().expect("it has an engine");
        let accounts = accounts(&arena);
        let begun = progress.reported(0);
        if begun == ALL {
            assert!(accounts.is_empty(), "what is closed is not there any more");
            break;
        }
        model.go_to(progress.reported(1));
        tally.stops += 1;
        tally.under_way += usize::from(begun > model.done);
        for file in 0..FILES {
            let path = path_of(&path, file);
            let before = model.files[file].clone();
            let after = if begun > model.done { model.next(file) } else { None };
            let after = after.as_ref().unwrap_or(&before);
            let account = Account::of(&accounts, &path);
            let looked =
                check_file(&stopped, (&arena, account), &path, (&before, after), &mut tally);
            looked.unwrap_or_else(|wrong| {
                let step = model.steps.peek();
                panic!(
                    "{test}, seed {seed}, file {file}, after step {}, next {step:?}: {wrong}",
                    model.done
                )
            });
        }
    }
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    let bypassed = String::from_utf8_lossy(&output)
        .lines()
        .find_map(|line| process::reported(line)?.strip_prefix("bypassed ")?.parse::<u64>().ok());
    drop(others);
    println!("{test}: {tally:?}, {bypassed:?} bytes past the cache");
    assert_eq!(
        bypassed > Some(0),
        !are_shared,
        "files that are ours alone are written past the cache, too"
    );
    let enough =
        [tally.under_way, tally.saved, tally.dirty, tally.partial].iter().all(|seen| *seen > 10);
    assert!(enough && tally.cut > 0, "little was seen: {tally:?}");
    assert_eq!(
        tally.clean > 0,
        !are_shared,
        "clean pages are kept of files that are ours alone: {tally:?}"
    );
}

#[test]
fn contract_04_what_is_not_written_is_reported_at_every_moment() {
    stop_often("exclusive", "auto", false);
}

#[test]
fn contract_04_what_is_not_written_is_reported_at_every_moment_on_the_thread_pool() {
    stop_often("threads", "threads", false);
}

#[test]
fn contract_04_what_is_not_written_of_shared_files_is_reported_at_every_moment() {
    stop_often("shared", "auto", true);
}
