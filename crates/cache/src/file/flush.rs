//! State of the flushes of a file: what the next one must prove, and whether a failure can be
//! repaired.
//!
//! Everything written since the last good flush is either *kept* (its frames are still here) or
//! *unkept*. A flush that fails after kept writes only can be repaired by writing them again
//! through the page cache of the kernel. One that fails after unkept writes poisons the file. Why
//! written pages are kept is in `kept.rs`.
//!
//! ```text
//!   since the last flush was sent --sent--> before it --ended well--> nothing
//! ```
//!
//! Invariants:
//! - kept pages belong to kept writes;
//! - a repair is the answer to an error.
//!
//! A poisoned file stays poisoned. It may still repair a flush that makes room: its pages are
//! written again, and its syncs fail anyway.

use forebay_block::Errno;

/// Whether the directory entry of a file must still be made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Created by this engine and not durable yet.
    New,
    /// Not created by this engine, or already made durable.
    Old,
}

/// Kinds of writes since some flush.
#[derive(Clone, Copy, Default, Debug)]
struct Written {
    /// Something was written and kept; it may have been cut off since.
    kept: bool,
    /// Something was written and not kept.
    unkept: bool,
    /// Something was appended past the cache, by a write through the page cache of the kernel.
    appended: bool,
    /// Something was changed without a record in the intent log.
    bare: bool,
}

/// Meaning of the next flush that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rewriting {
    /// Nothing was written past the page cache since the last failure: it would be a failure.
    AllCached,
    /// Direct writes that were in flight at the last failure have ended since.
    SomeDirect,
}

/// State of the flushes of one file.
#[derive(Debug)]
pub(crate) struct Flushes {
    /// Written or cut since the last flush was sent.
    is_unflushed: bool,
    entry: Entry,
    /// A caller flushes the directory for several files together.
    is_entry_awaited: bool,
    /// Pages with a bit in `Chunk::held`.
    kept_pages: u64,
    /// Written since the last flush was sent ...
    since: Written,
    /// ... and before that, since the last good flush.
    before: Written,
    /// The intent log has records of the file.
    has_records: bool,
    /// A good flush has covered changes without a record while the log had records of the file. A
    /// replay would put older bytes over them.
    is_beside_records: bool,
    /// End of the file in the file system when the last flush was sent, and when the last good one
    /// was: it is durable. `None` after a change that may cut the file.
    sent_end: Option<u64>,
    durable_end: Option<u64>,
    /// Set from a failed flush until the next good one: writes go through the page cache.
    rewriting: Option<Rewriting>,
    /// Error of the last flush that failed and is repaired. It stays after a good flush if a page
    /// of the failed one is still unwritten: if that page is dropped, its bytes are lost.
    error: Option<Errno>,
    /// Failed flushes whose data was written again.
    rewrites: u64,
    /// Error of the flush that makes every later sync fail.
    poisoned: Option<Errno>,
    /// Whether no caller has got that error.
    is_unreported: bool,
}

impl Flushes {
    /// Creates the state of a file. `had_bytes`: it was not empty, and nobody knows whether its
    /// bytes were flushed.
    pub(crate) fn new(entry: Entry, had_bytes: bool) -> Self {
        Self {
            is_unflushed: true,
            entry,
            is_entry_awaited: false,
            kept_pages: 0,
            // No record has bytes from before the open.
            since: Written { unkept: had_bytes, bare: true, ..Written::default() },
            before: Written::default(),
            has_records: false,
            is_beside_records: false,
            sent_end: None,
            durable_end: None,
            rewriting: None,
            error: None,
            rewrites: 0,
            poisoned: None,
            is_unreported: false,
        }
    }

    pub(crate) fn entry(&self) -> Entry {
        self.entry
    }

    pub(crate) fn set_entry(&mut self, entry: Entry) {
        self.entry = entry;
    }

    pub(crate) fn is_entry_awaited(&self) -> bool {
        self.is_entry_awaited
    }

    pub(crate) fn await_entry(&mut self, is_awaited: bool) {
        self.is_entry_awaited = is_awaited;
    }

    pub(crate) fn is_unflushed(&self) -> bool {
        self.is_unflushed
    }

    /// Records a change that no flush sent before covers, and no record of the intent log.
    pub(crate) fn note_change(&mut self) {
        self.is_unflushed = true;
        self.note_bare();
        self.forget_end();
    }

    /// Records that the file may have been cut.
    pub(crate) fn forget_end(&mut self) {
        (self.sent_end, self.durable_end) = (None, None);
    }

    /// Returns the end of the file that is durable, if that is known.
    pub(crate) fn durable_end(&self) -> Option<u64> {
        self.durable_end
    }

    /// Records the end of a write of pages, which no flush sent before covers.
    pub(crate) fn note_written(&mut self) {
        self.is_unflushed = true;
    }

    /// Records that something is changed without a record in the intent log.
    pub(crate) fn note_bare(&mut self) {
        self.since.bare = true;
    }

    /// Returns whether something was changed without a record in the intent log, and is not safe: a
    /// good flush does not cover it, or older records of the file count.
    pub(crate) fn is_bare(&self) -> bool {
        self.since.bare || self.before.bare || self.is_beside_records
    }

    /// Records that the intent log has records of the file.
    pub(crate) fn begin_records(&mut self) {
        self.has_records = true;
    }

    /// Returns whether the intent log has records of the file.
    pub(crate) fn has_records(&self) -> bool {
        self.has_records
    }

    /// Records that the file was emptied: none of its records counts.
    pub(crate) fn end_records(&mut self) {
        self.has_records = false;
        self.is_beside_records = false;
    }

    pub(crate) fn poisoned(&self) -> Option<Errno> {
        self.poisoned
    }

    /// A caller gets the error of the flush.
    pub(crate) fn note_reported(&mut self) {
        self.is_unreported = false;
    }

    /// Returns the error of the flush if no caller has got it. The caller of this does.
    pub(crate) fn take_unreported(&mut self) -> Option<Errno> {
        self.poisoned.filter(|_| std::mem::take(&mut self.is_unreported))
    }

    pub(crate) fn kept_pages(&self) -> u64 {
        self.kept_pages
    }

    pub(crate) fn rewrites(&self) -> u64 {
        self.rewrites
    }

    pub(crate) fn is_rewriting(&self) -> bool {
        self.rewriting.is_some()
    }

    /// Returns whether a flush may still report an error of something written while shared.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_rewriting() || self.since.kept || self.before.kept
    }

    /// Returns whether something was written since the last good flush that is not kept.
    pub(crate) fn lacks_frames(&self) -> bool {
        self.since.unkept || self.before.unkept
    }

    /// Records that pages were written and kept; `newly` of them were not kept before.
    pub(crate) fn keep(&mut self, newly: u32) {
        self.kept_pages += u64::from(newly);
        self.since.kept = true;
    }

    /// Records that something was written that is not kept.
    pub(crate) fn note_unkept(&mut self) {
        self.since.unkept = true;
    }

    /// Records that something was appended past the cache.
    pub(crate) fn note_appended(&mut self) {
        self.is_unflushed = true;
        self.since.unkept = true;
        self.since.appended = true;
        self.note_bare();
    }

    /// Returns whether something was appended past the cache since the last good flush.
    pub(crate) fn covers_appended(&self) -> bool {
        self.since.appended || self.before.appended
    }

    /// Pages are kept no longer.
    pub(crate) fn unkeep(&mut self, pages: u32) {
        assert!(self.kept_pages >= u64::from(pages), "a page is kept once");
        self.kept_pages -= u64::from(pages);
    }

    /// Pages that are kept are given up: a flush that fails cannot be repaired.
    pub(crate) fn give_up_kept(&mut self) {
        self.since.unkept |= self.kept_pages > 0;
    }

    /// A flush is sent. It covers what was written before. `is_written`: nothing else is at the
    /// device. `end`: the end of the file in the file system.
    pub(crate) fn begin(&mut self, is_written: bool, end: u64) {
        self.is_unflushed = false;
        self.sent_end = Some(end);
        let since = std::mem::take(&mut self.since);
        self.before.kept |= since.kept;
        self.before.unkept |= since.unkept;
        self.before.appended |= since.appended;
        self.before.bare |= since.bare;
        self.since.bare = since.bare && !is_written;
    }

    /// A flush ended well. `is_rewritten`: no page of an earlier failed flush is unwritten.
    pub(crate) fn end(&mut self, is_rewritten: bool) {
        self.is_beside_records |= self.before.bare && self.has_records;
        self.durable_end = self.sent_end;
        self.before = Written::default();
        self.rewriting = None;
        if is_rewritten {
            self.error = None;
        }
    }

    /// Returns whether a flush that failed now could be repaired by writing the kept pages again.
    pub(crate) fn can_rewrite(&self) -> bool {
        !self.lacks_frames() && self.rewriting != Some(Rewriting::AllCached)
    }

    /// A flush failed; all kept pages are dirty again.
    pub(crate) fn begin_rewrite(&mut self, errno: Errno) {
        assert!(self.can_rewrite(), "data that is not here is not written again");
        self.rewriting = Some(Rewriting::AllCached);
        self.error = Some(errno);
        self.rewrites += 1;
        self.is_unflushed = true;
        self.kept_pages = 0;
    }

    /// A direct write has ended that was in flight when a flush failed.
    pub(crate) fn note_direct(&mut self) {
        debug_assert!(self.is_rewriting(), "no flush has failed");
        self.rewriting = Some(Rewriting::SomeDirect);
    }

    /// Ends a repair before it is done. Returns the error of the flush, if there was a repair.
    pub(crate) fn give_up_rewriting(&mut self) -> Option<Errno> {
        self.rewriting = None;
        self.error.take()
    }

    /// Makes every later sync fail.
    pub(crate) fn poison(&mut self, errno: Errno) {
        self.poisoned = Some(errno);
        self.is_unreported = true;
        self.rewriting = None;
    }

    /// The file is closed: no flush will be sent.
    pub(crate) fn forget(&mut self) {
        *self =
            Self { is_unflushed: false, poisoned: self.poisoned, ..Self::new(Entry::Old, false) };
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        assert!(!self.is_rewriting() || self.error.is_some(), "a repair without an error");
        let was_kept = self.since.kept || self.before.kept;
        assert!(self.kept_pages == 0 || was_kept, "pages are kept of no write");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_02_a_second_failure_is_repaired_only_after_a_direct_write() {
        let mut flushes = Flushes::new(Entry::Old, false);
        flushes.keep(3);
        flushes.begin(true, 0);
        assert!(flushes.can_rewrite() && !flushes.is_unflushed());
        flushes.begin_rewrite(Errno::IO);
        assert!(flushes.is_rewriting() && flushes.is_unflushed() && !flushes.can_rewrite());
        flushes.note_direct();
        assert!(flushes.can_rewrite());
        flushes.verify();
        flushes.begin(true, 0);
        flushes.end(false);
        assert!(!flushes.is_rewriting() && !flushes.is_awaited());
        assert_eq!(flushes.give_up_rewriting(), Some(Errno::IO), "a page is still unwritten");
        assert_eq!(flushes.give_up_rewriting(), None);
    }

    #[test]
    fn contract_02_what_is_not_kept_cannot_be_repaired_until_a_flush_ends_well() {
        let mut flushes = Flushes::new(Entry::Old, true);
        assert!(!flushes.can_rewrite());
        flushes.begin(true, 0);
        assert!(flushes.lacks_frames(), "the flush has not ended");
        flushes.end(true);
        assert!(flushes.can_rewrite());
        flushes.note_unkept();
        flushes.poison(Errno::IO);
        flushes.verify();
        flushes.forget();
        assert_eq!(flushes.poisoned(), Some(Errno::IO));
    }
}
