//! Numbers of pages by state, kept up to date so that no caller counts bits.
//!
//! Each number equals a count over the chunks of the index, which
//! [`CachedFile::verify`](crate::CachedFile::verify) takes:
//!
//! | number | pages counted |
//! |---|---|
//! | charged | dirty, being copied or sent, kept for a flush, and older versions at the device |
//! | unread | read ahead, or on their way, and not read yet |
//! | failing | not sent again until a caller asks |
//! | unwritable | the last write failed |

/// Page counts of one file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    charged: u64,
    unread: u64,
    failing: u64,
    unwritable: u64,
}

impl Counts {
    pub(crate) fn of(charged: u64, unread: u64, failing: u64, unwritable: u64) -> Self {
        Self { charged, unread, failing, unwritable }
    }

    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    pub(crate) fn failing(&self) -> u64 {
        self.failing
    }

    pub(crate) fn unwritable(&self) -> u64 {
        self.unwritable
    }

    /// Counts pages that take dirty memory from here on.
    pub(crate) fn charge(&mut self, pages: u32) {
        self.charged += u64::from(pages);
    }

    /// Ends the charge of pages; the caller reports them in `Settled::uncharged`.
    pub(crate) fn uncharge(&mut self, pages: u32) {
        assert!(self.charged >= u64::from(pages), "a page is uncharged once");
        self.charged -= u64::from(pages);
    }

    /// Counts pages that are being read.
    pub(crate) fn bring(&mut self, pages: u64) {
        self.unread += pages;
    }

    /// Ends the wait of pages for their first reader: they were read, or dropped.
    pub(crate) fn end_unread(&mut self, pages: u32) {
        assert!(self.unread >= u64::from(pages), "a page is read for the first time once");
        self.unread -= u64::from(pages);
    }

    /// Counts a page whose write failed; the arguments say whether it was counted before.
    pub(crate) fn fail(&mut self, was_failing: bool, was_unwritable: bool) {
        self.failing += u64::from(!was_failing);
        self.unwritable += u64::from(!was_unwritable);
    }

    pub(crate) fn end_failing(&mut self, pages: u32) {
        assert!(self.failing >= u64::from(pages), "a page ends failing once");
        self.failing -= u64::from(pages);
    }

    pub(crate) fn end_unwritable(&mut self, pages: u32) {
        assert!(self.unwritable >= u64::from(pages), "a page ends being unwritable once");
        self.unwritable -= u64::from(pages);
    }

    /// Every failing page is sent again.
    pub(crate) fn retry_failing(&mut self) {
        self.failing = 0;
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        assert!(
            self.failing <= self.unwritable,
            "a failing page had a write that failed: {self:?}"
        );
        assert!(self.unwritable <= self.charged, "a page that failed is not charged: {self:?}");
    }
}
