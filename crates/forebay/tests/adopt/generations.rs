//! One generation after the other: each program adopts what the one before had, goes on, and dies.
//!
//! Generations that are upgraded: each runs another program file, at the path of the one before.
//!
//! `FOREBAY_TEST_KILLS=N` has N generations die on each file system instead of a few, and
//! `FOREBAY_TEST_UPGRADES=N` upgrades N times.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use forebay::{Engine, File, Options};
use forebay_block::random::{Random, mix};

use crate::support::kept::{self, SOON, adopt_orphans, wait_for_orphan};
use crate::support::mount::{FileSystem, Mount};
use crate::support::progress::Progress;
use crate::support::{self, MIB, assert_on_disk, how, process};
use crate::{builder_with, place, read_all, ready, start};

const GOES_ON: &str = "generations::child_that_goes_on";

const FILES: usize = 4;

/// Of these the last one is open elsewhere, so it is no generation's alone, and the one before has
/// no name.
const SHARED: usize = FILES - 1;
const NAMELESS: usize = FILES - 2;

const LONGEST: u64 = 3 * MIB;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Verb {
    /// Offset, length.
    Write(u64, usize),
    SetLength(u64),
    Read(u64, usize),
    Sync,
}

/// Endless sequence of steps that depends on the seed alone. A step that is made twice has the
/// effect of one.
struct Workload {
    random: Random,
    number: u64,
    lengths: [u64; FILES],
}

impl Workload {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), number: 0, lengths: [0; FILES] }
    }

    fn next(&mut self) -> (usize, Verb) {
        self.number += 1;
        let random = &mut self.random;
        let file = random.below(FILES as u64) as usize;
        let length = &mut self.lengths[file];
        let offset = random.below(LONGEST);
        let small = 1 + random.below(9000) as usize;
        let verb = match random.below(1000) {
            _ if *length > LONGEST + MIB => Verb::SetLength(offset / 2),
            0..6 => Verb::SetLength(offset),
            6..10 => Verb::Sync,
            10..100 => Verb::Read(offset, small * 4),
            100..110 => Verb::Write(offset / 4096 * 4096, 300_000),
            110..500 => Verb::Write(*length, small),
            500..700 => Verb::Write(offset % (64 << 10), 1 + small % 300),
            _ => Verb::Write(offset, small),
        };
        match verb {
            Verb::Write(offset, bytes) => *length = (*length).max(offset + bytes as u64),
            Verb::SetLength(to) => *length = to,
            Verb::Read(..) | Verb::Sync => {}
        }
        (file, verb)
    }

    /// The bytes of the step: no other has them.
    fn data(&self, length: usize) -> Vec<u8> {
        let salt = mix(self.number ^ self.random.clone().draw());
        let words =
            (0..length.div_ceil(8) as u64).map(|at| mix(salt.wrapping_add(at)).to_le_bytes());
        words.flatten().take(length).collect()
    }

    fn make_in(&self, verb: &Verb, content: &mut Vec<u8>) {
        match verb {
            Verb::Write(offset, length) => {
                let (start, end) = (*offset as usize, *offset as usize + length);
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(&self.data(*length));
            }
            Verb::SetLength(length) => content.resize(*length as usize, 0),
            Verb::Read(..) | Verb::Sync => {}
        }
    }

    fn make(&self, verb: &Verb, file: &File) {
        match verb {
            Verb::Write(offset, length) => file.write_at(&self.data(*length), *offset).unwrap(),
            Verb::SetLength(length) => file.set_len(*length).unwrap(),
            Verb::Read(offset, length) => {
                file.read_at(&mut vec![0; *length], *offset).unwrap();
            }
            Verb::Sync => file.sync_data().unwrap(),
        }
    }
}

fn path_of(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("file-{number}"))
}

/// The files of one generation, in their order.
fn begin(engine: &Engine, directory: &Path) -> Vec<File> {
    let open = |number: usize| engine.open(path_of(directory, number), &how::create()).unwrap();
    let files = (0..FILES).map(open).collect();
    if !is_upgraded(directory) {
        std::fs::remove_file(path_of(directory, NAMELESS)).unwrap();
    }
    files
}

/// The program that the next generation runs, where generations are upgraded.
fn program(directory: &Path) -> PathBuf {
    directory.join("program")
}

fn is_upgraded(directory: &Path) -> bool {
    program(directory).exists()
}

/// While it exists, a generation ends by itself.
fn end(directory: &Path) -> PathBuf {
    directory.join("end")
}

/// Everything that returned before is there, and nothing else; the workload, and the content, where
/// it goes on.
fn check(files: &[File], directory: &Path, seed: u64, context: &str) -> (Workload, Vec<Vec<u8>>) {
    let progress = Progress::at(directory);
    let (begun, returned) = (progress.reported(0), progress.reported(1));
    assert!(begun == returned || begun == returned + 1, "{context}: {begun}, {returned}");
    let mut workload = Workload::new(seed);
    let mut contents = vec![Vec::new(); FILES];
    while workload.number < returned {
        let (file, verb) = workload.next();
        workload.make_in(&verb, &mut contents[file]);
    }
    let found: Vec<Vec<u8>> = files.iter().map(read_all).collect();
    let mut under_way = None;
    let old = contents.clone();
    if begun > returned {
        let (number, verb) = workload.next();
        workload.make_in(&verb, &mut contents[number]);
        // Made once more it is made.
        workload.make(&verb, &files[number]);
        progress.report(1, begun);
        under_way = Some((number, verb));
    }
    for number in 0..FILES {
        let (found, old, new) = (&found[number], &old[number], &contents[number]);
        let lengths = old.len().min(new.len())..=old.len().max(new.len());
        let wrong = (0..found.len()).find(|at| {
            let byte = Some(&found[*at]);
            byte != old.get(*at) && byte != new.get(*at)
        });
        assert!(
            wrong.is_none() && lengths.contains(&found.len()),
            "{context}, file {number}: {} bytes of {lengths:?}, wrong at {wrong:?}; after {returned} steps, {under_way:?}",
            found.len(),
        );
        assert!(read_all(&files[number]) == *new, "{context}, file {number}, after {under_way:?}");
    }
    (workload, contents)
}

/// The next generation: adopts what the one before had, unless that has ended by itself.
fn go_on(directory: &Path, random: &mut Random) -> (Engine, Vec<File>, u64) {
    let options = Options {
        dirty_bytes: Some(4 << 20),
        background_bytes: Some((1 + random.below(4)) << 20),
        dirty_age: Duration::from_millis(1 + random.below(60)),
        ..Options::default()
    };
    let builder = builder_with(directory, options);
    let is_first = Progress::at(directory).reported(0) == 0;
    if is_first || end(directory).exists() {
        let engine = builder.build().unwrap();
        let files = begin(&engine, directory);
        return (engine, files, 0);
    }
    let adopted = builder.adopt(directory.join("socket")).unwrap();
    let mut files = adopted.files;
    files.sort_by(|one, other| one.path().cmp(other.path()));
    assert_eq!(files.len(), FILES);
    (adopted.engine, files, adopted.clean_pages)
}

#[test]
fn child_that_goes_on() {
    let Some(task) = process::task() else { return };
    let [directory, seed, generation] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let (directory, seed): (&Path, u64) = (directory.as_ref(), seed.parse().unwrap());
    let mut random = Random::new(seed ^ mix(generation.parse().unwrap()));
    let (engine, files, clean) = go_on(directory, &mut random);
    let _ = std::fs::remove_file(end(directory));
    let (mut workload, _) =
        check(&files, directory, seed, &format!("generation {generation}, seed {seed}"));
    process::report(format_args!("{} {clean}", engine.keeper().unwrap().process.unwrap()));
    let progress = Progress::at(directory);
    while !end(directory).exists() {
        let (number, verb) = workload.next();
        progress.report(0, workload.number);
        workload.make(&verb, &files[number]);
        progress.report(1, workload.number);
    }
    // Its handles stay open.
    engine.shutdown(SOON).unwrap();
    // Nobody hears what the harness says.
    std::process::exit(0);
}

fn generations(directory: &Path, count: usize) {
    adopt_orphans();
    let begin = Instant::now();
    let seed = support::seed() >> 1;
    let mut random = Random::new(seed);
    std::fs::File::create(path_of(directory, SHARED)).unwrap();
    let _other = std::fs::File::open(path_of(directory, SHARED)).unwrap();
    let mut keepers = Vec::new();
    let mut clean_pages = 0;
    for generation in 0..count {
        let task = format!("{}\n{seed}\n{generation}", directory.display());
        let is_upgraded = is_upgraded(directory);
        let (mut child, reported) = if is_upgraded {
            let program = program(directory);
            ready(process::start_child_of(&program, GOES_ON, &task, Stdio::inherit()))
        } else {
            start(GOES_ON, &task)
        };
        let (keeper, clean) = reported.split_once(' ').unwrap();
        let keeper = keeper.parse().unwrap();
        clean_pages += clean.parse::<u64>().unwrap();
        // The first one is to begin, at least.
        let least = if generation == 0 { 20_000 } else { 0 };
        std::thread::sleep(Duration::from_micros(least + random.below(120_000)));
        if is_upgraded {
            process::replace_by_another_build(&program(directory));
        }
        if is_upgraded && generation % 2 == 1 {
            std::fs::write(end(directory), b"").unwrap();
            assert!(child.wait().unwrap().success(), "generation {generation}, seed {seed}");
        } else {
            kept::kill(&mut child, libc::SIGKILL);
            keepers.push(keeper);
        }
    }
    let (engine, files, clean) = go_on(directory, &mut random);
    for keeper in keepers {
        assert_eq!(
            wait_for_orphan(keeper, SOON),
            0,
            "seed {seed}: {}",
            kept::said(&directory.join("log"))
        );
    }
    let (mut workload, mut contents) =
        check(&files, directory, seed, &format!("the last, seed {seed}"));
    for _ in 0..1000 {
        let (number, verb) = workload.next();
        workload.make(&verb, &files[number]);
        workload.make_in(&verb, &mut contents[number]);
    }
    let file_system = forebay_uring::probe::file_system(directory).unwrap();
    let (steps, clean) = (workload.number, clean_pages + clean);
    println!(
        "{file_system}: {count} generations, {steps} steps, {clean} clean pages read without the device, \
         {:.1?}",
        begin.elapsed()
    );
    assert!(clean > 0, "nothing was ever warm");
    for (number, file) in files.into_iter().enumerate() {
        assert!(read_all(&file) == contents[number], "seed {seed}, file {number}");
        file.sync_all().unwrap();
        file.close().unwrap();
        if number != NAMELESS || is_upgraded(directory) {
            let what = format!("seed {seed}, when all was closed");
            assert_on_disk(&path_of(directory, number), &contents[number], &what);
        }
    }
    engine.shutdown(SOON).unwrap();
}

#[test]
fn contract_04_and_08_generation_after_generation() {
    if process::task().is_none() {
        let (_guard, directory) = place();
        generations(&directory, support::number("FOREBAY_TEST_KILLS", 10));
    }
}

/// On a file system of its own, with a name and a size in bytes.
fn generations_on(name: &str, kind: FileSystem, bytes: u64) {
    if process::task().is_none()
        && let Some(mount) = Mount::new(name, kind, bytes)
    {
        let directory = mount.path().canonicalize().unwrap();
        generations(&directory, support::number("FOREBAY_TEST_KILLS", 10));
    }
}

#[test]
fn contract_04_and_08_generation_after_generation_on_xfs() {
    generations_on("adopt_on_xfs", FileSystem::Xfs, 2048 * MIB);
}

#[test]
fn contract_04_and_08_generation_after_generation_on_ext4() {
    generations_on("adopt_on_ext4", FileSystem::Ext4, 256 * MIB);
}

#[test]
fn contract_04_and_08_programs_are_upgraded_under_load() {
    if process::task().is_none() {
        let (_guard, directory) = place();
        process::replace_by_another_build(&program(&directory));
        generations(&directory, support::number("FOREBAY_TEST_UPGRADES", 4));
    }
}
