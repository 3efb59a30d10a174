//! How long one caller waits on devices and files that are hard: in virtual time, where only
//! devices and timers take time.

use std::time::Duration;

use forebay_block::Moment;
use forebay_cache::limits::PAGE;

use super::alone::alone;
use crate::core::engine::Engine;
use crate::core::options::Options;
use crate::faults::Latency;
use crate::random::Random;
use crate::run::how;
use crate::world;
use crate::world::machine::MachinePlan;

/// Frames of the cache.
const FRAMES: u32 = 2048;

/// A load that is hard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hard {
    /// Random writes of 4 KiB into a file four times as large as the cache.
    Random,
    /// Writes of 64 KiB, one behind the other.
    Stream,
    /// A page into every second place of a file without data.
    Holes,
    /// Appends of one byte.
    Appends,
    /// A page into each of many new files, which stay open.
    Files,
    /// The same in a cache that holds all of them until they are too old.
    Aged,
}

/// Times of a run, and its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// The longest of the writes.
    pub write: Duration,
    /// The sync of all files at the end.
    pub sync: Duration,
    /// Requests that the engine sent.
    pub requests: u64,
}

/// Writes `count` times on a device that answers after this time, and syncs.
///
/// # Panics
/// If a call of the engine fails, which is a bug.
#[must_use]
pub fn waits(hard: Hard, count: u64, device: Duration, dirty_age: Duration) -> Waits {
    let latency = Latency { least: device, most: device };
    let plan = MachinePlan { latency, ..MachinePlan::default() };
    let settings = Options { dirty_age, ..Options::default() };
    let frames = if hard == Hard::Aged { 4 * count as u32 } else { FRAMES };
    alone(plan, frames, settings, move |engine| write(engine, hard, count))
}

fn write(engine: &Engine, hard: Hard, count: u64) -> Waits {
    let mut random = Random::new(1);
    let file = engine.open("/file", &how::create()).expect("a calm machine");
    let mut others = Vec::new();
    if hard == Hard::Random {
        file.set_len(4 * u64::from(FRAMES) * PAGE).expect("a calm machine");
        file.sync_data().expect("a calm machine");
    }
    let (page, large) = ([7; PAGE as usize], [7; 16 * PAGE as usize]);
    let mut longest = Duration::ZERO;
    for number in 0..count {
        let start = world::now();
        let (bytes, at) = match hard {
            Hard::Random => (&page[..], random.below(4 * u64::from(FRAMES)) * PAGE),
            Hard::Stream => (&large[..], number * 16 * PAGE),
            Hard::Holes => (&page[..], 2 * number * PAGE),
            Hard::Appends => (&page[..1], number),
            Hard::Files | Hard::Aged => (&page[..], 0),
        };
        let mut to = &file;
        if matches!(hard, Hard::Files | Hard::Aged) {
            let path = format!("/file{number}");
            others.push(engine.open(path, &how::create()).expect("a calm machine"));
            to = others.last().expect("just pushed");
        }
        to.write_at(bytes, at).expect("a calm machine");
        longest = longest.max(since(start));
    }
    while hard == Hard::Aged && engine.stats().dirty_bytes > 0 {
        world::sleep(Duration::from_millis(100));
    }
    let start = world::now();
    for file in others.iter().chain([&file]) {
        file.sync_data().expect("a calm machine");
    }
    let sync = since(start);
    Waits { write: longest, sync, requests: engine.stats().requests }
}

fn since(start: Moment) -> Duration {
    Duration::from_nanos(world::now().nanoseconds() - start.nanoseconds())
}
