//! A caller: a thread of the program that has one file open at a time, and makes one call after the
//! other.
//!
//! A call is blocking, or asynchronous, or its future is dropped after some polls. A dropped write
//! has accepted a prefix, which is read back. Calls of a direct handle are in [`direct`].

use std::future::Future;
use std::io::{IoSlice, IoSliceMut};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::core::engine::Engine;
use crate::core::error::ErrorKind;
use crate::core::file::File;
use crate::core::slices::{Slices, SlicesMut};
use crate::core::wait;
use crate::core::write::Place;
use crate::platform::{clock, thread};
use crate::random::{PerMille, Random};
use crate::run::model::Kind;
use crate::run::operation::{self, Operation};
use crate::run::reading::{Reading, Way};
use crate::run::stage::Stage;
use crate::world::{self, machine};

mod direct;
mod opening;
mod space;

use opening::{Handle, Opened, length_of};

/// Tries to read back a dropped write, on a device that fails now and then.
const READS_BACK: u32 = 200;

/// One caller.
pub(super) struct Caller {
    stage: Rc<Stage>,
    engine: Engine,
    random: Random,
    handle: Option<Opened>,
    last_end: u64,
}

impl Caller {
    pub(super) fn new(stage: &Rc<Stage>, engine: Engine, random: Random) -> Self {
        Self { stage: Rc::clone(stage), engine, random, handle: None, last_end: 0 }
    }

    pub(super) fn run(mut self, adopted: Vec<File>) {
        self.take_adopted(adopted);
        while self.stage.take_operation() {
            let handle = match self.handle.take() {
                Some(handle) => handle,
                None => self.open(),
            };
            self.handle = match handle {
                Opened::Cached(handle) => self.step(handle).map(Opened::Cached),
                Opened::Direct(handle) => self.step_direct(handle).map(Opened::Direct),
            };
            self.stage.end_call();
        }
        // The device is well from here on, so that everything can end.
        self.stage.get_well();
        self.stage.wait_for_visitors();
        if let Some(handle) = self.handle.take() {
            let syncs = self.random.below(2) == 0;
            match handle {
                Opened::Cached(handle) => {
                    if syncs {
                        self.sync(&handle, Operation::SyncData);
                    }
                    self.close(handle);
                }
                Opened::Direct(handle) => {
                    if syncs {
                        self.sync_direct(&handle, Operation::SyncData);
                    }
                    self.close_direct(handle);
                }
            }
        }
    }

    /// Draws the next call on a file.
    fn draw(&mut self, number: usize) -> Operation {
        // A caller of a killed process ends here.
        world::preempt();
        self.stage.begin_call(number);
        let size = self.stage.model.borrow().files[number].ledger.size();
        let operation = Operation::draw(&mut self.random, &self.stage.plan, size, self.last_end);
        world::trace(format_args!("file {number}: {operation:?}"));
        operation
    }

    /// Makes one call. Returns the handle unless the call closed it.
    fn step(&mut self, handle: Handle) -> Option<Handle> {
        let drawn = self.draw(handle.number);
        let operation = self.vary_operation(&handle, drawn);
        if !handle.role.allows(operation) {
            self.check_refusal(&handle, operation);
            return Some(handle);
        }
        match operation {
            Operation::Write { offset, length } => self.write(&handle, offset, length),
            Operation::Append { length } => self.append(&handle, length),
            Operation::Read { offset, length } => self.read(&handle, offset, length),
            Operation::SetLength(length) => self.set_length(&handle, length),
            Operation::DiscardRange { offset, length } => {
                self.discard_range(&handle, offset, length);
            }
            Operation::SyncData | Operation::SyncAll => self.sync(&handle, operation),
            Operation::Allocate { offset, length } => self.allocate(&handle, offset, length),
            Operation::PunchHole { offset, length } => self.punch_hole(&handle, offset, length),
            Operation::WriteOut => self.write_out(&handle),
            Operation::DiscardDirty => self.discard_dirty(&handle),
            Operation::Close => {
                self.close(handle);
                return None;
            }
        }
        Some(handle)
    }

    fn write(&mut self, handle: &Handle, offset: u64, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let end = offset + length;
        let claimed = stage.claim_write(number, offset..end);
        let size = stage.model.borrow().files[number].ledger.size();
        let data: Rc<[u8]> = operation::data(&mut self.random, length).into();
        let begun = stage.model.borrow_mut().files[number].begin(Some(offset), &data);
        let task = world::task().expect("a caller is one");
        stage.writers.borrow_mut().insert(task);
        let past = match self.random.below(3) {
            0 => handle.file.write_front(&data, offset),
            _ => Ok((0, None)),
        };
        if handle.file.inode.lock().cache.writes_in_place() {
            stage.hit("in place");
        }
        let slices = self.slices(&data);
        let (accepted, result) = match past {
            Ok((past, pledge)) => {
                let mut rest = Slices::new(&slices);
                rest.advance(past);
                let at = offset + past as u64;
                let writing = handle.file.write_placed(rest, at, Place::Offset, pledge);
                match self.drive(writing) {
                    Some((accepted, result)) => (past + accepted, result),
                    None => (self.read_back(handle, offset, &data), Ok(())),
                }
            }
            Err(error) => (self.read_back(handle, offset, &data), Err(error)),
        };
        stage.writers.borrow_mut().remove(&task);
        stage.model.borrow_mut().files[number].ledger.end(begun, offset, accepted);
        world::trace(format_args!("file {number}: accepted {accepted} at {offset}: {result:?}"));
        self.last_end = offset + accepted as u64;
        stage.check_write(number, &result);
        if result.as_ref().is_err_and(|error| error.to_string().contains("no space for")) {
            assert_eq!(accepted, 0, "contract 9: a part of a refused write was accepted");
            stage.hit("no room");
        }
        if stage.plan.varied.0 > 0 && end > size && accepted as u64 == length {
            assert_eq!(length_of(&handle.file), end, "contract 8: the size of file {number}");
        }
        drop(claimed);
    }

    /// Bytes of a write in one slice, or in some of any lengths.
    fn slices<'a>(&mut self, data: &'a [u8]) -> Vec<IoSlice<'a>> {
        let (mut slices, mut rest) = (Vec::new(), data);
        if self.random.happens(self.stage.plan.varied) {
            self.stage.hit("in slices");
            for _ in 0..self.random.below(4) {
                let (slice, after) =
                    rest.split_at(self.random.below(rest.len() as u64 + 1) as usize);
                slices.push(IoSlice::new(slice));
                rest = after;
            }
        }
        slices.push(IoSlice::new(rest));
        slices
    }

    fn append(&mut self, handle: &Handle, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        if self.random.happens(stage.plan.varied) {
            return self.append_alone(handle, length);
        }
        let claimed = stage.claim(number, Kind::Append, |size| size..u64::MAX);
        let data: Rc<[u8]> = operation::data(&mut self.random, length).into();
        let begun = stage.model.borrow_mut().files[number].begin(None, &data);
        let slices = self.slices(&data);
        // Its future is never dropped: where the rest of it went would not be known.
        let appending = handle.file.append_all(Slices::new(&slices));
        let (offset, accepted, result) = wait::drive(appending);
        stage.model.borrow_mut().files[number].ledger.end(begun, offset, accepted);
        world::trace(format_args!("file {number}: appended {accepted} at {offset}: {result:?}"));
        self.last_end = offset + accepted as u64;
        stage.check_write(number, &result);
        drop(claimed);
    }

    /// Appends while no other caller does, so the offset is known, and the future can be dropped.
    fn append_alone(&mut self, handle: &Handle, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let claimed = stage.claim(number, Kind::Change, |size| size..u64::MAX);
        let size = stage.model.borrow().files[number].ledger.size();
        let data: Rc<[u8]> = operation::data(&mut self.random, length).into();
        let begun = stage.model.borrow_mut().files[number].begin(Some(size), &data);
        let (accepted, result) = match self.drive(handle.file.append_async(&data)) {
            Some(Ok(offset)) => {
                assert_eq!(offset, size, "contract 8: the offset of an append to file {number}");
                (data.len(), Ok(()))
            }
            Some(Err(error)) => (self.read_back(handle, size, &data), Err(error)),
            None => (self.read_back(handle, size, &data), Ok(())),
        };
        stage.model.borrow_mut().files[number].ledger.end(begun, size, accepted);
        world::trace(format_args!("file {number}: appended {accepted} at {size}: {result:?}"));
        self.last_end = size + accepted as u64;
        stage.hit("appended alone");
        stage.check_write(number, &result);
        drop(claimed);
    }

    fn read(&mut self, handle: &Handle, offset: u64, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let mut buffer = vec![0; length as usize];
        let reading = Reading::begin(
            &mut stage.model.borrow_mut().files[number],
            Way::Cached,
            offset,
            length,
        );
        let result = if self.random.happens(stage.plan.varied) {
            let at = self.random.below(length + 1) as usize;
            let (one, other) = buffer.split_at_mut(at);
            let mut slices = [one, &mut [], other].map(IoSliceMut::new);
            self.drive(handle.file.read_into(SlicesMut::new(&mut slices), offset))
        } else if self.random.below(2) == 0 {
            Some(handle.file.read_at(&mut buffer, offset))
        } else {
            self.drive(handle.file.read_at_async(&mut buffer, offset))
        };
        let mut model = stage.model.borrow_mut();
        let file = &mut model.files[number];
        match result {
            Some(Ok(found)) => {
                // The kernel reports a page that a mapping has undone with the next flush only.
                let undone = machine::undone(&file.path);
                let checked = reading.end(file, &buffer[..found], &undone);
                drop(model);
                stage.hit("read");
                if let Err(wrong) = checked {
                    panic!("contract 11: a read of file {number} at {offset} finds {wrong}");
                }
            }
            Some(Err(error)) => {
                reading.abandon(file);
                drop(model);
                stage.check_read_failure(number, &error);
            }
            None => reading.abandon(file),
        }
    }

    /// Reads how much of a write was accepted that did not return that.
    fn read_back(&mut self, handle: &Handle, offset: u64, data: &[u8]) -> usize {
        self.stage.hit("read back");
        let mut found = vec![0; data.len()];
        for _ in 0..READS_BACK {
            if let Ok(length) = handle.file.read_at(&mut found, offset) {
                let pairs = data.iter().zip(&found[..length]);
                return pairs.take_while(|(written, read)| written == read).count();
            }
        }
        panic!("file {} cannot be read", handle.number);
    }

    fn set_length(&mut self, handle: &Handle, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let claimed = stage.claim(number, Kind::Change, |size| length.min(size)..u64::MAX);
        let announced = stage.begin_length(number, length);
        // A dropped future may have set it, or do so yet; the next one comes after it.
        let result = match self.drive(handle.file.set_len_async(length)) {
            Some(result) => result,
            None => handle.file.set_len(length),
        };
        stage.end_length(number, (length, announced), || length_of(&handle.file), &result);
        drop(claimed);
    }

    fn discard_range(&mut self, handle: &Handle, offset: u64, length: u64) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let page = forebay_cache::limits::PAGE;
        let claimed = stage.claim(number, Kind::Change, |_| offset..offset + length);
        let size = stage.model.borrow().files[number].ledger.size();
        let start = offset.next_multiple_of(page);
        let end = if offset + length == size { size } else { (offset + length) / page * page };
        stage.begin_discard(number, &(start..end));
        let result = handle.file.discard(offset, length);
        stage.end_discard(number, &(start..end), &result);
        drop(claimed);
    }

    fn sync(&mut self, handle: &Handle, operation: Operation) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let asked = stage.begin_sync(number);
        let result = match operation {
            Operation::SyncAll => self.drive(handle.file.sync_all_async()),
            _ => self.drive(handle.file.sync_data_async()),
        };
        match result {
            Some(result) => {
                stage.check_reported(number, &asked, &handle.reported, &result);
                stage.check_sync(number, handle.opened, &asked, &result);
            }
            None => stage.hit("abandoned"),
        }
        if self.random.happens(stage.plan.varied) {
            self.check_layout(handle);
        }
    }

    fn check_layout(&self, handle: &Handle) {
        let plan = &self.stage.plan;
        let has_extents = !plan.are_devices && plan.volume(handle.number).extents;
        match handle.file.layout() {
            Ok(layout) => {
                let is_sound = (layout.extents > 0) == (layout.allocated_bytes > 0);
                assert!(is_sound && has_extents, "file {}: {layout:?}", handle.number);
                self.stage.hit("layout");
            }
            Err(error) => {
                let is_known = error.kind() == ErrorKind::Unsupported && !has_extents;
                assert!(is_known, "file {}: no layout: {error:?}", handle.number);
            }
        }
    }

    /// A call that the handle does not permit is refused, and changes nothing.
    fn check_refusal(&mut self, handle: &Handle, operation: Operation) {
        let file = &handle.file;
        let result = match operation {
            Operation::Write { offset, .. } => file.write_at(&[1], offset),
            Operation::Append { .. } => file.append(&[1]).map(drop),
            Operation::SetLength(length) => file.set_len(length),
            Operation::DiscardRange { offset, length } => file.discard(offset, length),
            Operation::DiscardDirty => file.abandon_unwritten().map(drop),
            Operation::Allocate { offset, length } => file.allocate(offset, length),
            Operation::PunchHole { offset, length } => file.punch_hole(offset, length),
            Operation::Read { .. }
            | Operation::SyncData
            | Operation::SyncAll
            | Operation::WriteOut
            | Operation::Close => unreachable!("permitted to every handle: {operation:?}"),
        };
        let kind = result.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::NotPermitted), "file {}: {operation:?}", handle.number);
        self.stage.hit("not permitted");
    }

    fn discard_dirty(&mut self, handle: &Handle) {
        let (stage, number) = (Rc::clone(&self.stage), handle.number);
        let claimed = stage.claim(number, Kind::Change, |_| 0..u64::MAX);
        stage.begin_drop(number);
        let result = match self.random.happens(stage.plan.varied) {
            true => self.drive(handle.file.abandon_unwritten_async()),
            false => Some(handle.file.abandon_unwritten()),
        };
        if matches!(result, Some(Ok(_))) {
            handle.reported.set(stage.begin_reporting(number));
        }
        stage.check_dropped(number, result.as_ref());
        drop(claimed);
    }

    fn close(&mut self, handle: Handle) {
        let stage = Rc::clone(&self.stage);
        let Handle { file, number, opened, .. } = handle;
        let asked = stage.begin_close(number, opened);
        if self.random.happens(stage.plan.abandoned) {
            drop(file);
            stage.hit("abandoned");
            stage.check_closed(number, None, &asked);
            return;
        }
        let result = file.close();
        stage.hit("close");
        stage.check_closed(number, Some(&result), &asked);
    }

    /// Runs a future to its end, as a blocking call or as a task of an executor, or drops it after
    /// some polls.
    fn drive<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let is_dropped = self.random.happens(self.stage.plan.abandoned);
        if !is_dropped && self.random.happens(PerMille(500)) {
            return Some(wait::drive(future));
        }
        let polls = is_dropped.then(|| self.random.below(4));
        let mut future = pin!(future);
        let waker = thread::with_waker(|waker| Waker::from(Arc::new(Task(waker.clone()))));
        let mut context = Context::from_waker(&waker);
        let mut polled = 0;
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return Some(done);
            }
            if polls.is_none() {
                thread::park();
                continue;
            }
            let patience = Duration::from_micros(self.random.below(200));
            thread::park_until(clock::instant() + patience);
            polled += 1;
            if polls.is_some_and(|polls| polled > polls) {
                self.stage.hit("future dropped");
                return None;
            }
        }
    }
}

/// Waker of a task of an executor. The engine makes no request on the thread that polls it.
struct Task(Waker);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }
}
