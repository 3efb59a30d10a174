//! Contract 9: space is reserved in bounds, given back, and the user's own is left alone.

use std::path::Path;
use std::time::Duration;

use crate::support::mount::{FileSystem, Mount};
use crate::support::{self, MIB, allocated, how, pattern};
use forebay::{Engine, Options};
use forebay_block::random::Random;

const SOON: Duration = Duration::from_secs(20);

fn small() -> Options {
    Options { cache_bytes: Some(8 << 20), close_timeout: SOON, ..Options::default() }
}

#[test]
fn contract_09_what_is_reserved_beyond_the_end_is_bounded_and_given_back() {
    let directory = support::directory();
    let path = directory.path().join("stream");
    let engine = Engine::start(Options {
        cache_bytes: Some(16 << 20),
        background_bytes: Some(1 << 20),
        close_timeout: SOON,
        ..Options::default()
    })
    .unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    let mut largest = 0;
    for chunk in 0..480u64 {
        file.append(&pattern(chunk, 131_072)).unwrap();
        let taken = allocated(&path);
        let allowed = file.len().unwrap() + file.len().unwrap().min(64 * MIB) + 128 * 1024;
        assert!(taken <= allowed, "{taken} bytes allocated, with {} accepted", file.len().unwrap());
        largest = largest.max(taken.saturating_sub(std::fs::metadata(&path).unwrap().len()));
    }
    println!(
        "at most {largest} bytes beyond the end on disk, {} reserved in all",
        engine.stats().reserved_bytes
    );
    file.append(b"odd").unwrap();
    file.close().unwrap();
    let length = std::fs::metadata(&path).unwrap().len();
    assert_eq!(length, 480 * 131_072 + 3);
    assert!(allocated(&path) <= length + 128 * 1024, "{} of {length} bytes", allocated(&path));
    assert_eq!(support::mark(&path), None);
}

#[test]
fn contract_09_a_sparse_file_stays_sparse() {
    let directory = support::directory();
    let path = directory.path().join("sparse");
    let engine = Engine::start(small()).unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    file.set_len(4 << 30).unwrap();
    let mut random = Random::new(3);
    let writes = 300;
    for _ in 0..writes {
        file.write_at(&[1; 100], random.below(4 << 30)).unwrap();
    }
    file.sync_data().unwrap();
    let most = writes * 2 * 4096 + MIB;
    assert!(
        allocated(&path) <= most,
        "{} bytes allocated for {writes} small writes",
        allocated(&path)
    );
    file.close().unwrap();
    assert!(allocated(&path) <= most);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 30);
}

/// Space that the user reserved stays, with any writes and reservations of the engine beside it.
fn the_users_space_stays(directory: &Path) {
    let engine = Engine::start(small()).unwrap();
    for (name, appended) in [("touched", 100usize), ("grown", 3 << 20)] {
        let path = directory.join(name);
        std::fs::write(&path, pattern(1, 1 << 20)).unwrap();
        support::preallocate(&path, 0, 16 * MIB);
        let before = allocated(&path);
        assert!(before >= 16 * MIB);
        let file = engine.open(&path, &how::write()).unwrap();
        file.append(&pattern(2, appended)).unwrap();
        file.sync_data().unwrap();
        file.append(b"more").unwrap();
        file.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB + appended as u64 + 4);
        let after = allocated(&path);
        assert!(after >= before, "{name}: {before} bytes reserved by the user, {after} left");
        assert_eq!(support::mark(&path), None);
    }
}

#[test]
fn contract_09_space_the_user_reserved_stays_here() {
    let directory = support::directory();
    the_users_space_stays(directory.path());
}

#[test]
fn contract_09_space_the_user_reserved_stays_on_xfs() {
    if let Some(mount) = Mount::new("users_space_on_xfs", FileSystem::Xfs, 2048 * MIB) {
        the_users_space_stays(&mount.path());
    }
}

/// Space reserved for a length that was declared and not written is given back where it makes whole
/// requests.
#[test]
fn contract_09_a_declared_length_that_is_not_written_is_given_back() {
    let directory = support::directory();
    let path = directory.path().join("declared");
    let engine = Engine::start(small()).unwrap();
    let file = engine.open(&path, &how::create()).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_at(&pattern(1, 6 << 20), 0).unwrap();
    file.sync_data().unwrap();
    file.close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 64 << 20);
    assert!(allocated(&path) < 9 * MIB, "{} bytes allocated for 6 MiB", allocated(&path));
}
