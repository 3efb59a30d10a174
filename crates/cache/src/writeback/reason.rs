//! Reasons for writing a page.

use forebay_block::Class;

/// Reason why a page is written, for logs, counters and tests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// More pages are dirty than the background level.
    Background,
    /// The page is uncached, and the file has many such pages.
    Uncached,
    /// The page has been dirty for longer than `dirty_age`.
    Periodic,
    /// A caller waits: a sync, a close, or a new length.
    Sync,
    /// Memory is short, and pages are kept for a flush.
    Reclaim,
}

impl Reason {
    /// Returns the priority of writes for this reason.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Reason::Sync => Class::Waited,
            Reason::Background | Reason::Uncached | Reason::Periodic | Reason::Reclaim => {
                Class::Background
            }
        }
    }
}
