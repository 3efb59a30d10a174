//! The steps done to one file, and the contents that it may have after a crash.
//!
//! A workload is a seeded row of steps: the process that does them and the one that checks
//! afterwards make the same row. The history keeps the file as of the last sync, and for each
//! sector every content it has had since; a crash may leave each sector in any of them, and a size
//! between the smallest and the largest since.

use std::collections::HashMap;

use forebay_block::random::{Random, mix};

use super::MIB;

const SECTOR: usize = 512;

/// The kinds of workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Unaligned writes anywhere in a few MiB.
    Random,
    /// Odd records at the end.
    Append,
    /// Large writes at the end, with few syncs: what space is reserved ahead for.
    Stream,
    /// Everything, changes of length too.
    Mixed,
}

pub(crate) const SHAPES: [Shape; 4] = [Shape::Random, Shape::Append, Shape::Stream, Shape::Mixed];

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Write { offset: u64, data: Vec<u8> },
    Append { data: Vec<u8> },
    SetLength(u64),
    Sync,
}

/// A row of steps without end.
#[derive(Debug)]
pub(crate) struct Workload {
    random: Random,
    shape: Shape,
    number: u64,
}

impl Workload {
    pub(crate) fn new(seed: u64, shape: Shape) -> Self {
        Self { random: Random::new(seed), shape, number: 0 }
    }

    /// Bytes that no other step has, at no other place.
    fn data(&self, length: u64) -> Vec<u8> {
        let salt = mix(self.number ^ self.random.clone().draw());
        let words = (0..length.div_ceil(8)).map(|at| mix(salt.wrapping_add(at)).to_le_bytes());
        let mut data: Vec<u8> = words.flatten().collect();
        data.truncate(length as usize);
        data
    }
}

impl Iterator for Workload {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.number += 1;
        let draw = self.random.below(100);
        let small = 1 + self.random.below(9000);
        let offset = self.random.below(4 * MIB);
        let step = match self.shape {
            Shape::Random if draw < 5 => Step::Sync,
            Shape::Random => Step::Write { offset, data: self.data(small) },
            Shape::Append if draw < 4 => Step::Sync,
            Shape::Append => Step::Append { data: self.data(small) },
            Shape::Stream if draw < 2 => Step::Sync,
            Shape::Stream => Step::Append { data: self.data(128 << 10) },
            Shape::Mixed => match draw {
                0..4 => Step::Sync,
                4..7 => Step::SetLength(offset),
                7..30 => Step::Append { data: self.data(small) },
                30..40 => Step::Write { offset: offset / 4096 * 4096, data: self.data(64 << 10) },
                _ => Step::Write { offset, data: self.data(small) },
            },
        };
        Some(step)
    }
}

/// Allowed contents of one file.
#[derive(Debug, Default)]
pub(crate) struct History {
    synced: Vec<u8>,
    now: Vec<u8>,
    /// Contents since the last sync, oldest first.
    versions: HashMap<usize, Vec<[u8; SECTOR]>>,
    smallest: usize,
    largest: usize,
}

impl History {
    /// Ends of the file so far.
    pub(crate) fn len(&self) -> usize {
        self.now.len()
    }

    /// A step has begun: from now on the file may hold its outcome.
    pub(crate) fn begin(&mut self, step: &Step) {
        match step {
            Step::Write { offset, data } => self.write(*offset as usize, data),
            Step::Append { data } => self.write(self.now.len(), data),
            Step::SetLength(length) => self.set_length(*length as usize),
            Step::Sync => {}
        }
    }

    /// Everything begun so far is durable.
    pub(crate) fn synced(&mut self) {
        // Only changed sectors are copied, so the cost of a sync follows the changes.
        self.synced.resize(self.now.len(), 0);
        for (sector, _) in self.versions.drain() {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(self.now.len());
            if !range.is_empty() {
                self.synced[range.clone()].copy_from_slice(&self.now[range]);
            }
        }
        (self.smallest, self.largest) = (self.now.len(), self.now.len());
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        let old_end = self.now.len();
        self.now.resize(end.max(old_end), 0);
        self.now[offset..end].copy_from_slice(data);
        self.largest = self.largest.max(self.now.len());
        self.note(offset, end);
    }

    fn set_length(&mut self, length: usize) {
        let (from, to) = (length.min(self.now.len()), length.max(self.now.len()));
        if length < self.now.len() {
            self.cut(length);
        }
        self.now.resize(length, 0);
        self.smallest = self.smallest.min(length);
        self.largest = self.largest.max(length);
        self.note(from, to);
    }

    /// A truncation takes effect at once, while earlier writes may still be in memory. The sector
    /// at the cut may hold any earlier version, with zeroes behind the cut.
    fn cut(&mut self, length: usize) {
        let (sector, kept) = (length / SECTOR, length % SECTOR);
        let synced = sector_of(&self.synced, sector);
        let versions = self.versions.entry(sector).or_default();
        let whole: Vec<_> = versions.iter().copied().chain([synced]).collect();
        versions.extend(whole.into_iter().map(|mut content| {
            content[kept..].fill(0);
            content
        }));
    }

    fn note(&mut self, from: usize, to: usize) {
        for sector in from / SECTOR..to.div_ceil(SECTOR) {
            let content = sector_of(&self.now, sector);
            self.versions.entry(sector).or_default().push(content);
        }
    }

    /// Whether a crash may have left this.
    pub(crate) fn check(&self, found: &[u8]) -> Result<(), String> {
        if !(self.smallest..=self.largest).contains(&found.len()) {
            return Err(format!(
                "{} bytes, not {} to {}",
                found.len(),
                self.smallest,
                self.largest
            ));
        }
        for (sector, content) in found.chunks(SECTOR).enumerate() {
            let synced = sector_of(&self.synced, sector);
            let versions = self.versions.get(&sector);
            let mut allowed = versions.into_iter().flatten().chain([&synced]);
            if !allowed.any(|version| version[..content.len()] == *content) {
                let what =
                    if content.iter().all(|byte| *byte == 0) { "zeroes" } else { "other bytes" };
                let since = versions.map_or(0, Vec::len);
                let synced_to = self.synced.len();
                let all = versions.into_iter().flatten().chain([&synced]);
                let agree: Vec<String> = all.map(|version| agreeing(content, version)).collect();
                return Err(format!(
                    "sector {sector} of {} holds {what}: not as synced (to byte {synced_to}), nor any of {since} \
                     versions since; bytes that are as in each version, and as synced: {}",
                    found.len().div_ceil(SECTOR),
                    agree.join("; "),
                ));
            }
        }
        Ok(())
    }
}

/// The ranges of a sector that are as in a version of it.
fn agreeing(content: &[u8], version: &[u8]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for at in (0..content.len()).filter(|at| content[*at] == version[*at]) {
        match ranges.last_mut() {
            Some((_, end)) if *end == at => *end += 1,
            _ => ranges.push((at, at + 1)),
        }
    }
    // Short ranges may agree by chance.
    let reported = ranges.iter().filter(|(from, to)| to - from >= 8 || *to == content.len());
    let reported: Vec<String> = reported.map(|(from, to)| format!("{from}..{to}")).collect();
    if reported.is_empty() { "none".to_owned() } else { reported.join(" ") }
}

fn sector_of(bytes: &[u8], sector: usize) -> [u8; SECTOR] {
    let mut content = [0; SECTOR];
    let start = (sector * SECTOR).min(bytes.len());
    let end = (start + SECTOR).min(bytes.len());
    content[..end - start].copy_from_slice(&bytes[start..end]);
    content
}
