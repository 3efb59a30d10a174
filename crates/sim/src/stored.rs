//! A file as the device stores it: its durable and its volatile state.
//!
//! Each sector keeps the versions written since the last flush, and the durable one below them.
//! Every later read sees a write that has completed, but a loss of power may undo it unless a flush
//! came between. After a loss of power any one version of a sector may have survived, not only the
//! last, and independently of other sectors. File systems promise more than that; the contracts
//! assume exactly this.
//!
//! Sizes, cuts and holes are metadata, and metadata survives in order, as in a journal. A file that
//! grows shows zeroes, never the content from before a cut.
//!
//! After a failed flush the versions that it should have covered are *forsaken*: reads see them and
//! they may survive, but no later flush makes them durable. Linux does the same: it reports the
//! error once and marks the pages clean. A forsaken cut becomes durable with a later size, as
//! metadata survives in order. A forsaken size becomes durable with a later write behind the
//! durable end: file systems log the end of each completed write that is beyond the end on the
//! disk, also if the size in memory is larger. Otherwise a flush after that write would not make
//! its bytes readable.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use crate::random::{PerMille, Random};

/// Bytes of a unit that is written as a whole or not at all.
pub const SECTOR: usize = 512;

/// Content of the bytes of a discarded range, which nobody may rely on to be zero.
pub const DISCARDED: u8 = 0xd5;

/// The content of a sector; `None` is zeroes.
pub type Content = Option<Rc<[u8; SECTOR]>>;

const ZEROES: [u8; SECTOR] = [0; SECTOR];

/// Returns the bytes of a content.
#[must_use]
pub fn bytes_of(content: &Content) -> &[u8; SECTOR] {
    content.as_deref().unwrap_or(&ZEROES)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// A write: it survives or not, independently of others.
    Data,
    /// A cut or a hole: it survives with the metadata.
    Metadata,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// The next flush makes it durable.
    Open,
    /// No flush makes it durable.
    Forsaken,
}

#[derive(Debug)]
struct Version<T> {
    sequence: u64,
    value: T,
    cause: Cause,
    fate: Fate,
}

/// A durable value and the later ones, in order.
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

    /// Returns the value that a flush of everything makes durable.
    fn flushed(&self) -> &T {
        let last = self.later.iter().rfind(|version| version.fate == Fate::Open);
        last.map_or(&self.durable, |version| &version.value)
    }

    /// Makes the last value up to `sequence` durable that is not forsaken. Returns its sequence
    /// number.
    fn flush(&mut self, sequence: u64) -> Option<u64> {
        let covered = self.later.partition_point(|version| version.sequence <= sequence);
        let is_open = |version: &Version<T>| version.fate == Fate::Open;
        let last = self.later[..covered].iter().rposition(is_open)?;
        let last = self.later.drain(..=last).next_back()?;
        self.durable = last.value;
        Some(last.sequence)
    }

    /// Metadata up to `sequence` is durable, as later metadata is.
    fn save_metadata(&mut self, sequence: u64) {
        for version in self.later.iter_mut().filter(|version| version.sequence <= sequence) {
            if version.cause == Cause::Metadata {
                version.fate = Fate::Open;
            }
        }
    }

    fn forsake(&mut self, sequence: u64) {
        for version in self.later.iter_mut().filter(|version| version.sequence <= sequence) {
            version.fate = Fate::Forsaken;
        }
    }

    /// Returns a value that survives if metadata survives up to `metadata`: one that is not cut off
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

/// Part of the volatile state that survives a loss of power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// None of it.
    Nothing,
    /// All of it.
    Everything,
    /// A random part, sector by sector.
    Some,
}

/// A file after a loss of power.
#[derive(Debug)]
pub struct Survivor {
    /// Whether its name is still there.
    pub exists: bool,
    /// Its size in bytes.
    pub size: u64,
    /// Its sectors, up to the last one ever written.
    pub sectors: Vec<Content>,
}

/// Write or change of length in flight when the power was lost.
#[derive(Debug)]
pub enum Unfinished<'a> {
    /// Offset and bytes of a write.
    Write(u64, &'a [u8]),
    /// New length.
    Length(u64),
}

/// File as the device stores it.
#[derive(Debug)]
pub struct StoredFile {
    sectors: Vec<Versions<Content>>,
    /// Sectors with volatile versions.
    volatile: BTreeSet<usize>,
    sizes: Versions<u64>,
    /// Pages with allocated space.
    allocated: BTreeSet<u64>,
}

impl StoredFile {
    /// Creates an empty file.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sectors: Vec::new(),
            volatile: BTreeSet::new(),
            sizes: Versions::new(0),
            allocated: BTreeSet::new(),
        }
    }

    /// Returns the file that a loss of power left: all of it durable, with space for the pages that
    /// have content and for `reserved` pages.
    #[must_use]
    pub fn of_survivor(survivor: &Survivor, reserved: &BTreeSet<u64>) -> Self {
        let per_page = forebay_block::limits::PAGE / SECTOR;
        let written = survivor.sectors.iter().enumerate();
        let written = written.filter(|(_, content)| content.is_some());
        let pages = written.map(|(sector, _)| (sector / per_page) as u64);
        // Old bytes beyond the end are not found when the file grows again.
        let inside = survivor.sectors.iter().enumerate().map(|(sector, content)| {
            let mut bytes = *bytes_of(content);
            let there = (survivor.size as usize).saturating_sub(sector * SECTOR).min(SECTOR);
            bytes[there..].fill(0);
            Versions::new((bytes != ZEROES).then(|| Rc::new(bytes)))
        });
        let sectors = inside.collect();
        Self {
            sectors,
            sizes: Versions::new(survivor.size),
            allocated: pages.chain(reserved.iter().copied()).collect(),
            ..Self::new()
        }
    }

    /// Bytes in the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        *self.sizes.current()
    }

    /// Returns the pages with allocated space.
    #[must_use]
    pub fn allocated(&self) -> &BTreeSet<u64> {
        &self.allocated
    }

    /// Returns the first page beyond the end that has space.
    #[must_use]
    pub fn allocated_beyond_end(&self) -> Option<u64> {
        let page = forebay_block::limits::PAGE as u64;
        self.allocated.range(self.size().div_ceil(page)..).next().copied()
    }

    /// Returns the ranges of bytes that were written, and neither cut off nor punched out since.
    #[must_use]
    pub fn data(&self) -> Vec<Range<u64>> {
        let mut data: Vec<Range<u64>> = Vec::new();
        let sectors = self.sectors.iter().enumerate();
        for (sector, _) in sectors.filter(|(_, versions)| versions.current().is_some()) {
            let start = (sector * SECTOR) as u64;
            match data.last_mut() {
                Some(last) if last.end == start => last.end += SECTOR as u64,
                _ => data.push(start..start + SECTOR as u64),
            }
        }
        data
    }

    /// Allocates space for pages.
    pub fn allocate(&mut self, pages: Range<u64>) {
        self.allocated.extend(pages);
    }

    /// Returns up to `length` bytes from an offset on, as a read sees them.
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

    /// Writes bytes. The size grows if needed.
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
        }
        if end > size.min(*self.sizes.flushed()) {
            self.sizes.push(sequence, end.max(size), Cause::Data);
        }
    }

    /// Extends the size, as a write does whose bytes nobody keeps.
    pub fn extend(&mut self, end: u64, sequence: u64) {
        if end > self.size() {
            self.sizes.push(sequence, end, Cause::Data);
        }
    }

    /// Sets the size. Cuts off the rest and frees its space.
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

    /// Frees space. The size stays.
    pub fn punch(&mut self, bytes: Range<u64>, sequence: u64) {
        let page = forebay_block::limits::PAGE as u64;
        self.allocated.retain(|at| !(bytes.start <= at * page && (at + 1) * page <= bytes.end));
        self.zero(bytes, sequence);
    }

    /// Makes all changes up to `sequence` durable.
    pub fn flush(&mut self, sequence: u64) {
        let metadata = self.sizes.flush(sequence);
        let sectors = &mut self.sectors;
        self.volatile.retain(|&sector| {
            metadata.inspect(|metadata| sectors[sector].save_metadata(*metadata));
            sectors[sector].flush(sequence);
            !sectors[sector].later.is_empty()
        });
    }

    /// Records a failed flush. Returns true if the size was not durable: the journal contains it,
    /// and accepts nothing from then on.
    pub fn forsake(&mut self, sequence: u64) -> bool {
        let size_is_lost = self.sizes.later.iter().any(|version| version.sequence <= sequence);
        self.sizes.forsake(sequence);
        for &sector in &self.volatile {
            self.sectors[sector].forsake(sequence);
        }
        size_is_lost
    }

    /// Records that these bytes could not be written from the kernel's cache to the device.
    pub fn forsake_bytes(&mut self, bytes: Range<u64>, sequence: u64) {
        let sectors = split(bytes.start).0..split(bytes.end.next_multiple_of(SECTOR as u64)).0;
        for &sector in self.volatile.range(sectors) {
            self.sectors[sector].forsake(sequence);
        }
    }

    /// Returns a state that the file may have after a loss of power now, if its name survives.
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
        Survivor { exists: true, size, sectors }
    }

    /// Returns the sequence number up to which metadata survives, and the size that survives.
    fn surviving_size(&self, keep: Keep, random: &mut Random) -> (u64, u64) {
        let count = self.sizes.later.len();
        let kept = match keep {
            Keep::Nothing => 0,
            Keep::Everything => count,
            Keep::Some => random.below(count as u64 + 1) as usize,
        };
        match kept.checked_sub(1) {
            // Durable changes are older than volatile ones.
            None => (0, self.sizes.durable),
            Some(at) => (self.sizes.later[at].sequence, self.sizes.later[at].value),
        }
    }

    /// Adds some sectors of an unfinished write to the surviving ones. Returns the end of the last
    /// one. The rest of such a sector has its present content: the kernel writes whole blocks from
    /// its cache.
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

    /// Cuts the surviving sectors, like a change of length that became durable at the last moment.
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

    /// Records that the file has grown over these bytes: whole sectors of them are zero, even if
    /// they had content before an earlier cut.
    fn expose(&mut self, bytes: Range<u64>, sequence: u64) {
        self.zero(
            bytes.start.next_multiple_of(SECTOR as u64)..bytes.end / SECTOR as u64 * SECTOR as u64,
            sequence,
        );
    }

    /// Zeroes bytes that are not zero, or may turn out not to be after a loss of power.
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

/// Returns the sector of a position and the offset in it.
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
    fn a_flush_makes_only_earlier_writes_durable() {
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
    fn no_later_flush_makes_the_writes_of_a_failed_one_durable() {
        let mut file = StoredFile::new();
        file.write(0, &[1; 512], 1);
        assert!(file.forsake(1), "the size is lost with it");
        file.flush(2);
        assert_eq!(survivor(&file, Keep::Nothing).0, 0);
        assert_eq!(file.read(0, 512), [1; 512], "reads still see it");
        file.write(0, &[2; 600], 3);
        file.flush(3);
        assert_eq!(survivor(&file, Keep::Nothing).1[..600], [2; 600]);
    }

    #[test]
    fn a_write_behind_the_durable_end_makes_the_size_of_a_failed_flush_durable() {
        let mut file = StoredFile::new();
        file.write(0, &[1; 512], 1);
        file.flush(1);
        file.write(512, &[2; 1024], 2);
        assert!(file.forsake(2));
        file.write(0, &[3; 512], 3);
        file.flush(3);
        assert_eq!(survivor(&file, Keep::Nothing).0, 512);
        file.write(512, &[4; 512], 4);
        file.flush(4);
        let (size, bytes) = survivor(&file, Keep::Nothing);
        assert_eq!((size, &bytes[..512], &bytes[512..1024]), (1536, &[3; 512][..], &[4; 512][..]));
        assert_eq!(bytes[1024..], [0; 512], "these bytes stay lost");
    }

    #[test]
    fn a_later_size_that_is_durable_makes_an_earlier_cut_durable() {
        let mut file = StoredFile::new();
        file.write(0, &[1; 512], 1);
        file.flush(1);
        file.set_size(0, 2);
        assert!(file.forsake(2));
        assert_eq!(survivor(&file, Keep::Nothing), (512, vec![1; 512]));
        file.set_size(1, 3);
        file.flush(3);
        for keep in [Keep::Nothing, Keep::Everything] {
            assert_eq!(survivor(&file, keep), (1, vec![0; 512]));
        }
    }

    #[test]
    fn a_forsaken_write_after_a_cut_stays_forsaken() {
        let mut file = StoredFile::new();
        file.write(0, &[1; 512], 1);
        file.flush(1);
        file.set_size(0, 2);
        file.write(0, &[2; 512], 3);
        file.forsake(3);
        file.set_size(600, 4);
        file.flush(4);
        assert_eq!(survivor(&file, Keep::Nothing).1[..512], [0; 512]);
        assert_eq!(survivor(&file, Keep::Everything).1[..512], [2; 512]);
    }

    #[test]
    fn growing_shows_zeroes_and_never_cut_off_content() {
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
