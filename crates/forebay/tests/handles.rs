//! Handles beyond reads, writes and syncs: how they print, end, and are opened.

mod support;

use forebay::{Engine, Open};
use support::MIB;

fn engine() -> Engine {
    Engine::builder().cache_bytes(8 * MIB).build().unwrap()
}

#[test]
fn an_engine_and_a_file_print_on_one_short_line() {
    let (engine, directory) = (engine(), support::directory());
    let path = directory.path().join("file");
    let file = engine.open(&path, Open::create()).unwrap();
    let printed = format!("{engine:?}");
    assert!(printed.starts_with("Engine { description: \""), "{printed}");
    assert!(printed.contains(&engine.describe()) && printed.len() < 300, "{printed}");
    assert_eq!(format!("{file:?}"), format!("File {{ path: {path:?}, is_writable: true, .. }}"));
    file.close().unwrap();
}
