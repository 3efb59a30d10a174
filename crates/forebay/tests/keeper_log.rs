//! A keeper beside an intent log: its handling of files that it cannot write, of a log that cannot
//! be read, and of an atomic write in progress; and a program that takes over from it.
//!
//! The program that dies is a child of this program.

mod support;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use forebay::intent_log::{self, Ask};
use forebay::keeper::image::{self, Run};
use forebay::{Adopted, Engine, ErrorKind, File, Keeper, Options};
use forebay_block::random::Random;
use support::kept::{self, SOON, Survived};
use support::mount::{FileSystem, Mount};
use support::{MIB, assert_on_disk, how, pattern, process};

const LENGTH: usize = 600_000;

/// Bytes of the file whose last write is logged.
const LOGGED: usize = 40_960;

#[test]
fn keeper() {
    kept::serve();
}

/// Starts an engine with a keeper, and a log in the directory of a file.
fn build(what: &str, directory: &Path, file: &Path) -> Engine {
    let keeper = Keeper {
        log: Some(directory.join("log")),
        save_to: Some(directory.into()),
        socket: Some(directory.join("socket")),
        patience: Duration::from_millis(if what == "damaged" { 3000 } else { 300 }),
        linger: Duration::from_secs(if what == "adopted" { 10 } else { 0 }),
        ..kept::keeper()
    };
    let options = Options {
        cache_bytes: Some(64 * MIB),
        dirty_bytes: Some(48 * MIB),
        background_bytes: Some(48 * MIB),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    };
    let builder = Engine::builder(options).survive(keeper);
    builder.intent_log_always(file.parent().unwrap()).build().unwrap()
}

/// Writes a part of a file whose syncs are logged.
fn write_logged(engine: &Engine, file: &File, seed: u64) {
    for _ in 0..20 {
        let before = engine.stats().logged_syncs;
        file.write_at(&pattern(seed, LOGGED), 0).unwrap();
        file.sync_data().unwrap();
        if engine.stats().logged_syncs > before {
            return;
        }
    }
    panic!("no sync is logged: {:?}", engine.stats());
}

#[test]
fn child_that_is_survived() {
    let Some(task) = process::task() else { return };
    let [what, directory, path] = task.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let (directory, path) = (Path::new(directory), Path::new(path));
    let engine = build(what, directory, path);
    let file = engine.open(path, &how::create()).unwrap();
    if what != "atomic" {
        write_logged(&engine, &file, 1);
    }
    let report = || {
        process::report(format_args!("{}", engine.keeper().unwrap().process.unwrap()));
    };
    if what == "atomic" {
        let other = engine.open(path.with_extension("other"), &how::create()).unwrap();
        report();
        for generation in 1_u64.. {
            let data = generation.to_le_bytes().repeat(3000);
            let both: [(&File, u64, &[u8]); 2] = [(&file, 100, &data), (&other, 5, &data)];
            engine.atomic(&both).unwrap();
        }
    }
    // Newer than the record, and not synced.
    file.write_at(&pattern(2, LOGGED / 2), 0).unwrap();
    file.write_at(&pattern(3, LENGTH), MIB).unwrap();
    report();
    std::thread::sleep(SOON);
}

/// Checks everything that the child has written.
fn assert_all_there(path: &Path) {
    let mut expected = pattern(1, LOGGED);
    expected[..LOGGED / 2].copy_from_slice(&pattern(2, LOGGED / 2));
    expected.resize(MIB as usize, 0);
    expected.extend(pattern(3, LENGTH));
    assert_on_disk(path, &expected, "all that was written");
}

/// Recovers the log of a directory. Returns the bytes that were put back.
fn put_back(path: &Path) -> u64 {
    let recovery = intent_log::recover(path.parent().unwrap(), &Ask::default()).unwrap();
    assert!(recovery.is_empty, "{recovery:?}");
    recovery.files.iter().map(|file| file.bytes).sum()
}

/// The image that a keeper's log names.
fn saved(said: &str) -> PathBuf {
    said.trim_end().rsplit("forebay recover ").next().unwrap_or_default().into()
}

fn start(what: &str, mount: &Mount) -> (Survived, tempfile::TempDir, PathBuf) {
    let directory = support::directory();
    let path = mount.path().canonicalize().unwrap().join("file");
    let survived = Survived::start_with(1, Stdio::inherit(), what, directory.path(), &path);
    (survived, directory, path)
}

#[test]
fn contract_25_the_log_comes_before_the_image() {
    let Some(mount) = Mount::new("keeper_log_image", FileSystem::Ext4, 64 * MIB) else { return };
    let (survived, _directory, path) = start("image", &mount);
    let filler = process::fill_up(&mount.path());
    let (status, said) = survived.die();
    assert_eq!(status, 1, "{said}");
    let image = saved(&said);
    fs::remove_file(filler).unwrap();
    // Its own recovery of the log comes first; else a later one would put older bytes back.
    let recovered = image::recover(&image, Run::Real).unwrap();
    assert!(recovered.iter().all(|file| file.result.is_ok()), "{recovered:?}");
    assert_all_there(&path);
    assert_eq!(put_back(&path), 0, "the log is empty");
    assert_all_there(&path);
}

#[test]
fn contract_25_files_of_a_damaged_log_are_left_alone_and_saved() {
    let Some(mount) = Mount::new("keeper_log_damaged", FileSystem::Ext4, 128 * MIB) else { return };
    let (mut survived, _directory, path) = start("damaged", &mount);
    let log = path.parent().unwrap().join(intent_log::NAME);
    let damaged = fs::OpenOptions::new().write(true).open(&log).unwrap();
    let heads = fs::read(&log).unwrap()[..8192].to_vec();
    damaged.write_all_at(&[0; 8192], 0).unwrap();
    let at_once = Ask { patience: Duration::ZERO, ..Ask::default() };
    kept::kill(&mut survived.child, libc::SIGKILL);
    // It tries again and again, and holds the log meanwhile.
    std::thread::sleep(Duration::from_millis(700));
    let recovered = intent_log::recover(path.parent().unwrap(), &at_once);
    assert_eq!(support::kind_of(recovered.map(drop)), ErrorKind::Busy);
    let (status, said) = survived.ended();
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("its intent log cannot be read"), "{said}");
    let image = saved(&said);
    let refused = image::recover(&image, Run::Real).unwrap();
    assert_eq!(refused[0].result.as_ref().unwrap_err().kind(), ErrorKind::Open, "{refused:?}");
    damaged.write_all_at(&heads, 0).unwrap();
    let recovered = image::recover(&image, Run::Real).unwrap();
    assert!(recovered.iter().all(|file| file.result.is_ok()), "{recovered:?}");
    assert_all_there(&path);
}

#[test]
fn contract_25_another_program_takes_over_with_the_log() {
    let Some(mount) = Mount::new("keeper_log_adopted", FileSystem::Xfs, 2048 * MIB) else { return };
    let (mut survived, directory, path) = start("adopted", &mount);
    let socket = directory.path().canonicalize().unwrap().join("socket");
    let builder = || {
        let options = Options { cache_bytes: Some(64 * MIB), ..Options::default() };
        Engine::builder(options).intent_log_always(path.parent().unwrap())
    };
    let alive = builder().build().expect_err("the program is alive");
    assert_eq!(alive.kind(), ErrorKind::Busy, "{alive}");
    kept::kill(&mut survived.child, libc::SIGKILL);
    let Adopted { engine, files, unwritten_pages, .. } = builder().adopt(&socket).unwrap();
    assert_eq!((files.len(), unwritten_pages), (1, 0));
    let (status, said) = survived.ended();
    assert_eq!(status, 0, "{said}");
    write_logged(&engine, &files[0], 4);
    assert!(engine.stats().logged_bytes > 0);
    drop(files);
    engine.shutdown(SOON).unwrap();
    let found = fs::read(&path).unwrap();
    assert!(
        found[..LOGGED] == pattern(4, LOGGED)[..]
            && found[MIB as usize..] == pattern(3, LENGTH)[..]
    );
}

#[test]
fn contract_27_a_keeper_leaves_all_ranges_or_none() {
    let Some(mount) = Mount::new("keeper_log_atomic", FileSystem::Ext4, 256 * MIB) else { return };
    let mut random = Random::new(support::seed());
    let mut last = 0;
    for _ in 0..support::number("FOREBAY_TEST_KILLS", 6) {
        let (survived, _directory, path) = start("atomic", &mount);
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        let (status, said) = survived.die();
        assert_eq!(status, 0, "{said}");
        let found = [(path.clone(), 100), (path.with_extension("other"), 5)].map(|(path, at)| {
            let bytes = fs::read(path).unwrap();
            bytes.get(at..at + 24_000).map_or(vec![0; 24_000], <[u8]>::to_vec)
        });
        assert!(found[0] == found[1], "a part of a call is missing: {said}");
        let generation = u64::from_le_bytes(found[1][..8].try_into().unwrap());
        assert!(found[1].chunks(8).all(|word| word == &found[1][..8]), "{said}");
        last = last.max(generation);
        assert_eq!(put_back(&path), 0, "{said}");
    }
    assert!(last > 0, "no call has returned");
}
