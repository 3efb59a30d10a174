//! Other programs remove, rename and replace files while they are open here, or give them second
//! names. The engine goes on with the same file under any name.

use std::time::Duration;

use crate::support::{self, how, kind_of, pattern, process};
use forebay::{Engine, ErrorKind, Options};

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(10);

fn small_engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

#[test]
fn contract_06_a_file_removed_or_renamed_by_another_program() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small_engine();
    let removed = engine.open(&path, &how::create()).unwrap();
    removed.write_at(&pattern(1, 30_000), 0).unwrap();
    process::shell("rm \"$1\"", &path).unwrap();
    removed.write_at(&pattern(2, 30_000), 30_000).unwrap();
    removed.sync_data().unwrap();
    // The same name is another file now; the two do not meet.
    let renamed = engine.open(&path, &how::create()).unwrap();
    assert_eq!(renamed.len().unwrap(), 0);
    renamed.write_at(&pattern(3, 30_000), 0).unwrap();
    process::shell("mv \"$1\" \"$1.moved\"", &path).unwrap();
    renamed.write_at(&pattern(4, 30_000), 30_000).unwrap();
    renamed.sync_data().unwrap();
    let mut buffer = vec![0; 60_000];
    assert_eq!(removed.read_at(&mut buffer, 0).unwrap(), 60_000);
    assert!(buffer[..30_000] == pattern(1, 30_000) && buffer[30_000..] == pattern(2, 30_000));
    removed.close().unwrap();
    renamed.close().unwrap();
    assert!(!path.exists());
    let moved = std::fs::read(path.with_extension("moved")).unwrap();
    assert!(moved[..30_000] == pattern(3, 30_000) && moved[30_000..] == pattern(4, 30_000));
}

/// As editors and configuration tools save: a new file takes the name of ours.
#[test]
fn contract_06_a_file_replaced_by_another_program() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small_engine();
    let old = engine.open(&path, &how::create()).unwrap();
    old.write_at(&pattern(1, 30_000), 0).unwrap();
    process::shell("printf new >\"$1.tmp\" && mv \"$1.tmp\" \"$1\"", &path).unwrap();
    let new = engine.open(&path, &how::write()).unwrap();
    old.append(&pattern(2, 10)).unwrap();
    new.append(b"er").unwrap();
    old.sync_data().unwrap();
    new.sync_data().unwrap();
    let (mut of_old, mut of_new) = (vec![0; 40_000], vec![0; 40_000]);
    assert_eq!(
        (old.read_at(&mut of_old, 0).unwrap(), new.read_at(&mut of_new, 0).unwrap()),
        (30_010, 5)
    );
    assert!(of_old[..30_000] == pattern(1, 30_000) && of_old[30_000..30_010] == pattern(2, 10));
    assert_eq!(&of_new[..5], b"newer");
    old.close().unwrap();
    new.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"newer");
}

/// Neither a new name nor a second one is an opening: the lease stays, and the cache is found by
/// either name.
#[test]
fn contract_06_whatever_the_name_it_is_one_cache() {
    let directory = support::directory();
    let (path, moved) = (directory.path().join("file"), directory.path().join("moved"));
    let (link, second) = (directory.path().join("link"), directory.path().join("second"));
    let engine = small_engine();
    let file = engine.open(&path, &how::create()).unwrap();
    let described = file.describe();
    file.write_at(&pattern(1, 10_000), 0).unwrap();
    process::shell(
        "mv \"$1\" \"${1%file}moved\" && cd \"${1%file}\" && ln moved second && ln -s moved link",
        &path,
    )
    .unwrap();
    assert_eq!(file.describe(), described, "a rename breaks no lease");
    for name in [&moved, &link, &second] {
        let other = engine.open(name, &how::write()).unwrap();
        other.append(&pattern(2, 100)).unwrap();
        assert_eq!(other.len().unwrap(), file.len().unwrap(), "{name:?}");
        other.close().unwrap();
    }
    assert_eq!(
        kind_of(engine.open(&path, &how::write())),
        ErrorKind::NotFound,
        "the old name is free"
    );
    let anew = engine.open(&path, &how::create_new()).unwrap();
    assert_eq!(anew.len().unwrap(), 0);
    anew.close().unwrap();
    process::shell("rm \"$1\"", &moved).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    let found = std::fs::read(&second).unwrap();
    assert_eq!(found.len(), 10_300);
    assert!(found[..10_000] == pattern(1, 10_000) && found[10_200..] == pattern(2, 100));
}

/// A file without a name goes with its last handle, and leaves nothing behind.
#[test]
fn contract_06_a_file_without_a_name_is_written_and_forgotten() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small_engine();
    for _ in 0..20 {
        let file = engine.open(&path, &how::create_new()).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_at(&pattern(1, 1_000_001), 0).unwrap();
        file.sync_all().unwrap();
        let mut found = vec![0; 1_000_001];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), 1_000_001);
        assert!(found == pattern(1, 1_000_001));
        file.close().unwrap();
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
