//! An engine whose ring fails under it, in a program that lives on: it stops at once, and its keeper
//! writes the rest. The one test of this program, because it breaks every ring of its process.

mod support;

use std::path::Path;
use std::time::Duration;

use forebay::options::Backend;
use forebay::{Engine, ErrorKind, Keeper, Options};
use support::kept::{self, SOON};
use support::mount::{FileSystem, Mount};
use support::refused::{self, Threads};
use support::{MIB, assert_on_disk, directory, eventually, how, kind_of, pattern, process};

const LENGTH: usize = 1_000_003;

#[test]
fn keeper() {
    kept::serve();
}

#[test]
fn contract_09_a_broken_engine_leaves_its_work_at_once_and_says_so() {
    let Some(mount) = Mount::new("left_when_broken", FileSystem::Ext4, 64 * MIB) else { return };
    let directory = directory();
    let place = mount.path().canonicalize().unwrap();
    let log = directory.path().join("log");
    let engine = Engine::builder(Options {
        cache_bytes: Some(64 << 20),
        dirty_age: Duration::from_secs(3600),
        ..Options::default()
    });
    let engine =
        engine.survive(Keeper { log: Some(log.clone()), ..kept::keeper() }).build().unwrap();
    let keeper = engine.keeper().unwrap().process.unwrap();
    let is_there = || Path::new(&format!("/proc/{keeper}")).exists();
    let file = engine.open(place.join("file"), &how::create()).unwrap();
    file.write_at(&pattern(5, LENGTH), 0).unwrap();
    let dropped = engine.open(place.join("dropped"), &how::create()).unwrap();
    dropped.write_at(&pattern(6, LENGTH), 0).unwrap();
    let filler = process::fill_up(&mount.path());
    refused::system_call(libc::SYS_io_uring_enter, libc::EIO, Threads::All);
    drop(dropped);
    let is_over = || kind_of(engine.open(place.join("none"), &how::read())) == ErrorKind::Shutdown;
    assert!(eventually(SOON, is_over), "it is not broken");
    std::fs::remove_file(filler).unwrap();
    // Engine and file are still there.
    assert!(eventually(SOON, || !is_there()), "{}", kept::said(&log));
    assert_on_disk(&place.join("file"), &pattern(5, LENGTH), "left by a broken engine");
    assert_on_disk(&place.join("dropped"), &pattern(6, LENGTH), "left by a broken engine");
    let error = engine.shutdown(SOON).unwrap_err();
    assert!(error.to_string().contains("keeper"), "{error}");
    engine.shutdown(SOON).expect("a second one does nothing");
    drop((engine, file));
    // Without rings: the filter is still there.
    let next = Engine::start(Options { backend: Backend::Threads, ..Options::default() }).unwrap();
    let file = next.open(place.join("file"), &how::write()).unwrap();
    let mut content = vec![0; LENGTH];
    assert_eq!(file.read_at(&mut content, 0).unwrap(), LENGTH);
    assert!(content == pattern(5, LENGTH));
}
