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

use crate::stored::{Content, DISCARDED, SECTOR, Survivor, bytes_of};

/// A version: the value from one change on.
#[derive(Clone, Debug)]
struct Accepted<T> {
    change: u64,
    value: T,
    /// Another write to the sector was under way at the same time. The order of the two is not
    /// known, so each byte is judged alone.
    is_mixed: bool,
}

/// A write that has begun and not ended: any part of it may be found.
#[derive(Clone, Debug)]
struct Pending {
    number: u64,
    /// `None` for an append, whose offset is known at its end.
    offset: Option<u64>,
    data: Rc<[u8]>,
    is_mixed: bool,
}

impl Pending {
    /// The sectors that it may change. An append may change all from the end on.
    fn sectors(&self, tail: u64) -> Range<usize> {
        let start = self.offset.unwrap_or(tail) as usize / SECTOR;
        let end = self
            .offset
            .map_or(usize::MAX, |offset| (offset as usize + self.data.len()).div_ceil(SECTOR));
        start..end
    }

    /// Its byte at a position of the file.
    fn byte(&self, position: u64) -> Option<u8> {
        let at = position.checked_sub(self.offset?)?;
        self.data.get(usize::try_from(at).ok()?).copied()
    }
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
    /// Changes of the length that are under way.
    announced: Vec<u64>,
    pending: Vec<Pending>,
    begun: u64,
    /// The size when the first append that is under way began.
    tail: u64,
    /// Another program has, or had, it open, or a keeper has written parts of it.
    is_shared: bool,
}

impl Ledger {
    /// Creates the ledger of an empty file.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: Vec::new(),
            sectors: Vec::new(),
            sizes: vec![Accepted { change: 0, value: 0, is_mixed: false }],
            change: 0,
            synced: 0,
            forsaken: None,
            name_is_synced: false,
            name_is_forsaken: false,
            discarding: Vec::new(),
            announced: Vec::new(),
            pending: Vec::new(),
            begun: 0,
            tail: 0,
            is_shared: false,
        }
    }

    /// Creates the ledger of a device of `bytes` zero bytes.
    #[must_use]
    pub fn of_device(bytes: u64) -> Self {
        let sizes = vec![Accepted { change: 0, value: bytes, is_mixed: false }];
        Self { bytes: vec![0; bytes as usize], sizes, name_is_synced: true, ..Self::new() }
    }

    /// Of a file as it was found after a loss of power: all of it is durable.
    #[must_use]
    pub fn found(found: &Survivor) -> Self {
        let mut ledger = Self::new();
        if !found.exists {
            return ledger;
        }
        ledger.bytes = vec![0; found.size as usize];
        for (bytes, content) in ledger.bytes.chunks_mut(SECTOR).zip(&found.sectors) {
            bytes.copy_from_slice(&bytes_of(content)[..bytes.len()]);
        }
        ledger.sizes = vec![Accepted { change: 0, value: found.size, is_mixed: false }];
        for sector in 0..ledger.bytes.len().div_ceil(SECTOR) {
            ledger.note(sector, false);
        }
        ledger.name_is_synced = true;
        ledger
    }

    /// The process of the callers has died: nothing is under way, and the file is as found. The
    /// next process promises nothing about it.
    pub fn die(&mut self, found: &[u8]) {
        self.pass_on(found);
        self.forsake();
    }

    /// The process of the callers has died, and the next one goes on with the file as found: its
    /// syncs cover all of it.
    pub fn pass_on(&mut self, found: &[u8]) {
        let before = self.change;
        // Of writes over each other the device may have had each, one after the other.
        for Pending { offset, data, is_mixed, .. } in std::mem::take(&mut self.pending) {
            let offset = offset.filter(|_| is_mixed).unwrap_or(u64::MAX);
            let there = (found.len() as u64).saturating_sub(offset).min(data.len() as u64);
            if there > 0 {
                self.accept_mixed(offset, &data[..there as usize], true);
            }
        }
        // The device may have done a discard, under dirty pages that are written later.
        for Range { start, end } in std::mem::take(&mut self.discarding) {
            self.accept(start, &vec![DISCARDED; (end - start) as usize]);
        }
        self.announced.clear();
        self.bytes = found.to_vec();
        self.change += 1;
        if self.sizes.last().is_none_or(|last| last.value != self.size()) {
            self.push_size();
        }
        // Not compared with the bytes before: a change under way may have noted later versions.
        for sector in 0..self.sectors.len().max(self.bytes.len().div_ceil(SECTOR)) {
            let last = self.sectors.get(sector).and_then(|versions| versions.last());
            let last = last.map_or(&[0; SECTOR], |version| bytes_of(&version.value));
            if padded(&self.bytes, sector) != *last {
                self.note(sector, false);
            }
        }
        // Nothing has changed since the last flush failed.
        if let Some(forsaken) = self.forsaken.as_mut().filter(|lost| lost.until == before) {
            forsaken.until = self.change;
        }
    }

    /// Records that another program opens the file, or that a keeper has written parts of it.
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

    /// The number of the last change.
    #[must_use]
    pub fn change(&self) -> u64 {
        self.change
    }

    /// The last change that a sync asked for now covers: none from the first length on that is
    /// being set.
    #[must_use]
    pub fn covered(&self) -> u64 {
        self.announced.iter().min().map_or(self.change, |announced| announced - 1)
    }

    /// A write at an offset, or an append, begins. Returns its number.
    pub fn begin(&mut self, offset: Option<u64>, data: Rc<[u8]>) -> u64 {
        if !self.appends() {
            self.tail = self.size();
        }
        self.begun += 1;
        let mut new = Pending { number: self.begun, offset, data, is_mixed: false };
        let sectors = new.sectors(self.tail);
        for other in &mut self.pending {
            let others = other.sectors(self.tail);
            if others.start < sectors.end && sectors.start < others.end {
                other.is_mixed = true;
                new.is_mixed = true;
            }
        }
        self.pending.push(new);
        self.begun
    }

    /// A write that has begun ends: `accepted` bytes of it were accepted at this offset.
    ///
    /// # Panics
    /// If it has not begun, or has ended.
    pub fn end(&mut self, number: u64, offset: u64, accepted: usize) {
        let at = self.pending.iter().position(|pending| pending.number == number);
        let ended = self.pending.swap_remove(at.expect("a write ends once"));
        assert!(ended.offset.is_none_or(|begun| begun == offset), "a write ends where it began");
        if accepted > 0 {
            self.accept_mixed(offset, &ended.data[..accepted], ended.is_mixed);
        }
    }

    /// The writes under way that have an offset, with their data.
    #[must_use]
    pub fn under_way(&self) -> Vec<(u64, Rc<[u8]>)> {
        let pending = self.pending.iter();
        pending.filter_map(|pending| Some((pending.offset?, Rc::clone(&pending.data)))).collect()
    }

    /// Whether an append is under way.
    #[must_use]
    pub fn appends(&self) -> bool {
        self.pending.iter().any(|pending| pending.offset.is_none())
    }

    /// Whether a write or an append is under way.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The first byte that appends under way may change.
    #[must_use]
    pub fn stable_end(&self) -> u64 {
        if self.appends() { self.tail.min(self.size()) } else { self.size() }
    }

    /// Bytes were accepted.
    pub fn accept(&mut self, offset: u64, data: &[u8]) {
        self.accept_mixed(offset, data, false);
    }

    /// Bytes were found where a write has failed. They may be older ones that a failed flush has
    /// lost, which no later flush makes durable.
    pub fn accept_torn(&mut self, offset: u64, found: &[u8]) {
        self.accept(offset, found);
        if let Some(forsaken) = &mut self.forsaken {
            forsaken.until = self.change;
        }
    }

    fn accept_mixed(&mut self, offset: u64, data: &[u8], is_mixed: bool) {
        self.change += 1;
        let (start, end) = (offset as usize, offset as usize + data.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
            self.sizes.push(Accepted { change: self.change, value: end as u64, is_mixed });
        }
        self.bytes[start..end].copy_from_slice(data);
        for sector in start / SECTOR..end.div_ceil(SECTOR) {
            self.note(sector, is_mixed);
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

    /// A length is being set: from now on it may be found. Returns the number of the change.
    pub fn announce_length(&mut self, length: u64) -> u64 {
        let before = self.bytes.clone();
        self.set_length(length);
        self.bytes = before;
        self.announced.push(self.change);
        self.change
    }

    /// The length that was announced with this change was set.
    pub fn confirm_length(&mut self, announced: u64, length: u64) {
        self.announced.retain(|change| *change != announced);
        self.set_length(length);
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

    /// The length that was announced with this change was not set.
    pub fn withdraw_length(&mut self, announced: u64) {
        self.announced.retain(|change| *change != announced);
        for versions in &mut self.sectors {
            versions.retain(|version| version.change != announced);
        }
        self.sizes.retain(|version| version.change != announced);
    }

    /// Dirty data was dropped, and the file is as found. Returns the pages that differ.
    pub fn reread(&mut self, found: &[u8]) -> BTreeSet<u64> {
        let before = std::mem::replace(&mut self.bytes, found.to_vec());
        let mut differing = BTreeSet::new();
        self.change += 1;
        if before.len() != self.bytes.len() {
            self.push_size();
        }
        for sector in 0..before.len().max(self.bytes.len()).div_ceil(SECTOR) {
            if padded(&before, sector) != padded(&self.bytes, sector) {
                self.note(sector, false);
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
        let ends = self
            .pending
            .iter()
            .filter_map(|pending| Some(pending.offset? + pending.data.len() as u64));
        let appends = self.pending.iter().filter(|pending| pending.offset.is_none());
        let appended: u64 = appends.map(|pending| pending.data.len() as u64).sum();
        let most = (most + appended).max(ends.max().unwrap_or(0));
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
        if self.appends() && at + SECTOR as u64 > self.tail {
            return Ok(());
        }
        let base = self.base(versions);
        let mut possible = versions[base.unwrap_or(0)..].iter().rev();
        let is_possible =
            possible.any(|version| bytes_of(&version.value)[..seen] == content[..seen]);
        if is_possible || base.is_none() && content[..seen] == [0; SECTOR][..seen] {
            return Ok(());
        }
        let possible = &versions[base.unwrap_or(0)..];
        let is_byte_possible = |at_byte: usize| {
            let mut found = possible.iter().map(|version| bytes_of(&version.value)[at_byte]);
            let mut pending =
                self.pending.iter().filter_map(|pending| pending.byte(at + at_byte as u64));
            let byte = content[at_byte];
            found.any(|one| one == byte)
                || base.is_none() && byte == 0
                || pending.any(|one| one == byte)
        };
        let of_sector =
            self.pending.iter().filter(|pending| pending.sectors(self.tail).contains(&sector));
        let is_mixed = self.is_shared
            || possible.iter().any(|version| version.is_mixed)
            || of_sector.clone().any(|pending| pending.is_mixed);
        if is_mixed && (0..seen).all(is_byte_possible) {
            return Ok(());
        }
        // One write is under way: all of its part of the sector is there, or nothing.
        let latest = versions.last().map_or(&[0; SECTOR], |version| bytes_of(&version.value));
        let with_pending = |pending: &Pending| {
            let mut whole = *latest;
            for (byte, position) in whole.iter_mut().zip(at..) {
                *byte = pending.byte(position).unwrap_or(*byte);
            }
            whole[..seen] == content[..seen]
        };
        if of_sector.clone().any(with_pending) {
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
        self.push_size();
        for sector in from as usize / SECTOR..(to as usize).div_ceil(SECTOR) {
            self.note(sector, false);
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
            Accepted { change, value: Some(Rc::new(content)), is_mixed: version.is_mixed }
        });
        let cut: Vec<_> = cut.collect();
        if at > 0 && !cut.is_empty() {
            self.sectors[sector].extend(cut);
        }
    }

    fn push_size(&mut self) {
        let size = Accepted { change: self.change, value: self.size(), is_mixed: false };
        self.sizes.push(size);
    }

    fn note(&mut self, sector: usize, is_mixed: bool) {
        if self.sectors.len() <= sector {
            self.sectors.resize_with(sector + 1, Vec::new);
        }
        let content = padded(&self.bytes, sector);
        let value = (content != [0; SECTOR]).then(|| Rc::new(content));
        self.sectors[sector].push(Accepted { change: self.change, value, is_mixed });
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
