//! Ledger of one file: its bytes as they must be read, and all states that it may have after a loss
//! of power.
//!
//! The states follow contract 3, sector by sector: each sector holds one of the versions accepted
//! since the last successful sync, or the one that this sync covered, or zero if no sync ever
//! covered one. A sync covers all changes accepted before it was called. So each change has a
//! number, and a successful sync names one.
//!
//! For a file that another program has had open, this holds for each byte, not for each sector. The
//! written bytes of a sector are sent in several requests if bytes of the other program lie between
//! them.
//!
//! A failed flush revokes guarantees: changes that no earlier sync covered may be lost for good,
//! even if later syncs succeed. Then only later writes make a sector durable again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use forebay_block::limits::PAGE;

use crate::stored::{Content, DISCARDED, SECTOR, StoredFile, Survivor, bytes_of};

/// A version: the value from one change on.
#[derive(Clone, Debug)]
struct Accepted<T> {
    change: u64,
    value: T,
}

/// Changes whose flush failed.
#[derive(Clone, Copy, Debug)]
struct Forsaken {
    /// Last change that a sync had covered before.
    synced: u64,
    /// Last change that no sync can cover since.
    until: u64,
}

/// Changes accepted of one file.
#[derive(Debug)]
pub struct Ledger {
    bytes: Vec<u8>,
    sectors: Vec<Vec<Accepted<Content>>>,
    sizes: Vec<Accepted<u64>>,
    change: u64,
    synced: u64,
    forsaken: Option<Forsaken>,
    name_is_synced: bool,
    /// A flush of its directory failed and all handles were closed since: no later flush makes the
    /// name durable.
    name_is_forsaken: bool,
    /// Ranges of discards that have started; the device may have done them.
    discarding: Vec<Range<u64>>,
    /// Whether another program has, or had, it open.
    is_shared: bool,
}

impl Ledger {
    /// Creates the ledger of an empty file.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: Vec::new(),
            sectors: Vec::new(),
            sizes: vec![Accepted { change: 0, value: 0 }],
            change: 0,
            synced: 0,
            forsaken: None,
            name_is_synced: false,
            name_is_forsaken: false,
            discarding: Vec::new(),
            is_shared: false,
        }
    }

    /// Creates the ledger of a device of `bytes` zero bytes.
    #[must_use]
    pub fn of_device(bytes: u64) -> Self {
        let sizes = vec![Accepted { change: 0, value: bytes }];
        Self { bytes: vec![0; bytes as usize], sizes, name_is_synced: true, ..Self::new() }
    }

    /// Records that another program opens the file.
    pub fn share(&mut self) {
        self.is_shared = true;
    }

    /// Returns the content that a read must find.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the size.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the number of the last change: a sync that is called now covers it.
    #[must_use]
    pub fn change(&self) -> u64 {
        self.change
    }

    /// Records an accepted write.
    pub fn accept(&mut self, offset: u64, data: &[u8]) {
        self.change += 1;
        let (start, end) = (offset as usize, offset as usize + data.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
            self.sizes.push(Accepted { change: self.change, value: end as u64 });
        }
        self.bytes[start..end].copy_from_slice(data);
        for sector in start / SECTOR..end.div_ceil(SECTOR) {
            self.note(sector);
        }
    }

    /// Records the start of a discard of whole sectors.
    pub fn announce_discard(&mut self, bytes: Range<u64>) {
        self.discarding.push(bytes);
    }

    /// Records the end of a discard, and whether it succeeded.
    pub fn end_discard(&mut self, bytes: &Range<u64>, is_done: bool) {
        let at = self.discarding.iter().position(|announced| announced == bytes);
        self.discarding.swap_remove(at.expect("a discard that ends was announced"));
        if is_done {
            let length = (bytes.end - bytes.start) as usize;
            self.accept(bytes.start, &vec![DISCARDED; length]);
        }
    }

    /// Returns whether the content of the device may differ from the accepted content.
    #[must_use]
    pub fn is_discarding(&self) -> bool {
        !self.discarding.is_empty()
    }

    /// Records the start of a change of length: the new length is possible from now on.
    pub fn announce_length(&mut self, length: u64) {
        let before = self.bytes.clone();
        self.set_length(length);
        self.bytes = before;
    }

    /// Records a change of length that succeeded.
    pub fn set_length(&mut self, length: u64) {
        let before = self.bytes.len();
        self.bytes.resize(length as usize, 0);
        if (length as usize) < before {
            self.cut_versions(length);
        }
        // The sector that contains the old end has zeroes after it already, so growing makes no
        // version of it.
        let from = (before.next_multiple_of(SECTOR) as u64).min(length);
        self.restate(from, length.max(before as u64));
    }

    /// Records that the announced change of length failed. There was no other change meanwhile.
    pub fn withdraw_length(&mut self) {
        let announced = self.change;
        for versions in &mut self.sectors {
            versions.retain(|version| version.change != announced);
        }
        self.sizes.retain(|version| version.change != announced);
    }

    /// Records that the cache was dropped with all that it had not written: the file now has the
    /// content of the device. Returns the pages that differ.
    pub fn reread(&mut self, stored: &StoredFile) -> BTreeSet<u64> {
        let before = std::mem::replace(&mut self.bytes, stored.read(0, stored.size()));
        let mut differing = BTreeSet::new();
        self.change += 1;
        if before.len() != self.bytes.len() {
            self.sizes.push(Accepted { change: self.change, value: self.size() });
        }
        for sector in 0..before.len().max(self.bytes.len()).div_ceil(SECTOR) {
            if padded(&before, sector) != padded(&self.bytes, sector) {
                self.note(sector);
                differing.insert((sector * SECTOR / PAGE) as u64);
            }
        }
        // Content that differs from the accepted one may be due to a failed flush. Then no later
        // flush makes it durable.
        if let Some(forsaken) = self.forsaken.as_mut().filter(|_| !differing.is_empty()) {
            forsaken.until = self.change;
        }
        differing
    }

    /// Records a successful sync that was called after `change`.
    pub fn synced(&mut self, change: u64) {
        if change <= self.synced {
            return;
        }
        self.synced = change;
        if self.forsaken.is_some() {
            return;
        }
        for versions in &mut self.sectors {
            let base = versions.partition_point(|version| version.change <= change);
            versions.drain(..base.saturating_sub(1));
        }
        let base = self.sizes.partition_point(|version| version.change <= change);
        self.sizes.drain(..base.saturating_sub(1));
    }

    /// Records a successful sync of a file created here: its name is durable too.
    pub fn name_synced(&mut self) {
        self.name_is_synced = !self.name_is_forsaken;
    }

    /// Records that all handles were closed after a failed flush of the directory: the name may be
    /// lost for good.
    pub fn forsake_name(&mut self) {
        self.name_is_forsaken = true;
    }

    /// Records that all handles were closed after a failed flush: all changes so far may be lost
    /// for good.
    pub fn forsake(&mut self) {
        let synced = self.forsaken.map_or(self.synced, |forsaken| forsaken.synced);
        self.forsaken = Some(Forsaken { synced, until: self.change });
    }

    /// Checks that the state found after a loss of power is a possible one.
    ///
    /// # Errors
    /// Describes the first violation.
    pub fn check(&self, found: &Survivor) -> Result<(), String> {
        if !found.exists {
            return if self.name_is_synced { Err("its name is gone".to_owned()) } else { Ok(()) };
        }
        self.check_size(found.size)?;
        for sector in 0..(found.size as usize).div_ceil(SECTOR) {
            self.check_sector(sector, found)?;
        }
        Ok(())
    }

    fn check_size(&self, size: u64) -> Result<(), String> {
        let base = self.base(&self.sizes).unwrap_or(0);
        let possible = self.sizes[base..].iter().map(|version| version.value);
        let (least, most) = (possible.clone().min().unwrap_or(0), possible.max().unwrap_or(0));
        if size < least || size > most {
            return Err(format!("its size is {size}, not within {least} and {most}"));
        }
        Ok(())
    }

    fn check_sector(&self, sector: usize, found: &Survivor) -> Result<(), String> {
        let seen = (found.size as usize - sector * SECTOR).min(SECTOR);
        let content = found.sectors.get(sector).map_or(&[0; SECTOR], bytes_of);
        let at = (sector * SECTOR) as u64;
        if self.discarding.iter().any(|bytes| bytes.contains(&at))
            && content[..seen] == [DISCARDED; SECTOR][..seen]
        {
            return Ok(());
        }
        let versions = self.sectors.get(sector).map_or(&[][..], Vec::as_slice);
        let base = self.base(versions);
        let mut possible = versions[base.unwrap_or(0)..].iter().rev();
        let is_possible =
            possible.any(|version| bytes_of(&version.value)[..seen] == content[..seen]);
        if is_possible || base.is_none() && content[..seen] == [0; SECTOR][..seen] {
            return Ok(());
        }
        let possible = &versions[base.unwrap_or(0)..];
        let is_byte_possible = |at: usize| {
            let mut found = possible.iter().map(|version| bytes_of(&version.value)[at]);
            found.any(|byte| byte == content[at]) || base.is_none() && content[at] == 0
        };
        if self.is_shared && (0..seen).all(is_byte_possible) {
            return Ok(());
        }
        let changes: Vec<u64> = versions.iter().map(|version| version.change).collect();
        Err(format!(
            "sector {sector} (page {}, size {}) holds none of what changes {changes:?} made of it, synced up to {} {:?}: \
             it holds {:?}",
            sector / 8,
            found.size,
            self.synced,
            self.forsaken,
            (seen, content.iter().position(|byte| *byte == 0))
        ))
    }

    /// Returns the index of the last version that a sync made durable.
    fn base<T>(&self, versions: &[Accepted<T>]) -> Option<usize> {
        let last = |change: u64| {
            versions.partition_point(|version| version.change <= change).checked_sub(1)
        };
        let base = last(self.synced)?;
        match self.forsaken {
            Some(forsaken) if versions[base].change <= forsaken.until => last(forsaken.synced),
            _ => Some(base),
        }
    }

    /// Records the present versions of all sectors from one byte to another, and the size.
    fn restate(&mut self, from: u64, to: u64) {
        self.change += 1;
        self.sizes.push(Accepted { change: self.change, value: self.size() });
        for sector in from as usize / SECTOR..(to as usize).div_ceil(SECTOR) {
            self.note(sector);
        }
    }

    /// Cuts every version of the last sector that the device may have.
    fn cut_versions(&mut self, length: u64) {
        let (sector, at) = (length as usize / SECTOR, length as usize % SECTOR);
        let change = self.change + 1;
        let versions = self.sectors.get(sector).map_or(&[][..], Vec::as_slice);
        let cut = versions[self.base(versions).unwrap_or(0)..].iter().map(|version| {
            let mut content = *bytes_of(&version.value);
            content[at..].fill(0);
            Accepted { change, value: Some(Rc::new(content)) }
        });
        let cut: Vec<_> = cut.collect();
        if at > 0 && !cut.is_empty() {
            self.sectors[sector].extend(cut);
        }
    }

    fn note(&mut self, sector: usize) {
        if self.sectors.len() <= sector {
            self.sectors.resize_with(sector + 1, Vec::new);
        }
        let content = padded(&self.bytes, sector);
        let value = (content != [0; SECTOR]).then(|| Rc::new(content));
        self.sectors[sector].push(Accepted { change: self.change, value });
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the bytes of a sector, with zeroes beyond the end.
fn padded(bytes: &[u8], sector: usize) -> [u8; SECTOR] {
    let mut content = [0; SECTOR];
    let start = (sector * SECTOR).min(bytes.len());
    let there = &bytes[start..(start + SECTOR).min(bytes.len())];
    content[..there.len()].copy_from_slice(there);
    content
}
