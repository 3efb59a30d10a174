//! Files that are open for a short time: their caller closes them, no context does.

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay::{Engine, ErrorKind, OpenOptions, Options};
use support::MIB;
use support::how;

const ROUNDS: u32 = 300;

fn engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(16 * MIB), ..Options::default() }).unwrap()
}

/// Writes a file under a temporary name, and renames it.
fn put(engine: &Engine, directory: &Path, name: &str, content: &[u8]) {
    let (new, path) = (directory.join(format!("{name}.new")), directory.join(name));
    let file = engine.open(&new, &how::temporary()).unwrap();
    file.write_at(content, 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(fs::read(&new).unwrap(), content, "others see what was synced");
    file.close().unwrap();
    fs::rename(&new, &path).unwrap();
}

/// Counts the open files of a directory. Other tests of this process have files of their own.
fn open_files(directory: &Path) -> usize {
    let directory = directory.canonicalize().unwrap();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    // One of them may be closed meanwhile.
    let paths = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    paths.filter(|path| path.starts_with(&directory)).count()
}

#[test]
fn contract_01_a_temporary_file_is_synced_without_its_directory() {
    let directory = support::directory();
    let engine = engine();
    let flushes = |open: &OpenOptions, name: &str| {
        let file = engine.open(directory.path().join(name), open).unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        let before = engine.stats().bios;
        file.sync_data().unwrap();
        let made = engine.stats().bios - before;
        file.close().unwrap();
        made
    };
    assert_eq!(flushes(&how::create_new(), "a"), 3, "a write, the file and its directory");
    assert_eq!(flushes(&how::temporary(), "b"), 2);
    // Nor by a later sync: the program does that.
    let file = engine.open(directory.path().join("b"), &how::write()).unwrap();
    let before = engine.stats().bios;
    file.sync_all().unwrap();
    assert_eq!(engine.stats().bios - before, 1);
}

#[test]
fn a_temporary_file_must_not_exist_and_is_an_ordinary_one_when_opened_again() {
    let directory = support::directory();
    let engine = engine();
    let path = directory.path().join("file");
    fs::write(&path, b"there").unwrap();
    let refused = engine.open(&path, &how::temporary()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    put(&engine, directory.path(), "file", b"a new version");
    let file = engine.open(&path, &how::write()).unwrap();
    let mut found = [0; 13];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"a new version");
    let other = Engine::new().unwrap();
    assert_eq!(other.open(&path, &how::write()).unwrap_err().kind(), ErrorKind::Busy);
}

/// Every caller reads back what another engine finds.
#[test]
fn contract_05_files_closed_by_their_callers_are_whole_and_leave_no_descriptor() {
    let directory = support::directory();
    let engine = engine();
    let content = |thread: u32, round: u32| {
        let length = (thread * 7919 + round * 4093) % 70_000;
        (0..length).map(|at| (at * 31 + thread + round) as u8).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (engine, directory) = (&engine, directory.path());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let name = format!("{thread}-{round}");
                    if round % 2 == 0 {
                        put(engine, directory, &name, &content(thread, round));
                        continue;
                    }
                    let path = directory.join(&name);
                    let file = engine.open(&path, &how::create_new()).unwrap();
                    file.write_at(&content(thread, round), 0).unwrap();
                    match round % 3 {
                        0 => file.sync_all().and_then(|()| file.close()).unwrap(),
                        1 => file.close().unwrap(),
                        _ => drop(file),
                    }
                    // At once, while the last handle may still be on its way.
                    let again = engine.open(&path, &how::write()).unwrap();
                    assert_eq!(again.len().unwrap(), content(thread, round).len() as u64);
                    again.close().unwrap();
                }
            });
        }
    });
    let one = engine.open(directory.path().join("0-0"), &how::read()).unwrap();
    assert!(open_files(directory.path()) > 0, "open files are counted");
    drop(one);
    // Messages keep some closed files until a context wakes.
    let still_open = open_files(directory.path());
    assert!(still_open < 200, "{still_open} files");
    engine.shutdown(Duration::from_secs(60)).unwrap();
    for (thread, round) in (0..8).flat_map(|thread| (0..ROUNDS).map(move |round| (thread, round))) {
        let found = fs::read(directory.path().join(format!("{thread}-{round}"))).unwrap();
        assert!(found == content(thread, round), "file {thread}-{round}");
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while open_files(directory.path()) > 0 {
        assert!(Instant::now() < deadline, "{} files", open_files(directory.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A write that no context hears of at once is written out by its age all the same.
#[test]
fn contract_04_a_page_is_written_by_its_age_after_many_quiet_files() {
    let directory = support::directory();
    let engine = Engine::start(Options {
        cache_bytes: Some(16 * MIB),
        dirty_age: Duration::from_millis(400),
        ..Options::default()
    })
    .unwrap();
    for round in 0..50 {
        put(&engine, directory.path(), &format!("quiet-{round}"), &[7; 5000]);
    }
    let path = directory.path().join("late");
    let file = engine.open(&path, &how::create_new()).unwrap();
    file.write_at(&[9; 8192], 0).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while fs::metadata(&path).unwrap().len() < 8192 {
        assert!(Instant::now() < deadline, "nobody wrote it");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(file);
}
