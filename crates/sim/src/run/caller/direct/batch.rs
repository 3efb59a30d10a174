//! Operations past the cache that were submitted together, replayed on a plain array.
//!
//! A write that ended well is there. One that failed, or whose future was dropped on a device that
//! may fail, may be there in part: each of its bytes is the old one or the new one.

use std::ops::Range;
use std::rc::Rc;

use crate::core::error::Error;
use crate::ledger::Ledger;

/// Operations on a range that nobody else changes.
pub(super) struct Batch {
    pub(super) range: Range<u64>,
    /// The bytes of the range before; fewer at the end of the file.
    before: Vec<u8>,
    /// Size of the file before.
    size: u64,
    /// Whether a write may fail.
    may_fail: bool,
    /// In the order of their submission.
    pub(super) steps: Vec<Step>,
    /// The bytes of the range at the device, after all operations.
    pub(super) stored: Vec<u8>,
}

/// One operation.
pub(super) struct Step {
    pub(super) offset: u64,
    pub(super) did: Did,
    pub(super) end: End,
}

pub(super) enum Did {
    Read {
        length: u64,
    },
    /// The bytes, and the number of the write in the ledger.
    Write {
        data: Rc<[u8]>,
        begun: u64,
    },
}

/// How an operation ended.
pub(super) enum End {
    /// Bytes moved, and the memory.
    Moved(usize, Vec<u8>),
    Failed(Error),
    /// Its future was dropped.
    Dropped,
}

impl Step {
    fn length(&self) -> u64 {
        match &self.did {
            Did::Read { length } => *length,
            Did::Write { data, .. } => data.len() as u64,
        }
    }

    fn end_offset(&self) -> u64 {
        self.offset + self.length()
    }

    fn is_write(&self) -> bool {
        matches!(self.did, Did::Write { .. })
    }

    /// Its byte at a position of the file, if it writes that.
    fn byte(&self, position: u64) -> Option<u8> {
        let Did::Write { data, .. } = &self.did else { return None };
        let at = position.checked_sub(self.offset)?;
        data.get(usize::try_from(at).ok()?).copied()
    }
}

impl Batch {
    pub(super) fn new(ledger: &Ledger, range: Range<u64>, may_fail: bool) -> Self {
        let size = ledger.size();
        let bytes = range.start.min(size) as usize..range.end.min(size) as usize;
        let before = ledger.bytes()[bytes].to_vec();
        Self { range, before, size, may_fail, steps: Vec::new(), stored: Vec::new() }
    }

    /// Whether it may move the end of the file, which nobody else moves meanwhile.
    pub(super) fn owns_end(&self) -> bool {
        self.range.end > self.size
    }

    /// Whether all of a write is there, unless a later one is over it.
    fn is_sure(&self, step: &Step) -> bool {
        match step.end {
            End::Moved(..) => true,
            End::Failed(_) => false,
            End::Dropped => !self.may_fail,
        }
    }

    /// Checks what each operation moved, and the bytes at the device.
    pub(super) fn check(&self) -> Result<(), String> {
        for (at, step) in self.steps.iter().enumerate() {
            let End::Moved(moved, memory) = &step.end else { continue };
            match &step.did {
                Did::Write { data, .. } => {
                    if *moved != data.len() || memory[..] != data[..] {
                        return Err(format!("write {at} moved {moved} of {} bytes", data.len()));
                    }
                }
                Did::Read { .. } => self.check_read(at, &memory[..*moved])?,
            }
        }
        let sure = self.steps.iter().filter(|step| step.is_write() && self.is_sure(step));
        let last = sure.map(Step::end_offset).max().unwrap_or(0);
        if last > self.range.start + self.stored.len() as u64 {
            return Err(format!("the device has {} bytes of the range", self.stored.len()));
        }
        self.check_bytes(self.steps.len(), self.range.start, &self.stored)
            .map_err(|wrong| format!("at the device {wrong}"))
    }

    fn check_read(&self, at: usize, found: &[u8]) -> Result<(), String> {
        let step = &self.steps[at];
        let ends = self.steps.iter().filter(|step| step.is_write()).map(Step::end_offset);
        let most_end = ends.max().unwrap_or(0).max(self.size);
        // Writes that it overlaps came before it, and have moved the end.
        let before = self.steps[..at].iter().filter(|other| {
            other.is_write()
                && self.is_sure(other)
                && other.offset < step.end_offset()
                && step.offset < other.end_offset()
        });
        let least_end = before.map(Step::end_offset).max().unwrap_or(0).max(self.size);
        let of_end = |end: u64| end.saturating_sub(step.offset).min(step.length());
        let length = found.len() as u64;
        if length < of_end(least_end) || length > of_end(most_end) {
            return Err(format!(
                "read {at} of {} bytes at {} finds {length}; the file ends from {least_end} to \
                 {most_end}",
                step.length(),
                step.offset
            ));
        }
        self.check_bytes(at, step.offset, found).map_err(|wrong| format!("read {at} finds {wrong}"))
    }

    /// Checks bytes that were found after the first `count` operations.
    fn check_bytes(&self, count: usize, offset: u64, found: &[u8]) -> Result<(), String> {
        let wrong = (offset..).zip(found).find(|(at, byte)| !self.is_possible(count, *at, **byte));
        match wrong {
            Some((at, byte)) => Err(format!("byte {at} is {byte:#x}")),
            None => Ok(()),
        }
    }

    fn is_possible(&self, count: usize, position: u64, byte: u8) -> bool {
        for step in self.steps[..count].iter().rev() {
            let Some(written) = step.byte(position) else { continue };
            if written == byte {
                return true;
            }
            if self.is_sure(step) {
                return false;
            }
        }
        let at = (position - self.range.start) as usize;
        self.before.get(at).copied().unwrap_or(0) == byte
    }

    /// Whether a write whose future was dropped has certainly failed: some of its bytes are
    /// missing, and no later write is over them.
    pub(super) fn lost_a_dropped_write(&self) -> bool {
        self.steps.iter().enumerate().any(|(at, step)| {
            let is_missing = |position: u64| {
                let later = &self.steps[at + 1..];
                let is_covered = later.iter().any(|later| later.byte(position).is_some());
                let found = self.stored.get((position - self.range.start) as usize).copied();
                !is_covered && found != step.byte(position)
            };
            let is_dropped = step.is_write() && matches!(step.end, End::Dropped);
            is_dropped && (step.offset..step.end_offset()).any(is_missing)
        })
    }

    /// Records the writes in their order, in a file that has this size now. Any part of one that
    /// failed may be found later.
    pub(super) fn record(&self, ledger: &mut Ledger, size: u64) {
        let failed = self.steps.iter().any(|step| step.is_write() && !self.is_sure(step));
        if failed && self.owns_end() && size > ledger.size() {
            // A part of a block beyond the end is written with zeroes before it.
            ledger.set_length(size);
        }
        let stored_end = self.range.start + self.stored.len() as u64;
        let mut torn = Vec::new();
        for step in &self.steps {
            let Did::Write { data, begun } = &step.did else { continue };
            let there = stored_end.saturating_sub(step.offset).min(data.len() as u64);
            ledger.end(*begun, step.offset, there as usize);
            if !self.is_sure(step) && there > 0 {
                torn.push(step.offset..step.offset + there);
            }
        }
        let within = |position: u64| (position - self.range.start) as usize;
        for bytes in torn {
            let found = &self.stored[within(bytes.start)..within(bytes.end)];
            ledger.accept_torn(bytes.start, found);
        }
    }
}
