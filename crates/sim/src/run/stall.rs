//! How long one caller waits on devices and files that are hard: in virtual time, where only
//! devices and timers take time.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::limits::PAGE;

use super::PATIENCE;
use crate::core::engine::Engine;
use crate::core::open::Open;
use crate::core::settings::Settings;
use crate::core::shared::{Parts, Shared};
use crate::faults::Latency;
use crate::platform::{Arena, Buffers, ForkGuard};
use crate::random::{PerMille, Random};
use crate::trace::Tracing;
use crate::world::machine::{self, MachinePlan};
use crate::world::{self, Reason};
use forebay_block::Moment;

/// Frames of the cache.
const FRAMES: u32 = 2048;

const END: Reason = Reason { what: "end of the work", number: 0 };

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
    let settings = world::Settings {
        seed: 1,
        preemption: PerMille(0),
        events: PerMille(0),
        leaps: PerMille(0),
        spurious: PerMille(0),
        tracing: Tracing::Off,
        steps: u64::MAX,
    };
    let found = Rc::new(Cell::new(None));
    let result = Rc::clone(&found);
    let ended = world::run(settings, move || {
        let latency = Latency { least: device, most: device };
        machine::install(MachinePlan { latency, ..MachinePlan::default() });
        let is_over = Rc::new(Cell::new(false));
        let over = Rc::clone(&is_over);
        world::spawn(world::new_process("engine"), "caller", move || {
            let engine = start(dirty_age);
            result.set(Some(write(&engine, hard, count)));
            engine.shutdown(PATIENCE).expect("a machine without faults");
            drop(engine);
            over.set(true);
            world::wake(END);
        });
        while !is_over.get() {
            world::block(END, None);
        }
    });
    ended.unwrap_or_else(|failure| panic!("{failure}"));
    found.get().expect("the caller ended")
}

fn start(dirty_age: Duration) -> Engine {
    let settings =
        Settings { cache_bytes: Some(u64::from(FRAMES) * PAGE), dirty_age, ..Settings::default() };
    let parts = Parts {
        arena: Arc::new(Arena::private(FRAMES).expect("memory")),
        is_survived: false,
        buffers: Buffers::new(1 << 20).expect("memory"),
        settings,
        on_error: Box::new(|error| panic!("{error}")),
        fork: ForkGuard::new().expect("memory"),
        keeper: None,
    };
    Engine::assemble(parts, |_: &Arc<Shared>| Ok(()), PATIENCE).expect("a calm machine")
}

fn write(engine: &Engine, hard: Hard, count: u64) -> Waits {
    let mut random = Random::new(1);
    let file = engine.open("/file", Open::create()).expect("a calm machine");
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
            Hard::Files => (&page[..], 0),
        };
        let mut to = &file;
        if hard == Hard::Files {
            let path = format!("/file{number}");
            others.push(engine.open(path, Open::create()).expect("a calm machine"));
            to = others.last().expect("just pushed");
        }
        to.write_at(bytes, at).expect("a calm machine");
        longest = longest.max(since(start));
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
