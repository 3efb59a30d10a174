//! What a program was told of one file: its bytes as they must be read, and all that may be found
//! after a loss of power.
//!
//! The second is contract 3, sector by sector: each holds one of the versions accepted since the
//! last successful sync, or the one that sync covered, or zero where none ever did. A sync covers
//! what was accepted before it was asked for, so each change has a number and a sync that ends well
//! names one.
//!
//! For a file that another program has had open this holds for each byte, not for each sector: the
//! written bytes of a sector go out in several requests if another program's bytes lie between.
//!
//! A failed flush takes guarantees back: what was not covered by a sync before it may be gone for
//! good, whatever later syncs say. Then it is not later syncs but later writes that make a sector
//! sure again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use forebay_block::limits::PAGE;

use crate::disk::DISCARDED;
use crate::stored::{Content, SECTOR, StoredFile, Survivor, bytes_of};

/// What a sector held from a change on.
#[derive(Clone, Debug)]
struct Accepted<T> {
    change: u64,
    value: T,
}

/// Changes whose flush failed.
#[derive(Clone, Copy, Debug)]
struct Forsaken {
    /// The last change that a sync had covered before.
    synced: u64,
    /// The last one that no sync can cover any more.
    until: u64,
}

/// What was accepted of one file.
#[derive(Debug)]
pub struct Ledger {
    bytes: Vec<u8>,
    sectors: Vec<Vec<Accepted<Content>>>,
    sizes: Vec<Accepted<u64>>,
    change: u64,
    synced: u64,
    forsaken: Option<Forsaken>,
    name_is_synced: bool,
    /// A flush of its directory failed, and all handles were closed since: no later one brings it
    /// back.
    name_is_forsaken: bool,
    /// What is being discarded: it may be found so from now on.
    discarding: Vec<Range<u64>>,
    /// Another program has, or had, it open.
    is_shared: bool,
}

impl Ledger {
    /// Of an empty file.
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

    /// Of a device of so many bytes, all of them zero.
    #[must_use]
    pub fn of_device(bytes: u64) -> Self {
        let sizes = vec![Accepted { change: 0, value: bytes }];
        Self { bytes: vec![0; bytes as usize], sizes, name_is_synced: true, ..Self::new() }
    }

    /// Another program opens it.
    pub fn share(&mut self) {
        self.is_shared = true;
    }

    /// The file as it must be read.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes in it.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The number of the last change: what a sync asked for now covers.
    #[must_use]
    pub fn change(&self) -> u64 {
        self.change
    }

    /// Bytes were accepted.
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

    /// A range of whole sectors is being discarded.
    pub fn announce_discard(&mut self, bytes: Range<u64>) {
        self.discarding.push(bytes);
    }

    /// It was, or not.
    pub fn end_discard(&mut self, bytes: &Range<u64>, is_done: bool) {
        let at = self.discarding.iter().position(|announced| announced == bytes);
        self.discarding.swap_remove(at.expect("a discard is announced"));
        if is_done {
            let length = (bytes.end - bytes.start) as usize;
            self.accept(bytes.start, &vec![DISCARDED; length]);
        }
    }

    /// Whether what the device has may differ from what was accepted.
    #[must_use]
    pub fn is_discarding(&self) -> bool {
        !self.discarding.is_empty()
    }

    /// A length is being set: from now on it may be found.
    pub fn announce_length(&mut self, length: u64) {
        let before = self.bytes.clone();
        self.set_length(length);
        self.bytes = before;
    }

    /// A length was set.
    pub fn set_length(&mut self, length: u64) {
        let before = self.bytes.len();
        self.bytes.resize(length as usize, 0);
        if (length as usize) < before {
            self.cut_versions(length);
        }
        // The sector that contained the end has zeroes behind it already: growing makes no version
        // of it.
        let from = (before.next_multiple_of(SECTOR) as u64).min(length);
        self.restate(from, length.max(before as u64));
    }

    /// The length that was announced was not set, and nothing else was changed meanwhile.
    pub fn withdraw_length(&mut self) {
        let announced = self.change;
        for versions in &mut self.sectors {
            versions.retain(|version| version.change != announced);
        }
        self.sizes.retain(|version| version.change != announced);
    }

    /// The cache was dropped, and what it had not written with it: the file is as the device has
    /// it. Says which pages differ.
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
        // What reads otherwise than was accepted may be what a failed flush has lost: no later one
        // makes it durable.
        if let Some(forsaken) = self.forsaken.as_mut().filter(|_| !differing.is_empty()) {
            forsaken.until = self.change;
        }
        differing
    }

    /// A sync ended well that was asked for after `change`.
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

    /// A sync ended well, of a file that was made here: its name is durable too.
    pub fn name_synced(&mut self) {
        self.name_is_synced = !self.name_is_forsaken;
    }

    /// All handles were closed after a failed flush of its directory: its name may be gone for
    /// good.
    pub fn forsake_name(&mut self) {
        self.name_is_forsaken = true;
    }

    /// All handles were closed after a failed flush: what was accepted so far may be gone for good.
    pub fn forsake(&mut self) {
        let synced = self.forsaken.map_or(self.synced, |forsaken| forsaken.synced);
        self.forsaken = Some(Forsaken { synced, until: self.change });
    }

    /// Whether what was found after a loss of power is one of the states it may be in.
    ///
    /// # Errors
    /// What is wrong with it.
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

    /// The last version that a sync made sure.
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

    /// Notes a version of every sector from one byte to another, and the size.
    fn restate(&mut self, from: u64, to: u64) {
        self.change += 1;
        self.sizes.push(Accepted { change: self.change, value: self.size() });
        for sector in from as usize / SECTOR..(to as usize).div_ceil(SECTOR) {
            self.note(sector);
        }
    }

    /// A cut takes the end off whatever version of its sector the device has.
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

/// The bytes of a sector, with zeroes beyond the end.
fn padded(bytes: &[u8], sector: usize) -> [u8; SECTOR] {
    let mut content = [0; SECTOR];
    let start = (sector * SECTOR).min(bytes.len());
    let there = &bytes[start..(start + SECTOR).min(bytes.len())];
    content[..there.len()].copy_from_slice(there);
    content
}
