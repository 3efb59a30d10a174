//! Prices of a device, as an engine learns them.

use std::time::Duration;

use forebay_cache::limits::PAGE;

use super::alone::{alone_on, no_error};
use super::how;
use crate::core::options::{Options, Prealloc};
use crate::core::stats::Stats;
use crate::faults::Latency;
use crate::random::Random;
use crate::world;
use crate::world::machine::{MachinePlan, Prices, VolumePlan};

/// Pages of the file and of the cache.
const PAGES: u64 = 1 << 20;
const FRAMES: u32 = 4096;

/// Time of each kind of work.
const TIME: Duration = Duration::from_secs(4);

/// Bytes of a large write.
const LARGE: u64 = 1 << 20;

/// The shortest time that a request takes.
pub const LATENCY: Duration = Duration::from_micros(60);

/// Returns the numbers of an engine after a sync that its context makes, after writes of single
/// pages at random, and after large writes in order.
///
/// # Panics
/// If a call of the engine fails, which is a bug.
#[must_use]
pub fn prices(device: Prices) -> [Stats; 3] {
    let plan = MachinePlan {
        latency: Latency { least: LATENCY, most: LATENCY },
        prices: Some(device),
        ..MachinePlan::calm(vec![VolumePlan::xfs()])
    };
    let settings = Options { prealloc: Prealloc::Off, ..Options::default() };
    alone_on((plan, 4), FRAMES, settings, no_error(), |engine| {
        let file = engine.open("/file", &how::create()).expect("a calm machine");
        file.allocate(0, PAGES * PAGE).expect("a calm machine");
        // Aligned: a write of this size goes past the cache while many pages are dirty.
        let memory = vec![7_u8; (LARGE + PAGE) as usize];
        let start = memory.as_ptr().align_offset(PAGE as usize);
        let large = &memory[start..start + LARGE as usize];
        // More pages than a caller syncs itself.
        file.write_at(large, 0).expect("a calm machine");
        file.sync_data().expect("a calm machine");
        let after_sync = engine.stats();
        let (mut random, page) = (Random::new(1), [7; PAGE as usize]);
        let lasts = |start: forebay_block::Moment| world::now().since(start) < TIME;
        let start = world::now();
        while lasts(start) {
            let at = random.below(PAGES) * PAGE;
            file.write_at(&page, at).expect("a calm machine");
        }
        let after_small = engine.stats();
        let (start, mut at) = (world::now(), 0);
        while lasts(start) {
            file.write_at(large, at % (PAGES * PAGE)).expect("a calm machine");
            at += LARGE;
        }
        [after_sync, after_small, engine.stats()]
    })
}
