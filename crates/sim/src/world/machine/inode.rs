//! A file or block device of the machine: its stored bytes, its attributes, its open files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use forebay_block::Moment;
use forebay_block::limits::PAGE;
use forebay_uring::{Access, Extents, Identity};

use super::attributes::Logged;
use super::plan::VolumePlan;
use crate::stored::StoredFile;

/// Type of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    File,
    Directory,
    /// A symbolic link and its target.
    Link(PathBuf),
    /// A block device and the bytes of its logical block.
    Device(u32),
}

/// A lease of an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// Number of the open file.
    pub(crate) description: u64,
    /// Only an open for writing breaks it.
    pub(crate) is_for_reading: bool,
    /// When the kernel takes it away, if another program waits for it.
    pub(crate) broken_until: Option<Moment>,
}

/// Change of the reservation mark, in the journal of the file system.
#[derive(Clone, Debug)]
struct Marked {
    sequence: u64,
    mark: Option<String>,
}

/// Extended attributes of a file and the space allocated ahead of writes: metadata, which survives
/// a loss of power in the order of its changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metadata {
    durable_mark: Option<String>,
    marks: Vec<Marked>,
    /// Pages allocated ahead of a write, and when.
    reserved: Vec<(Range<u64>, u64)>,
}

impl Metadata {
    pub(crate) fn mark(&self) -> Option<&str> {
        self.marks.last().map_or(self.durable_mark.as_deref(), |marked| marked.mark.as_deref())
    }

    pub(crate) fn set_mark(&mut self, mark: Option<String>, sequence: u64) {
        self.marks.push(Marked { sequence, mark });
    }

    pub(crate) fn reserve(&mut self, pages: Range<u64>, sequence: u64) {
        self.reserved.push((pages, sequence));
    }

    /// Makes the metadata of that time durable.
    pub(crate) fn flush(&mut self, sequence: u64) {
        let covered = self.marks.partition_point(|marked| marked.sequence <= sequence);
        if let Some(last) = self.marks.drain(..covered).next_back() {
            self.durable_mark = last.mark;
        }
        self.reserved.retain(|(_, at)| *at > sequence);
    }

    /// Returns the times up to which the metadata can survive, beside what is durable.
    pub(crate) fn times(&self) -> Vec<u64> {
        let marks = self.marks.iter().map(|marked| marked.sequence);
        let mut times: Vec<u64> = marks.chain(self.reserved.iter().map(|(_, at)| *at)).collect();
        times.sort_unstable();
        times
    }

    /// Returns the mark, and the pages whose space is lost, if metadata survives up to `time`.
    pub(crate) fn survivor(&self, time: u64) -> (Option<String>, Vec<Range<u64>>) {
        let marks = self.marks.iter().rev();
        let kept = marks.clone().find(|marked| marked.sequence <= time);
        let mark = kept.map_or(self.durable_mark.clone(), |marked| marked.mark.clone());
        let lost = self.reserved.iter().filter(|(_, at)| *at > time);
        (mark, lost.map(|(pages, _)| pages.clone()).collect())
    }

    /// The metadata after a loss of power.
    pub(crate) fn restarted(mark: Option<String>) -> Self {
        Self { durable_mark: mark, ..Self::default() }
    }
}

/// Writeback errors of a file, as the kernel reports them: once to each open file, and once to the
/// next open if no open file has seen it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Errors {
    count: u64,
    is_seen: bool,
}

impl Errors {
    pub(crate) fn add(&mut self) {
        self.count += 1;
        self.is_seen = false;
    }

    /// Where a new open file starts to look.
    pub(crate) fn start(self) -> u64 {
        if self.is_seen { self.count } else { self.count.saturating_sub(1) }
    }

    /// Returns whether there is an error since `seen`, and moves it on.
    pub(crate) fn take(&mut self, seen: &mut u64) -> bool {
        let is_new = *seen < self.count;
        *seen = self.count;
        self.is_seen = true;
        is_new
    }
}

/// A file, directory, link or device.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) content: Content,
    /// Number of the file system.
    pub(crate) volume: usize,
    pub(crate) identity: Identity,
    pub(crate) stored: StoredFile,
    pub(crate) metadata: Metadata,
    pub(crate) logged: Logged,
    /// Open files.
    pub(crate) opened: BTreeSet<u64>,
    /// Pages that cannot be written.
    pub(crate) bad: Range<u64>,
    /// Pages of which a write, or a read for one, has failed.
    pub(crate) failed: BTreeSet<u64>,
    /// Starts of reads that ended short, by their last page. The next read asks for the rest.
    pub(crate) short_reads: BTreeMap<u64, u64>,
    /// Writes of an engine's cache that have failed, except for lack of space.
    pub(crate) failed_writes: u64,
    /// Flushes that have failed.
    pub(crate) failed_flushes: u64,
    /// Mappings of it by other programs.
    pub(crate) mappings: u32,
    /// Pages whose last direct write was replaced by an older page of another program's mapping.
    pub(crate) undone: BTreeSet<u64>,
    /// The journal did not take its size: every flush fails until it is closed everywhere.
    pub(crate) is_aborted: bool,
    pub(crate) errors: Errors,
    /// The open file through which an engine's cache reads and writes it.
    pub(crate) cached_by: Option<u64>,
    /// A loss of power has left space beyond its end, of a write that was extending it. The file
    /// has no mark of reserved space.
    pub(crate) is_littered: bool,
    pub(crate) lease: Option<Lease>,
    /// It is written without a lease, because no other program opens it.
    pub(crate) is_private: bool,
    /// Locks of whole files, by open file.
    pub(crate) locks: Vec<(u64, Access)>,
    /// Open file that holds the device exclusively.
    pub(crate) holder: Option<u64>,
    pub(crate) is_mounted: bool,
    /// This user may not write it.
    pub(crate) is_protected: bool,
    /// It has no name and nobody has it open: its space is free.
    pub(crate) is_gone: bool,
}

impl Inode {
    pub(crate) fn new(content: Content, volume: usize, identity: Identity) -> Self {
        Self {
            content,
            volume,
            identity,
            stored: StoredFile::new(),
            metadata: Metadata::default(),
            logged: Logged::default(),
            opened: BTreeSet::new(),
            bad: 0..0,
            failed: BTreeSet::new(),
            short_reads: BTreeMap::new(),
            failed_writes: 0,
            failed_flushes: 0,
            mappings: 0,
            undone: BTreeSet::new(),
            is_aborted: false,
            errors: Errors::default(),
            cached_by: None,
            is_littered: false,
            lease: None,
            locks: Vec::new(),
            holder: None,
            is_mounted: false,
            is_private: false,
            is_protected: false,
            is_gone: false,
        }
    }

    /// Returns whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory)
    }

    pub(crate) fn is_device(&self) -> bool {
        matches!(self.content, Content::Device(_))
    }

    /// Returns the offset on the device of a page that has space. Every file has a stretch of its
    /// own; fragmented space has a gap behind every piece.
    pub(crate) fn place(&self, plan: &VolumePlan, page: u64) -> u64 {
        let gaps = plan.piece_pages.map_or(0, |pages| page / pages);
        let start = match plan.groups.and_then(|groups| {
            Some((groups.group_of_inode(self.identity.inode)?, groups.group_bytes))
        }) {
            Some((group, bytes)) => u64::from(group) * bytes,
            None => self.identity.inode << 30,
        };
        start + (page + gaps) * PAGE as u64
    }

    /// Counts the contiguous pieces of the space in a range of bytes.
    pub(crate) fn pieces(&self, plan: &VolumePlan, bytes: &Range<u64>) -> Extents {
        let page = PAGE as u64;
        let mut found = Extents::default();
        let mut next = None;
        let pages = bytes.start / page..bytes.end.div_ceil(page);
        for &at in self.stored.allocated().range(pages) {
            let place = self.place(plan, at);
            let (start, end) = ((at * page).max(bytes.start), ((at + 1) * page).min(bytes.end));
            found.count += u64::from(next != Some(place));
            found.bytes += end - start;
            next = Some(place + page);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode() -> Inode {
        Inode::new(Content::File, 0, Identity { device: 1, inode: (3 << 20) + 7 })
    }

    #[test]
    fn pieces_are_counted_where_the_space_is_fragmented() {
        let (mut inode, mut plan) = (inode(), VolumePlan::xfs());
        inode.stored.allocate(0..10);
        inode.stored.allocate(12..13);
        let all = 0..u64::MAX;
        assert_eq!(inode.pieces(&plan, &all), Extents { count: 2, bytes: 11 * 4096 });
        assert_eq!(inode.pieces(&plan, &(100..4196)), Extents { count: 1, bytes: 4096 });
        plan.piece_pages = Some(4);
        assert_eq!(inode.pieces(&plan, &all).count, 4);
        let group = plan.groups.unwrap().group_of_byte(inode.place(&plan, 9));
        assert_eq!(group, Some(3));
    }

    #[test]
    fn a_mark_survives_before_the_space_it_speaks_of() {
        let mut metadata = Metadata::default();
        metadata.set_mark(Some("8192".into()), 1);
        metadata.reserve(1..2, 2);
        assert_eq!(metadata.times(), [1, 2]);
        let lost = |metadata: &Metadata, time| {
            let (mark, lost) = metadata.survivor(time);
            (mark, lost.into_iter().flatten().collect::<Vec<u64>>())
        };
        assert_eq!(lost(&metadata, 0), (None, vec![1]));
        assert_eq!(lost(&metadata, 1), (Some("8192".into()), vec![1]));
        assert_eq!(lost(&metadata, 2), (Some("8192".into()), vec![]));
        metadata.flush(1);
        assert_eq!(lost(&metadata, 0), (Some("8192".into()), vec![1]));
        metadata.set_mark(None, 3);
        assert_eq!((metadata.mark(), metadata.survivor(2).0), (None, Some("8192".into())));
    }

    #[test]
    fn an_error_is_reported_once_to_each_open_file_and_to_the_next_open_if_unseen() {
        let mut errors = Errors::default();
        let mut first = errors.start();
        errors.add();
        let mut unseen = errors.start();
        assert!(errors.take(&mut first) && !errors.take(&mut first));
        assert!(errors.take(&mut unseen));
        let mut later = errors.start();
        assert!(!errors.take(&mut later), "it was seen before this open");
    }
}
