//! A lane through Forebay's queue over a device.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::limits::{DEVICE_HOLD, PAGE, TAGS};
use forebay_block::{
    self as block, Bio, Class, Device, Ended, Frame, Latency, Queue, Segment, Segments, Target,
};
use forebay_uring::{
    Access, Arena, Create, Direct, How, OpenFile, Register, Ring, Truncate, clock,
};

use super::path_of;
use crate::detail::Holds;
use crate::load::error::{CellError, Context, system_error};
use crate::load::lane::{Lane, LaneCounters, Wait};
use crate::load::sequence::{Kind, Operation};
use crate::request::{RequestCell, RequestSpec, Switch};

/// The file's number at the device.
const TARGET: Target = Target(0);

/// A queue over its device. The slot of an operation is the owner of its bio.
#[derive(Debug)]
pub(super) struct Queued<D> {
    queue: Queue,
    device: D,
    slots: usize,
    frames_per_slot: u32,
    ended: Vec<Ended>,
    /// How long the bios that were held were held.
    held: Latency,
}

/// Returns the whole frames of a block.
fn frames_per_slot(block_bytes: u32) -> u32 {
    block_bytes.div_ceil(PAGE as u32)
}

impl<D> Queued<D> {
    pub(super) fn new(spec: &RequestSpec, queue: Queue, device: D) -> Self {
        Self {
            queue,
            device,
            slots: spec.depth as usize,
            frames_per_slot: frames_per_slot(spec.block_bytes),
            ended: Vec::with_capacity(spec.depth as usize),
            held: Latency::default(),
        }
    }

    #[inline]
    fn bio(&self, slot: usize, operation: Operation) -> Bio {
        debug_assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        let Operation { kind, offset, bytes, .. } = operation;
        Bio {
            operation: match kind {
                Kind::Read => block::Operation::Read,
                Kind::Write => block::Operation::Write,
            },
            target: TARGET,
            offset,
            length: u64::from(bytes),
            segments: Segments::from([Segment::frames(
                Frame(slot as u32 * self.frames_per_slot),
                bytes,
            )]),
            class: Class::Waited,
            source: block::Source(0),
            owner: slot as u64,
        }
    }
}

impl<D: Device> Lane for Queued<D> {
    fn slots(&self) -> usize {
        self.slots
    }

    #[inline]
    fn room(&self) -> usize {
        self.queue.room()
    }

    fn together(&self) -> usize {
        self.slots
    }

    /// The device has the memory of its frames, which is not filled.
    fn buffer(&mut self, _slot: usize) -> &mut [u8] {
        &mut []
    }

    #[inline]
    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError> {
        self.queue.submit(self.bio(slot, operation));
        Ok(())
    }

    #[inline]
    fn reap(&mut self, wait: Wait, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let wait = match wait {
            Wait::Not => block::Wait::Not,
            Wait::Flush => block::Wait::Something(Some(Duration::ZERO)),
            Wait::For(1) => block::Wait::Something(None),
            Wait::For(want) => {
                block::Wait::Batch { want: want as u32, within: DEVICE_HOLD, limit: None }
            }
            Wait::Until(until) => block::Wait::Something(Some(until - clock::now())),
        };
        self.queue
            .dispatch(&mut self.device, wait)
            .map_err(|errno| CellError::failed("the device is broken", &system_error(errno)))?;
        let count = self.queue.run(&mut self.device, &mut self.ended) as u64;
        // This is inside the clock: bios without a hold are the rest of all, so they are not
        // counted here.
        if count > 0 && !self.queue.held().is_zero() {
            self.held.add(self.queue.held().as_nanos() as u64, count);
        }
        for one in self.ended.drain(..) {
            if one.result != Ok(one.bio.length) {
                return Err(wrong(&one));
            }
            ended.push(one.bio.owner as usize);
        }
        Ok(())
    }

    fn counters(&self) -> LaneCounters {
        let counters = self.queue.counters();
        LaneCounters {
            doorbells: counters.doorbells,
            requests: counters.dispatched,
            runs: counters.completion_runs,
            completions: counters.completed_bios,
            bios: counters.bios,
            merged: counters.merged_bios,
        }
    }

    fn holds(&self) -> Holds {
        let mut all = self.held.clone();
        all.add(0, self.queue.counters().completions - self.held.count());
        Holds::of(all.reported())
    }
}

/// Returns why a bio did not end as it should have.
#[cold]
fn wrong(ended: &Ended) -> CellError {
    let (offset, asked) = (ended.bio.offset, ended.bio.length);
    let what = format!("{asked} bytes at {offset}");
    match ended.result {
        Ok(moved) => CellError::Process { what: format!("{what}: only {moved} of them moved") },
        Err(errno) => CellError::failed(what, &system_error(errno)),
    }
}

/// Returns a ring on the file of a cell, and notes. Lays the file out.
pub(super) fn ring(cell: &RequestCell) -> Result<(Ring, Vec<String>), CellError> {
    let (spec, path) = (&cell.spec, path_of(cell)?);
    let file = if cell.target.is_some() { open_shared(&path) } else { open_own(&path) };
    let file = file.context_at("could not open it", &path)?;
    let mut notes = Vec::new();
    if let Direct::Refused(reason) = file.direct() {
        notes.push(format!("the file is not direct: {reason}"));
    }
    let frames = u64::from(spec.depth) * u64::from(frames_per_slot(spec.block_bytes));
    debug_assert!(frames > 0, "a ring without memory");
    let arena = u32::try_from(frames)
        .map_err(io::Error::other)
        .and_then(Arena::new)
        .context("no memory for the blocks")?;
    let mut ring = Ring::new(Arc::new(arena), TAGS as u32)
        .map_err(|error| CellError::unavailable(error.to_string()))?;
    let is_registered = spec.fixed_files == Switch::On;
    ring.set_registered(if is_registered { Register::Yes } else { Register::No });
    ring.attach(TARGET, Arc::new(file));
    notes.push(ring.describe());
    Ok((ring, notes))
}

fn open_own(path: &Path) -> io::Result<OpenFile> {
    let how = How {
        access: Access::ReadWrite,
        create: Create::No,
        truncate: Truncate::Keep,
        mode: 0o600,
    };
    OpenFile::open(path, &how).map(|opened| opened.file)
}

/// Opens it for reading, also if others use it: our own open would refuse a mounted device.
fn open_shared(path: &Path) -> io::Result<OpenFile> {
    let mut file = OpenFile::of_descriptor(File::open(path)?.into())?;
    file.go_direct()?;
    Ok(file)
}
