//! State of one page as a single word, for observers.

use std::fmt;

use crate::file::CachedFile;

/// State of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageState {
    /// Not in memory.
    Absent,
    /// A caller's bytes are being copied in.
    Filling,
    /// Being read from the device.
    Reading,
    /// Partly written by a caller; the other bytes are on the device only.
    Partial,
    /// Written by a caller, and not at the device yet.
    Dirty,
    /// Written by a caller again while an older version is being written to the device.
    DirtyAgain,
    /// Being written to the device.
    Writeback,
    /// Failed to be written. It stays dirty until a sync tries again.
    Failing,
    /// Written to the device, and kept until a flush covers it.
    Kept,
    /// Equal to the device.
    Clean,
}

impl fmt::Display for PageState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            PageState::Absent => "absent",
            PageState::Filling => "filling",
            PageState::Reading => "reading",
            PageState::Partial => "partial",
            PageState::Dirty => "dirty",
            PageState::DirtyAgain => "dirty again",
            PageState::Writeback => "writeback",
            PageState::Failing => "failing",
            PageState::Kept => "kept",
            PageState::Clean => "clean",
        })
    }
}

impl CachedFile {
    /// Returns the current state of a page.
    #[must_use]
    pub fn page_state(&self, page: u64) -> PageState {
        let Some((chunk, slot)) = self.index.get(page) else { return PageState::Absent };
        let is = |mask: u64| mask & (1 << slot) != 0;
        if is(chunk.busy) {
            PageState::Filling
        } else if is(chunk.filling) {
            PageState::Reading
        } else if is(chunk.failing) {
            PageState::Failing
        } else if is(chunk.partial) {
            PageState::Partial
        } else if is(chunk.dirty) && is(chunk.flight) {
            PageState::DirtyAgain
        } else if is(chunk.dirty) {
            PageState::Dirty
        } else if is(chunk.sending) {
            PageState::Writeback
        } else if is(chunk.present & chunk.held()) {
            PageState::Kept
        } else if is(chunk.present) {
            PageState::Clean
        } else {
            PageState::Absent
        }
    }
}
