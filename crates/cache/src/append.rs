//! Appends to a shared file, which go past the cache: only the kernel knows the end at the moment
//! of a write.
//!
//! ```text
//! direct writes, kept --flush--> appended by the kernel --flush--> direct writes again
//!                                  \-- until then, all writes go through the kernel's cache
//! ```
//!
//! Appended bytes are not kept, so a flush that fails after them poisons the file. A flush can fail
//! because of a direct write to pages that another program has mapped, and that is repaired
//! (`kept.rs`). So one flush never covers both.

use std::ops::Range;

use crate::bits::{bits, parts};
use crate::file::CachedFile;
use crate::limits::PAGE;
use crate::settled::Settled;
use crate::writeback::flight::Flight;

impl CachedFile {
    /// Returns whether bytes can be appended past the cache of a shared file: the file system has
    /// every accepted byte, and no page of the range is written here, which would hide them, or
    /// destroy them later. Otherwise, a flush makes it so.
    #[must_use]
    pub fn can_append(&self, bytes: &Range<u64>) -> bool {
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let writes =
            |flight: &Flight| !matches!(flight, Flight::Fill { .. } | Flight::Flush { .. });
        self.sizes.size() == self.sizes.disk_size()
            && !self.flights.all().any(writes)
            && parts(pages).all(|(page, slot, count)| {
                self.index.get(page).is_none_or(|(chunk, _)| {
                    bits(slot, count) & (chunk.dirty | chunk.busy | chunk.held()) == 0
                })
            })
    }

    /// Returns whether a flush comes first, because direct writes wait for it.
    #[must_use]
    pub fn flushes_before_append(&self) -> bool {
        self.flushes.is_awaited() && self.flushes.poisoned().is_none()
    }

    /// Gives up pages that a poisoned file keeps. They would hide bytes that are appended past the
    /// cache, and no flush that ends well frees them.
    pub fn uncover_end(&mut self, settled: &mut Settled) {
        debug_assert!(self.flushes.poisoned().is_some(), "a flush may still prove what is kept");
        self.let_kept_go(settled);
    }

    /// Records that bytes were appended past the cache: a length that was read before is too small.
    pub fn note_appended(&mut self) {
        self.sizes.note_ended();
        self.flushes.note_appended();
    }

    /// Returns whether pages are written through the page cache of the kernel now.
    pub(crate) fn writes_through(&self) -> bool {
        self.is_rewriting() || self.lease.is_shared() && self.flushes.covers_appended()
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::{Bio, Errno, Frame, Operation, Target};

    use super::*;
    use crate::file::{Liberties, Origin};
    use crate::frames::FrameRuns;
    use crate::read::{ReadStop, Reader};
    use crate::settled::Keep;
    use crate::ticket::TicketKind;
    use crate::uses::Caching;
    use crate::writeback::reason::Reason;

    fn file() -> (CachedFile, FrameRuns) {
        let mut stash = FrameRuns::default();
        stash.extend((0..10).map(Frame));
        (CachedFile::new(Target(0), Origin::Existing(397), Liberties::Shared), stash)
    }

    fn fill(file: &mut CachedFile, stash: &mut FrameRuns, length: usize) -> Bio {
        let first_fill = file.start_read();
        let reader = Reader { caching: Caching::Cached, again: None, first_fill };
        match file.begin_read(0, length, reader, stash, &mut Vec::new()) {
            (0, ReadStop::Fill(fill)) => *fill,
            other => panic!("the page is read from the file system: {other:?}"),
        }
    }

    fn write(file: &mut CachedFile, stash: &mut FrameRuns, bytes: Range<u64>) {
        let (mut copies, length) = (Vec::new(), (bytes.end - bytes.start) as usize);
        let (planned, ..) = file.begin_write(bytes.start, length, stash, &mut copies);
        assert_eq!(planned, length);
        file.publish(&copies, Caching::Cached, &mut Settled::default());
    }

    fn append_past(file: &mut CachedFile, end: u64) {
        assert!(file.can_append(&(file.size()..end)));
        file.note_appended();
        let look = file.look();
        file.observe_disk_size(end, look, &mut Settled::default());
    }

    #[test]
    fn contract_11_a_page_that_was_read_before_an_append_does_not_hide_it() {
        let (mut file, mut stash) = file();
        let read = fill(&mut file, &mut stash, 397);
        file.settle(&read, Ok(397), Keep::All, &mut Settled::default());
        append_past(&mut file, 597);
        write(&mut file, &mut stash, 597..700);
        assert_eq!(fill(&mut file, &mut stash, 700).operation, Operation::Read);
    }

    #[test]
    fn contract_11_a_read_that_is_under_way_at_an_append_does_not_hide_it() {
        let (mut file, mut stash) = file();
        let mut settled = Settled::default();
        let before = fill(&mut file, &mut stash, 397);
        append_past(&mut file, 597);
        write(&mut file, &mut stash, 597..700);
        file.settle(&before, Ok(397), Keep::All, &mut settled);
        assert!(settled.patches.is_empty(), "what it brought is older than the append");
        let after = fill(&mut file, &mut stash, 700);
        file.settle(&after, Ok(597), Keep::All, &mut settled);
        assert_eq!(settled.patches.len(), 1);
    }

    #[test]
    fn contract_06_no_lease_counts_with_a_length_from_before_a_change_of_the_end() {
        let owns_after = |change: fn(&mut CachedFile)| {
            let (mut file, _) = file();
            let (look, breaks) = (file.look(), file.breaks());
            change(&mut file);
            file.own(397, (look, breaks), &mut Settled::default())
        };
        assert!(owns_after(|_| ()));
        assert!(!owns_after(CachedFile::note_appended));
        assert!(!owns_after(CachedFile::note_extended));
    }

    #[test]
    fn contract_08_nothing_is_appended_where_accepted_bytes_wait() {
        let (mut file, mut stash) = file();
        write(&mut file, &mut stash, 397..700);
        assert!(!file.can_append(&(397..400)), "they would be written over the new ones");
        let mut settled = Settled::default();
        file.ask(TicketKind::WriteOut);
        let bio = file.next_bio(Reason::Sync).expect("a page is dirty");
        file.settle(&bio, Err(Errno::IO), Keep::All, &mut settled);
        assert!(!file.can_append(&(397..400)), "and could not be written yet");
    }
}
