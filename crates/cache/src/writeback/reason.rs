//! Why a page is written.

use forebay_block::Class;

/// Why a page is written. Logs, counters and tests can tell by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// More is dirty than the background level.
    Background,
    /// It does not stay, and a good part of the file is like that.
    Uncached,
    /// It has been dirty for longer than `dirty_age`.
    Periodic,
    /// Somebody waits: a sync, a close, a change of length.
    Sync,
    /// Memory is short, and some is kept for a flush.
    Reclaim,
}

impl Reason {
    /// Who is served first.
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
