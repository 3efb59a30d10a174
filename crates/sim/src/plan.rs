//! What a run is like: how many files and callers, how little memory, how slow and how bad a
//! device, and what the callers do. Drawn from the seed as a swarm: each run has some of everything
//! and none of something, since a fault that is always there hides what happens without it.

use std::ops::Range;
use std::time::Duration;

use forebay_block::knobs::Merging;
use forebay_block::limits::PAGE;
use forebay_cache::Throttle;
use forebay_cache::file::Reserving;
use forebay_cache::limits::{GAP_PAGES, MOST_GAP_PAGES};
use forebay_cache::writeback::pace::Bound;

use crate::disk::Latency;
use crate::faults::Faults;
use crate::random::{PerMille, Random};
use crate::stored::SECTOR;

/// How often callers do what, in shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Write somewhere.
    pub write: u64,
    /// Write at the end.
    pub append: u64,
    /// Read somewhere.
    pub read: u64,
    /// Cut or grow.
    pub set_length: u64,
    /// Sync.
    pub sync: u64,
    /// Close, and open some file after.
    pub close: u64,
    /// Drop what is dirty.
    pub discard: u64,
}

/// How often each side moves, in shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Each caller.
    pub caller: u64,
    /// The context.
    pub context: u64,
    /// The device.
    pub device: u64,
}

/// What happens from outside, and how often, per step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disturbance {
    /// A lease is broken, or had again.
    pub lease: PerMille,
    /// Some pages of a file cannot be written for a while.
    pub bad_pages: PerMille,
    /// Clean pages are dropped.
    pub evict: PerMille,
    /// A state after a loss of power is looked at, per transition of the device.
    pub crash: PerMille,
}

/// What a run is like.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Files there are.
    pub files: u32,
    /// Whether they are devices, each of one size, that are discarded where a file would be cut.
    pub are_devices: bool,
    /// Of a device, sectors beyond its last whole page.
    pub odd_sectors: u64,
    /// Callers, each with a file open at a time.
    pub callers: usize,
    /// Frames of the cache.
    pub frames: u32,
    /// Levels of dirty pages.
    pub throttle: Throttle,
    /// Operations in all.
    pub operations: u64,
    /// The largest file, in pages.
    pub file_pages: u64,
    /// The largest write or read, in bytes.
    pub bytes: u64,
    /// What callers do.
    pub mix: Mix,
    /// Of the writes, those that go on where the last one ended.
    pub sequential: PerMille,
    /// Syncs and closes that nobody waits for.
    pub abandoned: PerMille,
    /// How often each side moves.
    pub pace: Pace,
    /// What happens from outside.
    pub disturbance: Disturbance,
    /// What the device does wrong.
    pub faults: Faults,
    /// How long it takes.
    pub latency: Latency,
    /// Pages it has space for.
    pub space_pages: u64,
    /// How much writeback has in flight to each file system.
    pub flight: Bound,
    /// File systems: files lie on them in turn.
    pub volumes: usize,
    /// How long a page may be dirty.
    pub age: Duration,
    /// Whether space is reserved.
    pub reserving: Reserving,
    /// How large the pieces are that free space comes in, where it does.
    pub piece_bytes: Option<u64>,
    /// The longest gap written along.
    pub gap_pages: u64,
    /// Whether bios merge.
    pub merging: Merging,
    /// Files opened without a lease.
    pub shared: PerMille,
    /// Handles of which pages do not stay.
    pub uncached: PerMille,
}

impl Plan {
    /// A run without any fault, of the usual size.
    #[must_use]
    pub fn calm(seed: u64) -> Self {
        let plan = Self::passing(seed);
        Self { faults: Faults::NONE, ..plan }
    }

    /// A run with faults that nobody may ever hear of.
    #[must_use]
    pub fn passing(seed: u64) -> Self {
        let plan = Self::swarm(seed);
        let faults = plan.faults.passing();
        let disturbance = Disturbance { bad_pages: PerMille(0), ..plan.disturbance };
        // Who drops is heard of too.
        let mix = Mix { discard: 0, ..plan.mix };
        Self { faults, disturbance, mix, space_pages: u64::MAX / 2, ..plan }
    }

    /// A run as the seed has it.
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

    /// A run with files large enough that space is reserved for them, and given back.
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

    /// A run on devices.
    #[must_use]
    pub fn devices(seed: u64) -> Self {
        let odd_sectors = Random::new(seed ^ 0x6465_7669).below(8);
        Self { are_devices: true, odd_sectors, space_pages: u64::MAX / 2, ..Self::swarm(seed) }
    }

    /// Bytes of a device.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.file_pages * PAGE as u64 + self.odd_sectors * SECTOR as u64
    }

    /// Ends that files may have.
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

/// A rate, in half of the runs.
fn sometimes(random: &mut Random, per_mille: u16) -> PerMille {
    PerMille(if random.below(2) == 0 { 0 } else { per_mille })
}

fn faults(random: &mut Random, drops_dirty: bool) -> Faults {
    let flush = PerMille(if random.below(4) == 0 { 60 } else { 0 });
    let flush_directory = PerMille(if random.below(6) == 0 { 300 } else { 0 });
    // A poisoned file may be read as the device has it, and so may one of which what is dirty was
    // dropped.
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

/// Chance of its own, which leaves the rest of the plan as the seed has it.
fn apart(seed: u64) -> Random {
    Random::new(seed ^ 0x7370_6163)
}

/// Enough space, in most runs.
fn space(random: &mut Random, wanted: u64) -> u64 {
    if random.below(5) == 0 { wanted / 2 + 2 } else { u64::MAX / 2 }
}
