//! The first sync of a file we created also syncs its directory, once, however often it was closed
//! before (contract 1). The kernel's own sync of a file may do it too, so that a loss of power
//! shows nothing: the flushes are counted.

mod support;

use forebay::{Engine, File, Open};

/// Bios of a sync with nothing to write.
fn flushes(engine: &Engine, sync: impl FnOnce() -> forebay::Result<()>) -> u64 {
    let before = engine.stats().bios;
    sync().unwrap();
    engine.stats().bios - before
}

/// Closed without a sync: written out, and so far from durable.
fn make(engine: &Engine, path: &std::path::Path) {
    let file = engine.open(path, Open::create_new()).unwrap();
    file.write_at(&[1; 5000], 0).unwrap();
    file.close().unwrap();
}

#[test]
fn contract_01_a_file_closed_without_a_sync_still_has_its_directory_synced() {
    let directory = support::directory();
    let engine = Engine::builder().cache_bytes(8 << 20).build().unwrap();
    let path = directory.path().join("file");
    make(&engine, &path);
    // However often, and by whatever name.
    engine.open(&path, Open::write()).unwrap().close().unwrap();
    std::fs::hard_link(&path, directory.path().join("link")).unwrap();
    let file = engine.open(directory.path().join("link"), Open::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_data()), 2, "the directory, and the file");
    assert_eq!(flushes(&engine, || file.sync_all()), 1, "once");
    file.close().unwrap();
    let file = engine.open(&path, Open::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_all()), 1, "and once is enough for later opens");
    drop(file);
}

/// A file that was there is none of ours.
#[test]
fn contract_01_a_file_that_was_there_has_its_directory_left_alone() {
    let directory = support::directory();
    let engine = Engine::builder().cache_bytes(8 << 20).build().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, [1; 5000]).unwrap();
    let file = engine.open(&path, Open::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_all()), 1);
}

/// The two ways into a file share the memory: made through the cache, synced past it, and the other
/// way round.
#[test]
fn contract_01_the_directory_is_synced_past_the_cache_too() {
    let directory = support::directory();
    let engine = Engine::builder().cache_bytes(8 << 20).build().unwrap();
    let (cached, direct) = (directory.path().join("cached"), directory.path().join("direct"));
    make(&engine, &cached);
    let file = engine.open_direct(&cached, Open::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_data()), 2);
    file.close().unwrap();
    let file = engine.open_direct(&direct, Open::create_new()).unwrap();
    file.close().unwrap();
    let file: File = engine.open(&direct, Open::write()).unwrap();
    assert_eq!(flushes(&engine, || file.sync_data()), 2);
    file.close().unwrap();
}
