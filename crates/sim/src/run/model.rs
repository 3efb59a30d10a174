//! The files of a run as they must be, and which caller may change which part of them.
//!
//! Two changes of the same bytes at the same time have no order that a caller could know, so a
//! caller claims the bytes that it is about to change. Everything else happens at the same time:
//! writes of one page side by side, appends, reads under writes, syncs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::run::reading::Reading;
use crate::run::stage::Stage;
use crate::world::{self, Reason};

/// All files.
pub(super) struct Model {
    pub(super) files: Vec<FileModel>,
    pub(super) operations_left: u64,
    claims: u64,
}

/// One file.
pub(super) struct FileModel {
    pub(super) path: PathBuf,
    /// Bytes that the last recovery has saved, and not put back.
    pub(super) saved: Option<PathBuf>,
    pub(super) ledger: Ledger,
    claims: Vec<Claim>,
    pub(super) readings: Vec<Rc<Reading>>,
    /// Handles that are open or being opened. One that is being closed does not count.
    pub(super) handles: u32,
    /// Handles that are being closed.
    pub(super) closing: u32,
    /// Handles past the cache that are open.
    pub(super) direct_handles: u32,
    /// Every handle since the first one was closed, and its close ended well.
    pub(super) closed_well: bool,
    /// How often a first handle was opened.
    pub(super) generation: u64,
    /// Data may have been lost with earlier handles, or is being dropped, and the ledger does not
    /// know yet. One claim covers the whole file meanwhile.
    pub(super) is_verifying: bool,
    /// A sync has failed since then, because a flush failed.
    pub(super) is_poisoned: bool,
    /// Opens that have ended.
    pub(super) opens: u64,
    /// Open handles, by the number of their open. Those that are open at the same time have the
    /// same file of the engine, which is not sure of handles that are being opened or closed.
    pub(super) open: BTreeSet<u64>,
    /// A handle up to this number that is still open has a poisoned file.
    pub(super) poisoned_until: u64,
    /// Failed flushes that the ledger knows of.
    pub(super) failed_flushes: u64,
    /// Failed flushes when a call last returned such an error.
    pub(super) returned_flushes: u64,
    /// The engine of this life creates it, not as a temporary file, and owes the flush of its
    /// directory.
    pub(super) is_created: bool,
    /// Opens in progress that may create it as a temporary one.
    pub(super) temporary_opens: u32,
    /// Changes that are neither writes nor appends: a new length, dropped data, a discard.
    pub(super) is_changing: u32,
}

/// The part of a file that a caller is about to change.
#[derive(Clone, Debug)]
struct Claim {
    number: u64,
    kind: Kind,
    bytes: Range<u64>,
}

/// How a caller changes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Alone.
    Change,
    /// Beside other appends.
    Append,
}

/// A claim, which ends when this is dropped.
pub(super) struct Claimed {
    stage: Rc<Stage>,
    file: usize,
    number: u64,
}

impl Model {
    pub(super) fn new(plan: &Plan) -> Self {
        let files = (0..plan.files as usize).map(|number| FileModel {
            path: plan.path(number),
            saved: None,
            ledger: ledger(plan, number),
            claims: Vec::new(),
            readings: Vec::new(),
            handles: 0,
            closing: 0,
            direct_handles: 0,
            closed_well: true,
            generation: 0,
            is_verifying: false,
            is_poisoned: false,
            opens: 0,
            open: BTreeSet::new(),
            poisoned_until: 0,
            failed_flushes: 0,
            returned_flushes: 0,
            is_created: !plan.are_devices,
            temporary_opens: 0,
            is_changing: 0,
        });
        Self { files: files.collect(), operations_left: plan.operations, claims: 0 }
    }
}

fn ledger(plan: &Plan, number: usize) -> Ledger {
    if plan.are_devices {
        return Ledger::of_device(plan.device_bytes());
    }
    let mut ledger = Ledger::new();
    if plan.volume(number).is_shared() {
        // Without a lease every file counts as one that other programs have open.
        ledger.share();
    }
    ledger
}

impl FileModel {
    /// Begins a write or an append: the bytes may be found from now on.
    pub(super) fn begin(&mut self, offset: Option<u64>, data: &Rc<[u8]>) -> u64 {
        let from = offset.unwrap_or(self.ledger.stable_end());
        self.readings.iter().for_each(|reading| match offset {
            Some(offset) => reading.add_write(offset, data),
            None => reading.add_change(from),
        });
        self.ledger.begin(offset, Rc::clone(data))
    }

    /// The engine may have closed the file: the next check reads its content.
    pub(super) fn begin_generation(&mut self) {
        self.generation += 1;
        (self.is_poisoned, self.closed_well, self.is_verifying) = (false, true, true);
    }

    /// An open has ended. Returns its number.
    pub(super) fn opened(&mut self) -> u64 {
        self.opens += 1;
        if self.open.first().is_some_and(|first| *first <= self.poisoned_until) {
            self.poisoned_until = self.opens;
        }
        self.open.insert(self.opens);
        self.opens
    }

    /// Something else than a write changes the file from a byte on.
    pub(super) fn change_from(&mut self, from: u64) {
        self.readings.iter().for_each(|reading| reading.add_change(from));
    }

    /// The process of all callers has died.
    pub(super) fn restart(&mut self, is_there: bool, failed_flushes: u64) {
        self.is_created = !is_there;
        self.temporary_opens = 0;
        self.claims.clear();
        self.readings.clear();
        self.open.clear();
        (self.handles, self.closing, self.direct_handles, self.is_changing) = (0, 0, 0, 0);
        (self.is_verifying, self.is_poisoned, self.closed_well) = (false, false, true);
        (self.failed_flushes, self.returned_flushes) = (failed_flushes, failed_flushes);
        self.generation += 1;
    }

    /// Whether the content that was accepted is known, and nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        !self.ledger.is_pending() && self.is_changing == 0
    }
}

impl Stage {
    /// Claims the bytes of a write; if it moves the end of the file, everything from there on.
    pub(super) fn claim_write(self: &Rc<Self>, file: usize, bytes: Range<u64>) -> Claimed {
        let Range { start, end } = bytes;
        self.claim(file, Kind::Change, |size| {
            if end > size { start.min(size)..u64::MAX } else { start..end }
        })
    }

    /// Waits until a part of a file can be claimed. `bytes` says which part, from the size of the
    /// file at that time.
    pub(super) fn claim(
        self: &Rc<Self>,
        file: usize,
        kind: Kind,
        bytes: impl Fn(u64) -> Range<u64>,
    ) -> Claimed {
        let on = Reason { what: "claim on file", number: file as u64 };
        loop {
            let mut model = self.model.borrow_mut();
            let of_file = &model.files[file];
            // The end is where the first append under way found it.
            let wanted = bytes(of_file.ledger.stable_end());
            let conflicts = of_file.claims.iter().any(|claim| {
                claim.bytes.start < wanted.end
                    && wanted.start < claim.bytes.end
                    && (kind, claim.kind) != (Kind::Append, Kind::Append)
            });
            if !conflicts {
                model.claims += 1;
                let number = model.claims;
                model.files[file].claims.push(Claim { number, kind, bytes: wanted });
                return Claimed { stage: Rc::clone(self), file, number };
            }
            drop(model);
            world::block(on, None);
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let Ok(mut model) = self.stage.model.try_borrow_mut() else { return };
        model.files[self.file].claims.retain(|claim| claim.number != self.number);
        drop(model);
        world::wake(Reason { what: "claim on file", number: self.file as u64 });
    }
}
