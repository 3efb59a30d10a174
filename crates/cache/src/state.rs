//! The state of one page, in one word: for those who look on.

use std::fmt;

use crate::file::CachedFile;

/// Where a page is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageState {
    /// Not here.
    Absent,
    /// A caller's bytes are being copied in.
    Filling,
    /// It is being read from the device.
    Reading,
    /// Some of its bytes were written, the others are on the device.
    Partial,
    /// It was written, and waits to be sent.
    Dirty,
    /// It was written again while an older version of it is at the device.
    DirtyAgain,
    /// It is at the device.
    Writeback,
    /// It could not be written: dirty, until somebody asks for another try.
    Failing,
    /// The device has it, a flush does not yet; kept for that.
    Kept,
    /// The device has it.
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
    /// The state of a page now.
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
