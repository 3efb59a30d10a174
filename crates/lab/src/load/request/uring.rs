//! The kernel's ring with nothing of ours between: batches of requests, at a depth.
//!
//! A batch goes when it is whole, and the call that hands it over waits until there is room for the
//! next: with a depth of 128 and a batch of 32 a quarter is handed over and a quarter waited for.
//! Without a batch all that is free goes at once. The kernel begins a plug of its own where more
//! than two are handed over together, so batches of two and three are apart by more than one.
//! Short, interrupted and would-block transfers go out again for the rest.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use forebay_block::{Bio, Counters, Ended, Errno, Wait};
use io_uring::{opcode, squeue, types};

use super::open_direct;
use super::way::Way;
use crate::job::YesNo;
use crate::load::lane::Buffers;
use crate::load::ring::{self, RingMemory};
use crate::load::{CellError, Context};
use crate::request::{Operation, RequestSpec, Switch};

/// A bio on its way, and how much of it is done.
struct Slot {
    bio: Bio,
    done: u32,
}

/// A ring and its file. A bio's place is the number of its buffer.
pub(super) struct Kernel<'a> {
    spec: &'a RequestSpec,
    memory: RingMemory,
    file: File,
    slots: Vec<Option<Slot>>,
    /// Pushed and not yet taken by the kernel.
    staged: usize,
    counters: Counters,
}

impl<'a> Kernel<'a> {
    pub(super) fn open(
        spec: &'a RequestSpec,
        path: &Path,
        polled: YesNo,
    ) -> Result<Self, CellError> {
        let file = open_direct(spec, path)?;
        let depth = spec.depth as usize;
        let ring = ring::set_up(spec.depth, polled).map_err(|error| {
            CellError::unavailable(format!("io_uring is missing or forbidden here: {error}"))
        })?;
        let buffers = Buffers::new(depth, spec.block_bytes as usize);
        if spec.fixed_files == Switch::On {
            ring.submitter()
                .register_files(&[file.as_raw_fd()])
                .context("could not register the file")?;
        }
        if spec.fixed_buffers == Switch::On {
            // SAFETY: `RingMemory` frees the buffers after the ring, or neither.
            unsafe { ring::register(&ring, &buffers, spec.block_bytes as usize) }?;
        }
        Ok(Self {
            spec,
            memory: RingMemory::new(ring, buffers),
            file,
            slots: (0..depth).map(|_| None).collect(),
            staged: 0,
            counters: Counters::default(),
        })
    }

    fn stage(&mut self, place: usize) {
        let entry = self.entry(place);
        // SAFETY: the buffer and the file live until nothing is in flight (see `RingMemory`), and a
        // slot that is taken is not staged again before it has ended.
        let pushed = unsafe { self.memory.ring.submission().push(&entry) };
        pushed.expect("there are as many entries as slots, and each slot is staged once");
        self.staged += 1;
    }

    fn entry(&self, place: usize) -> squeue::Entry {
        let Slot { bio, done } = self.slots[place].as_ref().expect("what is staged is on its way");
        let (at, left) = (bio.offset + u64::from(*done), self.spec.block_bytes - done);
        let address = self.memory.buffers.address(place).wrapping_add(*done as usize);
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
            (Operation::Read, Switch::On) => entry!(ReadFixed, place as u16),
            (Operation::Write, Switch::On) => entry!(WriteFixed, place as u16),
            (Operation::Read, Switch::Off) => entry!(Read),
            (Operation::Write, Switch::Off) => entry!(Write),
        };
        entry.user_data(place as u64)
    }
}

impl Way for Kernel<'_> {
    #[inline]
    fn submit(&mut self, bio: Bio) {
        let place = bio.owner as usize;
        self.slots[place] = Some(Slot { bio, done: 0 });
        self.stage(place);
    }

    /// Hands over what is staged, and waits. A call that only waits counts as well, as in Forebay's
    /// queue.
    #[inline]
    fn dispatch(&mut self, wait: Wait) -> Result<(), Errno> {
        let least = match wait {
            Wait::Not | Wait::Something(Some(Duration::ZERO)) => 0,
            Wait::Something(_) => 1,
            Wait::Batch { want, .. } => want as usize,
        };
        self.counters.doorbells += 1;
        match self.memory.ring.submit_and_wait(least) {
            Ok(taken) => {
                self.memory.in_flight += taken;
                self.staged -= taken;
                self.counters.dispatched += taken as u64;
                Ok(())
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                number => Err(Errno(number.unwrap_or(libc::EIO))),
            },
        }
    }

    /// Ends the bios on the completion queue. A bio that was not transferred in full is staged
    /// again.
    #[inline]
    fn run(&mut self, ended: &mut Vec<Ended>) {
        loop {
            let next = self.memory.ring.completion().next();
            let Some(completion) = next else { return };
            self.memory.in_flight -= 1;
            let (place, result) = (completion.user_data() as usize, completion.result());
            let slot = self.slots[place].as_mut().expect("what ended was on its way");
            let result = match result {
                moved if moved > 0 => {
                    slot.done += moved as u32;
                    (slot.done == self.spec.block_bytes).then_some(Ok(u64::from(slot.done)))
                }
                // The end of the file.
                0 => Some(Ok(u64::from(slot.done))),
                again if [-libc::EINTR, -libc::EAGAIN].contains(&again) => None,
                failed => Some(Err(Errno(-failed))),
            };
            match result {
                Some(result) => {
                    let slot = self.slots[place].take().expect("it was there");
                    ended.push(Ended { bio: slot.bio, result });
                }
                None => self.stage(place),
            }
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
