//! The operations of a job, one after the other, as a pure function of the job and its seed.
//!
//! Because nothing but the seed goes in, the same operations come out again for every arm of a
//! round, and once more after the clock has stopped, when verification asks which blocks had been
//! written. A *pass* is once through the range of every file; `loops`, `io_size` and `time_based`
//! ask for more passes, each in another random order.

use crate::job::{BlockSize, Direction, Job, NextFile, Order, RandomMap, YesNo};

use super::shuffle::Permutation;
use forebay_block::random::{Random, fold};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    /// Index among the job's files.
    pub(crate) file: usize,
    /// In that file.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// The part of a file a job works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    direction: Direction,
    order: Order,
    next_file: NextFile,
    /// Of reads and of writes.
    blocks: [BlockSize; 2],
    files: Vec<FileState>,
    file: usize,
    seed: u64,
    pass: u64,
    random: Random,
    bytes_left: u64,
    operations_left: u64,
}

#[derive(Clone, Debug)]
struct FileState {
    range: Range,
    /// Where the next sequential read and write go, from the start of the range.
    cursors: [u64; 2],
    /// Bytes of this pass.
    used: u64,
    /// Of blocks; none where offsets are drawn with replacement or follow each other.
    permutation: Option<Permutation>,
    index: u64,
}

impl Sequence {
    /// Returns the operations of `job` over these ranges of its files; `pass_bytes` is how much the
    /// job does in one loop.
    pub(crate) fn new(job: &Job, ranges: &[Range], pass_bytes: u64, seed: u64) -> Self {
        assert!(!ranges.is_empty(), "a job without a file");
        let mut sequence = Self {
            direction: job.access.direction,
            order: job.access.order,
            next_file: job.next_file,
            blocks: [job.blocks.read.clone(), job.blocks.write.clone()],
            files: ranges.iter().map(|&range| FileState::new(range)).collect(),
            file: 0,
            seed,
            pass: 0,
            random: Random::new(fold(seed, 1)),
            bytes_left: match job.time_based {
                YesNo::Yes => u64::MAX,
                YesNo::No => pass_bytes.saturating_mul(u64::from(job.loops)),
            },
            operations_left: job.operations.unwrap_or(u64::MAX),
        };
        if job.access.order == Order::Random && job.random_map == RandomMap::EachOnce {
            sequence.shuffle();
        }
        sequence
    }

    /// Returns the next one; `None` when the job's work is done.
    pub(crate) fn next(&mut self) -> Option<Operation> {
        if self.operations_left == 0 {
            return None;
        }
        let kind = self.draw_kind();
        let least = self.blocks[kind as usize].min();
        // Of blocks of several sizes one that is left, not none.
        let left = self.bytes_left - self.bytes_left % u64::from(least);
        let bytes = u64::from(self.draw_bytes(kind)).min(left) as u32;
        if bytes == 0 {
            return None;
        }
        let operation = match self.place(kind, bytes) {
            Some(operation) => operation,
            None => {
                self.begin_pass(kind);
                self.place(kind, bytes)?
            }
        };
        debug_assert!(self.holds(&operation), "{operation:?} is outside of its range");
        self.bytes_left -= u64::from(operation.bytes);
        self.operations_left -= 1;
        Some(operation)
    }

    fn holds(&self, operation: &Operation) -> bool {
        let Range { start, length } = self.files[operation.file].range;
        let end = operation.offset + u64::from(operation.bytes);
        operation.bytes > 0 && operation.offset >= start && end <= start + length
    }

    fn draw_kind(&mut self) -> Kind {
        match self.direction {
            Direction::Read => Kind::Read,
            Direction::Write => Kind::Write,
            Direction::Mixed { read_percent }
                if self.random.below(100) < u64::from(read_percent) =>
            {
                Kind::Read
            }
            Direction::Mixed { .. } => Kind::Write,
        }
    }

    fn draw_bytes(&mut self, kind: Kind) -> u32 {
        match &self.blocks[kind as usize] {
            BlockSize::Fixed(bytes) => *bytes,
            BlockSize::Range { min, max } => {
                let steps = u64::from((max - min) / min) + 1;
                min * (self.random.below(steps) as u32 + 1)
            }
            BlockSize::Split(shares) => {
                let mut drawn = self.random.below(100) as i64;
                let chosen = shares.iter().find(|share| {
                    drawn -= i64::from(share.percent);
                    drawn < 0
                });
                chosen.or(shares.last()).map_or(1, |share| share.bytes)
            }
        }
    }

    /// Places an operation in the first file, from the one whose turn it is, that has room left in
    /// this pass.
    fn place(&mut self, kind: Kind, bytes: u32) -> Option<Operation> {
        let count = self.files.len();
        if self.next_file == NextFile::Random {
            self.file = self.random.below(count as u64) as usize;
        }
        for step in 0..count {
            let file = (self.file + step) % count;
            let least = self.blocks[kind as usize].min();
            let state = &mut self.files[file];
            let placed = match self.order {
                Order::Sequential => state.follow(kind, bytes, least),
                Order::Random => state.scatter(bytes, least, &mut self.random),
            };
            if let Some((offset, bytes)) = placed {
                state.used += u64::from(bytes);
                self.file = match self.next_file {
                    NextFile::Sequential => file,
                    NextFile::RoundRobin | NextFile::Random => (file + 1) % count,
                };
                return Some(Operation { kind, file, offset: state.range.start + offset, bytes });
            }
        }
        None
    }

    fn begin_pass(&mut self, kind: Kind) {
        self.pass += 1;
        for state in &mut self.files {
            state.used = 0;
            state.index = 0;
            state.cursors[kind as usize] = 0;
        }
        if self.next_file == NextFile::Sequential {
            self.file = 0;
        }
        if self.files.iter().any(|state| state.permutation.is_some()) {
            self.shuffle();
        }
    }

    /// Shuffles the blocks of each file. Each block once needs one size of block; mixed sizes are
    /// drawn with replacement.
    fn shuffle(&mut self) {
        let [read, write] = &self.blocks;
        let Some(block) = one_size(self.direction, read, write) else { return };
        for (number, state) in self.files.iter_mut().enumerate() {
            let blocks = state.range.length / u64::from(block);
            let seed = fold(fold(self.seed, number as u64), self.pass);
            state.permutation = Some(Permutation::new(blocks, seed));
        }
    }
}

/// Whether a job that wants each block once gets its random offsets with replacement all the same.
pub(crate) fn repeats_offsets(job: &Job) -> bool {
    job.access.order == Order::Random
        && job.random_map == RandomMap::EachOnce
        && one_size(job.access.direction, &job.blocks.read, &job.blocks.write).is_none()
}

/// Returns the size of every block, if they have one.
fn one_size(direction: Direction, read: &BlockSize, write: &BlockSize) -> Option<u32> {
    match (direction, read, write) {
        (Direction::Read, BlockSize::Fixed(bytes), _)
        | (Direction::Write, _, BlockSize::Fixed(bytes)) => Some(*bytes),
        (Direction::Mixed { .. }, BlockSize::Fixed(read), BlockSize::Fixed(write))
            if read == write =>
        {
            Some(*read)
        }
        _ => None,
    }
}

impl FileState {
    fn new(range: Range) -> Self {
        Self { range, cursors: [0; 2], used: 0, permutation: None, index: 0 }
    }

    fn follow(&mut self, kind: Kind, bytes: u32, least: u32) -> Option<(u64, u32)> {
        let offset = self.cursors[kind as usize];
        debug_assert!(offset <= self.range.length, "a cursor behind its range");
        let room = self.range.length - offset;
        if room < u64::from(least) {
            return None;
        }
        let bytes = u64::from(bytes).min(room - room % u64::from(least)) as u32;
        self.cursors[kind as usize] += u64::from(bytes);
        Some((offset, bytes))
    }

    fn scatter(&mut self, bytes: u32, least: u32, random: &mut Random) -> Option<(u64, u32)> {
        if let Some(permutation) = &self.permutation {
            if self.index >= self.range.length / u64::from(bytes) {
                return None;
            }
            let block = permutation.at(self.index);
            self.index += 1;
            return Some((block * u64::from(bytes), bytes));
        }
        let length = self.range.length - self.range.length % u64::from(least);
        if length == 0 || self.used >= length {
            return None;
        }
        let bytes = u64::from(bytes).min(length);
        let places = (length - bytes) / u64::from(least) + 1;
        Some((random.below(places) * u64::from(least), bytes as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Access, Blocks, SizeShare};

    fn job(direction: Direction, order: Order, block: BlockSize) -> Job {
        let blocks = Blocks { read: block.clone(), write: block };
        Job { access: Access { direction, order }, blocks, ..Job::default() }
    }

    fn all(job: &Job, ranges: &[Range]) -> Vec<Operation> {
        let bytes = ranges.iter().map(|range| range.length).sum();
        let mut sequence = Sequence::new(job, ranges, bytes, 3);
        std::iter::from_fn(|| sequence.next()).collect()
    }

    #[test]
    fn random_writes_touch_each_block_of_each_file_once() {
        let job = job(Direction::Write, Order::Random, BlockSize::Fixed(4096));
        let ranges =
            [Range { start: 8192, length: 40 * 4096 }, Range { start: 0, length: 7 * 4096 + 100 }];
        let operations = all(&job, &ranges);
        let mut touched: Vec<_> =
            operations.iter().map(|operation| (operation.file, operation.offset)).collect();
        touched.sort_unstable();
        touched.dedup();
        assert_eq!((operations.len(), touched.len()), (47, 47));
        assert!(touched.iter().all(|&(file, offset)| file == 1 || offset >= 8192));
    }

    #[test]
    fn every_loop_has_an_order_of_its_own() {
        let job = Job { loops: 2, ..job(Direction::Write, Order::Random, BlockSize::Fixed(4096)) };
        let operations = all(&job, &[Range { start: 0, length: 64 * 4096 }]);
        assert_eq!(operations.len(), 128);
        assert_ne!(operations[..64], operations[64..]);
    }

    #[test]
    fn mixed_sequential_keeps_a_place_for_each_direction() {
        let job =
            job(Direction::Mixed { read_percent: 50 }, Order::Sequential, BlockSize::Fixed(4096));
        let operations = all(&job, &[Range { start: 0, length: 100 * 4096 }]);
        assert_eq!(operations.len(), 100);
        for kind in [Kind::Read, Kind::Write] {
            let offsets: Vec<_> =
                operations.iter().filter(|op| op.kind == kind).map(|op| op.offset).collect();
            assert!(offsets.len() > 25);
            assert!(offsets.windows(2).all(|pair| pair[1] == pair[0] + 4096));
        }
    }

    #[test]
    fn mixed_sizes_stay_in_the_range() {
        let shares =
            vec![SizeShare { bytes: 4096, percent: 30 }, SizeShare { bytes: 65_536, percent: 70 }];
        for block in [BlockSize::Split(shares), BlockSize::Range { min: 4096, max: 16_384 }] {
            for order in [Order::Sequential, Order::Random] {
                let job = job(Direction::Write, order, block.clone());
                let operations = all(&job, &[Range { start: 4096, length: 1 << 20 }]);
                assert!(operations.len() > 10);
                for operation in operations {
                    assert!(operation.offset >= 4096);
                    assert!(operation.offset + u64::from(operation.bytes) <= 4096 + (1 << 20));
                    assert_eq!(operation.offset % 4096, 0);
                }
            }
        }
    }

    #[test]
    fn mixed_sizes_do_all_of_an_amount() {
        let job = job(Direction::Write, Order::Random, BlockSize::Range { min: 4096, max: 65_536 });
        let range = [Range { start: 0, length: 1 << 20 }];
        for (amount, done) in [(4096, 4096), (30_000, 28_672), (65_536, 65_536)] {
            for seed in 0..20 {
                let mut sequence = Sequence::new(&job, &range, amount, seed);
                let all = std::iter::from_fn(|| sequence.next());
                assert_eq!(all.map(|operation| u64::from(operation.bytes)).sum::<u64>(), done);
            }
        }
    }

    #[test]
    fn offsets_repeat_where_sizes_are_mixed() {
        let range = BlockSize::Range { min: 4096, max: 16_384 };
        assert!(repeats_offsets(&job(Direction::Write, Order::Random, range.clone())));
        assert!(!repeats_offsets(&job(Direction::Write, Order::Sequential, range.clone())));
        let mut reader = job(Direction::Read, Order::Random, BlockSize::Fixed(4096));
        reader.blocks.write = range;
        assert!(!repeats_offsets(&reader));
        reader.access.direction = Direction::Mixed { read_percent: 50 };
        assert!(repeats_offsets(&reader));
    }

    #[test]
    fn ends_where_it_has_to() {
        let base = job(Direction::Write, Order::Sequential, BlockSize::Fixed(4096));
        let range = [Range { start: 0, length: 10 * 4096 }];
        assert_eq!(all(&Job { operations: Some(3), ..base.clone() }, &range).len(), 3);
        let mut endless = Sequence::new(&Job { time_based: YesNo::Yes, ..base }, &range, 1, 0);
        assert!((0..1000).all(|_| endless.next().is_some()));
        assert_eq!(endless.pass, 99);
    }

    #[test]
    fn one_file_after_the_other_if_asked() {
        let mut job = job(Direction::Write, Order::Sequential, BlockSize::Fixed(4096));
        job.next_file = NextFile::Sequential;
        let files: Vec<_> =
            all(&job, &[Range { start: 0, length: 8192 }; 3]).iter().map(|op| op.file).collect();
        assert_eq!(files, [0, 0, 1, 1, 2, 2]);
    }
}
