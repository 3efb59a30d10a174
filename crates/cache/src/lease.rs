//! Write lease of a file, as its cache sees it: held, being given up, or gone.
//!
//! While the engine holds the write lease of a file, nobody else has it open, and liberties are
//! taken: zeroes are written over known holes, clean pages are kept, space is reserved ahead and
//! given back. When another program opens the file, the kernel blocks that program and notifies the
//! engine. Then
//!
//! 1. no more liberties are taken, and clean pages are dropped ([`CachedFile::begin_break`]);
//! 2. data accepted before is written and flushed (`kept.rs` says why), and space reserved beyond
//!    the end is given back: nobody may do that after the lease has ended;
//! 3. the lease ends ([`CachedFile::end_break`]), and the other program continues.
//!
//! The second step may take longer than the other program should wait. Then the lease ends early,
//! but never while a request is at the device that only its holder may make: zeroes that land after
//! the other program's bytes would destroy them.

use crate::file::{CachedFile, Liberties, Look};
use crate::settled::Settled;
use crate::ticket::TicketKind;

impl CachedFile {
    /// Returns whether other programs may have the file open.
    #[must_use]
    pub fn liberties(&self) -> Liberties {
        self.lease.liberties()
    }

    /// Makes the file exclusive after the lease was acquired: drops clean pages, which may be
    /// stale, and takes the current size.
    ///
    /// Returns `false` and changes nothing if a page is dirty, kept, in use or at the device,
    /// because a page being read may be older than the last write of another program; if something
    /// else changed `disk_size` after it was read ([`CachedFile::look`]); or if a lease was given
    /// up since `breaks` was taken ([`CachedFile::breaks`]), before the lease was requested.
    /// Release the lease then.
    #[must_use]
    pub fn own(
        &mut self,
        disk_size: u64,
        (look, breaks): (Look, u64),
        settled: &mut Settled,
    ) -> bool {
        let is_quiet = self.flights.is_empty() && self.index.is_quiet() && !self.is_dirty();
        let is_stale = self.sizes.is_stale(look) || breaks != self.lease.breaks();
        if self.lease.breaking().is_some()
            || self.has_tickets()
            || self.flushes.is_awaited()
            || !is_quiet
            || is_stale
        {
            return false;
        }
        self.drop_clean_in(&(0..u64::MAX), settled);
        // Another program may have given space back meanwhile.
        self.holes.forget();
        self.flushes.forget_end();
        // Also if a later look has been answered: that one was not made under the lease.
        self.follow_disk_size(disk_size, look, settled);
        self.sizes.own(disk_size);
        self.lease.own();
        true
    }

    /// Starts to give up the lease, because another program opens the file. The lease ends once
    /// [`CachedFile::break_is_over`].
    pub fn begin_break(&mut self, settled: &mut Settled) {
        if self.lease.breaking().is_some() {
            return;
        }
        self.lease.share();
        self.holes.forget();
        self.claim_dirty();
        self.drop_clean_in(&(0..u64::MAX), settled);
        // Pages in use stay until their readers are done.
        for (_, chunk) in self.index.chunks_mut() {
            settled.written.extend(chunk.frames_of(chunk.present & !(chunk.dirty | chunk.sending)));
        }
        let ticket = self.ask(TicketKind::Release);
        self.abandon(ticket);
        self.lease.begin_break(ticket);
    }

    /// A write has ended that was planned under the lease which is being given up: the lease ends
    /// once its pages are written, too.
    pub fn extend_break(&mut self) {
        if self.lease.breaking().is_some() {
            let ticket = self.ask(TicketKind::Release);
            self.abandon(ticket);
            self.lease.extend_break(ticket);
        }
    }

    /// Returns how often a lease was given up.
    #[must_use]
    pub fn breaks(&self) -> u64 {
        self.lease.breaks()
    }

    /// Returns whether the lease is being given up.
    #[must_use]
    pub fn is_breaking(&self) -> bool {
        self.lease.breaking().is_some()
    }

    /// Returns whether everything is done that must be done before the lease ends. Pages that
    /// cannot be written are not waited for.
    #[must_use]
    pub fn break_is_over(&self) -> bool {
        !self.lease.breaking().is_some_and(|ticket| self.tickets.is_waiting(ticket))
            && !self.takes_liberties()
    }

    /// Returns whether a request is at the device that only the holder of the lease may make.
    #[must_use]
    pub fn takes_liberties(&self) -> bool {
        self.flights.take_liberties()
    }

    /// Ends the lease. No space is given back after this.
    pub fn end_break(&mut self) {
        assert!(!self.takes_liberties(), "a request that needs the lease is at the device");
        self.lease.end_break();
    }
}
