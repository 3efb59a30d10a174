//! The contracts as a run checks them, by number.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use forebay_block::knobs::Merging;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::shared::Shared;
use crate::run::model::{Claimed, FileModel, Kind};
use crate::run::stage::Stage;
use crate::stored::{Keep, StoredFile};
use crate::world::{self, machine};

/// The state of a file when a sync or a close was asked for.
pub(super) struct Asked {
    change: u64,
    covered: u64,
    generation: u64,
    poisoned_until: u64,
    was_quiet: bool,
    transitions: u64,
    failed_writes: u64,
}

impl Stage {
    /// A call may begin.
    pub(super) fn take_operation(&self) -> bool {
        let left = &mut self.model.borrow_mut().operations_left;
        let is_left = *left > 0;
        *left = left.saturating_sub(1);
        is_left
    }

    /// The device gets well, so that everything can end. Pages that cannot be written may hold all
    /// memory, so a run of operations gets well in time.
    pub(super) fn get_well(&self) {
        if self.is_well.replace(true) {
            return;
        }
        machine::set_faults(self.plan.machine.faults.passing());
        self.end_hang();
        (0..self.plan.machine.volumes.len())
            .for_each(|volume| machine::set_space_pages(volume, u64::MAX / 2));
        for number in 0..self.plan.files as usize {
            let path = self.plan.path(number);
            if machine::identity(&path).is_some() {
                machine::set_bad(&path, 0..0);
            }
        }
    }

    /// A caller opens a file. The first one keeps changes off until it knows what is there.
    pub(super) fn begin_open(self: &Rc<Self>, number: usize) -> Option<Claimed> {
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        file.handles += 1;
        let is_first = file.handles == 1;
        if is_first {
            file.begin_generation();
        }
        drop(model);
        is_first.then(|| self.claim(number, Kind::Change, |_| 0..u64::MAX))
    }

    /// An open fails only because the directory could not be flushed.
    pub(super) fn check_open_failure(&self, number: usize, error: &Error) {
        let may_fail = self.plan.machine.faults.flush_directory.0 > 0;
        assert!(
            may_fail && error.kind() == ErrorKind::Io,
            "file {number} cannot be opened: {error:?}"
        );
        self.hit("open failed");
    }

    /// A file was opened, by the first handle of several perhaps. If page writes have failed, the
    /// data may have been dropped with the handles before: `read` reads the whole file. Returns the
    /// number of the open.
    pub(super) fn check_opened(
        self: &Rc<Self>,
        number: usize,
        first: Option<Claimed>,
        read: impl FnOnce() -> Vec<u8>,
    ) -> u64 {
        let mut model = self.model.borrow_mut();
        let of_file = &mut model.files[number];
        // Every other handle may have been closed while this one was being opened.
        let is_late = of_file.open.is_empty() && !of_file.is_verifying;
        let opened = of_file.opened();
        if is_late {
            of_file.begin_generation();
        }
        drop(model);
        let claim = || self.claim(number, Kind::Change, |_| 0..u64::MAX);
        if let Some(claimed) = first.or_else(|| is_late.then(claim)) {
            self.check_found(number, claimed, read);
        }
        opened
    }

    fn check_found(&self, number: usize, claimed: Claimed, read: impl FnOnce() -> Vec<u8>) {
        self.note_failed_flushes(number);
        let path = self.plan.path(number);
        // A flush has failed because of the undone ones.
        let undone = machine::undone(&path);
        if machine::has_failed(&path) || !undone.is_empty() {
            self.begin_change(number, 0);
            let found = read();
            let mut model = self.model.borrow_mut();
            let of_file = &mut model.files[number];
            let differing = of_file.ledger.reread(&found);
            let failed = machine::failed_pages(&path);
            let wrong =
                differing.iter().find(|page| !failed.contains(page) && !undone.contains(page));
            assert_eq!(
                wrong, None,
                "contract 5: a page of file {number} that could be written is lost"
            );
            of_file.is_changing -= 1;
            machine::accept_undone(&path);
            if !differing.is_empty() {
                drop(model);
                self.hit("lost at close");
            }
        }
        self.model.borrow_mut().files[number].is_verifying = false;
        drop(claimed);
    }

    /// How a write or an append ended.
    pub(super) fn check_write<T>(&self, number: usize, result: &Result<T>) {
        if let Err(error) = result {
            self.check_failure(number, error);
            self.hit("write refused");
        }
    }

    pub(super) fn check_read_failure(&self, number: usize, error: &Error) {
        self.check_failure(number, error);
        self.hit("fill failed");
    }

    /// A failure needs a cause at the device.
    pub(super) fn check_failure(&self, number: usize, error: &Error) {
        let may_fail = self.may_fail();
        let is_known =
            matches!(error.kind(), ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Poisoned);
        assert!(
            may_fail && is_known,
            "contract 2: a call on file {number} fails without a cause: {error:?}"
        );
        world::trace(format_args!("file {number}: {error}"));
        let path = self.plan.path(number);
        if error.kind() == ErrorKind::Poisoned && machine::identity(&path).is_some() {
            let failed = machine::failed_flushes(&path);
            self.model.borrow_mut().files[number].returned_flushes = failed;
        }
    }

    pub(super) fn may_fail(&self) -> bool {
        let faults = self.plan.machine.faults;
        faults != faults.passing()
            || self.plan.disturbance.bad_pages.0 > 0
            || self.plan.mix.discard > 0
            || self.plan.has_little_space()
            // A mapping can undo a page that was written under the lease and is not kept.
            || faults.invalidate.0 > 0 && self.plan.disturbance.programs.0 > 0
    }

    /// A length is about to be set. Returns the number of the announcement.
    pub(super) fn begin_length(&self, number: usize, length: u64) -> u64 {
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        file.is_changing += 1;
        file.change_from(length.min(file.ledger.size()));
        file.ledger.announce_length(length)
    }

    pub(super) fn end_length(
        &self,
        number: usize,
        (length, announced): (u64, u64),
        size: impl FnOnce() -> u64,
        result: &Result<()>,
    ) {
        // A dropped future may have set it before the next one failed.
        let is_set = result.is_ok() || size() == length;
        let mut model = self.model.borrow_mut();
        let of_file = &mut model.files[number];
        of_file.is_changing -= 1;
        if is_set {
            of_file.ledger.confirm_length(announced, length);
        } else {
            of_file.ledger.withdraw_length(announced);
        }
        drop(model);
        match result {
            Ok(()) => self.hit("length set"),
            Err(error) => self.check_failure(number, error),
        }
    }

    /// The length was not set, because the file system does not have the call.
    pub(super) fn withdraw_length(&self, number: usize, announced: u64) {
        let mut model = self.model.borrow_mut();
        model.files[number].is_changing -= 1;
        model.files[number].ledger.withdraw_length(announced);
    }

    pub(super) fn begin_discard(&self, number: usize, bytes: &Range<u64>) {
        self.begin_change(number, bytes.start);
        if !bytes.is_empty() {
            self.model.borrow_mut().files[number].ledger.announce_discard(bytes.clone());
        }
    }

    pub(super) fn end_discard(&self, number: usize, bytes: &Range<u64>, result: &Result<()>) {
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        file.is_changing -= 1;
        if !bytes.is_empty() {
            file.ledger.end_discard(bytes, result.is_ok());
        }
        drop(model);
        match result {
            Ok(()) => self.hit("range discarded"),
            Err(error) => {
                self.hit("discard failed");
                self.check_failure(number, error);
            }
        }
    }

    /// Something else than a write is about to change a file from a byte on.
    pub(super) fn begin_change(&self, number: usize, from: u64) {
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        file.is_changing += 1;
        file.change_from(from);
    }

    /// Dirty data is about to be dropped: a sync that is asked for now may come after.
    pub(super) fn begin_drop(&self, number: usize) {
        self.begin_change(number, 0);
        self.model.borrow_mut().files[number].is_verifying = true;
    }

    /// Dirty data was dropped: the file is as the device has it. If the future was dropped before
    /// it ended (`None`), no data was.
    pub(super) fn check_dropped(&self, number: usize, result: Option<&Result<u64>>) {
        let path = self.plan.path(number);
        let stored = machine::stored(&path, |stored| stored.read(0, stored.size()));
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        file.is_changing -= 1;
        file.is_verifying = false;
        if matches!(result, Some(Ok(_))) {
            file.ledger.reread(&stored);
        }
        drop(model);
        match result {
            Some(Ok(_)) => self.hit("discarded"),
            Some(Err(error)) => self.check_failure(number, error),
            None => self.hit("abandoned"),
        }
    }

    /// A sync or a close is about to be asked for.
    pub(super) fn begin_sync(&self, number: usize) -> Asked {
        let model = self.model.borrow();
        let file = &model.files[number];
        Asked {
            change: file.ledger.change(),
            covered: if file.is_verifying { 0 } else { file.ledger.covered() },
            generation: file.generation,
            poisoned_until: file.poisoned_until,
            was_quiet: file.is_quiet(),
            transitions: machine::transitions(),
            failed_writes: self.failed_writes(number),
        }
    }

    fn failed_writes(&self, number: usize) -> u64 {
        let path = self.plan.path(number);
        machine::identity(&path).map_or(0, |_| machine::failed_writes(&path))
    }

    /// A handle was opened, or has reported an error, or its program has dropped the data: returns
    /// the failed page writes that it need not report.
    pub(super) fn begin_reporting(&self, number: usize) -> u64 {
        self.failed_writes(number)
    }

    /// A sync of a handle has ended. Each handle reports once that a page could not be written,
    /// even if the page is written by now. `reported` counts the writes it need not report.
    pub(super) fn check_reported(
        &self,
        number: usize,
        asked: &Asked,
        reported: &Cell<u64>,
        result: &Result<()>,
    ) {
        // The queue sends the parts of a merged request again if it has failed. They may succeed.
        let is_merged = self.plan.turns_knobs || self.plan.queue.merging == Merging::On;
        match result {
            Err(_) => reported.set(self.failed_writes(number)),
            Ok(()) => assert!(
                is_merged || asked.failed_writes <= reported.get(),
                "contract 2: a sync of file {number} ends well, and a failed page write was never \
                 reported to its handle"
            ),
        }
    }

    /// A handle is about to be closed or dropped.
    pub(super) fn begin_close(&self, number: usize, opened: u64) -> Asked {
        let asked = self.begin_sync(number);
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        file.open.remove(&opened);
        file.handles -= 1;
        file.closing += 1;
        asked
    }

    /// After all handles were closed no sync covers what a failed flush has lost.
    pub(super) fn note_failed_flushes(&self, number: usize) {
        let path = self.plan.path(number);
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        let failed = machine::failed_flushes(&path);
        if failed > file.failed_flushes {
            file.failed_flushes = failed;
            file.ledger.forsake();
        }
        if machine::is_name_forsaken(&path) {
            file.ledger.forsake_name();
        }
    }

    /// Whether the file is as it was when something was asked for, and nothing is under way.
    pub(super) fn is_as_asked(&self, number: usize, asked: &Asked) -> bool {
        let model = self.model.borrow();
        let file = &model.files[number];
        asked.was_quiet
            && file.is_quiet()
            && !file.is_verifying
            && file.ledger.change() == asked.change
    }

    /// How a sync of the handle with this number ended.
    pub(super) fn check_sync(
        &self,
        number: usize,
        opened: u64,
        asked: &Asked,
        result: &Result<()>,
    ) {
        let waited = machine::transitions() - asked.transitions;
        self.longest_sync.set(self.longest_sync.get().max(waited));
        if let Err(error) = result {
            self.note_failed_sync(number, error, asked);
            self.hit("sync failed");
            return;
        }
        assert!(
            opened > asked.poisoned_until,
            "contract 2: a sync ends well on a poisoned file {number}"
        );
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        file.ledger.synced(asked.covered);
        // Another open that is still in progress may have created it.
        if file.is_created && file.temporary_opens == 0 {
            file.ledger.name_synced();
        }
        drop(model);
        self.hit("sync ok");
        self.check_power_loss(Keep::Nothing, "contract 1: after a sync");
        // The bytes of a logged file may be in the log alone.
        if self.plan.log_blocks.is_none() && self.is_as_asked(number, asked) {
            self.check_contents(number, "contract 8: after a sync");
        }
    }

    /// A file was written out, without a flush.
    pub(super) fn check_written_out(&self, number: usize, asked: &Asked, result: &Result<()>) {
        if let Err(error) = result {
            return self.check_failure(number, error);
        }
        self.hit("written out");
        if self.is_as_asked(number, asked) {
            self.check_contents(number, "contract 4: after it was written out");
        }
    }

    fn note_failed_sync(&self, number: usize, error: &Error, asked: &Asked) {
        self.check_failure(number, error);
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        if error.kind() == ErrorKind::Poisoned {
            file.is_poisoned |= asked.generation == file.generation;
            file.poisoned_until = file.opens;
        }
    }

    /// A direct handle is closed, or was dropped (`None`). Space that a death left reserved beyond
    /// the end stays, because the file has no lease.
    pub(super) fn check_closed_direct(
        &self,
        number: usize,
        result: Option<&Result<()>>,
        asked: &Asked,
    ) {
        if self.check_closing(number, result, asked)
            && machine::mark(self.plan.path(number)).is_none()
        {
            self.check_no_space_beyond_end(number);
        }
    }

    /// A handle is closed, or was dropped (`None`).
    pub(super) fn check_closed(&self, number: usize, result: Option<&Result<()>>, asked: &Asked) {
        if self.check_closing(number, result, asked) {
            self.check_no_space_beyond_end(number);
        }
    }

    /// Returns whether the file has no handle left, and was closed well.
    fn check_closing(&self, number: usize, result: Option<&Result<()>>, asked: &Asked) -> bool {
        if let Some(Err(error)) = result {
            self.check_failure(number, error);
        }
        let mut model = self.model.borrow_mut();
        let file = &mut model.files[number];
        file.closing -= 1;
        if file.generation == asked.generation {
            file.closed_well &= result.is_some_and(Result::is_ok);
        }
        // The engine may have taken another handle for the last one.
        let is_closed = file.handles + file.closing == 0 && file.is_quiet() && file.closed_well;
        drop(model);
        if is_closed {
            self.check_contents(number, "contract 5: after a close");
        }
        is_closed
    }

    fn check_no_space_beyond_end(&self, number: usize) {
        let path = self.plan.path(number);
        // Nothing is given back without a lease. A call that failed may have left some.
        let may_leave = self.plan.are_devices
            || self.plan.disturbance.programs.0 > 0
            || self.plan.volume(number).is_shared()
            || machine::has_failed(&path)
            || machine::is_littered(&path)
            || self.plan.machine.faults != self.plan.machine.faults.passing()
            || self.plan.has_little_space();
        if !may_leave {
            let beyond = machine::stored(&path, StoredFile::allocated_beyond_end);
            assert_eq!(beyond, None, "contract 9: space beyond the end of file {number}");
        }
    }

    /// Compares the stored file with the accepted bytes.
    pub(super) fn check_contents(&self, number: usize, when: &str) {
        let path = self.plan.path(number);
        let undone = machine::undone(&path);
        let stored = machine::stored(&path, |stored| stored.read(0, stored.size()));
        let model = self.model.borrow();
        let accepted = model.files[number].ledger.bytes();
        assert_eq!(stored.len(), accepted.len(), "{when}: the size of file {number}");
        let is_wrong = |at: &usize| {
            let page = *at as u64 / forebay_cache::limits::PAGE;
            stored[*at] != accepted[*at] && !undone.contains(&page)
        };
        // Byte by byte takes long, and most files are equal.
        if stored[..] != accepted[..]
            && let Some(at) = (0..stored.len()).find(is_wrong)
        {
            panic!("{when}: byte {at} of file {number} differs");
        }
    }

    /// A state after a loss of power now.
    pub(super) fn check_power_loss(&self, keep: Keep, when: &str) {
        self.hit("power loss");
        let mut found = machine::survivors(keep, &mut self.crashes.borrow_mut());
        if self.plan.log_blocks.is_some() && found.replay(super::logged::LOG) > 0 {
            self.hit("power loss with live records");
        }
        let model = self.model.borrow();
        for file in &model.files {
            let saved = found.saved_at(&file.path);
            if let Err(wrong) = file.ledger.check(&found.at(&file.path)) {
                if saved.is_some_and(|saved| file.ledger.check(&saved).is_ok()) {
                    self.hit("only saved");
                    continue;
                }
                panic!("{when}: keeping {keep:?}, {}: {wrong}", file.path.display());
            }
        }
    }

    /// The engine has ended, and everything was written.
    pub(super) fn check_ended(&self, shared: &Shared) {
        let inodes = shared.table().inodes();
        if inodes.iter().any(|inode| inode.lock().logging.is_live()) {
            // Files that could not be brought into place stay open, and the shutdown has failed.
            assert!(self.may_fail(), "contract 25: records are left without a cause");
            return self.hit("records left");
        }
        let (free, frames) = (shared.pool.free(), shared.pool.arena().frames());
        assert_eq!(free, frames, "contract 12: frames are lost");
        assert_eq!(shared.level.dirty(), 0, "contract 12: pages are charged that nobody has");
        assert!(
            self.heard.count() >= self.owed_errors.get(),
            "contract 2: the program did not hear of a write that failed after its handle was \
             dropped"
        );
        self.check_flushes_heard(shared);
        if self.heard.count() > 0 {
            let has_bad_log = self.plan.disturbance.bad_log.0 > 0;
            assert!(
                self.may_fail() || has_bad_log,
                "contract 2: an error is reported without a cause"
            );
            self.hit("error reported");
        }
    }

    /// Each failed flush was returned by a call, or the program heard of it. (Other programs and
    /// dead processes flush, too. A failure that was repaired does not count. A direct handle
    /// keeps one error at a time.)
    fn check_flushes_heard(&self, shared: &Shared) {
        let plan = &self.plan;
        if plan.disturbance.programs.0 > 0 || plan.deaths > 0 || plan.direct.0 > 0 {
            return;
        }
        let model = self.model.borrow();
        let is_owed = |file: &&FileModel| {
            machine::identity(&file.path).is_some()
                && machine::failed_flushes(&file.path) > file.returned_flushes
        };
        let owed = model.files.iter().filter(is_owed).count();
        if owed > 0 && shared.stats().rewrites == 0 {
            assert!(
                self.heard.flushes() >= owed,
                "contract 2: the program did not hear of a failed flush"
            );
            self.hit("failed flush reported");
        }
    }

    /// All is closed, and the engine is gone.
    pub(super) fn check_end(&self) {
        for number in 0..self.plan.files as usize {
            let path = self.plan.path(number);
            let is_there = machine::identity(&path).is_some();
            if is_there && !machine::has_failed(&path) {
                self.check_contents(number, "contract 5: at the end");
            }
        }
        for keep in [Keep::Nothing, Keep::Everything, Keep::Some] {
            self.check_power_loss(keep, "contract 3: at the end");
        }
    }
}
