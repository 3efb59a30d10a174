//! A file of blocks, the threads that overwrite them, and all ways to read them back.

use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::Engine;
use forebay_block::random::Random;

use crate::block;
use crate::support::disturb;
use crate::support::handle::{Handle, Kind};
use crate::support::{MIB, PAGE, how};

/// Threads of a file; block N belongs to thread N modulo this.
const THREADS: u64 = 2;

/// Sizes of blocks. Blocks of a page are read by every thread while their owner writes them.
const SIZES: [usize; 6] = [4096, 4096, 1000, 5000, 8192, 65_536];

/// Bytes of a file: less than the smallest cache, and more.
const BYTES: [u64; 2] = [MIB, 10 * MIB];

/// Most blocks of one pass in order.
const RUN: u64 = 24;

/// Events of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    /// Blocks written and blocks read through the engine, and syncs.
    pub(crate) operations: u64,
    written: u64,
    read: u64,
    syncs: u64,
    /// Readings of the whole file by the standard library, through the page cache.
    buffered: u64,
    /// The same with `O_DIRECT`.
    direct: u64,
    /// Times between two looks that another program took the lease.
    lease_breaks: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.operations += more.operations;
        self.written += more.written;
        self.read += more.read;
        self.syncs += more.syncs;
        self.buffered += more.buffered;
        self.direct += more.direct;
        self.lease_breaks += more.lease_breaks;
    }
}

/// Sequences of the newest write of a block; 0 before the first.
#[derive(Default)]
struct Slot {
    /// Stored before the write starts.
    begun: AtomicU64,
    /// Stored once the write has returned.
    accepted: AtomicU64,
}

pub(crate) struct Verified<'a> {
    engine: &'a Engine,
    kind: Kind,
    path: &'a Path,
    random: Random,
    size: usize,
    slots: Vec<Slot>,
    handles: Vec<Handle>,
    counts: Counts,
}

impl<'a> Verified<'a> {
    pub(crate) fn create(engine: &'a Engine, kind: Kind, path: &'a Path, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let size = SIZES[random.below(6) as usize];
        let blocks = BYTES[random.below(2) as usize] / size as u64;
        let handle = Handle::open(engine, kind, path, &how::create_new()).unwrap();
        if random.below(2) == 0 {
            handle.set_len(blocks * size as u64).unwrap();
        }
        handle.close().unwrap();
        let slots = (0..blocks).map(|_| Slot::default()).collect();
        let counts = Counts::default();
        Self { engine, kind, path, random, size, slots, handles: Vec::new(), counts }
    }

    /// Phases of threads, with a look at the file on disk after each.
    pub(crate) fn run(mut self, operations: u64) -> Counts {
        while self.counts.operations < operations {
            while self.handles.len() < THREADS as usize {
                self.open();
            }
            let operations_of_phase = 40 + self.random.below(600);
            self.phase(operations_of_phase);
            match self.random.below(4) {
                // The comparison takes the lease: not after each phase.
                0 => {
                    self.handles[0].sync_data().unwrap();
                    self.check_on_disk();
                }
                1 => self.handles[0].sync_all().unwrap(),
                _ => self.close(),
            }
        }
        self.close();
        self.counts
    }

    fn open(&mut self) {
        let mut open = how::write();
        match self.random.below(3) {
            0 => open.uncached(true),
            1 => open.uncached(false),
            _ => &mut open,
        };
        self.handles.push(Handle::open(self.engine, self.kind, self.path, &open).unwrap());
    }

    fn close(&mut self) {
        for handle in self.handles.drain(..) {
            handle.close().unwrap();
        }
        self.check_on_disk();
    }

    fn phase(&mut self, operations: u64) {
        let seeds: Vec<u64> = (0..THREADS).map(|_| self.random.draw()).collect();
        let file: &Self = self;
        let counts: Vec<Counts> = std::thread::scope(|scope| {
            let start = |(thread, seed)| {
                let handle = &file.handles[thread as usize];
                let random = Random::new(seed);
                Owner { file, thread, handle, random, counts: Counts::default() }.run(operations)
            };
            let running: Vec<_> =
                (0..).zip(seeds).map(|one| scope.spawn(move || start(one))).collect();
            running.into_iter().map(disturb::joined).collect()
        });
        counts.into_iter().for_each(|counts| self.counts += counts);
    }

    /// Everything accepted is in the file, as every other program reads it.
    fn check_on_disk(&mut self) {
        let found = std::fs::read(self.path).unwrap();
        self.check_all(&found, "by the standard library");
        self.counts.buffered += 1;
        if let Some(found) = read_direct(self.path) {
            self.check_all(&found, "by the standard library with O_DIRECT");
            self.counts.direct += 1;
        }
    }

    fn check_all(&self, found: &[u8], how: &str) {
        let ends = |(slot, number): (&Slot, u64)| {
            let is_written = slot.accepted.load(Ordering::Acquire) > 0;
            if is_written { (number + 1) * self.size as u64 } else { 0 }
        };
        let least = self.slots.iter().zip(0..).map(ends).max().unwrap_or(0);
        let most = self.slots.len() as u64 * self.size as u64;
        let length = found.len() as u64;
        assert!(
            (least..=most).contains(&length),
            "{length} bytes read {how}, not {least}..={most}"
        );
        for (number, slot) in (0..).zip(&self.slots) {
            let newest = slot.accepted.load(Ordering::Acquire);
            self.check(number, self.part(found, number), newest..=newest, how);
        }
    }

    /// Bytes of a block in the whole file.
    fn part<'b>(&self, whole: &'b [u8], number: u64) -> &'b [u8] {
        let start = (number as usize * self.size).min(whole.len());
        &whole[start..(start + self.size).min(whole.len())]
    }

    fn check(&self, number: u64, found: &[u8], sequences: RangeOf, how: &str) {
        if let Err(wrong) = block::check(found, number, self.size, sequences) {
            let knobs = disturb::settings(self.engine);
            panic!(
                "block {number} at {} of {}, {} bytes, read {how}: {wrong}; {knobs}",
                number * self.size as u64,
                self.path.display(),
                self.size
            );
        }
    }

    /// Whether a block is seen before or after each write of it, and never in between: pages are
    /// atomic, and so are all direct operations.
    fn is_atomic(&self) -> bool {
        self.size as u64 == PAGE || self.kind == Kind::Direct
    }
}

type RangeOf = std::ops::RangeInclusive<u64>;

/// A thread that writes its blocks, and reads all that it may.
struct Owner<'a> {
    file: &'a Verified<'a>,
    thread: u64,
    handle: &'a Handle,
    random: Random,
    counts: Counts,
}

impl Owner<'_> {
    fn run(mut self, operations: u64) -> Counts {
        let mut is_leased = self.handle.is_leased();
        while self.counts.operations < operations {
            match self.random.below(100) {
                0..40 => {
                    let number = self.own();
                    self.write(number);
                }
                40..50 => {
                    let first = self.own();
                    let run = 1 + self.random.below(RUN);
                    let end = self.file.slots.len() as u64;
                    (first..end)
                        .step_by(THREADS as usize)
                        .take(run as usize)
                        .for_each(|number| self.write(number));
                }
                50..90 => {
                    let own = self.own();
                    let any = self.random.below(self.file.slots.len() as u64);
                    self.read(if self.file.is_atomic() { any } else { own }, 1);
                }
                90..98 if self.file.is_atomic() => {
                    let first = self.random.below(self.file.slots.len() as u64);
                    let run = 1 + self.random.below(RUN);
                    self.read(first, run.min(self.file.slots.len() as u64 - first));
                }
                90..98 => {
                    let own = self.own();
                    self.read(own, 1);
                }
                _ => {
                    self.handle.sync_data().unwrap();
                    self.counts.syncs += 1;
                    self.counts.operations += 1;
                }
            }
            let is_leased_now = self.handle.is_leased();
            // One thread of the file counts.
            let is_break = self.thread == 0 && is_leased && !is_leased_now;
            self.counts.lease_breaks += u64::from(is_break);
            is_leased = is_leased_now;
        }
        self.counts
    }

    fn own(&mut self) -> u64 {
        let blocks = self.file.slots.len() as u64 / THREADS;
        self.random.below(blocks) * THREADS + self.thread
    }

    fn write(&mut self, number: u64) {
        let slot = &self.file.slots[number as usize];
        let sequence = slot.begun.load(Ordering::Relaxed) + 1;
        let data = block::made(number, sequence, self.file.size);
        slot.begun.store(sequence, Ordering::Release);
        self.handle.write(&data, number * self.file.size as u64).unwrap();
        slot.accepted.store(sequence, Ordering::Release);
        self.counts.written += 1;
        self.counts.operations += 1;
    }

    /// Reads adjacent blocks in one call.
    fn read(&mut self, first: u64, blocks: u64) {
        let range = first as usize..(first + blocks) as usize;
        let slots = &self.file.slots[range];
        let least: Vec<u64> =
            slots.iter().map(|slot| slot.accepted.load(Ordering::Acquire)).collect();
        let size = self.file.size;
        let found = self.handle.read(first * size as u64, size * blocks as usize).unwrap();
        for (at, (slot, least)) in slots.iter().zip(least).enumerate() {
            let most = slot.begun.load(Ordering::Acquire);
            let start = (at * size).min(found.len());
            let part = &found[start..(start + size).min(found.len())];
            self.file.check(first + at as u64, part, least..=most, "through the engine");
        }
        self.counts.read += blocks;
        self.counts.operations += 1;
    }
}

/// Returns the whole file past the page cache; `None` if the file system has no direct I/O.
fn read_direct(path: &Path) -> Option<Vec<u8>> {
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let file = match file {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return None,
        file => file.unwrap(),
    };
    let mut memory = vec![0; (MIB + PAGE) as usize];
    let skew = memory.as_ptr().align_offset(PAGE as usize);
    let chunk = &mut memory[skew..skew + MIB as usize];
    let mut found = Vec::new();
    loop {
        let read = file.read_at(chunk, found.len() as u64).unwrap();
        found.extend_from_slice(&chunk[..read]);
        // A short read is the end of the file, where the next offset is not aligned.
        if read < chunk.len() {
            return Some(found);
        }
    }
}
