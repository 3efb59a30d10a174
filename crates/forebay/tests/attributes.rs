//! Attributes and space of files: what they report, and what changes them.

mod support;

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use forebay::{Engine, ErrorKind, Open, Times};
use support::{MIB, kind_of, pattern};

/// A bound for everything here.
const SOON: Duration = Duration::from_secs(20);

fn engine() -> Engine {
    Engine::builder().cache_bytes(16 * MIB).close_timeout(SOON).build().unwrap()
}

#[test]
fn metadata_has_the_accepted_size_and_the_attributes_of_the_system() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, Open::create().mode(0o640)).unwrap();
    file.write_at(&pattern(1, 100_000), 0).unwrap();
    assert_eq!(file.metadata().unwrap().len, 100_000, "not written yet");
    std::fs::hard_link(&path, directory.path().join("link")).unwrap();
    file.sync_all().unwrap();
    let (found, expected) = (file.metadata().unwrap(), std::fs::metadata(&path).unwrap());
    assert_eq!(
        (found.len, found.allocated_bytes, found.mode, found.links),
        (expected.len(), expected.blocks() * 512, expected.mode(), 2)
    );
    assert_eq!(
        (found.user, found.group, found.device, found.inode),
        (expected.uid(), expected.gid(), expected.dev(), expected.ino())
    );
    assert_eq!(found.modified, expected.modified().unwrap());
    assert_eq!(found.accessed, expected.accessed().unwrap());
    assert_eq!(found.permissions() & 0o600, 0o600);
    engine.shutdown(SOON).unwrap();
    assert_eq!(kind_of(file.metadata()), ErrorKind::Shutdown);
}

/// A copy with `cp -p` sets the times last. They must stay, although data is written back later
/// than it is accepted, and reserved space is given back at the close.
#[test]
fn times_stay_as_they_were_set_until_the_next_write() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    for (at, part) in pattern(1, 9 << 20).chunks(300_000).enumerate() {
        file.write_at(part, at as u64 * 300_000).unwrap();
    }
    let day = |day: u64| SystemTime::UNIX_EPOCH + Duration::new(day * 86_400, 123_456_000);
    file.set_times(Times { modified: Some(day(10_000)), accessed: Some(day(11_000)) }).unwrap();
    file.set_times(Times { accessed: Some(day(12_000)), ..Times::default() }).unwrap();
    let times =
        |metadata: std::fs::Metadata| (metadata.modified().unwrap(), metadata.accessed().unwrap());
    file.sync_all().unwrap();
    assert_eq!(times(std::fs::metadata(&path).unwrap()), (day(10_000), day(12_000)));
    file.close().unwrap();
    let found = times(std::fs::metadata(&path).unwrap());
    assert_eq!(found, (day(10_000), day(12_000)), "closing wrote nothing");
    let file = engine.open(&path, Open::write()).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.write_out().unwrap();
    assert!(file.metadata().unwrap().modified > day(12_000));
    let reader = engine.open(&path, Open::read()).unwrap();
    assert_eq!(kind_of(reader.set_times(Times::default())), ErrorKind::NotPermitted);
}
