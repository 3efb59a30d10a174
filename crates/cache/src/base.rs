//! The bytes around those of a write, for a record of the intent log that is written before the
//! bytes enter the cache.

use std::ops::Range;

use forebay_block::Frame;

use crate::bits::bits;
use crate::file::{CachedFile, Entry};

/// The bytes of a page that are not in a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// They are in a frame, and nobody changes them while the file is locked.
    Here(Frame),
    /// They are zeroes.
    Zero,
    /// They are on the device, on the way, or just being changed.
    Away,
}

impl CachedFile {
    /// Returns whether a record may have bytes that are not in the cache yet.
    #[must_use]
    pub fn may_log_ahead(&self) -> bool {
        self.lease.is_exclusive()
            && !self.sizes.is_device()
            && self.flushes.entry() == Entry::Old
            && self.counts.failing() == 0
            && self.tickets.first_set_length().is_none()
            && self.fences.are_down()
    }

    /// Returns whether the durable end is that of the file system, or in records, or not before
    /// `end`. Else a record that ends there may move an end that nobody knows.
    #[must_use]
    pub fn knows_end_for(&self, end: u64) -> bool {
        let durable = self.flushes.durable_end();
        !self.is_bare() || durable.is_some_and(|at| at >= end || at == self.sizes.disk_size())
    }

    /// Returns where the bytes of a page are.
    #[must_use]
    pub fn base_of(&self, page: u64) -> Base {
        let Some((chunk, slot)) = self.index.get(page) else {
            return if self.absent_is_zero(page) { Base::Zero } else { Base::Away };
        };
        let is = |mask: u64| mask & bits(slot, 1) != 0;
        match chunk.frame(slot) {
            _ if is(chunk.busy | chunk.partial | chunk.filling) => Base::Away,
            Some(frame) if is(chunk.present) => Base::Here(frame),
            _ if self.absent_is_zero(page) => Base::Zero,
            _ => Base::Away,
        }
    }

    /// Returns whether the pages of a range may need new space.
    #[must_use]
    pub fn lacks_space(&self, bytes: &Range<u64>) -> bool {
        !self.is_allocated(bytes, self.ahead.rewrites_in_place())
    }

    /// Records that the log has a record with bytes that are not in the cache yet.
    pub fn begin_records(&mut self) {
        self.flushes.begin_records();
    }
}
