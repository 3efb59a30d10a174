//! A log in memory, and a naive model of it: a list of all batches that were appended, and files as
//! maps of bytes.
#![allow(dead_code, reason = "each test uses its own part")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;

use forebay_log::{
    BLOCK, Batch, FileId, HEADS, Head, LogId, Point, Replay, Ring, Source, Wall, scan,
};
use proptest::prelude::*;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = BLOCK;
pub(crate) const LOG: LogId = LogId([7; 16]);
const SECTOR: usize = 512;

/// A log in memory.
#[derive(Clone, Debug)]
pub(crate) struct Disk(pub(crate) Vec<u8>);

impl Source for Disk {
    type Error = Infallible;

    fn read(&mut self, block: u64, into: &mut [u8]) -> Result<(), Infallible> {
        let at = block as usize * BLOCK;
        into.copy_from_slice(&self.0[at..at + into.len()]);
        Ok(())
    }
}

/// One write of a record in the model.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    sequence: u64,
    file: u64,
    offset: u64,
    data: Vec<u8>,
}

/// A log, and the model of it.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) disk: Disk,
    pub(crate) head: Head,
    pub(crate) ring: Ring,
    /// Blocks of all batches from the first lap on, with the point behind each.
    pub(crate) batches: Vec<(Range<u64>, Point)>,
    written: Vec<Written>,
    pub(crate) promise: Wall,
}

/// A record: file, and ranges with a byte each.
pub(crate) type Drawn = (u64, Vec<(u64, u64, u8)>);

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Appends a batch.
    Append(Vec<Drawn>),
    /// Writes a head that starts behind some of the batches.
    Advance(prop::sample::Index),
    /// A write that fails, with the sectors that reached the disk. Then all files are emptied.
    Fail(Vec<Drawn>, Vec<bool>),
}

pub(crate) fn id(file: u64) -> FileId {
    FileId { inode: file, generation: Some(file as u32 ^ 5), born: Some(Wall(-3)) }
}

fn ranges_of(pieces: &[(u64, u64, u8)]) -> Vec<Range<u64>> {
    pieces.iter().map(|(offset, length, _)| *offset..offset + length).collect()
}

impl Log {
    pub(crate) fn new(blocks: u64) -> Self {
        let start = Point { position: 0, sequence: 1, chain: 0 };
        let promise = Wall::default();
        let head = Head { log: LOG, number: 1, file: id(1), ring: blocks, start, promise };
        let mut log = Self {
            disk: Disk(vec![0; (HEADS + blocks) as usize * BLOCK]),
            head,
            ring: Ring::new(blocks, start),
            batches: Vec::new(),
            written: Vec::new(),
            promise,
        };
        log.put_head();
        log
    }

    fn put_head(&mut self) {
        let at = self.head.slot() as usize * BLOCK;
        self.disk.0[at..at + BLOCK].copy_from_slice(&self.head.encode());
    }

    pub(crate) fn batch(records: &[Drawn]) -> Batch {
        let mut batch = Batch::new();
        for (file, pieces) in records {
            let ranges = ranges_of(pieces);
            let size = ranges.iter().map(|range| range.end).max().unwrap_or(0);
            let mut data = match file % 2 {
                0 => &mut batch.add(&id(*file), b"a/path", &ranges)[..],
                _ => &mut batch.add_at_end(&id(*file), b"a/path", &ranges, size)[..],
            };
            for (_, length, byte) in pieces {
                let (this, rest) = data.split_at_mut(*length as usize);
                this.fill(*byte);
                data = rest;
            }
        }
        batch
    }

    /// Appends a batch if there is room. Only the sectors that `keeps` has reach the disk.
    pub(crate) fn append(
        &mut self,
        records: &[Drawn],
        keeps: impl Fn(usize) -> bool,
    ) -> Option<u64> {
        let mut batch = Self::batch(records);
        let at = self.ring.place(batch.blocks())?;
        self.promise = self.promise.after(1);
        let (bytes, next) = batch.seal(&LOG, &at, self.promise);
        let block = HEADS + at.position % self.ring.blocks();
        let start = block as usize * BLOCK;
        for (number, sector) in bytes.chunks(SECTOR).enumerate().filter(|(it, _)| keeps(*it)) {
            let start = start + number * SECTOR;
            self.disk.0[start..start + SECTOR].copy_from_slice(sector);
        }
        self.ring.push(next);
        self.batches.push((at.position..next.position, next));
        for (file, pieces) in records {
            self.written.extend(pieces.iter().map(|(offset, length, byte)| Written {
                sequence: at.sequence,
                file: *file,
                offset: *offset,
                data: vec![*byte; *length as usize],
            }));
        }
        Some(at.sequence)
    }

    fn advance(&mut self, to: Point) {
        self.head = Head { number: self.head.number + 1, start: to, ..self.head };
        self.head.promise = self.promise;
        self.put_head();
        self.ring.advance(to);
        self.batches.retain(|(blocks, _)| blocks.end > to.position);
        self.written.retain(|written| written.sequence >= to.sequence);
    }

    pub(crate) fn run(&mut self, step: &Step) {
        match step {
            Step::Append(records) => {
                self.append(records, |_| true);
            }
            Step::Advance(_) if self.batches.is_empty() => self.advance(self.ring.start()),
            Step::Advance(index) => self.advance(index.get(&self.batches).1),
            Step::Fail(records, keeps) => {
                if self.append(records, |at| keeps.get(at).copied().unwrap_or(false)).is_some() {
                    let end = self.ring.next();
                    let start = Point { sequence: end.sequence + 1, chain: 0, ..end };
                    self.head = Head { number: self.head.number + 1, start, ..self.head };
                    self.put_head();
                    self.ring = Ring::new(self.ring.blocks(), start);
                    self.batches.clear();
                    self.written.clear();
                }
            }
        }
    }

    /// Reads the log and checks it against the model, without the batches from `end` on.
    pub(crate) fn check(&mut self, end: u64) {
        let heads = self.disk.0[..2 * BLOCK].to_vec();
        let head = Head::newest([&heads[..BLOCK], &heads[BLOCK..]]).unwrap();
        assert_eq!(head, self.head);
        let scanned = scan(&head, &mut self.disk.clone()).unwrap();
        let mut sequences: Vec<u64> = self.written.iter().map(|it| it.sequence).collect();
        sequences.dedup();
        sequences.retain(|sequence| *sequence < end);
        let found: Vec<u64> = scanned.batches.iter().map(|it| it.sequence).collect();
        assert_eq!(found, sequences);
        let replay = Replay::new(&scanned.batches);
        for first in [0, sequences.get(sequences.len() / 2).copied().unwrap_or(0)] {
            let counts = |it: &&Written| (first..end).contains(&it.sequence);
            let mut files: BTreeMap<u64, BTreeMap<u64, u8>> = BTreeMap::new();
            for written in self.written.iter().filter(counts) {
                let file = files.entry(written.file).or_default();
                file.extend((written.offset..).zip(written.data.iter().copied()));
            }
            for plan in &replay.files {
                let expected = files.remove(&plan.file.inode).unwrap_or_default();
                let mut found = BTreeMap::new();
                for copy in plan.newest_from(first) {
                    let from = copy.from as usize..(copy.from + copy.length) as usize;
                    for (at, byte) in (copy.offset..).zip(&self.disk.0[from]) {
                        assert_eq!(found.insert(at, *byte), None, "each byte is written once");
                    }
                }
                assert_eq!((plan.file, found), (id(plan.file.inode), expected));
            }
            assert!(files.is_empty(), "no file is missing");
        }
    }
}

pub(crate) fn records() -> impl Strategy<Value = Vec<Drawn>> {
    let piece = (0_u64..20_000, 1_u64..6000, any::<u8>());
    prop::collection::vec((1_u64..5, prop::collection::vec(piece, 1..4)), 1..4)
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => records().prop_map(Step::Append),
        3 => any::<prop::sample::Index>().prop_map(Step::Advance),
        1 => (records(), prop::collection::vec(any::<bool>(), 100))
            .prop_map(|(records, keeps)| Step::Fail(records, keeps)),
    ];
    prop::collection::vec(step, 1..60)
}
