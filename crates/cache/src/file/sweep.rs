//! Progress of the writeback of one file: where the sweep is, and what keeps it from sending.
//!
//! Three states hold requests back:
//!
//! - *draining*: nothing new is sent, because the next request must be alone at the device, as the
//!   one with the end of the file is;
//! - *alone*: the file system refused a request for lack of space, so requests go one at a time
//!   until one succeeds;
//! - *overdue*: no hold, but a debt: pages of this epoch and older ones are too old.
//!
//! Invariant: requests that are sent alone are sent by a file that was refused.

/// Progress of the writeback of one file.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Page at which background writeback continues.
    cursor: u64,
    /// A request was sent in the current sweep.
    has_sent: bool,
    is_draining: bool,
    /// The epoch that became too old, while it is being written.
    overdue: Option<u64>,
    is_alone: bool,
    /// The request of pages in flight was sent alone, so its refusal is final.
    was_sent_alone: bool,
}

impl Sweep {
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// A run up to this page was sent.
    pub(crate) fn move_to(&mut self, page: u64) {
        self.cursor = page;
    }

    /// Returns whether the sweep ends before a run at `first`: the run is behind the cursor. Then
    /// the next sweep starts at page 0.
    pub(crate) fn ends_before(&mut self, first: u64) -> bool {
        let is_over = first < self.cursor && self.has_sent;
        self.has_sent = !is_over;
        if is_over {
            self.cursor = 0;
        }
        is_over
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Starts to drain, unless nothing is in flight. Returns whether it drains.
    pub(crate) fn drain(&mut self, is_idle: bool) -> bool {
        self.is_draining = !is_idle;
        self.is_draining
    }

    pub(crate) fn begin_drain(&mut self) {
        self.is_draining = true;
    }

    pub(crate) fn end_drain(&mut self) {
        self.is_draining = false;
    }

    pub(crate) fn overdue(&self) -> Option<u64> {
        self.overdue
    }

    pub(crate) fn set_overdue(&mut self, epoch: u64) {
        debug_assert!(self.overdue.is_none(), "one epoch is overdue at a time");
        self.overdue = Some(epoch);
    }

    pub(crate) fn end_overdue(&mut self) {
        self.overdue = None;
    }

    /// Returns whether nothing may be sent beside a request in flight.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Records whether a request of pages that is sent now is sent alone.
    pub(crate) fn note_sent(&mut self) {
        self.was_sent_alone = self.is_alone;
    }

    /// A request of pages has ended. Returns whether it was sent alone.
    pub(crate) fn note_ended(&mut self) -> bool {
        std::mem::take(&mut self.was_sent_alone)
    }

    /// A request was refused for lack of space beside others.
    pub(crate) fn begin_alone(&mut self) {
        self.is_alone = true;
    }

    pub(crate) fn end_alone(&mut self) {
        self.is_alone = false;
    }

    /// Dirty pages were dropped: nothing is left to drain or overdue.
    pub(crate) fn give_up(&mut self) {
        self.overdue = None;
        self.is_draining = false;
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        let is_alone = self.is_alone || !self.was_sent_alone;
        assert!(is_alone, "a request was sent alone without a refusal");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_pauses_once_at_its_end() {
        let mut sweep = Sweep::default();
        sweep.move_to(50);
        assert!(!sweep.ends_before(10), "nothing was sent before");
        sweep.move_to(20);
        assert!(!sweep.ends_before(30));
        sweep.move_to(40);
        assert!(sweep.ends_before(10));
        assert_eq!(sweep.cursor(), 0);
        assert!(!sweep.ends_before(10));
    }

    #[test]
    fn a_request_is_alone_until_one_succeeds() {
        let mut sweep = Sweep::default();
        sweep.begin_alone();
        sweep.note_sent();
        assert!(sweep.note_ended() && !sweep.note_ended());
        sweep.end_alone();
        sweep.note_sent();
        sweep.verify();
        assert!(!sweep.note_ended());
    }
}
