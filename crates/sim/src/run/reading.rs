//! A read that is under way, and the bytes that it may find.
//!
//! A byte that nobody changes meanwhile has one value. Under a write each page reads as before or
//! as after, never as a mixture: reads and writes through the cache are atomic per page. Past the
//! cache each byte reads as before or as after. Under a change of the end nothing is known from
//! there on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use forebay_cache::limits::PAGE;

use crate::run::model::FileModel;

/// The way of a read to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Cached,
    Direct,
}

/// One read.
pub(super) struct Reading {
    offset: u64,
    way: Way,
    /// The bytes of the range when the read began; fewer at the end of the file.
    before: Vec<u8>,
    /// Writes that were under way at any time meanwhile, in the order of their beginnings.
    writes: RefCell<Vec<(u64, Rc<[u8]>)>>,
    /// The first byte that was changed otherwise.
    unknown_from: Cell<u64>,
    length: u64,
}

impl Reading {
    /// A read begins.
    pub(super) fn begin(file: &mut FileModel, way: Way, offset: u64, length: u64) -> Rc<Self> {
        let size = file.ledger.size();
        let bytes = offset.min(size) as usize..(offset + length).min(size) as usize;
        let is_known = file.is_changing == 0 && !file.is_verifying;
        let unknown_from = match (is_known, file.ledger.appends()) {
            (true, false) => u64::MAX,
            (true, true) => file.ledger.stable_end(),
            (false, _) => 0,
        };
        let reading = Rc::new(Self {
            offset,
            way,
            before: file.ledger.bytes()[bytes].to_vec(),
            writes: RefCell::new(file.ledger.under_way()),
            unknown_from: Cell::new(unknown_from),
            length,
        });
        // A write beyond the end moves it.
        for (start, data) in reading.writes.borrow().iter() {
            if start + data.len() as u64 > size {
                reading.add_change(size);
            }
        }
        file.readings.push(Rc::clone(&reading));
        reading
    }

    /// A write of the file begins.
    pub(super) fn add_write(&self, offset: u64, data: &Rc<[u8]>) {
        let end = self.offset + self.before.len() as u64;
        if offset + data.len() as u64 > end && (self.before.len() as u64) < self.length {
            self.add_change(end);
        }
        self.writes.borrow_mut().push((offset, Rc::clone(data)));
    }

    /// The file is changed from a byte on.
    pub(super) fn add_change(&self, from: u64) {
        self.unknown_from.set(self.unknown_from.get().min(from));
    }

    /// Checks the bytes that were read, and ends the read. The content of `undone` pages is lost.
    pub(super) fn end(
        self: &Rc<Self>,
        file: &mut FileModel,
        found: &[u8],
        undone: &BTreeSet<u64>,
    ) -> Result<(), String> {
        file.readings.retain(|reading| !Rc::ptr_eq(reading, self));
        let known = self.unknown_from.get().saturating_sub(self.offset).min(self.length) as usize;
        let known = known.min(self.before.len());
        let is_whole = self.unknown_from.get() >= self.offset + self.length;
        if found.len() < known || is_whole && found.len() != self.before.len() {
            return Err(format!("{} bytes, expected {}", found.len(), self.before.len()));
        }
        let writes = self.writes.borrow();
        let mut at = 0;
        while at < known {
            let position = self.offset + at as u64;
            let length = ((PAGE - position % PAGE) as usize).min(known - at);
            if !undone.contains(&(position / PAGE)) {
                self.check_page(position, &found[at..at + length], &writes)?;
            }
            at += length;
        }
        Ok(())
    }

    /// Ends a read that has no result.
    pub(super) fn abandon(self: &Rc<Self>, file: &mut FileModel) {
        file.readings.retain(|reading| !Rc::ptr_eq(reading, self));
    }

    fn check_page(
        &self,
        position: u64,
        found: &[u8],
        writes: &[(u64, Rc<[u8]>)],
    ) -> Result<(), String> {
        let start = (position - self.offset) as usize;
        let before = &self.before[start..start + found.len()];
        let page = position..position + found.len() as u64;
        let touching: Vec<Part<'_>> =
            writes.iter().filter_map(|write| Part::of(write, &page)).collect();
        let wrong = (0..found.len()).find(|&at| {
            let mut parts = touching.iter().filter(|part| part.bytes.contains(&at));
            found[at] != before[at] && !parts.any(|part| part.at(at) == found[at])
        });
        if let Some(at) = wrong {
            return Err(format!("byte {} is {:#x}", position + at as u64, found[at]));
        }
        // With one write alone the page is as before, or as after.
        if let ([part], Way::Cached) = (&touching[..], self.way) {
            let is_old = part.bytes.clone().all(|at| found[at] == before[at]);
            let is_new = part.bytes.clone().all(|at| found[at] == part.at(at));
            if !is_old && !is_new {
                return Err(format!("the page of byte {position} is written in part"));
            }
        }
        Ok(())
    }
}

/// The part of a page that a write changes.
struct Part<'a> {
    /// Within the page's part that was read.
    bytes: Range<usize>,
    data: &'a [u8],
}

impl<'a> Part<'a> {
    fn of((offset, data): &'a (u64, Rc<[u8]>), page: &Range<u64>) -> Option<Self> {
        let start = page.start.max(*offset);
        let end = page.end.min(offset + data.len() as u64);
        let from = usize::try_from(start.checked_sub(*offset)?).ok()?;
        (start < end).then(|| Self {
            bytes: (start - page.start) as usize..(end - page.start) as usize,
            data: &data[from..from + (end - start) as usize],
        })
    }

    fn at(&self, at: usize) -> u8 {
        self.data[at - self.bytes.start]
    }
}
