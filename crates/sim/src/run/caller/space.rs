//! Calls about the space of a file, and its writing out without a flush.

use std::rc::Rc;

use forebay_cache::limits::PAGE;

use crate::core::error::{Error, ErrorKind, Result};
use crate::run::caller::opening::{Handle, length_of};
use crate::run::caller::{Caller, READS_BACK};
use crate::run::model::Kind;
use crate::run::operation::{self, Operation};

impl Caller {
    /// Makes another call of some, so that those of all kinds meet.
    pub(super) fn vary_operation(&mut self, handle: &Handle, drawn: Operation) -> Operation {
        let plan = &self.stage.plan;
        if self.random.happens(plan.rewrites)
            && let Some(write) = self.rewrite()
        {
            return write;
        }
        if plan.varied.0 == 0 || plan.are_devices || self.random.below(4) > 0 {
            return drawn;
        }
        let size = self.stage.model.borrow().files[handle.number].ledger.size();
        let most = plan.ends().end - 1;
        let random = &mut self.random;
        let mut range = |most: u64| {
            let offset = operation::place(random, most - 1);
            (offset, operation::length(random, (most - offset).min(4 * plan.bytes)))
        };
        let (offset, length) = range(most);
        let (hole, hole_length) = range(size.max(1));
        match random.below(5) {
            0 | 1 => Operation::Allocate { offset, length },
            2 | 3 => Operation::PunchHole { offset: hole, length: hole_length },
            _ => Operation::WriteOut,
        }
    }

    /// Returns a write of the whole page where the last write ended, if the file may have it.
    fn rewrite(&self) -> Option<Operation> {
        let plan = &self.stage.plan;
        let most = if plan.are_devices { plan.device_bytes() } else { plan.ends().end - 1 };
        let offset = self.last_end.saturating_sub(1) / PAGE * PAGE;
        (offset + PAGE <= most).then_some(Operation::Write { offset, length: PAGE })
    }

    pub(super) fn allocate(&mut self, handle: &Handle, offset: u64, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let end = offset + length;
        let claimed = stage.claim(number, Kind::Change, |size| {
            if end > size { size..u64::MAX } else { offset..end }
        });
        // Others may move the end of the file meanwhile, unless this does.
        let extends = end > stage.model.borrow().files[number].ledger.size();
        let announced = extends.then(|| stage.begin_length(number, end));
        // A dropped future may have extended it, or do so yet; the next one comes after it.
        let result = match self.drive(handle.file.allocate_async(offset, length)) {
            Some(result) => result,
            None => handle.file.allocate(offset, length),
        };
        let is_missing = self.is_missing(number, &result);
        match announced {
            Some(announced) if is_missing => stage.withdraw_length(number, announced),
            Some(announced) => {
                stage.end_length(number, (end, announced), || length_of(&handle.file), &result);
            }
            None if is_missing => {}
            None => stage.check_write(number, &result),
        }
        if result.is_ok() {
            stage.hit("allocated");
        }
        drop(claimed);
    }

    pub(super) fn punch_hole(&mut self, handle: &Handle, offset: u64, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let claimed = stage.claim(number, Kind::Change, |_| offset..offset + length);
        let size = stage.model.borrow().files[number].ledger.size();
        let within = (offset + length).min(size).saturating_sub(offset);
        if within == 0 {
            return drop(claimed);
        }
        let zeroes: Rc<[u8]> = vec![0; within as usize].into();
        let begun = stage.model.borrow_mut().files[number].begin(Some(offset), &zeroes);
        // The engine reports the refusal of a call that was given up.
        let gives_up = stage.plan.volume(number).allocates;
        let punching = gives_up.then(|| self.drive(handle.file.punch_hole_async(offset, length)));
        let result = match punching.flatten() {
            Some(result) => result,
            None => handle.file.punch_hole(offset, length),
        };
        let found = result.is_err().then(|| self.read_whole(handle, offset, zeroes.len()));
        let mut model = stage.model.borrow_mut();
        let ledger = &mut model.files[number].ledger;
        match &found {
            None => ledger.end(begun, offset, zeroes.len()),
            Some(found) => {
                ledger.end(begun, offset, 0);
                ledger.accept_torn(offset, found);
            }
        }
        drop(model);
        if result.is_ok() {
            stage.hit("hole punched");
        } else {
            // It may be the error of an earlier write.
            handle.reported.set(stage.begin_reporting(number));
        }
        if result.is_err() && !self.is_missing(number, &result) {
            stage.check_write(number, &result);
        }
        drop(claimed);
    }

    pub(super) fn write_out(&mut self, handle: &Handle) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let asked = stage.begin_sync(number);
        match self.drive(handle.file.write_out_async()) {
            None => stage.hit("abandoned"),
            Some(result) => {
                stage.check_reported(number, &asked, &handle.reported, &result);
                stage.check_written_out(number, &asked, &result);
            }
        }
    }

    /// Returns whether the file system does not have the call, as it says.
    fn is_missing(&self, number: usize, result: &Result<()>) -> bool {
        let kind = result.as_ref().err().map(Error::kind);
        !self.stage.plan.volume(number).allocates && kind == Some(ErrorKind::Unsupported)
    }

    /// Reads what is there after a call that failed.
    fn read_whole(&self, handle: &Handle, offset: u64, length: usize) -> Vec<u8> {
        let mut found = vec![0; length];
        let is_read = |_| handle.file.read_at(&mut found, offset).is_ok_and(|read| read == length);
        assert!((0..READS_BACK).any(is_read), "file {} cannot be read", handle.number);
        found
    }
}
