//! Atomic writes: a batch counts as a whole or not at all, so it holds whole calls alone.
//!
//! ```text
//! a call --each file locked: its sectors as they will be--> batch --write, flush--> answer
//! ```
//!
//! A record has whole sectors. With bytes of one call and the rest of a later write, a replay would
//! leave a mixture of two versions in a sector. The rest comes from the cache, under the lock.
//!
//! A call whose file is in the batch already comes into the next one.

use std::ops::Range;
use std::sync::Arc;

use forebay_cache::limits::PAGE;
use forebay_cache::space::Space;
use forebay_cache::{Base, CachedFile, Liberties};
use forebay_log::replay::SECTOR;
use forebay_log::{BLOCK, FileId, MAX_BATCH, record};

use super::upkeep::copy_of;
use super::{Writer, most_bytes};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;
use crate::core::inode::change::Changing;
use crate::core::lease::holds_lease;
use crate::core::logged::IntentLog;
use crate::core::logged::asked::{Again, Answer, Asked, Part};
use crate::core::logged::bounds::LOG_BATCH_BLOCKS;
use crate::core::logged::logging::Live;
use crate::core::logged::reserving::allocate_ranges;
use crate::core::pool::Pool;
use crate::core::shared::Shared;
use crate::core::stats::Counters;

/// A record of a file as it will be.
struct Image {
    file: FileId,
    path: Vec<u8>,
    ranges: Vec<Range<u64>>,
    data: Vec<u8>,
    /// Size of the file then.
    size: u64,
}

/// Why a file cannot be taken.
enum Stop {
    Again(Again),
    Refused(Error),
    /// These ranges need space first.
    WithSpace(Vec<Range<u64>>),
}

impl Writer {
    /// Writes a batch with the records of atomic writes, and answers their callers.
    pub(super) fn write_atomic(&mut self, asked: Vec<Arc<Asked>>) {
        self.make_room();
        self.batch.clear();
        let mut taken: Vec<Arc<Asked>> = Vec::with_capacity(asked.len());
        let mut later = Vec::new();
        for call in asked {
            let is_full = self.batch.records() > 0 && self.batch.blocks() > LOG_BATCH_BLOCKS / 2;
            let overlaps =
                |other: &Arc<Asked>| call.parts.iter().any(|part| other.has(&part.inode));
            if is_full || taken.iter().any(overlaps) {
                later.push(call);
                continue;
            }
            match self.take_call(&call) {
                Ok(()) => taken.push(call),
                Err(answer) => call.answer(answer),
            }
        }
        self.log.queue_atomic_again(later);
        if taken.is_empty() {
            return;
        }
        match self.append() {
            Ok(()) => {
                self.note_ring();
                taken.iter().for_each(|call| call.answer(Answer::Durable));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // The log was removed, and nothing was written.
                self.fail(&error);
                for call in taken {
                    self.give_back(&call.parts);
                    call.answer(Answer::Refused(self.failed_earlier()));
                }
            }
            Err(error) => {
                for part in taken.iter().flat_map(|call| &call.parts) {
                    self.log.change_unpublished(&self.shared, &part.inode, |file| {
                        file.logging.fail_atomic();
                    });
                }
                self.fail(&error);
                for call in taken {
                    call.answer(Answer::Unknown(self.not_written(&error)));
                    self.uncertain.push(call);
                }
            }
        }
    }

    /// Takes all files of a call into the batch, or none.
    fn take_call(&mut self, call: &Asked) -> std::result::Result<(), Answer> {
        if self.has_failed {
            return Err(Answer::Refused(self.failed_earlier()));
        }
        let mut images = Vec::with_capacity(call.parts.len());
        for (number, part) in call.parts.iter().enumerate() {
            match self.take_part(number, part) {
                Ok(image) => images.push(image),
                Err(answer) => {
                    self.give_back(&call.parts[..number]);
                    return Err(answer);
                }
            }
        }
        let sizes = images.iter().map(|image| record::size(&image.path, &image.ranges));
        let bytes: usize = sizes.sum();
        let blocks = self.batch.blocks() + bytes.div_ceil(BLOCK) as u64;
        let fits = self.batch.has_room(bytes) && self.file.ring().place(blocks).is_some();
        if !fits {
            self.give_back(&call.parts);
            let is_possible = bytes <= MAX_BATCH / 2 && blocks * 4 <= self.log.blocks;
            return Err(if is_possible || self.batch.records() > 0 {
                Answer::Again(Again::Room)
            } else {
                Answer::Refused(too_large(bytes))
            });
        }
        for Image { file, path, ranges, data, size } in images {
            self.batch.add_at_end(&file, &path, &ranges, size).copy_from_slice(&data);
            Counters::add(&self.log.numbers.bytes, data.len() as u64);
        }
        Ok(())
    }

    /// Notes a live record of a file, and returns it.
    fn take_part(&mut self, number: usize, part: &Part) -> std::result::Result<Image, Answer> {
        let inode = &part.inode;
        let mut is_allocated = false;
        loop {
            let shared = Arc::clone(&self.shared);
            let taken =
                inode.catch(|| shared.change(inode, |file| self.take_file(file, number, part)));
            match taken {
                None => return Err(Answer::Refused(Error::interrupted(&inode.path))),
                Some(Ok(image)) => return Ok(image),
                Some(Err(Stop::Again(again))) => return Err(Answer::Again(again)),
                Some(Err(Stop::Refused(error))) => return Err(Answer::Refused(error)),
                Some(Err(Stop::WithSpace(_))) if is_allocated => {
                    // A release took it.
                    return Err(Answer::Again(Again::Empty(number)));
                }
                Some(Err(Stop::WithSpace(ranges))) => {
                    let allocated = inode.catch(|| allocate_ranges(&shared, inode, &ranges));
                    if let Some(Err(error)) = allocated {
                        let what = "no space for the write; nothing was written";
                        let kind = ErrorKind::at_device(&error);
                        let error = Error::new(kind, what).at_path(&inode.path).because(error);
                        return Err(Answer::Refused(error));
                    }
                    is_allocated = true;
                }
            }
        }
    }

    fn take_file(
        &self,
        file: &mut Changing<'_>,
        number: usize,
        part: &Part,
    ) -> std::result::Result<Image, Stop> {
        let inode = &part.inode;
        if let Some(error) = inode.refusal(&self.shared, file) {
            return Err(Stop::Refused(error));
        }
        if let Some(errno) = file.cache.poisoned() {
            return Err(Stop::Refused(inode.failure(forebay_cache::Failure::Flush(errno))));
        }
        if file.cache.liberties() == Liberties::Shared && !file.ownership.is_breaking() {
            return Err(Stop::Refused(cannot_use_log(inode)));
        }
        let is_possible = self.log.may_log(file)
            && !file.logging.is_unpublished()
            && holds_lease(inode, file)
            && file.logging.live_bytes() < most_bytes(inode)
            && file.cache.may_log_ahead();
        let Some((id, path)) = file.logging.name().filter(|_| is_possible) else {
            return Err(Stop::Again(Again::Empty(number)));
        };
        if !file.cache.knows_end_for(part.end()) {
            return Err(Stop::Again(Again::Empty(number)));
        }
        let ranges = sectors_of(&file.cache, part);
        let lacks_space = |range: &&Range<u64>| file.cache.lacks_space(range);
        let missing: Vec<_> = ranges.iter().filter(lacks_space).cloned().collect();
        if !missing.is_empty() {
            return Err(Stop::WithSpace(missing));
        }
        let data = content(&file.cache, &self.shared.pool, &ranges, part);
        let data = data.map_err(|page| Stop::Again(Again::Bring(number, page * PAGE)))?;
        let (first, sequence) = (file.logging.first_live(), self.file.ring().next().sequence);
        let size = file.cache.size().max(part.end());
        if !self.log.note_live(inode, first, sequence, size > file.cache.disk_size()) {
            return Err(Stop::Again(Again::Room));
        }
        file.cache.begin_records();
        file.logging.begin_atomic(Live { sequence, bytes: data.len() as u64 });
        file.account.report_unpublished(Some(sequence));
        Ok(Image { file: id, path, ranges, data, size })
    }

    /// Notes that the records of some files are not written.
    fn give_back(&self, parts: &[Part]) {
        for part in parts {
            self.remove(&part.inode);
        }
    }

    fn remove(&self, inode: &Arc<Inode>) {
        self.log.change_unpublished(&self.shared, inode, |file| {
            let before = file.logging.first_live();
            file.logging.remove_atomic();
            file.account.report_unpublished(None);
            self.log.note_emptied(inode, before, file.logging.first_live());
            if !file.logging.is_live() {
                file.cache.end_records();
            }
            file.look();
        });
    }

    /// Returns whether all live records are those of the failed batch: a head behind it excludes
    /// them as a whole.
    pub(super) fn may_exclude(&self, first_live: u64) -> bool {
        let last = self.file.ring().next().sequence - 1;
        !self.uncertain.is_empty() && first_live >= last
    }

    /// Notes that a durable head excludes the failed batch.
    pub(super) fn note_excluded(&mut self) {
        for call in std::mem::take(&mut self.uncertain) {
            call.parts.iter().for_each(|part| self.remove(&part.inode));
        }
    }

    fn failed_earlier(&self) -> Error {
        let what = "the intent log cannot be written; nothing was written";
        Error::new(ErrorKind::Io, what)
            .at_path(self.file.path())
            .remedy("try again once all of its files are in place")
    }

    fn not_written(&self, error: &std::io::Error) -> Error {
        let what = "could not write the intent log; whether the bytes are in the files after a \
                    crash is unknown";
        Error::new(ErrorKind::Unknown, what)
            .at_path(self.file.path())
            .because(copy_of(error))
            .remedy(
                "the files have their old bytes, and take no more until the log is written again; \
             then write once more",
            )
    }
}

impl IntentLog {
    /// Changes the unpublished record of a file. Records and emptyings that waited for that go on.
    pub(in crate::core::logged) fn change_unpublished(
        &self,
        shared: &Shared,
        inode: &Arc<Inode>,
        change: impl FnOnce(&mut Changing<'_>),
    ) {
        let asked = inode.catch(|| {
            shared.change(inode, |file| {
                change(file);
                file.wake();
                file.logging.is_emptying_asked() && !file.logging.is_pending()
            })
        });
        if asked == Some(true) {
            self.queue_to_empty(inode, false);
        }
    }
}

fn too_large(bytes: usize) -> Error {
    let what = format!("an atomic write of {bytes} bytes is too large for the intent log");
    Error::new(ErrorKind::InvalidInput, what)
        .remedy("write less than a quarter of the log, and at most 16 MiB")
}

/// Creates the error for a file that can have no records.
pub(in crate::core::logged) fn cannot_use_log(inode: &Inode) -> Error {
    let what = "the file cannot use the intent log; nothing was written";
    Error::new(ErrorKind::Unsupported, what).at_path(&inode.path).remedy(
        "open a regular file below the directory of the log that no other program has open, on a \
         file system with leases and extended attributes",
    )
}

/// Returns the ranges of a record: whole sectors up to the end of the file. If it moves that end,
/// the sector of the old one is among them: a replay would fill that with zeroes, beside bytes of
/// another version.
fn sectors_of(cache: &CachedFile, part: &Part) -> Vec<Range<u64>> {
    let size = cache.size().max(part.end());
    let sectors = |bytes: Range<u64>| {
        bytes.start / SECTOR * SECTOR..bytes.end.next_multiple_of(SECTOR).min(size)
    };
    let mut ranges = Space::default();
    part.writes.iter().for_each(|write| ranges.add(sectors(write.bytes())));
    let old_end = cache.disk_size();
    if part.end() > old_end && !old_end.is_multiple_of(SECTOR) {
        ranges.add(sectors(old_end - 1..old_end));
    }
    ranges.ranges().collect()
}

/// Returns the bytes of ranges with those of the write.
///
/// # Errors
/// The page whose bytes are not in memory, or are just being written.
fn content(
    cache: &CachedFile,
    pool: &Pool,
    ranges: &[Range<u64>],
    part: &Part,
) -> std::result::Result<Vec<u8>, u64> {
    let mut data = Vec::with_capacity(
        ranges.iter().map(|range| range.end - range.start).sum::<u64>() as usize,
    );
    for range in ranges {
        let start = data.len();
        data.resize(start + (range.end - range.start) as usize, 0);
        let into = &mut data[start..];
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            let bytes = range.start.max(page * PAGE)..range.end.min((page + 1) * PAGE);
            let covers =
                |written: Range<u64>| written.start <= bytes.start && bytes.end <= written.end;
            if part.writes.iter().any(|write| covers(write.bytes())) {
                continue;
            }
            let end = bytes.end.min(cache.size());
            match cache.base_of(page) {
                Base::Here(frame) if bytes.start < end => {
                    let mut whole = [0; PAGE as usize];
                    let length = (end - page * PAGE) as usize;
                    pool.read(frame, &mut whole[..length]);
                    let from = (bytes.start - page * PAGE) as usize;
                    let at = (bytes.start - range.start) as usize;
                    into[at..at + length - from].copy_from_slice(&whole[from..length]);
                }
                Base::Here(_) | Base::Zero => {}
                Base::Away => return Err(page),
            }
        }
        for write in &part.writes {
            let bytes = write.bytes();
            if range.start <= bytes.start && bytes.end <= range.end {
                let at = (bytes.start - range.start) as usize;
                into[at..at + write.data.len()].copy_from_slice(&write.data);
            }
        }
    }
    Ok(data)
}

/// Checks that an atomic write of this many bytes can be one batch.
pub(in crate::core::logged) fn check_length(bytes: usize) -> Result<()> {
    if bytes <= MAX_BATCH / 2 { Ok(()) } else { Err(too_large(bytes)) }
}
