//! Calls of a direct handle, past the cache.
//!
//! A caller submits some operations on one range, in a plug or not, and waits for them in any
//! order, or drops their futures. Operations that overlap take effect in the order of submission,
//! so the caller knows the bytes that each read must find. A write whose future is dropped goes on;
//! a read behind it waits for it, and the next sync or close of the handle reports its error.

mod batch;

use std::cell::Cell;
use std::rc::Rc;

use crate::core::direct::direct_file::DirectFile;
use crate::core::direct::transfer::Transfer;
use crate::core::error::{ErrorKind, Result};
use crate::run::caller::opening::{Opening, READS};
use crate::run::caller::{Caller, READS_BACK};
use crate::run::model::Kind;
use crate::run::operation::{self, Operation};
use crate::run::reading::{Reading, Way};
use crate::run::stage::Stage;
use crate::world::{self, machine};

use batch::{Batch, Did, End, Step};

/// Numbers of operations that are submitted together. The most are more than a plug holds.
const TOGETHER: [u64; 6] = [1, 1, 2, 4, 8, 40];

/// Small operations submitted together: more than the queue of a context holds.
const SMALL_TOGETHER: [u64; 3] = [1, 8, 160];

/// Bytes of the largest small operation.
const SMALL: u64 = 1000;

/// A file that is open past the cache.
pub(super) struct DirectHandle {
    file: DirectFile,
    /// Number of the file in the model.
    number: usize,
    /// Number of its open.
    opened: u64,
    /// A write has failed whose future was dropped, and no call has returned its error.
    owes_error: Cell<bool>,
}

/// An operation under way, with memory of one kind.
enum Moving {
    Vector(Transfer<Vec<u8>>),
    Pooled(Transfer<crate::core::direct::buffer::Buffer>),
}

impl DirectHandle {
    pub(super) fn new(stage: &Rc<Stage>, file: DirectFile, opening: Opening) -> Self {
        let Opening { number, first, .. } = opening;
        stage.hit("opened direct");
        stage.model.borrow_mut().files[number].direct_handles += 1;
        let opened = stage.check_opened(number, first, || {
            let length = file.len() as usize;
            let mut reads = (0..READS).map(|_| file.read_at(vec![0; length], 0).wait());
            let found = reads.find_map(|(read, found)| Some(found).filter(|_| read.is_ok()));
            found.unwrap_or_else(|| panic!("file {number} cannot be read"))
        });
        Self { file, number, opened, owes_error: Cell::new(false) }
    }
}

impl Caller {
    /// Makes one call. Returns the handle unless the call closed it.
    pub(super) fn step_direct(&mut self, handle: DirectHandle) -> Option<DirectHandle> {
        let operation = self.draw(handle.number);
        match operation {
            Operation::Write { offset, length } | Operation::DiscardRange { offset, length } => {
                self.move_together(&handle, offset, length);
            }
            Operation::Append { length } => {
                let end = self.stage.model.borrow().files[handle.number].ledger.size();
                self.move_together(&handle, end, length);
            }
            Operation::Read { offset, length } => self.read_direct(&handle, offset, length),
            Operation::SetLength(length) => self.set_length_direct(&handle, length),
            // A direct handle has no dirty data to drop.
            Operation::SyncData | Operation::SyncAll | Operation::DiscardDirty => {
                self.sync_direct(&handle, operation);
            }
            Operation::Close => {
                self.close_direct(handle);
                return None;
            }
            Operation::Allocate { .. } | Operation::PunchHole { .. } | Operation::WriteOut => {
                unreachable!("calls of cached handles: {operation:?}")
            }
        }
        Some(handle)
    }

    /// Submits some operations within a range, and checks them. The first one writes all of it.
    fn move_together(&mut self, handle: &DirectHandle, offset: u64, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let end = offset + length;
        let claimed = stage.claim_write(number, offset..end);
        let may_fail = stage.may_fail();
        let model = stage.model.borrow();
        let mut batch = Batch::new(&model.files[number].ledger, offset..end, may_fail);
        drop(model);
        let count = match stage.plan.bytes {
            0..=SMALL => *self.random.pick(&SMALL_TOGETHER),
            _ => *self.random.pick(&TOGETHER),
        };
        let plugs: Vec<_> = (0..self.random.below(3)).map(|_| self.engine.plug()).collect();
        let mut moving = Vec::new();
        for at in 0..count {
            let (step, under_way) = self.submit(handle, &batch, at == 0);
            batch.steps.push(step);
            moving.push(under_way);
        }
        // Otherwise the first wait submits them.
        let late = (self.random.below(2) == 0).then_some(plugs);
        if self.random.below(3) == 0 {
            moving.reverse();
        }
        for (at, under_way) in moving {
            batch.steps[at].end = self.wait_for(under_way);
        }
        drop(late);
        self.check_together(handle, batch);
        self.last_end = end;
        drop(claimed);
    }

    /// Submits one operation. Returns it, and its place among the others.
    fn submit(
        &mut self,
        handle: &DirectHandle,
        batch: &Batch,
        is_first: bool,
    ) -> (Step, (usize, Moving)) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let whole = batch.range.clone();
        let (mut offset, mut length) = (whole.start, whole.end - whole.start);
        if !is_first {
            offset += operation::place(&mut self.random, length - 1);
            length = operation::length(&mut self.random, whole.end - offset);
        }
        let at = batch.steps.len();
        let (did, bytes) = if !is_first && self.random.below(3) == 0 {
            (Did::Read { length }, vec![0; length as usize])
        } else {
            let data: Rc<[u8]> = operation::data(&mut self.random, length).into();
            let begun = stage.model.borrow_mut().files[number].begin(Some(offset), &data);
            let bytes = data.to_vec();
            (Did::Write { data, begun }, bytes)
        };
        let is_read = matches!(did, Did::Read { .. });
        world::trace(format_args!("file {number}: direct {is_read} {length} at {offset}"));
        let pooled = match self.random.below(2) {
            0 => self.engine.buffer(bytes.len()).ok(),
            _ => None,
        };
        let moving = match pooled {
            Some(mut buffer) => {
                buffer.copy_from_slice(&bytes);
                Moving::Pooled(match is_read {
                    true => handle.file.read_at(buffer, offset),
                    false => handle.file.write_at(buffer, offset),
                })
            }
            None => Moving::Vector(match is_read {
                true => handle.file.read_at(bytes, offset),
                false => handle.file.write_at(bytes, offset),
            }),
        };
        (Step { offset, did, end: End::Dropped }, (at, moving))
    }

    fn wait_for(&mut self, moving: Moving) -> End {
        let ended = match moving {
            Moving::Vector(transfer) => self.drive(transfer),
            Moving::Pooled(transfer) => {
                let ended = self.drive(transfer);
                ended.map(|(result, buffer)| (result, buffer.to_vec()))
            }
        };
        match ended {
            Some((Ok(bytes), memory)) => End::Moved(bytes, memory),
            Some((Err(error), _)) => End::Failed(error),
            None => End::Dropped,
        }
    }

    /// Checks operations that were submitted together, and records them.
    fn check_together(&mut self, handle: &DirectHandle, mut batch: Batch) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        if batch.steps.iter().any(|step| matches!(step.end, End::Dropped)) {
            // It is behind all of them.
            self.wait_behind(handle, &batch);
        }
        for step in &batch.steps {
            if let End::Failed(error) = &step.end {
                stage.check_failure(number, error);
                stage.hit("direct operation failed");
            }
        }
        let path = stage.plan.path(number);
        let (stored, size) = machine::stored(&path, |stored| {
            (stored.read(batch.range.start, batch.range.end - batch.range.start), stored.size())
        });
        batch.stored = stored;
        if let Err(wrong) = batch.check() {
            panic!("contract 15: file {number}, past the cache: {wrong}");
        }
        if batch.lost_a_dropped_write() {
            handle.owes_error.set(true);
            stage.hit("dropped write failed");
        }
        stage.hit(if batch.steps.len() > 1 { "moved together" } else { "moved alone" });
        let mut model = stage.model.borrow_mut();
        let ledger = &mut model.files[number].ledger;
        batch.record(ledger, size);
        let accepted = ledger.size();
        drop(model);
        if batch.owns_end() {
            let sizes = (size, handle.file.len());
            assert_eq!(sizes, (accepted, accepted), "contract 8: the size of direct file {number}");
        }
    }

    /// Reads the range of operations whose futures were dropped.
    fn wait_behind(&mut self, handle: &DirectHandle, batch: &Batch) {
        self.stage.hit("waited behind");
        let (offset, length) = (batch.range.start, batch.range.end - batch.range.start);
        let is_read = |_| {
            handle.file.read_at(vec![0; length as usize], offset).wait().0.is_ok().then_some(())
        };
        let read = (0..READS_BACK).find_map(is_read);
        assert!(read.is_some(), "file {} cannot be read", handle.number);
    }

    fn read_direct(&mut self, handle: &DirectHandle, offset: u64, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let memory = vec![0; length as usize];
        let reading = Reading::begin(
            &mut stage.model.borrow_mut().files[number],
            Way::Direct,
            offset,
            length,
        );
        let result = self.drive(handle.file.read_at(memory, offset));
        let mut model = stage.model.borrow_mut();
        let file = &mut model.files[number];
        match result {
            Some((Ok(read), found)) => {
                let undone = machine::undone(&file.path);
                let checked = reading.end(file, &found[..read], &undone);
                drop(model);
                stage.hit("read direct");
                if let Err(wrong) = checked {
                    panic!("contract 15: a direct read of file {number} at {offset} finds {wrong}");
                }
            }
            Some((Err(error), _)) => {
                reading.abandon(file);
                drop(model);
                stage.check_read_failure(number, &error);
            }
            None => reading.abandon(file),
        }
    }

    fn set_length_direct(&mut self, handle: &DirectHandle, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let claimed = stage.claim(number, Kind::Change, |size| length.min(size)..u64::MAX);
        let announced = stage.begin_length(number, length);
        // A dropped future may have set it, or do so yet; the next one comes after it.
        let result = match self.drive(handle.file.set_len(length)) {
            Some(result) => result,
            None => handle.file.set_len(length).wait(),
        };
        stage.end_length(number, (length, announced), || handle.file.len(), &result);
        drop(claimed);
    }

    pub(super) fn sync_direct(&mut self, handle: &DirectHandle, operation: Operation) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let owed = handle.owes_error.get();
        let asked = stage.begin_sync(number);
        let result = match operation {
            Operation::SyncAll => self.drive(handle.file.sync_all()),
            _ => self.drive(handle.file.sync_data()),
        };
        match result {
            Some(result) => {
                handle.note_report(owed, &result);
                stage.check_sync(number, handle.opened, &asked, &result);
            }
            None => stage.hit("abandoned"),
        }
    }

    pub(super) fn close_direct(&mut self, handle: DirectHandle) {
        let stage = Rc::clone(&self.stage);
        let number = handle.number;
        stage.model.borrow_mut().files[number].direct_handles -= 1;
        let asked = stage.begin_close(number, handle.opened);
        let owed = handle.owes_error.get();
        if self.random.happens(stage.plan.abandoned) {
            stage.owed_errors.set(stage.owed_errors.get() + usize::from(owed));
            drop(handle);
            stage.hit("abandoned");
            stage.check_closed_direct(number, None, &asked);
            return;
        }
        let DirectHandle { file, .. } = handle;
        let result = file.close().wait();
        assert!(
            !owed || result.is_err(),
            "contract 2: a close of file {number} ends well, and a write whose future was dropped \
             had failed"
        );
        stage.hit("close");
        stage.check_closed_direct(number, Some(&result), &asked);
    }
}

impl DirectHandle {
    /// A sync has ended, and reports the error that the handle owed.
    fn note_report(&self, owed: bool, result: &Result<()>) {
        match result {
            Ok(()) => assert!(
                !owed,
                "contract 2: a sync of file {} ends well, and a write whose future was dropped had \
                 failed",
                self.number
            ),
            // The flush has failed, and the error of the write is still kept.
            Err(error) if error.kind() == ErrorKind::Poisoned => {}
            Err(_) => self.owes_error.set(false),
        }
    }
}
