//! An open file of a run: its cache, who waits for it, and what its handles must be told.

use std::collections::{BTreeSet, VecDeque};

use forebay_block::{Bio, Target};
use forebay_cache::file::{Entry, Reserving};
use forebay_cache::limits::PAGE;
use forebay_cache::{CachedFile, Caching, Liberties, Origin, TicketId};

use crate::ledger::Ledger;
use crate::plan::Plan;

/// A path, and what is behind it.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) ledger: Ledger,
    /// Whether its entry is durable, as far as was seen when it was last let go of.
    pub(super) entry: Entry,
    pub(super) inode: Option<Inode>,
}

impl Path {
    /// Nothing is there, until it is opened; or a device.
    pub(super) fn new(plan: &Plan) -> Self {
        let (ledger, entry) = match plan.are_devices {
            true => (Ledger::of_device(plan.device_bytes()), Entry::Old),
            false => (Ledger::new(), Entry::New),
        };
        Self { ledger, entry, inode: None }
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) cache: CachedFile,
    pub(super) handles: usize,
    /// Callers that wait for a change of a page.
    pub(super) page_waiters: Vec<usize>,
    /// Callers that wait for a ticket.
    pub(super) ticket_waiters: Vec<usize>,
    pub(super) told_tickets: u64,
    pub(super) credit: u64,
    pub(super) kicked: bool,
    /// Time of the first page dirty, by the number of ticks.
    pub(super) dirty_since: Option<std::time::Duration>,
    /// Who has the right to append.
    pub(super) appending: Option<usize>,
    /// Changes of length asked for, in order.
    pub(super) lengths: VecDeque<(TicketId, u64)>,
    /// Page writes that failed.
    pub(super) write_errors: u64,
    pub(super) flush_errors: u64,
    pub(super) discard_errors: u64,
    /// Pages whose last write failed.
    pub(super) failed_pages: BTreeSet<u64>,
    /// Pages that could not be read, and nobody was told, nor has written them since.
    pub(super) failed_fills: BTreeSet<u64>,
    /// A failure was told when nobody waited.
    pub(super) told_lost: bool,
    /// Nothing is reserved below this byte.
    pub(super) origin_end: u64,
    /// The last change accepted before its lease was broken, until that is given up.
    pub(super) broken_at: Option<u64>,
    /// Space was not given back when it should have been.
    pub(super) keeps_space: bool,
    /// Flushes of it at the device.
    pub(super) flushes: usize,
    /// Numbers of its bios that have not ended.
    pub(super) outstanding: BTreeSet<u64>,
}

/// A handle of a file.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) path: usize,
    /// Whether what is written and read through it stays.
    pub(super) caching: Caching,
    /// The cache's mark of the last error told.
    pub(super) seen: u64,
    /// Page writes that had failed when it was told last.
    pub(super) errors_told: u64,
}

impl Inode {
    pub(super) fn open(
        target: Target,
        entry: Entry,
        size: u64,
        liberties: Liberties,
        plan: &Plan,
    ) -> Self {
        let (origin, reserving) = match (plan.are_devices, size) {
            (true, _) => (Origin::Device(size), Reserving::Off),
            (false, 0) => (Origin::Empty { entry }, plan.reserving),
            (false, _) => (Origin::Existing(size), plan.reserving),
        };
        let mut cache = CachedFile::new(target, origin, liberties);
        cache.set_entry(entry);
        cache.set_reserving(reserving);
        Self {
            cache,
            handles: 0,
            page_waiters: Vec::new(),
            ticket_waiters: Vec::new(),
            told_tickets: 0,
            credit: 0,
            kicked: false,
            dirty_since: None,
            appending: None,
            lengths: VecDeque::new(),
            write_errors: 0,
            flush_errors: 0,
            discard_errors: 0,
            failed_pages: BTreeSet::new(),
            failed_fills: BTreeSet::new(),
            told_lost: false,
            origin_end: size.next_multiple_of(PAGE),
            broken_at: None,
            keeps_space: false,
            flushes: 0,
            outstanding: BTreeSet::new(),
        }
    }

    /// Nobody uses it any more.
    pub(super) fn is_unused(&self) -> bool {
        self.handles == 0 && !self.cache.has_tickets() && !self.cache.in_flight()
    }

    /// A bio goes out: its number is its own until it has ended.
    pub(super) fn went_out(&mut self, bio: &Bio) {
        assert!(
            self.outstanding.insert(bio.owner),
            "contract 16: a bio's number is given twice: {bio:?}"
        );
        self.flushes += usize::from(bio.operation.is_flush());
        assert!(self.flushes <= 1, "two flushes of one file at once: {bio:?}");
    }

    /// A bio has ended.
    pub(super) fn came_back(&mut self, bio: &Bio) {
        assert!(self.outstanding.remove(&bio.owner), "contract 16: a bio ends twice: {bio:?}");
        self.flushes -= usize::from(bio.operation.is_flush());
    }
}
