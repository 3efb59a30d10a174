//! Dirty pages whose bytes are in the intent log.
//!
//! A sync of a logged file is a record of the log instead of a flush of the file. Its pages stay
//! dirty, and are written in place later.
//!
//! ```text
//! Dirty --snapshot--> Dirty, logged --next bio, written, flushed--> the record is no longer needed
//!   ^                     |
//!   +------publish--------+
//! ```
//!
//! After a snapshot every accepted byte is in one of three places: in the file, covered by a good
//! flush; in a record; or in a page that is being copied into and was not dirty. So a file is
//! *bare* from the moment a page without a record is sent, or anything else is changed past the
//! log, until a flush that began after that has ended well. No sync of a bare file is logged.
//!
//! While records count, such a flush is not enough: a replay would put older bytes over those that
//! it made durable. Then the file is bare until it is emptied.

use std::ops::Range;

use forebay_block::Frame;

use crate::bits::{bits, slots};
use crate::file::{CachedFile, Entry};
use crate::limits::PAGE;
use crate::space::Space;

/// Bytes of one page for a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedPage {
    /// Page of the file.
    pub page: u64,
    /// Frame with its bytes.
    pub frame: Frame,
    /// Bytes up to the end of the page, or of the file.
    pub length: usize,
}

/// Whether a sync of a file may be logged now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loggable {
    /// This number of pages has to be taken.
    Yes(u64),
    /// Once [`CachedFile::pages_without_space`] have space.
    WithSpace,
    /// A page is being copied into. A change of the file follows.
    Busy,
    /// It has to be synced by writes and a flush.
    No,
}

impl CachedFile {
    /// Returns whether something was changed that neither a good flush nor a record covers.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.flushes.is_bare()
    }

    /// Returns whether the intent log has records of the file that count.
    #[must_use]
    pub fn has_records(&self) -> bool {
        self.flushes.has_records()
    }

    /// Returns whether a sync may be logged, as far as the file is concerned, with at most `most`
    /// pages.
    #[must_use]
    pub fn may_log(&self, most: u64) -> Loggable {
        let is_plain = self.lease.is_exclusive()
            && !self.sizes.is_device()
            && self.flushes.poisoned().is_none()
            && self.flushes.entry() == Entry::Old
            && !self.flushes.is_bare()
            && self.counts.unwritable() == 0
            && self.counts.failing() == 0
            && self.tickets.first_set_length().is_none()
            && self.fences.are_down()
            && self.is_old_end_in_records();
        if !is_plain {
            return Loggable::No;
        }
        let (mut pages, mut busy, mut lacks_space) = (0, false, false);
        for (first, chunk) in self.index.dirty_chunks() {
            let unlogged = chunk.dirty & !chunk.logged;
            if unlogged == 0 {
                continue;
            }
            if unlogged & (chunk.partial | chunk.exact | chunk.failing) != 0 {
                return Loggable::No;
            }
            busy |= unlogged & chunk.busy != 0;
            pages += u64::from(unlogged.count_ones());
            if pages > most {
                return Loggable::No;
            }
            lacks_space |= !slots(unlogged).all(|slot| self.has_space(first + slot as u64));
        }
        match busy {
            true => Loggable::Busy,
            false if lacks_space => Loggable::WithSpace,
            false => Loggable::Yes(pages),
        }
    }

    /// Returns whether the dirty pages touch each other, have space, and leave the size as it is:
    /// one write and one flush make them durable, without the journal of the file system.
    #[must_use]
    pub fn is_one_rewrite(&self) -> bool {
        let mut next = None;
        let is_one = self.index.dirty_chunks().all(|(first, chunk)| {
            slots(chunk.dirty).all(|slot| {
                let page = first + slot as u64;
                let touches = next.is_none_or(|next| next == page);
                next = Some(page + 1);
                touches && self.has_space(page)
            })
        });
        is_one && self.sizes.size() == self.sizes.disk_size()
    }

    fn has_space(&self, page: u64) -> bool {
        !self.lacks_space(&(page * PAGE..(page + 1) * PAGE))
    }

    /// Returns the bytes of the dirty pages without a record that may need new space, in order.
    #[must_use]
    pub fn pages_without_space(&self) -> Vec<Range<u64>> {
        let mut missing = Space::default();
        for (first, chunk) in self.index.dirty_chunks() {
            let pages = slots(chunk.dirty & !chunk.logged).map(|slot| first + slot as u64);
            for page in pages.filter(|page| !self.has_space(*page)) {
                missing.add(page * PAGE..(page + 1) * PAGE);
            }
        }
        missing.ranges().collect()
    }

    /// Returns whether a replay rewrites the page with the end in the file system, if records move
    /// that end: each dirty page is in a record, or in the next one.
    ///
    /// Bytes beyond the end are lost with the power if no size covers them. A newer write of that
    /// page would be cut there, and the replay would put zeroes behind it: a mixture of two
    /// versions of a sector.
    fn is_old_end_in_records(&self) -> bool {
        let end = self.sizes.disk_size();
        let is_dirty = |page| {
            self.index.get(page).is_some_and(|(chunk, slot)| chunk.dirty & bits(slot, 1) != 0)
        };
        end == self.sizes.size() || end.is_multiple_of(PAGE) || is_dirty(end / PAGE)
    }

    /// Returns the dirty pages without a record, in order. They count as logged from here on, so
    /// the caller must copy their bytes under the same lock.
    ///
    /// # Panics
    /// If one of them may not be logged ([`CachedFile::may_log`]).
    pub fn snapshot(&mut self) -> Vec<LoggedPage> {
        let mut pages = Vec::new();
        let firsts: Vec<u64> = self.index.dirty_chunks().map(|(first, _)| first).collect();
        for first in firsts {
            let (chunk, _) = self.index.get_mut(first).expect("a dirty page has a chunk");
            let unlogged = chunk.dirty & !chunk.logged;
            let unfit = chunk.busy | chunk.partial | chunk.exact | chunk.failing;
            assert_eq!(unlogged & unfit, 0, "a record would have bytes that nobody wrote");
            chunk.logged |= unlogged;
            let frames = slots(unlogged).zip(chunk.frames_of(unlogged));
            pages.extend(frames.map(|(slot, frame)| {
                let page = first + slot as u64;
                let length = self.sizes.size().saturating_sub(page * PAGE).min(PAGE);
                LoggedPage { page, frame, length: length as usize }
            }));
        }
        debug_assert!(pages.iter().all(|page| page.length > 0), "a dirty page beyond the end");
        if !pages.is_empty() {
            self.flushes.begin_records();
        }
        pages
    }

    /// Records that the file was emptied: none of its records counts.
    pub fn end_records(&mut self) {
        self.flushes.end_records();
    }

    /// Records that no record counts: the log has failed, or the file leaves it. Its dirty pages
    /// have to be logged again, or written.
    pub fn forget_records(&mut self) {
        for (_, chunk) in self.index.chunks_mut() {
            chunk.logged = 0;
        }
        self.flushes.note_bare();
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::{Operation, Target};

    use super::*;
    use crate::file::{Liberties, Origin};
    use crate::frames::FrameRuns;
    use crate::settled::{Keep, Settled};
    use crate::ticket::TicketKind;
    use crate::uses::Caching;
    use crate::writeback::reason::Reason;

    struct Bed {
        file: CachedFile,
        stash: FrameRuns,
        settled: Settled,
    }

    impl Bed {
        /// A file of eight pages that all have space, and that was synced.
        fn new() -> Self {
            let origin = Origin::Existing(8 * PAGE);
            let mut file = CachedFile::new(Target(0), origin, Liberties::Exclusive);
            let mut stash = FrameRuns::default();
            stash.extend((0..40).map(Frame));
            file.note_allocated(0..8 * PAGE);
            let mut bed = Self { file, stash, settled: Settled::default() };
            assert_eq!(bed.file.may_log(8), Loggable::No, "no sync was made yet");
            bed.sync();
            bed
        }

        fn begin(&mut self, page: u64) -> Vec<crate::write::Copy> {
            self.begin_part(page * PAGE, PAGE as usize)
        }

        fn begin_part(&mut self, offset: u64, length: usize) -> Vec<crate::write::Copy> {
            let mut copies = Vec::new();
            self.file.begin_write(offset, length, &mut self.stash, &mut copies);
            copies
        }

        fn write(&mut self, page: u64) {
            let copies = self.begin(page);
            self.file.publish(&copies, Caching::Cached, &mut self.settled);
        }

        fn pages(&mut self) -> Vec<u64> {
            let pages: Vec<_> = match self.file.may_log(8) {
                Loggable::Yes(count) => {
                    let pages = self.file.snapshot();
                    assert_eq!(pages.len() as u64, count);
                    pages
                }
                other => panic!("the file cannot be logged: {other:?}"),
            };
            pages.iter().map(|page| page.page).collect()
        }

        fn sync(&mut self) {
            let id = self.file.ask(TicketKind::FlushData);
            while let Some(bio) = self.file.next_bio(Reason::Sync) {
                self.file.settle(&bio, Ok(bio.length), Keep::All, &mut self.settled);
            }
            assert_eq!(self.file.fetch(id), Some(Ok(())));
        }
    }

    #[test]
    fn contract_23_a_page_is_in_a_record_until_it_is_written_again() {
        let mut bed = Bed::new();
        bed.write(1);
        bed.write(3);
        assert_eq!(bed.pages(), [1, 3]);
        assert_eq!(bed.pages(), []);
        bed.write(3);
        assert_eq!(bed.pages(), [3]);
        assert!(bed.file.is_dirty() && !bed.file.is_bare());
    }

    #[test]
    fn contract_23_a_page_that_is_copied_into_waits_only_if_it_has_no_record() {
        let mut bed = Bed::new();
        bed.write(1);
        let copies = bed.begin(1);
        assert_eq!(bed.file.may_log(8), Loggable::Busy);
        bed.file.publish(&copies, Caching::Cached, &mut bed.settled);
        assert_eq!(bed.pages(), [1]);
        let copies = bed.begin(1);
        assert_eq!(bed.pages(), [], "its accepted bytes are in a record");
        bed.file.publish(&copies, Caching::Cached, &mut bed.settled);
        assert_eq!(bed.pages(), [1]);
    }

    #[test]
    fn contract_24_a_file_is_bare_from_the_write_of_a_page_without_record_to_a_good_flush() {
        let mut bed = Bed::new();
        bed.write(1);
        let _ = bed.file.ask(TicketKind::WriteOut);
        let bio = bed.file.next_bio(Reason::Sync).unwrap();
        assert_eq!((bio.operation, bed.file.may_log(8)), (Operation::Write, Loggable::No));
        bed.file.settle(&bio, Ok(bio.length), Keep::All, &mut bed.settled);
        assert_eq!(bed.file.may_log(8), Loggable::No, "it is written, and not flushed");
        bed.sync();
        assert_eq!(bed.file.may_log(8), Loggable::Yes(0));
    }

    #[test]
    fn contract_24_a_flush_beside_a_write_of_a_page_without_record_leaves_the_file_bare() {
        let mut bed = Bed::new();
        bed.write(1);
        let sync = bed.file.ask(TicketKind::FlushData);
        let first = bed.file.next_bio(Reason::Sync).unwrap();
        bed.write(5);
        let _ = bed.file.ask(TicketKind::WriteOut);
        let second = bed.file.next_bio(Reason::Sync).unwrap();
        bed.file.settle(&first, Ok(first.length), Keep::All, &mut bed.settled);
        let flush = bed.file.next_bio(Reason::Sync).unwrap();
        assert_eq!(flush.operation, Operation::FlushData);
        bed.file.settle(&flush, Ok(0), Keep::All, &mut bed.settled);
        assert_eq!(bed.file.fetch(sync), Some(Ok(())));
        assert_eq!(bed.file.may_log(8), Loggable::No, "page 5 was at the device");
        bed.file.settle(&second, Ok(second.length), Keep::All, &mut bed.settled);
        assert_eq!(bed.file.may_log(8), Loggable::No);
        bed.sync();
        assert_eq!(bed.file.may_log(8), Loggable::Yes(0));
    }

    #[test]
    fn contract_24_a_flush_is_not_enough_while_older_records_count() {
        let mut bed = Bed::new();
        bed.write(1);
        assert_eq!(bed.pages(), [1]);
        bed.write(1);
        bed.sync();
        assert_eq!(bed.file.may_log(8), Loggable::No, "a replay would undo the second write");
        bed.file.end_records();
        assert_eq!(bed.file.may_log(8), Loggable::Yes(0));
    }

    #[test]
    fn contract_24_a_logged_page_is_written_without_making_the_file_bare() {
        let mut bed = Bed::new();
        bed.write(1);
        assert_eq!(bed.pages(), [1]);
        let _ = bed.file.ask(TicketKind::WriteOut);
        let bio = bed.file.next_bio(Reason::Sync).unwrap();
        bed.write(1);
        assert_eq!(bed.pages(), [1], "the newer version needs a record of its own");
        bed.file.settle(&bio, Ok(bio.length), Keep::All, &mut bed.settled);
        assert!(!bed.file.is_bare());
    }

    #[test]
    fn contract_24_a_change_of_length_makes_the_file_bare() {
        let mut bed = Bed::new();
        let _ = bed.file.ask(TicketKind::SetLength(4 * PAGE));
        assert_eq!(bed.file.may_log(8), Loggable::No);
        let bio = bed.file.next_bio(Reason::Sync).unwrap();
        bed.file.settle(&bio, Ok(0), Keep::All, &mut bed.settled);
        assert_eq!(bed.file.may_log(8), Loggable::No);
    }

    #[test]
    fn contract_03_records_move_the_end_only_if_they_have_the_page_of_the_old_one() {
        let mut bed = Bed::new();
        let copies = bed.begin_part(8 * PAGE, 100);
        bed.file.note_allocated(8 * PAGE..11 * PAGE);
        bed.file.publish(&copies, Caching::Cached, &mut bed.settled);
        bed.sync();
        bed.write(10);
        assert_eq!(bed.file.may_log(8), Loggable::No, "page 8 is in no record");
        bed.write(8);
        assert_eq!(bed.pages(), [8, 10]);
    }

    #[test]
    fn pages_are_logged_once_they_have_space_and_not_too_many() {
        let mut bed = Bed::new();
        (0..3).for_each(|page| bed.write(page));
        assert_eq!((bed.file.may_log(2), bed.file.may_log(3)), (Loggable::No, Loggable::Yes(3)));
        bed.write(8);
        bed.write(9);
        assert_eq!(bed.file.may_log(8), Loggable::WithSpace, "its space may be missing later");
        assert_eq!(bed.file.pages_without_space().first(), Some(&(8 * PAGE..10 * PAGE)));
        bed.file.note_allocated(8 * PAGE..10 * PAGE);
        assert_eq!(bed.pages(), [0, 1, 2, 8, 9]);
    }
}
