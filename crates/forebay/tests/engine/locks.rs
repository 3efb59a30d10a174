//! Locks: ours keeps other engines off, and those of other programs are respected.

use std::time::Duration;

use crate::support::other::Other;
use crate::support::{self, eventually, how, kind_of, pattern};
use forebay::{Engine, ErrorKind, Options};

/// Upper bound for every wait in this file.
const SOON: Duration = Duration::from_secs(20);

fn small_engine() -> Engine {
    Engine::start(Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() })
        .unwrap()
}

/// A program that has locked the file, as databases do, is asking to be left alone with it.
#[test]
fn contract_06_a_file_that_another_program_has_locked_is_busy_for_writing() {
    let directory = support::directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1, 10_000)).unwrap();
    let engine = small_engine();
    let mut other = Other::start();
    for lock in ["lock_posix", "lock_ofd"] {
        other.open("both", &path);
        other.do_now(lock);
        let error = engine.open(&path, &how::write()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(
            error.to_string().contains("lock") && error.to_string().contains("file"),
            "{error}"
        );
        // To read it is no harm.
        let file = engine.open(&path, &how::read()).unwrap();
        let mut found = vec![0; 20_000];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), 10_000);
        assert!(found[..10_000] == pattern(1, 10_000));
        assert_eq!(kind_of(engine.open(&path, &how::write())), ErrorKind::Busy);
        file.close().unwrap();
        other.do_now("close");
    }
    assert!(eventually(SOON, || engine.open(&path, &how::write()).is_ok()));
}

/// Programs that query locks see ours until the last handle that writes is closed.
#[test]
fn contract_06_our_lock_is_seen_by_programs_that_lock() {
    let directory = support::directory();
    let path = directory.path().join("file");
    let engine = small_engine();
    let file = engine.open(&path, &how::create()).unwrap();
    let mut other = Other::start();
    other.open("both", &path);
    for lock in ["lock_posix", "lock_ofd"] {
        assert_eq!(other.ask(lock), format!("error {}", libc::EAGAIN), "{lock}");
    }
    // The other family of locks is not ours, and in nobody's way.
    other.do_now("flock");
    file.write_at(&pattern(1, 10_000), 0).unwrap();
    file.close().unwrap();
    other.do_now("lock_posix");
    assert_eq!(other.ask("holds 0 10000 1"), "true");
}
