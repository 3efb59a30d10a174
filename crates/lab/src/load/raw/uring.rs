//! The kernel's ring with nothing of ours between: so many requests handed over with each call, at
//! a depth.
//!
//! A batch goes when it is whole, and the call that hands it over waits until there is room for the
//! next: with a depth of 128 and a batch of 32 a quarter is handed over and a quarter waited for.
//! Without a batch all that is free goes at once. The kernel begins a plug of its own where more
//! than two are handed over together, so batches of two and three are apart by more than one.
//! Short, interrupted and would-block transfers go out again for the rest.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

use io_uring::{IoUring, opcode, squeue, types};

use super::open_direct;
use super::tally::Tally;
use crate::cell::CellResult;
use crate::load::lane::Buffers;
use crate::load::request::offsets::Offsets;
use crate::load::{CellError, ring};
use crate::manifest::mount;
use crate::request::{Operation, RequestSpec, Switch};
use crate::through::{Poll, RequestCell};

pub(super) fn run(cell: &RequestCell, path: &Path) -> Result<CellResult, CellError> {
    let spec = &cell.spec;
    let mut notes = Vec::new();
    let polls = match cell.poll {
        Poll::Never => false,
        Poll::WhereItCan => device_polls(cell.place()).unwrap_or_else(|why| {
            notes.push(format!("not polled: {why}"));
            false
        }),
    };
    let mut load = Load::new(spec, path, polls)?;
    let mut tally = Tally::new(spec);
    tally.notes = notes;
    let mut offsets = Offsets::new(spec);
    let mut now = Instant::now();
    while tally.goes_on(&mut now) {
        load.fill(&mut offsets)?;
        load.hand_over(now, load.batch.saturating_sub(load.free.len()))?;
        tally.doorbell();
        now = Instant::now();
        load.collect(now, &mut tally)?;
        // Completions may come one by one, and what ended short takes another turn.
        while load.free.len() < load.batch.min(load.depth) {
            load.hand_over(now, load.batch.min(load.depth) - load.free.len())?;
            // Forebay's queue counts a call that only waits as well.
            tally.doorbell();
            now = Instant::now();
            load.collect(now, &mut tally)?;
        }
    }
    let result = tally.result(spec, now);
    load.drain()?;
    Ok(result)
}

/// Whether the device that a place is or lies on has queues for polling; why not.
fn device_polls(place: &Path) -> Result<bool, String> {
    let queue =
        mount::queue_directory_of(place).ok_or("the file is on no block device of its own")?;
    let path = queue.join("io_poll");
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim() == "1" => Ok(true),
        Ok(_) => Err(format!("{} says 0", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

#[derive(Clone, Copy)]
struct Slot {
    offset: u64,
    done: u32,
    started: Instant,
}

struct Load<'a> {
    spec: &'a RequestSpec,
    path: &'a Path,
    file: File,
    /// Both go last and together, and only once nothing is in flight.
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<Buffers>,
    depth: usize,
    batch: usize,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Pushed and not yet taken by the kernel.
    staged: Vec<usize>,
    in_flight: usize,
}

impl<'a> Load<'a> {
    fn new(spec: &'a RequestSpec, path: &'a Path, polls: bool) -> Result<Self, CellError> {
        let file = open_direct(spec, path)?;
        let depth = spec.depth as usize;
        let ring = if polls { polled(spec.depth) } else { ring::set_up(spec.depth) };
        let ring = ring.map_err(|error| {
            CellError::unavailable(format!("io_uring is missing or forbidden here: {error}"))
        })?;
        let buffers = Buffers::new(depth, spec.block_bytes as usize);
        if spec.fixed_files == Switch::On {
            let registered = ring.submitter().register_files(&[file.as_raw_fd()]);
            registered.map_err(|error| CellError::system("could not register the file", &error))?;
        }
        if spec.fixed_buffers == Switch::On {
            let vector = |slot| libc::iovec {
                iov_base: buffers.address(slot).cast(),
                iov_len: spec.block_bytes as usize,
            };
            let vectors: Vec<_> = (0..depth).map(vector).collect();
            // SAFETY: the memory outlives the ring: `drop` frees it after the ring, or neither.
            let registered = unsafe { ring.submitter().register_buffers(&vectors) };
            registered.map_err(|error| {
                let remedy = "raise the limit of locked memory: ulimit -l";
                CellError::unavailable(format!(
                    "buffers could not be registered: {error} ({remedy})"
                ))
            })?;
        }
        let slot = Slot { offset: 0, done: 0, started: Instant::now() };
        Ok(Self {
            spec,
            path,
            file,
            ring: ManuallyDrop::new(ring),
            buffers: ManuallyDrop::new(buffers),
            depth,
            batch: spec.batch.map_or(1, |batch| batch as usize).min(depth),
            slots: vec![slot; depth],
            free: (0..depth).rev().collect(),
            staged: Vec::with_capacity(depth),
            in_flight: 0,
        })
    }

    /// Stages a batch, or all that is free where none is asked for.
    fn fill(&mut self, offsets: &mut Offsets) -> Result<(), CellError> {
        let most = if self.spec.batch.is_some() { self.batch } else { self.depth };
        while self.staged.len() < most
            && let Some(slot) = self.free.pop()
        {
            self.slots[slot].offset = offsets.next();
            self.slots[slot].done = 0;
            self.stage(slot)?;
        }
        Ok(())
    }

    fn stage(&mut self, slot: usize) -> Result<(), CellError> {
        let entry = self.entry(slot);
        // SAFETY: the buffer and the file live until nothing is in flight (see `drop`), and a slot
        // that is not free is not staged again before it has ended.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // There are as many entries as slots, and each slot is staged once.
        pushed.map_err(|_| CellError::Process { what: "the submission queue is full".into() })?;
        self.staged.push(slot);
        Ok(())
    }

    fn entry(&self, slot: usize) -> squeue::Entry {
        let Slot { offset, done, .. } = self.slots[slot];
        let (at, left) = (offset + u64::from(done), self.spec.block_bytes - done);
        let address = self.buffers.address(slot).wrapping_add(done as usize);
        // Both kinds of descriptor are types of their own, and so are both kinds of buffer.
        macro_rules! entry {
            ($operation:ident $(, $buffer:expr)?) => {
                match self.spec.fixed_files {
                    Switch::On => {
                        opcode::$operation::new(types::Fixed(0), address, left $(, $buffer)?).offset(at).build()
                    }
                    Switch::Off => {
                        let file = types::Fd(self.file.as_raw_fd());
                        opcode::$operation::new(file, address, left $(, $buffer)?).offset(at).build()
                    }
                }
            };
        }
        let entry = match (self.spec.operation, self.spec.fixed_buffers) {
            (Operation::Read, Switch::On) => entry!(ReadFixed, slot as u16),
            (Operation::Write, Switch::On) => entry!(WriteFixed, slot as u16),
            (Operation::Read, Switch::Off) => entry!(Read),
            (Operation::Write, Switch::Off) => entry!(Write),
        };
        entry.user_data(slot as u64)
    }

    /// Hands over what is staged, and waits for so many completions.
    fn hand_over(&mut self, now: Instant, least: usize) -> Result<(), CellError> {
        for &slot in &self.staged {
            if self.slots[slot].done == 0 {
                self.slots[slot].started = now;
            }
        }
        match self.ring.submit_and_wait(least) {
            Ok(taken) => {
                self.in_flight += taken;
                self.staged.drain(..taken.min(self.staged.len()));
                Ok(())
            }
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(CellError::system("could not enter the ring", &error)),
        }
    }

    /// Ends what is on the completion queue; what is not whole is staged again.
    fn collect(&mut self, now: Instant, tally: &mut Tally) -> Result<(), CellError> {
        loop {
            let next = self.ring.completion().next();
            let Some(completion) = next else { return Ok(()) };
            self.in_flight -= 1;
            let slot = completion.user_data() as usize;
            match completion.result() {
                moved if moved > 0 => {
                    self.slots[slot].done += moved as u32;
                    if self.slots[slot].done < self.spec.block_bytes {
                        self.stage(slot)?;
                    } else {
                        tally.ended(now - self.slots[slot].started);
                        self.free.push(slot);
                    }
                }
                again if [-libc::EINTR, -libc::EAGAIN].contains(&again) => self.stage(slot)?,
                failed => {
                    let error = match failed {
                        0 => io::ErrorKind::UnexpectedEof.into(),
                        number => io::Error::from_raw_os_error(-number),
                    };
                    let what = format!("block at {}", self.slots[slot].offset);
                    return Err(CellError::io(what, self.path, &error));
                }
            }
        }
    }

    /// Waits for all that is in flight; how it ends no longer counts.
    fn drain(&mut self) -> Result<(), CellError> {
        while self.in_flight > 0 {
            self.hand_over(Instant::now(), self.in_flight)?;
            let ended = self.ring.completion().count();
            self.in_flight -= ended;
        }
        Ok(())
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // After a failure the kernel may still write into the buffers: they are given up rather
            // than freed.
            return;
        }
        // SAFETY: dropped here and nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        // SAFETY: dropped here and nowhere else, with nothing in flight that could reach it.
        unsafe { ManuallyDrop::drop(&mut self.buffers) };
    }
}

/// A ring that polls for completions.
fn polled(depth: u32) -> io::Result<IoUring> {
    IoUring::builder().setup_iopoll().setup_single_issuer().build(depth.next_power_of_two())
}
