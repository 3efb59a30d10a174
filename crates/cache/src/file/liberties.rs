//! Lease of a file: whether other programs may have it open.
//!
//! ```text
//!  Exclusive --another program opens it--> Shared, breaking --lease given up--> Shared
//!      ^                                                                          |
//!      +-----------------------------lease acquired-------------------------------+
//! ```
//!
//! Invariant: a lease that is being given up allows nothing but giving back space.

use crate::ticket::TicketId;

/// Whether other programs may have a file open, which limits what may be done to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liberties {
    /// The engine holds the write lease. It may write zeroes over known holes, keep clean pages,
    /// and give back reserved space.
    Exclusive,
    /// Another program may have the file open.
    Shared,
}

/// Lease of one file.
#[derive(Debug)]
pub(crate) struct Lease {
    liberties: Liberties,
    /// The release that must end before the lease does.
    breaking: Option<TicketId>,
    /// Times that it was given up.
    breaks: u64,
}

impl Lease {
    pub(crate) fn new(liberties: Liberties) -> Self {
        Self { liberties, breaking: None, breaks: 0 }
    }

    pub(crate) fn liberties(&self) -> Liberties {
        self.liberties
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.liberties == Liberties::Exclusive
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.liberties == Liberties::Shared
    }

    pub(crate) fn breaking(&self) -> Option<TicketId> {
        self.breaking
    }

    /// Returns whether space may be given back. Nobody else can have put it there.
    pub(crate) fn may_give_back(&self) -> bool {
        self.liberties == Liberties::Exclusive || self.breaking.is_some()
    }

    pub(crate) fn breaks(&self) -> u64 {
        self.breaks
    }

    pub(crate) fn own(&mut self) {
        assert!(self.breaking.is_none(), "a lease that is being given up is not taken");
        self.liberties = Liberties::Exclusive;
    }

    pub(crate) fn share(&mut self) {
        self.liberties = Liberties::Shared;
    }

    pub(crate) fn begin_break(&mut self, ticket: TicketId) {
        debug_assert!(self.is_shared(), "no liberties are taken while a lease is given up");
        self.breaking = Some(ticket);
        self.breaks += 1;
    }

    pub(crate) fn extend_break(&mut self, ticket: TicketId) {
        debug_assert!(self.breaking.is_some(), "no lease is being given up");
        self.breaking = Some(ticket);
    }

    pub(crate) fn end_break(&mut self) {
        self.breaking = None;
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        let is_breaking = self.breaking.is_some();
        assert!(!(is_breaking && self.is_exclusive()), "liberties without a lease");
    }
}
