//! Execution of a plan: data that a dead program had accepted is written to its files and synced,
//! and reserved space is given back.
//!
//! A file that cannot be written delays no other file, and a hung device no other device: each
//! device has its own thread. Failed calls are retried while patience lasts, because space may be
//! freed or a device may come back.
//!
//! Patience counts from the end of the last try that left less to do than all before. So a slow
//! device is not taken for a dead one. A successful call alone does not count: a full file system
//! accepts a part of a write each time, and a device that cannot be synced accepts every write.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::plan::{Piece, Plan, ranges};
use super::records::Records;
use super::runs::{runs, write_run};
use crate::core::limits::{KEEPER_SYNCS_ONE_BY_ONE, KEEPER_TRIES_AGAIN};
use crate::platform::{Arena, Kind, OpenFile, clock, thread};

/// Maximum of places that are listed.
const LOST_SHOWN: usize = 64;

/// A file and the work to do for it.
#[derive(Debug)]
pub(crate) struct Job {
    file: OpenFile,
    /// Path for messages.
    path: PathBuf,
    plan: Plan,
    /// Its records in the intent log of the dead program.
    records: Option<Records>,
    /// Pieces that are not written yet.
    left: Vec<Piece>,
    is_cut: bool,
    is_done: bool,
    /// Smallest amount of work left so far.
    least_left: u64,
    /// Error of the last try.
    error: Option<io::Error>,
}

/// Result for a file.
#[derive(Debug)]
pub(crate) struct Done {
    /// The file.
    pub(crate) file: OpenFile,
    /// Path for messages.
    pub(crate) path: PathBuf,
    /// The plan.
    pub(crate) plan: Plan,
    /// Data that could not be written.
    pub(crate) lost: Option<Lost>,
    /// Whether the intent log has records of it that count.
    pub(crate) has_records: bool,
}

/// Data that could not be written to its file.
#[derive(Debug)]
pub(crate) struct Lost {
    /// Ranges of the file; empty if only the length could not be set, or nothing had to be written.
    pub(crate) ranges: Vec<Range<u64>>,
    /// The reason.
    pub(crate) error: io::Error,
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranges.is_empty() {
            return write!(formatter, "could not be finished: {}", self.error);
        }
        let bytes: u64 = self.ranges.iter().map(|range| range.end - range.start).sum();
        write!(formatter, "{bytes} bytes could not be written: {}", self.error)?;
        formatter.write_str(&places(&self.ranges))
    }
}

/// Formats the ranges that could not be written: `; they are at 0..10 20..30`. Empty if there are
/// none.
pub(crate) fn places(ranges: &[Range<u64>]) -> String {
    if ranges.is_empty() {
        return String::new();
    }
    let shown = ranges.iter().take(LOST_SHOWN);
    let shown: String = shown.map(|range| format!(" {}..{}", range.start, range.end)).collect();
    match ranges.len().saturating_sub(LOST_SHOWN) {
        0 => format!("; they are at{shown}"),
        more => format!("; they are at{shown} and {more} more places"),
    }
}

/// Whether direct requests of the dead program are known to have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rings {
    /// They have ended.
    Gone,
    /// They may be in flight: each file is waited for.
    MayBeThere,
}

impl Job {
    /// Creates a job with everything left to do.
    pub(crate) fn new(file: OpenFile, path: PathBuf, plan: Plan) -> Self {
        let left = plan.pieces.clone();
        let records = None;
        Self {
            file,
            path,
            plan,
            records,
            left,
            is_cut: false,
            is_done: false,
            least_left: u64::MAX,
            error: None,
        }
    }

    /// Adds the records of the file.
    pub(super) fn and_records(mut self, records: Option<Records>) -> Self {
        if let Some(records) = &records {
            records.leave_out(&mut self.plan);
        }
        self.records = records;
        self.left = self.pieces();
        self
    }

    /// Returns all pieces to write.
    fn pieces(&self) -> Vec<Piece> {
        match &self.records {
            Some(records) => records.pieces(&self.plan),
            None => self.plan.pieces.clone(),
        }
    }

    /// Returns whether there is nothing to do.
    fn is_empty(&self) -> bool {
        self.plan.is_empty() && self.records.as_ref().is_none_or(Records::is_empty)
    }

    /// Returns the device of its file.
    pub(crate) fn device(&self) -> u64 {
        self.file.identity().device
    }

    /// Returns the path of its file, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the pieces that are left; the sync follows later.
    fn write(&mut self, arena: &Arena, came_back: &impl Fn()) {
        self.error = self.begin(came_back).and_then(|()| self.cut()).err();
        came_back();
        if self.error.is_some() {
            return;
        }
        let left = std::mem::take(&mut self.left);
        for run in runs(&left) {
            let mut run = run.to_vec();
            let promised = self.with_records(|records, file, _| records.keep_promise(file));
            let written = promised.and_then(|()| write_run(&self.file, arena, &mut run, came_back));
            if let Err(error) = written {
                self.left.extend(run);
                self.error = Some(error);
            }
        }
        if self.error.is_none() {
            let put = self.with_records(|records, file, _| records.put_unpublished(file));
            self.error = put.err();
        }
    }

    fn begin(&mut self, came_back: &impl Fn()) -> io::Result<()> {
        self.with_records(|records, file, plan| records.begin(file, plan, came_back))
    }

    /// Makes a step for the records, if the file has some and something is to be done.
    fn with_records(
        &mut self,
        step: impl FnOnce(&mut Records, &OpenFile, &Plan) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.records.as_mut().map_or(Ok(()), |records| step(records, &self.file, &self.plan))
    }

    fn cut(&mut self) -> io::Result<()> {
        if let Some(length) = self.plan.cut
            && !self.is_cut
            && self.file.kind() == Kind::Regular
        {
            self.file.truncate(length)?;
        }
        self.is_cut = true;
        Ok(())
    }

    fn sync(&mut self, came_back: &impl Fn()) {
        if !self.is_written() {
            return;
        }
        // If nothing was written there is nothing to sync.
        assert!(self.left.is_empty(), "a file would count as done with bytes unwritten");
        let synced = if self.is_empty() { Ok(()) } else { self.file.sync() };
        let ended = synced
            .and_then(|()| self.give_back())
            .and_then(|()| self.with_records(|records, file, _| records.end(file)));
        came_back();
        match ended {
            Ok(()) => self.is_done = true,
            Err(error) => self.write_again(error),
        }
    }

    /// Notes a failed flush: the kernel, or the device, may have dropped data of the file.
    fn write_again(&mut self, error: io::Error) {
        if let Some(records) = &mut self.records {
            records.doubt();
        }
        self.left = self.pieces();
        self.error = Some(error);
    }

    fn is_written(&self) -> bool {
        !self.is_done && self.error.is_none()
    }

    /// Gives back space reserved beyond the end, but only under the lease. Otherwise another
    /// program may own it by now, and the mark is left for the next open.
    fn give_back(&self) -> io::Result<()> {
        let is_marked = matches!(self.file.reservation_mark(), Ok(Some(_)));
        if self.file.kind() == Kind::Regular && is_marked && self.file.is_leased() {
            self.file.truncate(self.file.length()?)?;
            self.file.remove_reservation_mark()?;
        }
        Ok(())
    }

    /// Returns whether less is left to do than ever before.
    fn has_come_on(&mut self) -> bool {
        let bytes: u64 = self.left.iter().map(|piece| piece.length as u64).sum();
        // After all writes the sync is left.
        let left = if self.is_done { 0 } else { bytes + 1 };
        let has_come_on = left < self.least_left;
        self.least_left = left.min(self.least_left);
        has_come_on
    }

    fn end(self) -> Done {
        let lost = (!self.is_done).then(|| {
            let unknown = || io::Error::other("the keeper ended before this file was tried");
            Lost { ranges: ranges(self.left), error: self.error.unwrap_or_else(unknown) }
        });
        let has_records = lost.is_some() && self.records.is_some_and(|records| !records.is_empty());
        Done { file: self.file, path: self.path, plan: self.plan, lost, has_records }
    }
}

/// Does all jobs on one device. Returns the results by file number.
pub(crate) fn finish_device(
    arena: &Arena,
    jobs: BTreeMap<u32, Job>,
    rings: Rings,
    patience: Duration,
    came_back: &impl Fn(),
) -> BTreeMap<u32, Done> {
    let (numbers, mut jobs): (Vec<u32>, Vec<Job>) = jobs.into_iter().unzip();
    for job in &mut jobs {
        if rings == Rings::MayBeThere {
            wait_for_requests(&job.file);
        }
        // The kernel's cache accepts bytes at any offset.
        job.error = job.file.go_buffered().err();
        came_back();
    }
    let mut pause = KEEPER_TRIES_AGAIN;
    let mut came_on = clock::instant();
    loop {
        jobs.iter_mut().filter(|job| !job.is_done).for_each(|job| job.write(arena, came_back));
        sync_all(&mut jobs, came_back);
        // All are called, because each updates its state.
        if jobs.iter_mut().filter_map(|job| job.has_come_on().then_some(())).count() > 0 {
            came_on = clock::instant();
        }
        let may_go_on =
            jobs.iter().any(|job| !job.is_done && job.error.as_ref().is_some_and(is_temporary));
        if !may_go_on || clock::instant().saturating_duration_since(came_on) + pause > patience {
            break;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    assert_eq!(numbers.len(), jobs.len(), "the result of a file would be that of another one");
    numbers.into_iter().zip(jobs.into_iter().map(Job::end)).collect()
}

/// Returns whether a retry may succeed: a full file system or a failing device may recover, a
/// read-only one does not.
fn is_temporary(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(libc::EROFS | libc::EBADF | libc::EFBIG | libc::EPERM | libc::EINVAL)
    )
}

/// Waits for direct requests to a file, from any process. Allocating space does: here one byte,
/// which usually exists already. (Setting the length would wait, too, but take away reserved space
/// of its user. On a device no call waits.)
fn wait_for_requests(file: &OpenFile) {
    let is_empty = || file.length().is_ok_and(|length| length == 0);
    if file.kind() == Kind::Regular
        && !is_empty()
        && let Err(error) = file.allocate(0, 1)
    {
        tracing::debug!(%error, "direct requests may still be in flight");
    }
}

/// Syncs all written files. In the first round, many files of one device are synced together first,
/// which takes the time of a few. If that fails, they are written again and synced one by one: the
/// kernel reports a failed flush of the device only once.
fn sync_all(jobs: &mut [Job], came_back: &impl Fn()) {
    let mut written = jobs.iter().filter(|job| job.is_written());
    let first = written.next().filter(|job| job.least_left == u64::MAX);
    if let Some(first) = first.filter(|_| written.count() >= KEEPER_SYNCS_ONE_BY_ONE) {
        let synced = first.file.sync_file_system();
        came_back();
        if let Err(error) = synced {
            let again = || io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
            jobs.iter_mut().filter(|job| job.is_written()).for_each(|job| job.write_again(again()));
        }
    }
    jobs.iter_mut().for_each(|job| job.sync(came_back));
}
