//! Records of a file's frames for another process, which finishes the writing if this one dies.
//!
//! The process may die at any instruction. The other one then builds the file: it takes the file as
//! the kernel has it, makes a cut that is in progress, and writes the youngest recorded frame of
//! each dirty page over it, up to the recorded size. The result holds every write that has
//! returned. Each byte of a write that has not returned is as before it or as after it. So
//!
//! - the bytes are in the frame before the frame is published, and the frames are published before
//!   the size: a write that moves the end is recovered with its size or not at all;
//! - a published page that must be written stays published until it is written. A page that is
//!   touched again in place is not published anew. A partial page stays partial, with its mask;
//! - a clean frame that is written into is retired before the first byte changes;
//! - the frame of a page that was written or dropped is retired under the lock under which the
//!   cache handles that: nothing newer can have reached the file before;
//! - a cut is recorded before the file system does it, and until the size is recorded.
//!
//! Of two frames of a page, the younger was published later, under the lock. Clean frames are
//! recorded for the process that takes the file over, and only for exclusive files.

use std::ops::Range;

use forebay_block::{Bio, Class, Frame, Operation};

use crate::file::CachedFile;
use crate::limits::PAGE;
use crate::partial::Mask;
use crate::settled::Settled;
use crate::write::Copy;

/// Record of a frame for another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// The whole frame must be written, up to the end of the file.
    Dirty,
    /// The bytes in the mask must be written.
    Partial,
    /// The frame is equal to the file.
    Clean,
}

/// Storage of the records of a file. Each call takes effect as a whole or not at all, whenever the
/// process dies.
pub trait Account {
    /// Returns the record of a frame.
    fn said(&self, frame: Frame) -> Option<Said>;
    /// Records that a frame without a record holds this page.
    fn publish(&mut self, page: u64, frame: Frame, said: Said);
    /// Removes the record of a frame.
    fn retire(&mut self, frame: Frame);
    /// Clears the mask of a frame without a record.
    fn clear_mask(&mut self, frame: Frame);
    /// Adds bytes to the mask of a frame.
    fn add_to_mask(&mut self, frame: Frame, bytes: Range<usize>);
    /// Records the size of the file.
    fn set_size(&mut self, bytes: u64);
}

impl CachedFile {
    /// Records, before the copies of a write are made, that their frames are no longer clean.
    pub fn report_touched(copies: &[Copy], account: &mut impl Account) {
        retire_clean(copies.iter().flat_map(Copy::frames), account);
    }

    /// Records copies after they were published, zeroed and patched.
    pub fn report_copied(&self, copies: &[Copy], account: &mut impl Account) {
        for copy in copies {
            let touches_one_in_flight = self.odd.is_displaced(copy.page);
            if let Some(exact) = self.odd.exact(copy.page)
                && !touches_one_in_flight
            {
                publish_parts(copy.page, copy.frame, exact.dirty(), account);
                continue;
            }
            if self.is_partial(copy.page) {
                publish_part(copy.page, copy.frame, copy.at..copy.at + copy.length, account);
                continue;
            }
            for (page, frame) in copy.pages().zip(copy.frames()) {
                publish_whole(page, frame, account);
            }
        }
    }

    /// Records that a partial page is complete in this frame. On a shared file the bytes read into
    /// it must not be written, so nothing is recorded.
    pub fn report_filled(&self, page: u64, frame: Frame, account: &mut impl Account) {
        let is_ours = self.odd.exact(page).is_none();
        if is_ours && account.said(frame) == Some(Said::Partial) {
            account.add_to_mask(frame, 0..PAGE as usize);
        }
    }

    /// Records the changes of frames and the size, under the same lock. Removes from `settled` the
    /// entries that are needed for nothing else.
    pub fn report_settled(&self, settled: &mut Settled, account: &mut impl Account) {
        if let Some(settled) = settled.lists() {
            for (page, frame) in settled.dirty_again.drain(..) {
                match self.odd.exact(page) {
                    Some(exact) => publish_parts(page, frame, exact.dirty(), account),
                    None => publish_whole(page, frame, account),
                }
            }
            settled.written.drain(..).for_each(|frame| account.retire(frame));
            if self.lease.is_exclusive() {
                for run in &settled.clean {
                    for (page, frame) in (run.page..).zip(run.frames.frames()) {
                        account.publish(page, frame, Said::Clean);
                    }
                }
            }
            settled.freed.frames().for_each(|frame| account.retire(frame));
        }
        account.set_size(self.sizes.size());
    }

    /// Records a discard before it is sent: the clean frames of its range may differ from the
    /// device from now on. Their records do not come back if the discard fails.
    pub fn report_discard(&mut self, bio: &Bio, account: &mut impl Account) {
        let pages = bio.offset / PAGE..bio.end().div_ceil(PAGE);
        for (_, mask, chunk) in self.index.chunks_in(&pages) {
            retire_clean(chunk.frames_of(mask & chunk.present), account);
        }
    }

    /// Returns the length that a bio sets for a caller, or `None` if it does not.
    #[must_use]
    pub fn cuts_to(bio: &Bio) -> Option<u64> {
        (bio.operation == Operation::SetLength && bio.class == Class::Waited).then_some(bio.offset)
    }
}

/// Removes the records of those frames that are recorded as clean.
fn retire_clean(frames: impl Iterator<Item = Frame>, account: &mut impl Account) {
    for frame in frames {
        if account.said(frame) == Some(Said::Clean) {
            account.retire(frame);
        }
    }
}

fn publish_whole(page: u64, frame: Frame, account: &mut impl Account) {
    match account.said(frame) {
        Some(Said::Dirty) => {}
        Some(Said::Partial) => account.add_to_mask(frame, 0..PAGE as usize),
        Some(Said::Clean) | None => account.publish(page, frame, Said::Dirty),
    }
}

fn publish_parts(page: u64, frame: Frame, mask: &Mask, account: &mut impl Account) {
    mask.runs().into_iter().for_each(|bytes| publish_part(page, frame, bytes, account));
}

fn publish_part(page: u64, frame: Frame, bytes: Range<usize>, account: &mut impl Account) {
    match account.said(frame) {
        Some(Said::Partial) => account.add_to_mask(frame, bytes),
        // Whole under the lease, and not written since.
        Some(Said::Dirty) => {}
        Some(Said::Clean) => unreachable!("a clean page that is written into is retired before"),
        None => {
            account.clear_mask(frame);
            account.add_to_mask(frame, bytes);
            account.publish(page, frame, Said::Partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay_block::Target;

    use super::*;
    use crate::file::{Liberties, Origin};
    use crate::frames::FrameRun;
    use crate::settled::Keep;
    use crate::ticket::TicketKind;
    use crate::writeback::reason::Reason;

    /// The records of a file, by frame.
    impl Account for BTreeMap<Frame, (u64, Said)> {
        fn said(&self, frame: Frame) -> Option<Said> {
            self.get(&frame).map(|(_, said)| *said)
        }

        fn publish(&mut self, page: u64, frame: Frame, said: Said) {
            assert_eq!(self.insert(frame, (page, said)), None, "{frame:?} has one record");
        }

        fn retire(&mut self, frame: Frame) {
            self.remove(&frame);
        }

        fn clear_mask(&mut self, _: Frame) {}

        fn add_to_mask(&mut self, _: Frame, _: Range<usize>) {}

        fn set_size(&mut self, _: u64) {}
    }

    /// The next process that adopts the memory must not take a page for clean that a discard
    /// may have changed on the device.
    #[test]
    fn clean_pages_of_a_discard_lose_their_records_before_it_is_sent() {
        let mut settled = Settled::default();
        let mut file = CachedFile::new(Target(0), Origin::Device(100 * PAGE), Liberties::Exclusive);
        file.adopt_clean(60, FrameRun { first: Frame(0), count: 10 }, &mut settled);
        file.adopt_dirty(70, Frame(10));
        let mut records = BTreeMap::new();
        file.report_settled(&mut settled, &mut records);
        settled.clean.clear();
        records.publish(70, Frame(10), Said::Dirty);
        assert_eq!(records.len(), 11);
        let ticket = file.ask(TicketKind::Discard { first: 62, pages: 20 });
        let bio = file.next_bio(Reason::Sync).expect("nothing is in the way of the discard");
        assert_eq!(bio.operation, Operation::Discard);
        file.report_discard(&bio, &mut records);
        let left: Vec<u64> = records.values().map(|(page, _)| *page).collect();
        assert_eq!(left, [60, 61, 70], "the dirty page is written if the process dies");
        file.settle(&bio, Ok(bio.length), Keep::Clean, &mut settled);
        file.report_settled(&mut settled, &mut records);
        assert_eq!(records.len(), 2);
        assert_eq!(file.fetch(ticket), Some(Ok(())));
    }
}
