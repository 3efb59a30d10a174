//! Another program changes a file by the directory below, past the lease that the file system
//! grants.

use forebay_cache::limits::PAGE;

use super::alone::alone;
use crate::core::options::Options;
use crate::run::how;
use crate::world::machine::{MachinePlan, VolumePlan};
use crate::world::others::{OpenAs, Program};

/// Appends a line by the engine, one by the other program, and another one by the engine, on such a
/// file system. Returns the lines in the file after a sync.
///
/// # Panics
/// If a call fails.
#[must_use]
pub fn appended_in_turn() -> Vec<u8> {
    alone(MachinePlan::calm(vec![VolumePlan::fuse()]), 64, Options::default(), |engine| {
        let file = engine.open("/file", &how::append()).expect("a calm machine");
        file.append(b"first;").expect("a calm machine");
        file.sync_data().expect("a calm machine");
        let other = Program::open("/file", OpenAs::WRITER).expect("a calm machine");
        let end = other.length().expect("it is open");
        other.write(end, b"theirs;").expect("a calm machine");
        file.append(b"last;").expect("a calm machine");
        file.sync_data().expect("a calm machine");
        let end = other.length().expect("it is open");
        other.read(0..end).expect("it is open")
    })
}

/// Writes a page by the engine, changes it by the other program, and returns its first byte as the
/// engine reads it then.
///
/// # Panics
/// If a call fails.
#[must_use]
pub fn read_after_a_change() -> u8 {
    alone(MachinePlan::calm(vec![VolumePlan::fuse()]), 64, Options::default(), |engine| {
        let file = engine.open("/file", &how::create()).expect("a calm machine");
        file.write_at(&[1; PAGE as usize], 0).expect("a calm machine");
        file.sync_data().expect("a calm machine");
        let other = Program::open("/file", OpenAs::WRITER).expect("a calm machine");
        other.write(0, &[2; PAGE as usize]).expect("a calm machine");
        let mut byte = [0];
        file.read_at(&mut byte, 0).expect("a calm machine");
        byte[0]
    })
}
