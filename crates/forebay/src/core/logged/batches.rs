//! Group commit: the thread that writes batches of records.
//!
//! ```text
//! files with waiting syncs --lock each: copy its new pages--> batch --write, flush--> wake callers
//! ```
//!
//! While a batch is being written, files gather for the next one. A record has the newest bytes of
//! its file, so it serves every sync of the file that was asked for before.
//!
//! A file whose page is being copied into comes again once the copy has ended.
//!
//! - `all_or_none`: batches of atomic writes.
//! - `upkeep`: room in the ring, promises, and the time after a failed write.

pub(super) mod all_or_none;
mod upkeep;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use forebay_cache::limits::PAGE;
use forebay_cache::{Loggable, LoggedPage};
use forebay_log::{BLOCK, Batch, FileId, Point, record};

use super::asked::Asked;
use super::logging::Live;
use super::reserving::allocate_for_record;
use super::{IntentLog, Work};
use crate::core::inode::Inode;
use crate::core::inode::change::Changing;
use crate::core::intent_log::file::LogFile;
use crate::core::intent_log::marks::promise_of;
use crate::core::lease::holds_lease;
use crate::core::logged::bounds::{LOG_BATCH_BLOCKS, LOG_FILE_TIME, LOG_PAGES, LOG_PROMISE};
use crate::core::shared::Shared;
use crate::core::stats::Counters;

/// The thread that writes batches.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    log: Arc<IntentLog>,
    file: LogFile,
    batch: Batch,
    /// The points in front of the batches in the ring, and behind the last one.
    points: VecDeque<Point>,
    /// Whether a write has failed, which was reported.
    has_failed: bool,
    /// Atomic writes of a batch that failed: in the log or not.
    uncertain: Vec<Arc<Asked>>,
}

/// Result of taking a file into a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Took {
    /// A record of it is in the batch.
    Record,
    /// It needs none.
    Nothing,
    /// Its pages need space first.
    WithSpace,
}

/// Space of the pages of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Space {
    Unknown,
    /// Missing space was allocated, or cannot be.
    Allocated,
}

impl Writer {
    pub(crate) fn new(shared: &Arc<Shared>, log: &Arc<IntentLog>, file: LogFile) -> Self {
        let points = [file.ring().next()].into();
        let (shared, log) = (Arc::clone(shared), Arc::clone(log));
        let (batch, uncertain) = (Batch::new(), Vec::new());
        Self { shared, log, file, batch, points, has_failed: false, uncertain }
    }

    /// Runs until the log ends.
    pub(crate) fn run(mut self) {
        loop {
            match self.log.wait_for_work() {
                Work::Files(files) => self.write(files),
                Work::Atomic(asked) => self.write_atomic(asked),
                Work::Look => self.look(),
                Work::End => return self.end(),
            }
        }
    }

    /// Writes a batch with records of files, and ends the syncs that wait for it.
    fn write(&mut self, files: Vec<Arc<Inode>>) {
        self.make_room();
        self.batch.clear();
        let mut taken = Vec::with_capacity(files.len());
        for inode in files {
            let shared = Arc::clone(&self.shared);
            let mut take =
                |space| inode.catch(|| shared.change(&inode, |file| self.take(file, space)));
            let took = match take(Space::Unknown) {
                Some(Took::WithSpace) => {
                    // Without space its sync writes in place, and reports that.
                    let _ = inode.catch(|| allocate_for_record(&shared, &inode));
                    take(Space::Allocated)
                }
                took => took,
            };
            if took == Some(Took::Record) {
                taken.push(inode);
            }
        }
        if taken.is_empty() {
            return;
        }
        let written = self.append();
        match &written {
            Ok(()) => self.note_ring(),
            Err(error) => self.fail(error),
        }
        for inode in taken {
            inode.catch(|| {
                let is_due = self.shared.change(&inode, |file| {
                    match written {
                        Ok(()) => file.logging.end_record(),
                        Err(_) => {
                            file.cache.forget_records();
                            file.logging.refuse();
                        }
                    }
                    end_waits(file);
                    if !file.logging.is_busy() {
                        // It may be closed.
                        file.look();
                    }
                    file.logging.live_bytes() * 2 > most_bytes(&inode)
                });
                if is_due {
                    self.log.empty_soon(&inode);
                }
            });
        }
    }

    /// Writes the batch and makes it durable.
    fn append(&mut self) -> std::io::Result<()> {
        let written = self.file.append(&mut self.batch, promise_of(LOG_PROMISE));
        self.points.push_back(self.file.ring().next());
        Counters::add(&self.log.numbers.batches, 1);
        written.map(drop)
    }

    /// Copies the new pages of a file into the batch, under its lock.
    fn take(&mut self, file: &mut Changing<'_>, space: Space) -> Took {
        if !file.logging.leave_queue() {
            return Took::Nothing;
        }
        let inode = Arc::clone(file.inode());
        if file.logging.is_pending() {
            // Its end wakes it.
            self.wait_for_turn(file, &inode);
            return Took::Nothing;
        }
        let may_log = self.log.may_log(file)
            && holds_lease(&inode, file)
            && file.logging.live_bytes() < most_bytes(&inode);
        let loggable = if may_log { file.cache.may_log(LOG_PAGES) } else { Loggable::No };
        let name = file.logging.name();
        match (loggable, name) {
            (Loggable::Yes(pages), Some((id, path))) => {
                self.take_pages(file, &inode, pages as usize, &(id, path))
            }
            (Loggable::WithSpace, Some(_))
                if space == Space::Unknown && self.shared.may_change(file) =>
            {
                // It comes again at once. Entered a second time, it would be twice in one batch.
                file.logging.queue_again();
                Took::WithSpace
            }
            (Loggable::Busy, Some(_)) => {
                // The end of the copy wakes it.
                self.wait_for_turn(file, &inode);
                Took::Nothing
            }
            _ => {
                file.logging.refuse();
                end_waits(file);
                Took::Nothing
            }
        }
    }

    fn wait_for_turn(&self, file: &mut Changing<'_>, inode: &Arc<Inode>) {
        let again = Again { log: Arc::downgrade(&self.log), inode: Arc::downgrade(inode) };
        file.service.wait_for_turn(Waker::from(Arc::new(again)));
    }

    fn take_pages(
        &mut self,
        file: &mut Changing<'_>,
        inode: &Arc<Inode>,
        pages: usize,
        (id, path): &(FileId, Vec<u8>),
    ) -> Took {
        // As if each page were a range of its own.
        let apart = vec![0..PAGE; pages];
        let most = if pages > 0 { record::size(path, &apart) } else { 0 };
        let blocks = self.batch.blocks() + most.div_ceil(BLOCK) as u64;
        if self.batch.records() > 0 && blocks > LOG_BATCH_BLOCKS {
            // It is in the next batch.
            file.logging.queue_again();
            self.log.queue(inode);
            return Took::Nothing;
        }
        let first = file.logging.first_live();
        let sequence = self.file.ring().next().sequence;
        let has_room = self.file.ring().place(blocks).is_some();
        let grows = file.cache.size() > file.cache.disk_size();
        if !has_room || !self.log.note_live(inode, first, sequence, grows) {
            file.logging.refuse();
            end_waits(file);
            return Took::Nothing;
        }
        let pages = file.cache.snapshot();
        let ranges = ranges_of(&pages);
        if ranges.is_empty() {
            // Earlier records, which are durable, have all of its bytes.
            self.log.note_emptied(inode, first.or(Some(sequence)), first);
            file.logging.take_record(None);
            file.logging.end_record();
            end_waits(file);
            return Took::Nothing;
        }
        assert!(record::size(path, &ranges) <= most, "the ring may have no room for the batch");
        // A page is whole unless the file ends in it.
        let last = pages.last().filter(|page| page.length < PAGE as usize);
        let mut data = match last.and(ranges.last()) {
            Some(range) => self.batch.add_at_end(id, path, &ranges, range.end),
            None => self.batch.add(id, path, &ranges),
        };
        let bytes = data.len() as u64;
        for page in &pages {
            let (part, rest) = data.split_at_mut(page.length);
            self.shared.pool.read(page.frame, part);
            data = rest;
        }
        debug_assert!(data.is_empty(), "a record would have bytes that nobody wrote");
        file.logging.take_record(Some(Live { sequence, bytes }));
        Counters::add(&self.log.numbers.bytes, bytes);
        Took::Record
    }
}

/// Returns the bytes that the live records of a file may have: at half of them it is emptied.
fn most_bytes(inode: &Inode) -> u64 {
    match inode.volume.price().requests_per_second {
        0 => u64::MAX,
        requests => requests * LOG_FILE_TIME.as_secs() * PAGE,
    }
}

/// Wakes the callers whose waits for the log have ended.
pub(super) fn end_waits(file: &mut Changing<'_>) {
    let mut wakers = Vec::new();
    file.logging.take_ended(&mut wakers);
    file.wakers().append(&mut wakers);
}

/// Returns the ranges of bytes of some pages, in order. Pages that touch are one range.
fn ranges_of(pages: &[LoggedPage]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for LoggedPage { page, length, .. } in pages {
        let (start, end) = (page * PAGE, page * PAGE + *length as u64);
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

/// Waker that queues a file again.
struct Again {
    log: Weak<IntentLog>,
    inode: Weak<Inode>,
}

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        if let (Some(log), Some(inode)) = (self.log.upgrade(), self.inode.upgrade())
            && inode.catch(|| inode.lock().logging.queue_again()).unwrap_or(false)
        {
            log.queue(&inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::Frame;

    use super::*;

    #[test]
    fn pages_that_touch_are_one_range_and_the_last_one_ends_with_the_file() {
        let page = |page, length| LoggedPage { page, frame: Frame(0), length };
        let pages = [page(1, 4096), page(2, 4096), page(5, 100)];
        assert_eq!(ranges_of(&pages), [4096..12288, 20480..20580]);
        assert_eq!(ranges_of(&[]), []);
    }
}
