//! Plan of a run: how many files and callers, how little memory, how slow and how faulty a device,
//! and what the callers do. The seed draws it as a swarm: each run has some features and lacks
//! others, because a fault that is always present hides what happens without it.

use std::ops::Range;
use std::time::Duration;

use forebay_block::knobs::Merging;
use forebay_block::limits::PAGE;
use forebay_cache::Throttle;
use forebay_cache::file::Reserving;
use forebay_cache::limits::{GAP_PAGES, MOST_GAP_PAGES};
use forebay_cache::writeback::pace::Bound;

use crate::faults::{Faults, Latency};
use crate::random::{PerMille, Random};
use crate::stored::SECTOR;

/// Relative frequencies of the callers' operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Write at a random place.
    pub write: u64,
    /// Write at the end.
    pub append: u64,
    /// Read at a random place.
    pub read: u64,
    /// Change of length.
    pub set_length: u64,
    /// Sync.
    pub sync: u64,
    /// Close, then open any file.
    pub close: u64,
    /// Discard of dirty pages.
    pub discard: u64,
}

/// Relative frequencies of the sides of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Each caller.
    pub caller: u64,
    /// The context.
    pub context: u64,
    /// The device.
    pub device: u64,
}

/// Rates of events from outside, per step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disturbance {
    /// A lease breaks or is granted again.
    pub lease: PerMille,
    /// Some pages of a file cannot be written for a while.
    pub bad_pages: PerMille,
    /// Clean pages are dropped.
    pub evict: PerMille,
    /// The state after a loss of power is checked, per transition of the device.
    pub crash: PerMille,
}

/// Plan of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Number of files.
    pub files: u32,
    /// Whether they are devices, each of fixed size. A run discards a range of a device instead of
    /// cutting it.
    pub are_devices: bool,
    /// Sectors of a device beyond its last whole page.
    pub odd_sectors: u64,
    /// Number of callers, each with one open file at a time.
    pub callers: usize,
    /// Frames of the cache.
    pub frames: u32,
    /// Limits of dirty pages.
    pub throttle: Throttle,
    /// Number of operations in all.
    pub operations: u64,
    /// Pages of the largest file.
    pub file_pages: u64,
    /// Bytes of the largest write or read.
    pub bytes: u64,
    /// Operations of the callers.
    pub mix: Mix,
    /// Share of writes that continue at the end of the last one.
    pub sequential: PerMille,
    /// Share of syncs and closes that no caller waits for.
    pub abandoned: PerMille,
    /// Speed of each side.
    pub pace: Pace,
    /// Events from outside.
    pub disturbance: Disturbance,
    /// Faults of the device.
    pub faults: Faults,
    /// Latency of the device.
    pub latency: Latency,
    /// Space of the device, in pages.
    pub space_pages: u64,
    /// Bound of writeback in flight per file system.
    pub flight: Bound,
    /// Number of file systems; files lie on them in turn.
    pub volumes: usize,
    /// Maximum time that a page stays dirty.
    pub age: Duration,
    /// Whether space is reserved.
    pub reserving: Reserving,
    /// Bytes of the pieces of free space, if it is fragmented.
    pub piece_bytes: Option<u64>,
    /// Pages of the longest gap that is written along.
    pub gap_pages: u64,
    /// Whether bios merge.
    pub merging: Merging,
    /// Share of files opened without a lease.
    pub shared: PerMille,
    /// Share of handles that drop their pages after use.
    pub uncached: PerMille,
}

impl Plan {
    /// Returns a plan without faults, otherwise as [`passing`](Self::passing).
    #[must_use]
    pub fn calm(seed: u64) -> Self {
        let plan = Self::passing(seed);
        Self { faults: Faults::NONE, ..plan }
    }

    /// Returns a plan with only the faults that must never be reported to a caller.
    #[must_use]
    pub fn passing(seed: u64) -> Self {
        let plan = Self::swarm(seed);
        let faults = plan.faults.passing();
        let disturbance = Disturbance { bad_pages: PerMille(0), ..plan.disturbance };
        // A discard reports its loss too.
        let mix = Mix { discard: 0, ..plan.mix };
        Self { faults, disturbance, mix, space_pages: u64::MAX / 2, ..plan }
    }

    /// Returns the plan of a seed.
    #[must_use]
    pub fn swarm(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x706c_616e);
        let random = &mut random;
        let files = random.within(1..4) as u32;
        let frames = *random.pick(&[20, 32, 48, 64, 96]);
        let limit = u64::from(frames) * 3 / 4;
        let file_pages = *random.pick(&[3, 8, 24, 48, 80]);
        let mix = mix(random);
        Self {
            files,
            are_devices: false,
            odd_sectors: 0,
            callers: random.within(1..5) as usize,
            frames,
            throttle: Throttle {
                limit,
                background: limit / 2,
                small: *random.pick(&[0, 2, 4, 16]),
                grant: random.within(1..5),
            },
            operations: random.within(30..160),
            file_pages,
            bytes: *random.pick(&[700, 5_000, 20_000, 70_000]),
            mix,
            sequential: *random.pick(&[PerMille(0), PerMille(300), PerMille(900)]),
            abandoned: *random.pick(&[PerMille(0), PerMille(50), PerMille(400)]),
            pace: Pace {
                caller: random.within(1..9),
                context: random.within(1..9),
                device: random.within(1..9),
            },
            disturbance: Disturbance {
                lease: sometimes(random, 10),
                bad_pages: sometimes(random, 10),
                evict: sometimes(random, 50),
                crash: PerMille(40),
            },
            faults: faults(random, mix.discard > 0),
            latency: latency(random),
            space_pages: space(random, u64::from(files) * file_pages),
            flight: flight(random),
            volumes: random.within(1..3) as usize,
            age: Duration::from_millis(*random.pick(&[1, 20, 1000])),
            reserving: reserving(random, seed),
            piece_bytes: *apart(seed).pick(&[None, Some(1 << 14), Some(1 << 16)]),
            gap_pages: *apart(seed.rotate_left(1)).pick(&[GAP_PAGES, 1, MOST_GAP_PAGES]),
            merging: *random.pick(&[Merging::On, Merging::On, Merging::Off]),
            shared: *random.pick(&[PerMille(0), PerMille(0), PerMille(300), PerMille(1000)]),
            uncached: *random.pick(&[PerMille(0), PerMille(0), PerMille(500), PerMille(1000)]),
        }
    }

    /// Returns a plan with files so large that space is reserved for them and given back.
    #[must_use]
    pub fn large(seed: u64) -> Self {
        let plan = Self::swarm(seed);
        let mut random = Random::new(seed ^ 0x6c61_7267);
        let random = &mut random;
        let frames = *random.pick(&[160, 400, 800]);
        let limit = u64::from(frames) * 3 / 4;
        let file_pages = *random.pick(&[200, 700, 1500]);
        Self {
            files: random.within(1..3) as u32,
            callers: random.within(1..4) as usize,
            frames,
            throttle: Throttle { limit, background: limit / 2, small: 16, grant: 16 },
            operations: random.within(40..200),
            file_pages,
            bytes: *random.pick(&[9_000, 100_000, 400_000]),
            disturbance: Disturbance { crash: PerMille(4), ..plan.disturbance },
            space_pages: space(random, 2 * file_pages),
            shared: *random.pick(&[PerMille(0), PerMille(0), PerMille(0), PerMille(300)]),
            ..plan
        }
    }

    /// Returns a plan with devices instead of files.
    #[must_use]
    pub fn devices(seed: u64) -> Self {
        let odd_sectors = Random::new(seed ^ 0x6465_7669).below(8);
        Self { are_devices: true, odd_sectors, space_pages: u64::MAX / 2, ..Self::swarm(seed) }
    }

    /// Returns the bytes of a device.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.file_pages * PAGE as u64 + self.odd_sectors * SECTOR as u64
    }

    /// Returns the possible ends of files.
    pub(crate) fn ends(&self) -> Range<u64> {
        0..self.file_pages * PAGE as u64 + 1
    }
}

fn mix(random: &mut Random) -> Mix {
    Mix {
        write: *random.pick(&[1, 10, 40]),
        append: *random.pick(&[0, 10, 40]),
        read: *random.pick(&[0, 10, 30]),
        set_length: *random.pick(&[0, 1, 10]),
        sync: *random.pick(&[1, 5, 20]),
        close: *random.pick(&[0, 1, 5]),
        discard: *random.pick(&[0, 0, 1]),
    }
}

/// Returns the rate in half of the runs, and 0 in the others.
fn sometimes(random: &mut Random, per_mille: u16) -> PerMille {
    PerMille(if random.below(2) == 0 { 0 } else { per_mille })
}

fn faults(random: &mut Random, drops_dirty: bool) -> Faults {
    let flush = PerMille(if random.below(4) == 0 { 60 } else { 0 });
    let flush_directory = PerMille(if random.below(6) == 0 { 300 } else { 0 });
    // No `invalidate` beside these faults: a poisoned file may be read as the device has it, and so
    // may a file after a discard of its dirty pages.
    let may_invalidate = flush == PerMille(0) && flush_directory == PerMille(0) && !drops_dirty;
    Faults {
        refuse: sometimes(random, 200),
        shorten: sometimes(random, 200),
        interrupt: sometimes(random, 200),
        read: sometimes(random, 30),
        write: sometimes(random, 40),
        flush,
        invalidate: if may_invalidate { sometimes(random, 100) } else { PerMille(0) },
        flush_directory,
        set_length: sometimes(random, 100),
        allocate: sometimes(random, 200),
    }
}

fn latency(random: &mut Random) -> Latency {
    let least = *random.pick(&[0, 10, 100]);
    let spread = *random.pick(&[0, 100, 5_000]);
    Latency { least: Duration::from_micros(least), most: Duration::from_micros(least + spread) }
}

fn flight(random: &mut Random) -> Bound {
    let time = |micros| Bound::Time(Duration::from_micros(micros));
    *random.pick(&[Bound::Depth(1), Bound::Depth(2), Bound::Depth(32), time(50), time(2_000)])
}

fn reserving(random: &mut Random, seed: u64) -> Reserving {
    let ahead = *apart(seed.rotate_left(2))
        .pick(&[Reserving::Adaptive, Reserving::Ahead(64 * PAGE as u64)]);
    *random.pick(&[Reserving::Adaptive, ahead, Reserving::Off])
}

/// Returns a generator of its own, so that the rest of the plan does not change.
fn apart(seed: u64) -> Random {
    Random::new(seed ^ 0x7370_6163)
}

/// Returns enough space in most runs.
fn space(random: &mut Random, wanted: u64) -> u64 {
    if random.below(5) == 0 { wanted / 2 + 2 } else { u64::MAX / 2 }
}
