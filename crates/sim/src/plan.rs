//! Plans of runs: how many files and callers, how little memory, how slow and how bad a device, and
//! the calls of the callers. Drawn from the seed as a swarm: each run has some of everything and
//! none of something, because a fault that is always there hides what happens without it.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use forebay_block::Knobs;
use forebay_block::knobs::{ClockReads, Holding, Merging, Plugging, Ringing, Tagging};
use forebay_block::limits::PAGE;
use forebay_cache::file::Reserving;
use forebay_cache::writeback::pace::Bound;
use forebay_uring::Alignment;

use crate::faults::{Faults, Latency};
use crate::random::{PerMille, Random};
use crate::stored::SECTOR;
use crate::world::machine::{MachinePlan, VolumePlan};

/// Shares of the calls that callers make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Writes at an offset.
    pub write: u64,
    /// Appends.
    pub append: u64,
    /// Reads.
    pub read: u64,
    /// Changes of the length, or discards of a range of a device.
    pub set_length: u64,
    /// Syncs.
    pub sync: u64,
    /// Closes, each followed by an open of some file.
    pub close: u64,
    /// Drops of dirty data.
    pub discard: u64,
}

/// Rates of events from outside, per look of the test at the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disturbance {
    /// Longest time between two looks of the test; zero for one that is drawn for each.
    pub pause: Duration,
    /// The process of the engine dies, or the power is cut; see [`Plan::deaths`].
    pub death: PerMille,
    /// Another program opens a file.
    pub programs: PerMille,
    /// Some pages of a file cannot be written for a while.
    pub bad_pages: PerMille,
    /// Other blocks of the intent log cannot be written from now on.
    pub bad_log: PerMille,
    /// The test looks at a state after a loss of power.
    pub crash: PerMille,
    /// The device of a file stops answering.
    pub hang: PerMille,
    /// How long it does not answer at most; `None` for ever.
    pub hang_time: Option<Duration>,
}

/// Plan of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Number of files.
    pub files: u32,
    /// Whether they are block devices. Those have a fixed size, and are discarded instead of cut.
    pub are_devices: bool,
    /// Sectors of a device beyond its last whole page.
    pub odd_sectors: u64,
    /// Callers, each with one file open at a time.
    pub callers: usize,
    /// Frames of the cache.
    pub frames: u32,
    /// Dirty pages at which writers wait.
    pub dirty_pages: u64,
    /// Calls of all callers together.
    pub operations: u64,
    /// Pages of the largest file.
    pub file_pages: u64,
    /// Bytes of the largest write or read.
    pub bytes: u64,
    /// Shares of calls.
    pub mix: Mix,
    /// Writes that continue where the last one ended.
    pub sequential: PerMille,
    /// Calls whose future is dropped, and handles that are dropped instead of closed.
    pub abandoned: PerMille,
    /// Events from outside.
    pub disturbance: Disturbance,
    /// The machine: file systems, faults, times.
    pub machine: MachinePlan,
    /// Work in flight of background writeback.
    pub flight: Bound,
    /// Longest time that a page stays dirty.
    pub age: Duration,
    /// Whether space is reserved.
    pub reserving: Reserving,
    /// Knobs of the request queue.
    pub queue: Knobs,
    /// Writeback contexts at the beginning; `None` if their number is found by trials.
    pub contexts: Option<usize>,
    /// Value of the knob `affinity`.
    pub affinity: &'static str,
    /// Whether knobs are changed while callers run.
    pub turns_knobs: bool,
    /// Handles whose pages leave memory once they are written or read.
    pub uncached: PerMille,
    /// Opens for direct I/O, past the cache.
    pub direct: PerMille,
    /// Opens and calls in other forms: handles for reading or appending only, opens that cut the
    /// file, bytes in several slices, and appends whose future is dropped.
    pub varied: PerMille,
    /// Calls that are writes of the whole page where the last write of the caller ended.
    pub rewrites: PerMille,
    /// How often the process of the engine dies at most.
    pub deaths: u32,
    /// Whether the arena records its content for a keeper.
    pub is_survived: bool,
    /// Whether the arena is looked at at each point of preemption in a write.
    pub looks_into_writes: bool,
    /// Whether the engine has a keeper, from which the next engine adopts the files after a death.
    pub adopts: bool,
    /// Blocks of the intent log of the first file system; `None` for no log.
    pub log_blocks: Option<u64>,
}

impl Plan {
    /// Returns a plan without faults, otherwise as [`passing`](Self::passing).
    #[must_use]
    pub fn calm(seed: u64) -> Self {
        Self::passing(seed).with_faults(Faults::NONE)
    }

    /// A run with faults that no caller may hear of.
    #[must_use]
    pub fn passing(seed: u64) -> Self {
        let plan = Self::swarm(seed);
        let faults = plan.machine.faults.passing();
        let disturbance = Disturbance { bad_pages: PerMille(0), ..plan.disturbance };
        // A sync reports dropped data.
        let mix = Mix { discard: 0, ..plan.mix };
        Self { disturbance, mix, ..plan }.with_faults(faults).with_space(u64::MAX / 2)
    }

    /// Returns the plan of a seed.
    #[must_use]
    pub fn swarm(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x706c_616e);
        let random = &mut random;
        let files = random.within(1..4) as u32;
        let frames = *random.pick(&[40, 48, 64, 96, 160]);
        let file_pages = *random.pick(&[3, 8, 24, 48, 80, 200]);
        let mix = mix(random);
        Self {
            files,
            are_devices: false,
            odd_sectors: 0,
            callers: random.within(1..5) as usize,
            frames,
            dirty_pages: random.within(20..u64::from(frames) / 8 * 7 + 1),
            operations: random.within(30..160),
            file_pages,
            bytes: *random.pick(&[700, 5_000, 20_000, 70_000]),
            mix,
            sequential: *random.pick(&[PerMille(0), PerMille(300), PerMille(900)]),
            abandoned: *random.pick(&[PerMille(0), PerMille(50), PerMille(400)]),
            disturbance: Disturbance {
                pause: Duration::ZERO,
                death: PerMille(30),
                programs: sometimes(random, 60),
                bad_pages: sometimes(random, 50),
                bad_log: PerMille(0),
                crash: PerMille(200),
                hang: PerMille(0),
                hang_time: None,
            },
            machine: machine(random, mix.discard > 0, u64::from(files) * file_pages),
            flight: flight(random),
            age: Duration::from_millis(*random.pick(&[1, 20, 1000])),
            reserving: reserving(random),
            queue: queue(random),
            contexts: *random.pick(&[None, Some(1), Some(2), Some(4)]),
            affinity: AFFINITIES[random.below(4) as usize],
            turns_knobs: random.below(3) == 0,
            uncached: *random.pick(&[PerMille(0), PerMille(0), PerMille(500), PerMille(1000)]),
            direct: PerMille(0),
            varied: PerMille(0),
            rewrites: PerMille(0),
            deaths: 0,
            is_survived: random.below(2) == 0,
            looks_into_writes: false,
            adopts: false,
            log_blocks: None,
        }
    }

    /// A run with an intent log and many syncs. Most files are on the file system of the log.
    #[must_use]
    pub fn logged(seed: u64) -> Self {
        let mut plan = Self::swarm(seed);
        let mut random = Random::new(seed ^ 0x6c6f_6767);
        let random = &mut random;
        let volume = *random.pick(&[VolumePlan::xfs, VolumePlan::ext4]);
        let log_blocks = *random.pick(&[16, 40, 200]);
        let space_pages = plan.machine.volumes[0].space_pages + log_blocks + 2;
        let piece_pages = plan.machine.volumes[0].piece_pages;
        plan.machine.volumes[0] = VolumePlan { space_pages, piece_pages, ..volume() };
        if random.below(3) > 0 {
            plan.machine.volumes.truncate(1);
        }
        let mix = Mix {
            sync: *random.pick(&[10, 40]),
            set_length: *random.pick(&[0, 0, 1]),
            close: *random.pick(&[0, 1, 2]),
            ..plan.mix
        };
        let disturbance = Disturbance { crash: PerMille(600), ..plan.disturbance };
        let log_blocks = Some(log_blocks);
        Self { mix, disturbance, log_blocks, is_survived: false, ..plan }
    }

    /// As [`logged`](Self::logged), with deaths of the engine's process and losses of power.
    #[must_use]
    pub fn logged_deaths(seed: u64) -> Self {
        let plan = Self::logged(seed);
        let mut random = Random::new(seed ^ 0x6c6f_6764);
        let disturbance = Disturbance { death: PerMille(200), ..plan.disturbance };
        Self { deaths: random.within(1..5) as u32, disturbance, ..plan }
    }

    /// As [`logged_deaths`](Self::logged_deaths), with a keeper.
    #[must_use]
    pub fn logged_kept(seed: u64) -> Self {
        Self { is_survived: true, ..Self::logged_deaths(seed) }
    }

    /// As one of both, with an intent log that cannot be written most of the time.
    #[must_use]
    pub fn failing_log(seed: u64) -> Self {
        let plan = if seed.is_multiple_of(2) { Self::logged } else { Self::logged_deaths }(seed);
        let bad_log = *Random::new(seed ^ 0x6261_646c).pick(&[PerMille(100), PerMille(1000)]);
        let disturbance = Disturbance { bad_log, ..plan.disturbance };
        Self { disturbance, ..plan }
    }

    /// Returns a plan with files so large that space is reserved for them and given back.
    #[must_use]
    pub fn large(seed: u64) -> Self {
        let plan = Self::swarm(seed);
        let mut random = Random::new(seed ^ 0x6c61_7267);
        let random = &mut random;
        let frames = *random.pick(&[160, 400, 800]);
        let file_pages = *random.pick(&[200, 700, 1500]);
        let space_pages = space(random, 2 * file_pages);
        Self {
            files: random.within(1..3) as u32,
            callers: random.within(1..4) as usize,
            frames,
            dirty_pages: u64::from(frames) * 3 / 4,
            operations: random.within(40..200),
            file_pages,
            bytes: *random.pick(&[9_000, 100_000, 400_000]),
            disturbance: Disturbance { crash: PerMille(20), ..plan.disturbance },
            ..plan
        }
        .with_space(space_pages)
    }

    /// A run in which the process of the engine dies some times.
    #[must_use]
    pub fn deaths(seed: u64) -> Self {
        let plan = Self::swarm(seed);
        let mut random = Random::new(seed ^ 0x6465_6174);
        let disturbance = Disturbance { death: PerMille(100), ..plan.disturbance };
        Self { deaths: random.within(1..5) as u32, disturbance, ..plan }
    }

    /// As [`deaths`](Self::deaths), with a keeper. The next engine adopts what it holds.
    #[must_use]
    pub fn adoptions(seed: u64) -> Self {
        Self { adopts: true, is_survived: true, ..Self::deaths(seed) }
    }

    /// Files on two or three file systems, whose devices stop answering for a time, one by one.
    #[must_use]
    pub fn hangs(seed: u64) -> Self {
        let mut plan = Self::passing(seed);
        let mut random = Random::new(seed ^ 0x6861_6e67);
        let random = &mut random;
        plan.machine.volumes.truncate(1);
        for _ in 0..random.within(1..3) {
            let volume = *random.pick(&[VolumePlan::xfs, VolumePlan::ext4]);
            plan.machine.volumes.push(volume());
        }
        let time = *random.pick(&[Duration::from_secs(2), Duration::from_secs(60)]);
        let disturbance =
            Disturbance { hang: PerMille(300), hang_time: Some(time), ..plan.disturbance };
        // They wait for leases that the engine gives up after a second.
        let crash = PerMille(20);
        let disturbance = Disturbance { programs: PerMille(0), crash, ..disturbance };
        // A refused request waits for the end of another one, which may be one that hangs.
        plan.machine.faults.refuse = PerMille(0);
        let frames = *random.pick(&[400, 800]);
        Self {
            files: plan.machine.volumes.len() as u32 + random.below(2) as u32,
            callers: random.within(2..6) as usize,
            frames,
            dirty_pages: u64::from(frames) * 3 / 4,
            operations: random.within(60..200),
            disturbance,
            // A context looks at dirty pages several times within it.
            age: Duration::from_millis(*random.pick(&[20, 1000])),
            turns_knobs: false,
            ..plan
        }
        .with_space(u64::MAX / 2)
    }

    /// Returns a plan with devices instead of files.
    #[must_use]
    pub fn devices(seed: u64) -> Self {
        let odd_sectors = Random::new(seed ^ 0x6465_7669).below(8);
        let plan = Self { are_devices: true, odd_sectors, ..Self::swarm(seed) };
        plan.with_space(u64::MAX / 2)
    }

    /// The same run with handles past the cache: some beside handles through it, by turns, or all
    /// of them.
    #[must_use]
    pub fn past_the_cache(mut self, seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x6469_7265);
        let random = &mut random;
        self.direct = *random.pick(&[PerMille(300), PerMille(700), PerMille(1000)]);
        // Direct I/O promises nothing under another program's mapping.
        self.machine.faults.invalidate = PerMille(0);
        let offset = *random.pick(&[512, 512, 4096]);
        for volume in &mut self.machine.volumes {
            volume.direct = volume.direct.map(|direct| Alignment { offset, ..direct });
        }
        self
    }

    /// The same run with opens and calls in their other forms, too.
    #[must_use]
    pub fn with_all_calls(mut self, seed: u64) -> Self {
        self.varied = *Random::new(seed ^ 0x6361_6c6c).pick(&[PerMille(200), PerMille(600)]);
        self
    }

    /// The same run with pages that are written whole again and again.
    #[must_use]
    pub fn with_rewrites(mut self, seed: u64) -> Self {
        self.rewrites = *Random::new(seed ^ 0x7265_7772).pick(&[PerMille(300), PerMille(700)]);
        self
    }

    /// The same run on file systems of this kind.
    #[must_use]
    pub fn on(mut self, kind: &VolumePlan) -> Self {
        let direct = kind.direct;
        for volume in &mut self.machine.volumes {
            let direct = direct.and(volume.direct.or(direct));
            *volume = VolumePlan { space_pages: volume.space_pages, direct, ..kind.clone() };
        }
        self
    }

    /// The same run with these rates of faults.
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.machine.faults = faults;
        self
    }

    /// The same run with this space on each file system.
    #[must_use]
    pub fn with_space(mut self, pages: u64) -> Self {
        self.machine.volumes.iter_mut().for_each(|volume| volume.space_pages = pages);
        self
    }

    /// Returns the path of a file. Files lie on the file systems in turn.
    ///
    /// # Panics
    /// If the machine has no file system.
    #[must_use]
    pub fn path(&self, number: usize) -> PathBuf {
        if self.are_devices {
            return PathBuf::from(format!("/dev/disk{number}"));
        }
        match number % self.machine.volumes.len() {
            0 => PathBuf::from(format!("/file{number}")),
            volume => PathBuf::from(format!("/volume{volume}/file{number}")),
        }
    }

    /// Returns the file system of a file.
    ///
    /// # Panics
    /// If the machine has no file system.
    #[must_use]
    pub fn volume(&self, number: usize) -> &VolumePlan {
        &self.machine.volumes[number % self.machine.volumes.len()]
    }

    /// Whether a file may be opened as a temporary one: it has no lease and is not with a keeper.
    #[must_use]
    pub fn allows_temporary(&self) -> bool {
        self.disturbance.programs.0 == 0 && !self.is_survived
    }

    /// Whether a file system may become full.
    #[must_use]
    pub fn has_little_space(&self) -> bool {
        self.machine.volumes.iter().any(|volume| volume.space_pages < u64::MAX / 2)
    }

    /// Bytes of a device.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.file_pages * PAGE as u64 + self.odd_sectors * SECTOR as u64
    }

    /// Ends that files may have.
    #[must_use]
    pub fn ends(&self) -> Range<u64> {
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

fn machine(random: &mut Random, drops_dirty: bool, pages: u64) -> MachinePlan {
    let space_pages = space(random, pages);
    let volumes = (0..random.within(1..3)).map(|_| {
        let volume = match random.below(6) {
            0 => VolumePlan::tmpfs(),
            1 => VolumePlan::nfs(),
            2 => VolumePlan::ext4(),
            _ => VolumePlan::xfs(),
        };
        let piece_pages = *random.pick(&[None, Some(4), Some(16)]);
        VolumePlan { space_pages, piece_pages, ..volume }
    });
    let volumes = volumes.collect();
    MachinePlan {
        volumes,
        faults: faults(random, drops_dirty),
        latency: latency(random),
        prices: None,
    }
}

fn faults(random: &mut Random, drops_dirty: bool) -> Faults {
    let flush = PerMille(if random.below(4) == 0 { 60 } else { 0 });
    let flush_directory = PerMille(if random.below(6) == 0 { 300 } else { 0 });
    // A poisoned file may be read as the device has it, and so may one whose dirty data was
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
        names: PerMille(0),
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
    *random.pick(&[Bound::Depth(1), Bound::Depth(2), Bound::Depth(32), time(100), time(2_000)])
}

fn reserving(random: &mut Random) -> Reserving {
    *random.pick(&[
        Reserving::Adaptive,
        Reserving::Adaptive,
        Reserving::Ahead(64 * PAGE as u64),
        Reserving::Ahead(16 * PAGE as u64),
        Reserving::Off,
    ])
}

fn queue(random: &mut Random) -> Knobs {
    let delay = Holding::Delay(Duration::from_micros(200));
    Knobs {
        plugging: *random.pick(&[Plugging::Adaptive, Plugging::Never, Plugging::Always]),
        merging: *random.pick(&[Merging::On, Merging::On, Merging::Off]),
        tagging: *random.pick(&[Tagging::Sweep, Tagging::Single]),
        clock: *random.pick(&[ClockReads::Batch, ClockReads::Each]),
        ringing: *random.pick(&[Ringing::Batch, Ringing::Each]),
        holding: *random.pick(&[Holding::Throttled, Holding::Immediate, delay]),
        ..Knobs::default()
    }
}

fn space(random: &mut Random, pages: u64) -> u64 {
    *random.pick(&[u64::MAX / 2, u64::MAX / 2, pages, pages / 2 + 4])
}

/// Values of the knob `affinity`.
const AFFINITIES: [&str; 4] = ["single", "hash", "directory", "group"];
