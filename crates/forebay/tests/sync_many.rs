//! One durable point for many files, on real file systems.

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use forebay::{Engine, ErrorKind, File, Options};
use support::mount::{FileSystem, Mount};
use support::{MIB, directory, how, pattern};

/// Creates files and writes them; nothing is synced.
fn create(engine: &Engine, directory: &Path, count: u64) -> Vec<File> {
    let create = |number: u64| {
        let path = directory.join(format!("{}/{number}", number % 4));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = engine.open(path, &how::create_new()).unwrap();
        file.write_at(&pattern(number, 1 + (number as usize * 1237) % 40_000), 0).unwrap();
        file
    };
    (0..count).map(create).collect()
}

fn check(directory: &Path, count: u64) {
    for number in 0..count {
        let path = directory.join(format!("{}/{number}", number % 4));
        let expected = pattern(number, 1 + (number as usize * 1237) % 40_000);
        support::assert_on_disk(&path, &expected, "a synced file");
    }
}

#[test]
fn contract_19_a_set_of_new_files_survives_a_power_cut() {
    for file_system in [FileSystem::Xfs, FileSystem::Ext4] {
        let Some(mut mount) = Mount::new("sync_many", file_system, 2048 * MIB) else { continue };
        let engine = Engine::new().unwrap();
        let files = create(&engine, &mount.path(), 300);
        for directory in 0..4 {
            // The engine did not make the directories.
            fs::File::open(mount.path().join(format!("{directory}"))).unwrap().sync_all().unwrap();
        }
        fs::File::open(mount.path()).unwrap().sync_all().unwrap();
        let all: Vec<_> = files.iter().collect();
        engine.sync_many(&all).unwrap();
        mount.cut_off();
        drop(files);
        let _ = engine.shutdown(Duration::from_secs(10));
        drop(engine);
        mount.reboot();
        check(&mount.path(), 300);
    }
}

#[test]
fn contract_19_results_are_per_file() {
    let Some(mount) = Mount::new("sync_many_results", FileSystem::Ext4, 256 * MIB) else { return };
    let here = directory();
    let (engine, other) = (Engine::new().unwrap(), Engine::new().unwrap());
    let open = |engine: &Engine, path: &Path| {
        let file = engine.open(path, &how::create()).unwrap();
        file.write_at(&[7; 9000], 0).unwrap();
        file
    };
    let good = open(&engine, &here.path().join("good"));
    let same = engine.open(here.path().join("good"), &how::write()).unwrap();
    let foreign = open(&other, &here.path().join("foreign"));
    let dead = open(&engine, &mount.path().join("dead"));
    mount.cut_off();
    let failed = engine.sync_many(&[&good, &dead, &foreign, &same]).unwrap_err();
    let [(1, of_dead), (2, of_foreign)] = &failed.errors[..] else { panic!("{failed:?}") };
    assert!(matches!(of_dead.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{of_dead}");
    assert_eq!(of_foreign.kind(), ErrorKind::InvalidInput, "{of_foreign}");
    assert_eq!(of_foreign.path(), Some(foreign.path()));
    let text = failed.to_string();
    assert!(text.starts_with(&of_dead.to_string()) && text.contains("; 1 more files"), "{text}");
    assert_eq!(forebay::Error::from(failed).path(), Some(dead.path()));
    let alone = engine.sync_many(&[&foreign]).unwrap_err();
    assert_eq!((alone.errors[0].0, alone.errors[0].1.kind()), (0, ErrorKind::InvalidInput));
    engine.sync_many(&[]).unwrap();
}

/// Of files whose engine has ended none is durable, and each has its error.
#[test]
fn contract_19_a_set_after_the_shutdown_has_an_error_per_file() {
    let directory = directory();
    let engine = Engine::new().unwrap();
    let files = create(&engine, directory.path(), 3);
    let all: Vec<_> = files.iter().collect();
    engine.shutdown(Duration::from_secs(10)).unwrap();
    for failed in [engine.sync_many(&all), support::block_on(engine.asynchronous().sync_many(&all))]
    {
        let errors = failed.unwrap_err().errors;
        let found: Vec<_> = errors.iter().map(|(index, error)| (*index, error.kind())).collect();
        assert_eq!(found, [0, 1, 2].map(|index| (index, ErrorKind::Shutdown)));
    }
}

#[test]
fn contract_19_nothing_outside_the_set_is_written() {
    let directory = directory();
    let engine =
        Engine::start(Options { dirty_age: Duration::from_secs(3600), ..Options::default() })
            .unwrap();
    let outside = engine.open(directory.path().join("outside"), &how::create()).unwrap();
    outside.write_at(&[1; 40_960], 0).unwrap();
    let files = create(&engine, directory.path(), 40);
    let all: Vec<_> = files.iter().collect();
    engine.sync_many(&all).unwrap();
    assert_eq!(engine.stats().dirty_bytes, 40_960);
    assert_eq!(fs::metadata(outside.path()).unwrap().len(), 0);
    check(directory.path(), 40);
}
