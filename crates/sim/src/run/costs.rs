//! Work of known size for counts of instructions: the engine in a calm machine, with one context
//! and one caller, and no switch of tasks except where one waits.
//!
//! The count of instructions of a process that does the work N times is compared with that of one
//! that does it 2 N times, so the start of the engine does not count.

use std::time::Duration;

use forebay_cache::limits::PAGE;
use forebay_cache::writeback::pace::Bound;

use super::alone::alone;
use crate::core::engine::Engine;
use crate::core::options::{Contexts, Options};
use crate::run::how;
use crate::world::machine::MachinePlan;

/// Frames of the cache: no work here is throttled.
const FRAMES: u32 = 4096;

/// Pages that a round of a work uses.
const PAGES: u64 = 512;

/// A kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A write of 4 KiB into a page that is in the cache and dirty.
    Write,
    /// A read of 4 KiB from a page that is in the cache.
    Read,
    /// A page that is written in order, gathered with its neighbours, and written back.
    Page,
    /// A page that is written back by a bio of its own, because its neighbours are clean.
    Bio,
    /// A write of 4 KiB and a sync.
    Sync,
    /// A read of 4 KiB past the cache, into an aligned buffer.
    Direct,
}

impl Work {
    /// All kinds, with their names.
    pub const ALL: [(&'static str, Work); 6] = [
        ("write", Work::Write),
        ("read", Work::Read),
        ("page", Work::Page),
        ("bio", Work::Bio),
        ("sync", Work::Sync),
        ("direct", Work::Direct),
    ];
}

/// Does the work `count` times.
///
/// # Panics
/// If a call of the engine fails, which is a bug.
pub fn spend(work: Work, count: u64) {
    let settings = Options {
        dirty_age: Duration::from_secs(600),
        flight: Bound::Depth(32),
        contexts: Contexts::Fixed(1),
        ..Options::default()
    };
    let plan = MachinePlan::default();
    alone(plan, FRAMES, settings, move |engine| repeat(engine, work, count));
}

fn repeat(engine: &Engine, work: Work, count: u64) {
    let file = engine.open("/file", &how::create()).expect("a calm machine");
    let mut page = [7; PAGE as usize];
    let write = |at: u64| {
        file.write_at(&page, at * PAGE).expect("a calm machine");
    };
    // The file has its size and its space, so no work moves the end.
    (0..2 * PAGES).for_each(&write);
    file.sync_data().expect("a calm machine");
    match work {
        Work::Write => {
            (0..PAGES).for_each(&write);
            (0..count).for_each(|at| write(at * 7 % PAGES));
        }
        Work::Read => {
            for at in 0..count {
                file.read_at(&mut page, at * 7 % PAGES * PAGE).expect("a calm machine");
            }
        }
        Work::Page => {
            for _ in 0..count.div_ceil(PAGES) {
                (0..PAGES).for_each(&write);
                file.sync_data().expect("a calm machine");
            }
        }
        Work::Bio => {
            for _ in 0..count.div_ceil(PAGES / 8) {
                // Far enough apart that the pages between are not written along.
                (0..PAGES / 8).for_each(|at| write(at * 16));
                file.sync_data().expect("a calm machine");
            }
        }
        Work::Sync => {
            for at in 0..count {
                write(at * 7 % PAGES);
                file.sync_data().expect("a calm machine");
            }
        }
        Work::Direct => {
            file.close().expect("a calm machine");
            return read_directly(engine, count);
        }
    }
    file.close().expect("a calm machine");
}

fn read_directly(engine: &Engine, count: u64) {
    let file = engine.open_direct("/file", &how::read()).expect("a calm machine");
    let mut page = engine.buffer(PAGE as usize).expect("a calm machine");
    for at in 0..count {
        let read;
        (read, page) = file.read_at(page, at * 7 % PAGES * PAGE).wait();
        read.expect("a calm machine");
    }
    file.close().wait().expect("a calm machine");
}
