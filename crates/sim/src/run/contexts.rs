//! The rate of writeback by the number of contexts and of processors, in a world where work has a
//! price.
//!
//! The engine is the one that ships. Twelve callers write pages of 4 KiB at random into twelve
//! files each, as in the workload `A-12x12` of the measurements. The files are spread over sixteen
//! allocation groups. The cache is far smaller than the files, so most requests have one page.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use forebay_cache::limits::PAGE;
use forebay_uring::Geometry;

use super::alone::{alone_on, no_error};
use crate::core::engine::Engine;
use crate::core::options::{Contexts, Options, Prealloc};
use crate::faults::Latency;
use crate::random::Random;
use crate::run::how;
use crate::world;
use crate::world::machine::{MachinePlan, Prices, VolumePlan};

/// Callers, and files of each.
const CALLERS: u64 = 12;
const FILES: u64 = 12;

/// Pages of a file: 1 GiB, as in the thread, so that few pages are written twice.
const PAGES: u64 = 262_144;

/// Pages of the cache: 64 MiB.
const FRAMES: u32 = 16_384;

/// Processor time of a cached write of 4 KiB (`results/completion-ext4.txt`, `copy-4k`).
const WRITE: Duration = Duration::from_nanos(477);

/// Writes between two payments.
const WRITES: u32 = 8;

/// Time until the rate is measured, and time of the measurement: with a fixed number of contexts,
/// and with the rule, which searches first and tries other numbers from time to time.
const FIXED: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(200)];
const FOUND: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(2)];

/// Interval at which the number of contexts is looked at.
const LOOK: Duration = Duration::from_millis(25);

/// Space of the files before they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// All of it is allocated.
    Allocated,
    /// Each page is allocated when it is written, under the lock of its group.
    Holes,
}

/// A cell of the table.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Processors of the machine.
    pub processors: usize,
    /// Writeback contexts; `None` for the rule.
    pub contexts: Option<usize>,
    /// Space of the files.
    pub space: Space,
    /// Rates of the device.
    pub device: Prices,
}

/// Figures of a case.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Bytes written per second.
    pub rate: f64,
    /// Contexts at the end.
    pub contexts: u64,
    /// Time of the last change of their number.
    pub settled: Duration,
}

/// Runs a case.
///
/// # Panics
/// If a call of the engine fails, which is a bug.
#[must_use]
pub fn measure(case: Case) -> Found {
    let latency = Duration::from_micros(60);
    let groups = Some(Geometry::new(16, 1 << 40, 20));
    let plan = MachinePlan {
        latency: Latency { least: latency, most: latency },
        prices: Some(case.device),
        ..MachinePlan::calm(vec![VolumePlan { groups, ..VolumePlan::xfs() }])
    };
    let settings = Options {
        contexts: case.contexts.map_or(Contexts::Adaptive, Contexts::Fixed),
        prealloc: Prealloc::Off,
        ..Options::default()
    };
    alone_on((plan, case.processors), FRAMES, settings, no_error(), move |engine| {
        run(engine, case.space, if case.contexts.is_some() { FIXED } else { FOUND })
    })
}

fn run(engine: &Engine, space: Space, [settle, measure]: [Duration; 2]) -> Found {
    let stop = Rc::new(Cell::new(false));
    let left = Rc::new(Cell::new(CALLERS));
    let open = |path: String| {
        let file = engine.open(&path, &how::create()).expect("a calm machine");
        match space {
            Space::Allocated => file.allocate(0, PAGES * PAGE).expect("a calm machine"),
            Space::Holes => file.set_len(PAGES * PAGE).expect("a calm machine"),
        }
        file
    };
    let all: Vec<Vec<_>> = (0..CALLERS)
        .map(|caller| (0..FILES).map(|file| open(format!("/file-{caller}-{file}"))).collect())
        .collect();
    for (caller, files) in (0..).zip(all) {
        let (stop, left) = (Rc::clone(&stop), Rc::clone(&left));
        world::spawn(world::process(), "writer", move || {
            let (mut random, page) = (Random::new(caller), [7; PAGE as usize]);
            while !stop.get() {
                for _ in 0..WRITES {
                    let file = &files[random.below(FILES) as usize];
                    let at = random.below(PAGES) * PAGE;
                    file.write_at(&page, at).expect("a calm machine");
                }
                world::spend(WRITE * WRITES);
            }
            left.set(left.get() - 1);
        });
    }
    let (start, mut settled, mut contexts) = (world::now(), Duration::ZERO, 0);
    let mut look = || {
        world::sleep(LOOK);
        let stats = engine.stats();
        let now = Duration::from_nanos(world::now().nanoseconds_since(start));
        if std::mem::replace(&mut contexts, stats.contexts) != stats.contexts {
            settled = now;
        }
        (now, stats.written_bytes)
    };
    let until = |look: &mut dyn FnMut() -> (Duration, u64), time| loop {
        let (now, written) = look();
        if now >= time {
            return (now, written);
        }
    };
    let (from, before) = until(&mut look, settle);
    let (to, after) = until(&mut look, settle + measure);
    stop.set(true);
    while left.get() > 0 {
        world::sleep(LOOK);
    }
    let rate = (after - before) as f64 / (to - from).as_secs_f64();
    Found { rate, contexts, settled }
}
