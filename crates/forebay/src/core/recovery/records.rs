//! The records of an intent log whose program has died, in the work of its keeper.
//!
//! The frames of a file are newer than its records. The keeper writes the frames and moves the mark
//! behind the log, so that no replay puts older bytes over them:
//!
//! ```text
//! mark with a promise of the keeper, fsync
//!   if a flush may have lost pages: those with a record that are not in memory (see below)
//!   the frames; if a flush may have lost pages, clean ones with a record, too
//!   the record of an atomic write, if its bytes are not in the frames yet
//! fsync --> mark behind the log, fsync
//! ```
//!
//! After a flush that failed, pages that are not in memory have the bytes of their records. If one
//! was on the way when the program died, its end is unknown. Then their bytes in the file are
//! written once more: they may be newer than the records.
//!
//! If a step fails, mark and records stay for the recovery of the log.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use forebay_cache::limits::PAGE;
use forebay_log::replay::Copy;
use forebay_log::{Counts, Mark, Replay};

use super::plan::{Piece, Plan};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::intent_log::file::LogFile;
use crate::core::intent_log::marks::{Marked, file_id, mark_of};
use crate::core::intent_log::promise::{end_marks, keep_promise, put_copies};
use crate::platform::sync::Mutex;
use crate::platform::{FileRecord, Flush, Kind, Lock, OpenFile};

/// Pieces that are put between two reports of progress.
const COPIES: usize = 64;

/// The log of a dead program. It stays locked until this is dropped.
#[derive(Debug)]
pub(crate) struct DeadLog {
    log: Mutex<LogFile>,
    replay: Replay,
    /// Sequence number behind the last batch, and behind one that a hung write may add.
    end: u64,
}

/// The records of one file.
#[derive(Debug)]
pub(super) struct Records {
    log: Arc<DeadLog>,
    mark: Mark,
    /// Newest bytes of the records that count.
    newest: Vec<Copy>,
    /// The record of an atomic write whose bytes are in no frame.
    unpublished: Vec<Copy>,
    /// Whether pages that were written may be missing in the file.
    flush: Flush,
    /// Such pages were put into the file. Parts of them were written over that since.
    is_put: bool,
}

impl DeadLog {
    /// Reads a log. Blocks.
    ///
    /// # Errors
    /// `Io` if a block cannot be read, `Open` if the log is damaged. The lock stays then.
    pub(crate) fn read(mut log: LogFile) -> Result<Self> {
        let scanned = log.scan()?;
        // It came with the descriptor. From here on a drop releases it, though a child of the dead
        // process may share it.
        if !matches!(log.file().try_ofd_lock(), Ok(Lock::Taken)) {
            let what = "another process has taken the lock of the intent log";
            return Err(Error::new(ErrorKind::Busy, what).at_path(log.path()));
        }
        let replay = Replay::new(&scanned.batches);
        Ok(Self { log: Mutex::new(log), replay, end: scanned.end.sequence + 1 })
    }

    /// Returns the records of a file: `None` if its mark is not of this log, or says that they are
    /// only saved.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(super) fn of(
        self: &Arc<Self>,
        file: &OpenFile,
        record: &FileRecord,
    ) -> io::Result<Option<Records>> {
        if file.kind() != Kind::Regular {
            return Ok(None);
        }
        let Marked::By(mark) = mark_of(file)? else { return Ok(None) };
        let Counts::From(first) = mark.counts else { return Ok(None) };
        let own = file_id(file)?;
        if mark.log != self.log.lock().id() || !mark.file.is_same(&own) {
            return Ok(None);
        }
        let plan = self.replay.files.iter().find(|plan| plan.file.is_same(&own));
        let from = |first: u64| plan.map_or_else(Vec::new, |plan| plan.newest_from(first));
        let unpublished = record.unpublished.map_or_else(Vec::new, |at| from(at.max(first)));
        Ok(Some(Records {
            log: Arc::clone(self),
            mark,
            newest: from(first),
            unpublished,
            flush: record.flush,
            is_put: false,
        }))
    }
}

/// Returns whether a file may have records of a log, for a log that cannot be read.
pub(super) fn is_marked(file: &OpenFile) -> bool {
    file.kind() == Kind::Regular && !matches!(mark_of(file), Ok(Marked::Not))
}

impl Records {
    /// Returns whether a replay would put nothing into the file.
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }

    /// Notes that a flush has failed.
    pub(super) fn doubt(&mut self) {
        self.flush = Flush::Failed;
        self.is_put = false;
    }

    /// Has no adopter take the pages of an atomic write: the file has its bytes, they have not.
    pub(super) fn leave_out(&self, plan: &mut Plan) {
        let newer: BTreeSet<u64> = self.unpublished.iter().flat_map(pages).collect();
        let Plan { clean, spent, .. } = plan;
        clean.retain(|(frame, header)| {
            let is_older = newer.contains(&header.page);
            spent.extend(is_older.then_some(*frame));
            !is_older
        });
    }

    /// Returns all pieces to write, in the order of the file.
    pub(super) fn pieces(&self, plan: &Plan) -> Vec<Piece> {
        let mut pieces = plan.pieces.clone();
        if self.flush == Flush::Well {
            return pieces;
        }
        let dirty: BTreeSet<u64> = pieces.iter().map(|piece| piece.offset / PAGE).collect();
        let logged: BTreeSet<u64> = self.newest.iter().flat_map(pages).collect();
        for (frame, header) in &plan.clean {
            let (page, offset) = (header.page, header.page * PAGE);
            let length = plan.size.saturating_sub(offset).min(u64::from(header.length)) as usize;
            if logged.contains(&page) && !dirty.contains(&page) && length > 0 {
                pieces.push(Piece { offset, frame: *frame, at: 0, length });
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.offset);
        pieces
    }

    /// Begins to write a file: before anything else of it is changed.
    pub(super) fn begin(
        &mut self,
        file: &OpenFile,
        plan: &Plan,
        came_back: &impl Fn(),
    ) -> io::Result<()> {
        self.keep_promise(file)?;
        if self.flush == Flush::Well || self.is_put {
            return Ok(());
        }
        let length = if self.flush == Flush::OnTheWay { file.length()? } else { 0 };
        let away = self.not_in_memory(plan);
        let (there, lost): (Vec<_>, Vec<_>) =
            away.into_iter().partition(|copy| copy.end() <= length);
        for some in lost.chunks(COPIES) {
            put_copies(&mut self.log.log.lock(), file, some, &mut self.mark)?;
            came_back();
        }
        for copy in there {
            came_back();
            self.keep_promise(file)?;
            let mut bytes = vec![0; copy.length as usize];
            file.read_exact_at(&mut bytes, copy.offset)?;
            file.write_all_at(&bytes, copy.offset)?;
        }
        self.is_put = true;
        Ok(())
    }

    /// Lets the file be changed for some seconds more.
    pub(super) fn keep_promise(&mut self, file: &OpenFile) -> io::Result<()> {
        keep_promise(file, &mut self.mark)
    }

    /// Puts the bytes of an atomic write into the file, after its frames.
    pub(super) fn put_unpublished(&mut self, file: &OpenFile) -> io::Result<()> {
        let Self { log, mark, unpublished, .. } = self;
        let mut log = log.log.lock();
        unpublished.iter().try_for_each(|copy| log.copy_to(file, copy, || keep_promise(file, mark)))
    }

    /// Ends a file whose bytes are in place and flushed: from here on none of its records counts.
    pub(super) fn end(&mut self, file: &OpenFile) -> io::Result<()> {
        end_marks(file, &self.mark, self.log.end)
    }

    /// Returns the parts of the records whose pages are in no frame.
    fn not_in_memory(&self, plan: &Plan) -> Vec<Copy> {
        // A page that was written in parts has no frame of its own: the record comes first.
        let here: BTreeSet<u64> = plan.clean.iter().map(|(_, header)| header.page).collect();
        let mut parts: Vec<Copy> = Vec::new();
        for copy in &self.newest {
            for page in pages(copy).filter(|page| !here.contains(page)) {
                let (start, end) =
                    (copy.offset.max(page * PAGE), copy.end().min((page + 1) * PAGE));
                let skipped = start - copy.offset;
                parts.push(Copy {
                    offset: start,
                    length: end - start,
                    from: copy.from + skipped,
                    ends_file: copy.ends_file && end == copy.end(),
                });
            }
        }
        parts
    }
}

/// Returns the pages of a piece.
fn pages(copy: &Copy) -> Range<u64> {
    copy.offset / PAGE..copy.end().div_ceil(PAGE)
}
