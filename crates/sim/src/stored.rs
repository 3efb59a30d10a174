//! A file as the device has it: what is durable, and what is not yet.
//!
//! Each sector keeps the versions written since the last flush, above the durable one. A write that
//! completed is seen by every later read, and by nobody after a loss of power, unless a flush came
//! between: then any one of its versions may have survived, whichever was written last, and its
//! neighbour's fate is another. That is less than file systems promise, and exactly what the
//! contracts assume.
//!
//! Sizes, cuts and holes are metadata, and metadata survives in order, as in a journal. Growing the
//! size shows zeroes, never what was there before a cut.
//!
//! After a failed flush the versions it should have covered are *forsaken*: they are read, they may
//! survive, and no later flush makes them durable. That is how Linux does it: the error is told
//! once, the pages count as clean.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use crate::random::{PerMille, Random};

/// Bytes that are written whole or not at all.
pub const SECTOR: usize = 512;

/// The content of a sector; `None` is zeroes.
pub type Content = Option<Rc<[u8; SECTOR]>>;

const ZEROES: [u8; SECTOR] = [0; SECTOR];

/// The bytes of a content.
#[must_use]
pub fn bytes_of(content: &Content) -> &[u8; SECTOR] {
    content.as_deref().unwrap_or(&ZEROES)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// A write: survives or not, on its own.
    Data,
    /// A cut or a hole: survives with the metadata.
    Metadata,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// The next flush makes it durable.
    Open,
    /// No flush does.
    Forsaken,
}

#[derive(Debug)]
struct Version<T> {
    sequence: u64,
    value: T,
    cause: Cause,
    fate: Fate,
}

/// Values one after the other; the first is durable.
#[derive(Debug)]
struct Versions<T> {
    durable: T,
    later: Vec<Version<T>>,
}

impl<T> Versions<T> {
    fn new(durable: T) -> Self {
        Self { durable, later: Vec::new() }
    }

    fn current(&self) -> &T {
        self.later.last().map_or(&self.durable, |version| &version.value)
    }

    fn push(&mut self, sequence: u64, value: T, cause: Cause) {
        self.later.push(Version { sequence, value, cause, fate: Fate::Open });
    }

    /// Makes what was there at `sequence` durable, unless that is forsaken.
    fn flush(&mut self, sequence: u64) {
        let covered = self.later.partition_point(|version| version.sequence <= sequence);
        if covered == 0 || self.later[covered - 1].fate == Fate::Forsaken {
            return;
        }
        if let Some(last) = self.later.drain(..covered).next_back() {
            self.durable = last.value;
        }
    }

    fn forsake(&mut self, sequence: u64) {
        for version in self.later.iter_mut().filter(|version| version.sequence <= sequence) {
            version.fate = Fate::Forsaken;
        }
    }

    /// The value that survives where metadata survives up to `metadata`: one of those not cut off
    /// by then.
    fn survivor(&self, metadata: u64, keep: Keep, random: &mut Random) -> &T {
        let is_later = |version: &Version<T>| version.sequence > metadata;
        let is_cut = |version: &Version<T>| version.cause == Cause::Metadata && !is_later(version);
        let first = self.later.iter().rposition(is_cut);
        let oldest = first.map_or(&self.durable, |at| &self.later[at].value);
        let after = &self.later[first.map_or(0, |at| at + 1)..];
        let data: Vec<&Version<T>> =
            after.iter().filter(|version| version.cause == Cause::Data).collect();
        let chosen = match keep {
            Keep::Nothing => 0,
            Keep::Everything => data.len(),
            Keep::Some => random.below(data.len() as u64 + 1) as usize,
        };
        chosen.checked_sub(1).map_or(oldest, |at| &data[at].value)
    }
}

/// What of the volatile state survives a loss of power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// None of it.
    Nothing,
    /// All of it.
    Everything,
    /// Each sector as luck will have it.
    Some,
}

/// Whether a file's name is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// After a loss of power, too.
    Durable,
    /// Until a loss of power.
    Volatile,
    /// As volatile, and no flush changes that.
    Forsaken,
}

/// A file after a loss of power.
#[derive(Debug)]
pub struct Survivor {
    /// Whether its name is still there.
    pub exists: bool,
    /// Bytes in it.
    pub size: u64,
    /// Its sectors, as far as any were ever written.
    pub sectors: Vec<Content>,
}

/// A write or a change of length that was at the device when the power went.
#[derive(Debug)]
pub enum Unfinished<'a> {
    /// Bytes to be written from an offset on.
    Write(u64, &'a [u8]),
    /// A length to be set.
    Length(u64),
}

/// A file as the device has it.
#[derive(Debug)]
pub struct StoredFile {
    sectors: Vec<Versions<Content>>,
    /// Sectors with anything that is not durable.
    volatile: BTreeSet<usize>,
    sizes: Versions<u64>,
    name: Name,
    /// Pages that have space.
    allocated: BTreeSet<u64>,
}

impl StoredFile {
    /// An empty one, whose name is not durable.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sectors: Vec::new(),
            volatile: BTreeSet::new(),
            sizes: Versions::new(0),
            name: Name::Volatile,
            allocated: BTreeSet::new(),
        }
    }

    /// Bytes in the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        *self.sizes.current()
    }

    /// The name's state.
    #[must_use]
    pub fn name(&self) -> Name {
        self.name
    }

    /// Pages that have space.
    #[must_use]
    pub fn allocated(&self) -> &BTreeSet<u64> {
        &self.allocated
    }

    /// The first page beyond the end that has space.
    #[must_use]
    pub fn allocated_beyond_end(&self) -> Option<u64> {
        let page = forebay_block::limits::PAGE as u64;
        self.allocated.range(self.size().div_ceil(page)..).next().copied()
    }

    /// Gives pages space.
    pub fn allocate(&mut self, pages: Range<u64>) {
        self.allocated.extend(pages);
    }

    /// Up to `length` bytes from an offset on, as a read sees them.
    #[must_use]
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = (offset + length).min(self.size());
        let mut data = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut position = offset;
        while position < end {
            let (sector, at) = split(position);
            let part = (SECTOR - at).min((end - position) as usize);
            let content = self.sectors.get(sector).map_or(&None, Versions::current);
            data.extend_from_slice(&bytes_of(content)[at..at + part]);
            position += part as u64;
        }
        data
    }

    /// Bytes are written; the size grows with them.
    pub fn write(&mut self, offset: u64, data: &[u8], sequence: u64) {
        let mut done = 0;
        while done < data.len() {
            let (sector, at) = split(offset + done as u64);
            let part = (SECTOR - at).min(data.len() - done);
            let mut content = *self.current(sector);
            content[at..at + part].copy_from_slice(&data[done..done + part]);
            self.push(sector, Some(Rc::new(content)), sequence, Cause::Data);
            done += part;
        }
        let (end, size) = (offset + data.len() as u64, self.size());
        if end > size {
            self.expose(size..offset, sequence);
            self.sizes.push(sequence, end, Cause::Data);
        }
    }

    /// The size is set; what is cut off is gone, and its space free.
    pub fn set_size(&mut self, size: u64, sequence: u64) {
        let before = self.size();
        if size < before {
            self.zero(size..before, sequence);
        } else {
            self.expose(before..size, sequence);
        }
        self.allocated.retain(|page| page * (forebay_block::limits::PAGE as u64) < size);
        self.sizes.push(sequence, size, Cause::Data);
    }

    /// Space is given back; the size stays.
    pub fn punch(&mut self, bytes: Range<u64>, sequence: u64) {
        let page = forebay_block::limits::PAGE as u64;
        self.allocated.retain(|at| !(bytes.start <= at * page && (at + 1) * page <= bytes.end));
        self.zero(bytes, sequence);
    }

    /// All of it that was there at `sequence` is durable.
    pub fn flush(&mut self, sequence: u64) {
        self.sizes.flush(sequence);
        let sectors = &mut self.sectors;
        self.volatile.retain(|&sector| {
            sectors[sector].flush(sequence);
            !sectors[sector].later.is_empty()
        });
    }

    /// A flush failed. True where the size was not durable: it is in the journal, which then takes
    /// nothing any more.
    pub fn forsake(&mut self, sequence: u64) -> bool {
        let size_is_lost = self.sizes.later.iter().any(|version| version.sequence <= sequence);
        self.sizes.forsake(sequence);
        for &sector in &self.volatile {
            self.sectors[sector].forsake(sequence);
        }
        size_is_lost
    }

    /// Its directory was flushed.
    pub fn flush_name(&mut self) {
        if self.name == Name::Volatile {
            self.name = Name::Durable;
        }
    }

    /// A flush of its directory failed.
    pub fn forsake_name(&mut self) {
        if self.name == Name::Volatile {
            self.name = Name::Forsaken;
        }
    }

    /// A state it may be found in after a loss of power now.
    #[must_use]
    pub fn survive(
        &self,
        keep: Keep,
        unfinished: &[Unfinished<'_>],
        random: &mut Random,
    ) -> Survivor {
        let (metadata, mut size) = self.surviving_size(keep, random);
        let mut sectors: Vec<Content> = self
            .sectors
            .iter()
            .map(|versions| versions.survivor(metadata, keep, random).clone())
            .collect();
        for what in unfinished {
            match *what {
                _ if keep == Keep::Nothing || random.happens(PerMille(500)) => {}
                Unfinished::Write(offset, data) => {
                    size = size.max(self.tear(offset, data, &mut sectors, random));
                }
                Unfinished::Length(length) => {
                    size = length;
                    self.cut(length, &mut sectors);
                }
            }
        }
        let exists = match keep {
            _ if self.name == Name::Durable => true,
            Keep::Nothing => false,
            Keep::Everything => true,
            Keep::Some => random.happens(PerMille(500)),
        };
        Survivor { exists, size, sectors }
    }

    /// The size that survives, and how far metadata does.
    fn surviving_size(&self, keep: Keep, random: &mut Random) -> (u64, u64) {
        let count = self.sizes.later.len();
        let kept = match keep {
            Keep::Nothing => 0,
            Keep::Everything => count,
            Keep::Some => random.below(count as u64 + 1) as usize,
        };
        match kept.checked_sub(1) {
            // What is durable by a flush is older than what is not.
            None => (0, self.sizes.durable),
            Some(at) => (self.sizes.later[at].sequence, self.sizes.later[at].value),
        }
    }

    /// Puts some sectors of an unfinished write into what survives; returns the end of the last
    /// one. What a sector holds beside the write is as it is now: the kernel writes whole blocks,
    /// from its cache.
    fn tear(
        &self,
        offset: u64,
        data: &[u8],
        sectors: &mut Vec<Content>,
        random: &mut Random,
    ) -> u64 {
        let mut end = 0;
        let mut done = 0;
        while done < data.len() {
            let (sector, at) = split(offset + done as u64);
            let part = (SECTOR - at).min(data.len() - done);
            if random.happens(PerMille(500)) {
                if sectors.len() <= sector {
                    sectors.resize(sector + 1, None);
                }
                let mut content = *self.current(sector);
                content[at..at + part].copy_from_slice(&data[done..done + part]);
                sectors[sector] = Some(Rc::new(content));
                end = offset + (done + part) as u64;
            }
            done += part;
        }
        end
    }

    /// Cuts what survives, as a change of length that was made durable at the last moment does.
    fn cut(&self, length: u64, sectors: &mut Vec<Content>) {
        let (sector, at) = split(length);
        if sector < sectors.len() {
            let mut content = *self.current(sector);
            content[at..].fill(0);
            sectors.truncate(sector);
            sectors.push(Some(Rc::new(content)));
        }
    }

    fn current(&self, sector: usize) -> &[u8; SECTOR] {
        self.sectors.get(sector).map_or(&ZEROES, |versions| bytes_of(versions.current()))
    }

    fn push(&mut self, sector: usize, content: Content, sequence: u64, cause: Cause) {
        if self.sectors.len() <= sector {
            self.sectors.resize_with(sector + 1, || Versions::new(None));
        }
        self.sectors[sector].push(sequence, content, cause);
        self.volatile.insert(sector);
    }

    /// The file has grown over these bytes: whole sectors of them are zero, whatever was there
    /// before an earlier cut.
    fn expose(&mut self, bytes: Range<u64>, sequence: u64) {
        self.zero(
            bytes.start.next_multiple_of(SECTOR as u64)..bytes.end / SECTOR as u64 * SECTOR as u64,
            sequence,
        );
    }

    /// Makes bytes zero that are not, or may turn out not to be after a loss of power.
    fn zero(&mut self, bytes: Range<u64>, sequence: u64) {
        let end = bytes.end.min((self.sectors.len() * SECTOR) as u64);
        let mut position = bytes.start;
        while position < end {
            let (sector, at) = split(position);
            let part = (SECTOR - at).min((end - position) as usize);
            let mut content = *self.current(sector);
            let has_versions = self.volatile.contains(&sector);
            if has_versions || content[at..at + part] != ZEROES[at..at + part] {
                content[at..at + part].fill(0);
                let content = (content != ZEROES).then(|| Rc::new(content));
                self.push(sector, content, sequence, Cause::Metadata);
            }
            position += part as u64;
        }
    }
}

impl Default for StoredFile {
    fn default() -> Self {
        Self::new()
    }
}

/// The sector of a position, and where in it that is.
fn split(position: u64) -> (usize, usize) {
    ((position / SECTOR as u64) as usize, (position % SECTOR as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor(file: &StoredFile, keep: Keep) -> (u64, Vec<u8>) {
        let found = file.survive(keep, &[], &mut Random::new(3));
        let bytes = found.sectors.iter().flat_map(|content| *bytes_of(content)).collect();
        (found.size, bytes)
    }

    #[test]
    fn only_what_ended_before_a_flush_was_taken_is_durable() {
        let mut file = StoredFile::new();
        file.write(0, &[1; 1024], 1);
        file.write(512, &[2; 512], 2);
        assert_eq!(survivor(&file, Keep::Nothing).0, 0);
        file.flush(1);
        assert_eq!(survivor(&file, Keep::Nothing), (1024, vec![1; 1024]));
        assert_eq!(survivor(&file, Keep::Everything).1[512..], [2; 512]);
        file.flush(2);
        assert_eq!(survivor(&file, Keep::Nothing).1[512..], [2; 512]);
    }

    #[test]
    fn no_later_flush_makes_durable_what_a_failed_one_should_have() {
        let mut file = StoredFile::new();
        file.write(0, &[1; 512], 1);
        assert!(file.forsake(1), "the size with it");
        file.flush(2);
        assert_eq!(survivor(&file, Keep::Nothing).0, 0);
        assert_eq!(file.read(0, 512), [1; 512], "it is read all the same");
        file.write(0, &[2; 600], 3);
        file.flush(3);
        assert_eq!(survivor(&file, Keep::Nothing).1[..600], [2; 600]);
    }

    #[test]
    fn growing_shows_zeroes_and_never_what_was_cut_off() {
        let mut file = StoredFile::new();
        file.write(0, &[1; 2048], 1);
        file.flush(1);
        file.set_size(100, 2);
        file.set_size(2048, 3);
        assert_eq!(file.read(100, 2048), [0; 1948]);
        for seed in 0..64 {
            let found = file.survive(Keep::Some, &[], &mut Random::new(seed));
            let (cut, old) =
                (bytes_of(&found.sectors[1]) == &ZEROES, bytes_of(&found.sectors[1]) == &[1; 512]);
            assert!(cut || old);
            assert!(found.size == 100 || found.size == 2048);
        }
        file.flush(3);
        let (size, bytes) = survivor(&file, Keep::Nothing);
        assert_eq!((size, &bytes[..100]), (2048, &[1; 100][..]));
        assert!(bytes[100..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_write_that_was_under_way_is_torn_between_sectors() {
        let file = StoredFile::new();
        let mut torn = 0;
        for seed in 0..32 {
            let data = [7; 4096];
            let found =
                file.survive(Keep::Some, &[Unfinished::Write(0, &data)], &mut Random::new(seed));
            let whole =
                found.sectors.iter().filter(|content| bytes_of(content) == &[7; SECTOR]).count();
            assert!(
                found
                    .sectors
                    .iter()
                    .all(|content| content.is_none() || bytes_of(content) == &[7; SECTOR])
            );
            torn += usize::from(whole > 0 && whole < 8);
        }
        assert!(torn > 4, "{torn}");
    }
}
