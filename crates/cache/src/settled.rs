//! Results of the end of a bio that the caller has to apply: frames to free or zero, bytes to copy,
//! and pages that became clean.
//!
//! A run of completions fills one [`Settled`], so that the context takes the lock of the free
//! frames once per run and wakes each waiter once.

use std::ops::{Deref, DerefMut};

use forebay_block::Frame;

use crate::frames::{FrameRun, FrameRuns};
use crate::partial::Patch;

/// Changes of a run of completions, to be applied by the caller. Most changes of a file report
/// nothing, so memory for the lists is allocated by the first report.
#[derive(Debug, Default)]
pub struct Settled(Option<Box<Lists>>);

/// Lists of a [`Settled`].
#[derive(Debug, Default)]
pub struct Lists {
    /// Frames to free, after the patches below.
    pub freed: FrameRuns,
    /// Frames that stay in use and are equal to the device.
    pub written: Vec<Frame>,
    /// Pages that must be written again: the flush after them failed, or a second write of them.
    pub dirty_again: Vec<(u64, Frame)>,
    /// Pages that are clean now, to be entered with the evictor under the same lock.
    pub clean: Vec<CleanRun>,
    /// Number of pages that no longer count as dirty.
    pub uncharged: u64,
    /// Number of clean pages that count as dirty again.
    pub charged: u64,
    /// Frames to be zeroed from an offset on, under the same lock.
    pub zero: Vec<(Frame, usize)>,
    /// Bytes to be copied within memory, under the same lock.
    pub patches: Vec<Patch>,
}

/// Lists without a report.
static NONE: Lists = Lists {
    freed: FrameRuns::new(),
    written: Vec::new(),
    dirty_again: Vec::new(),
    clean: Vec::new(),
    uncharged: 0,
    charged: 0,
    zero: Vec::new(),
    patches: Vec::new(),
};

impl Settled {
    /// Returns the lists, or `None` if nothing was reported.
    #[inline]
    pub fn lists(&mut self) -> Option<&mut Lists> {
        self.0.as_deref_mut()
    }

    /// Returns whether nothing was reported.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the frames to free.
    #[must_use]
    pub fn freed(self) -> FrameRuns {
        self.0.map_or_else(FrameRuns::default, |lists| lists.freed)
    }

    /// Takes over the changes of another run, after those that are here.
    pub fn append(&mut self, other: &mut Self) {
        let Some(other) = other.lists() else { return };
        let Lists { freed, written, dirty_again, clean, uncharged, charged, zero, patches } =
            &mut **self;
        freed.append(&mut other.freed);
        written.append(&mut other.written);
        dirty_again.append(&mut other.dirty_again);
        clean.append(&mut other.clean);
        *uncharged += std::mem::take(&mut other.uncharged);
        *charged += std::mem::take(&mut other.charged);
        zero.append(&mut other.zero);
        patches.append(&mut other.patches);
    }
}

impl Deref for Settled {
    type Target = Lists;

    fn deref(&self) -> &Lists {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Settled {
    fn deref_mut(&mut self) -> &mut Lists {
        self.0.get_or_insert_default()
    }
}

/// Written pages that stay in memory as clean pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// Those that are not uncached.
    Clean,
    /// All pages.
    All,
    /// No pages.
    Nothing,
}

/// Run of pages that are clean now, with their frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanRun {
    /// First page.
    pub page: u64,
    /// Frames of this page and of those that follow.
    pub frames: FrameRun,
}
