//! One call at a time: `preadv2` or `pwritev2`. The depth is one, also if the cell asks for more.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;

use forebay_block::{Bio, Counters, Ended, Errno, Wait};
use rustix::io::{Errno as Failed, ReadWriteFlags, preadv2, pwritev2};

use super::open_direct;
use super::way::Way;
use crate::load::CellError;
use crate::load::lane::Buffers;
use crate::request::{Operation, RequestSpec};

/// A file, and the bio that the last call ended.
pub(super) struct Calls {
    file: File,
    operation: Operation,
    buffer: Buffers,
    ended: Option<Ended>,
    counters: Counters,
}

impl Calls {
    pub(super) fn open(spec: &RequestSpec, path: &Path) -> Result<Self, CellError> {
        Ok(Self {
            file: open_direct(spec, path)?,
            operation: spec.operation,
            buffer: Buffers::new(1, spec.block_bytes as usize),
            ended: None,
            counters: Counters::default(),
        })
    }

    /// Transfers all of it, however many calls that takes. Returns less at the end of the file.
    fn transfer(&mut self, bio: &Bio) -> Result<u64, Errno> {
        let (file, block) = (&self.file, &mut self.buffer.slot(0)[..bio.length as usize]);
        let mut done = 0;
        while done < block.len() {
            let (at, part) = (bio.offset + done as u64, &mut block[done..]);
            let flags = ReadWriteFlags::empty();
            let moved = match self.operation {
                Operation::Read => preadv2(file, &mut [IoSliceMut::new(part)], at, flags),
                Operation::Write => pwritev2(file, &[IoSlice::new(part)], at, flags),
            };
            match moved {
                Ok(0) => break,
                Ok(moved) => done += moved,
                Err(Failed::INTR) => {}
                Err(error) => return Err(Errno(error.raw_os_error())),
            }
        }
        Ok(done as u64)
    }
}

impl Way for Calls {
    #[inline]
    fn room(&self) -> usize {
        usize::from(self.ended.is_none())
    }

    #[inline]
    fn submit(&mut self, bio: Bio) {
        self.counters.doorbells += 1;
        self.counters.dispatched += 1;
        self.ended = Some(Ended { result: self.transfer(&bio), bio });
    }

    #[inline]
    fn dispatch(&mut self, _wait: Wait) -> Result<(), Errno> {
        Ok(())
    }

    #[inline]
    fn run(&mut self, ended: &mut Vec<Ended>) {
        ended.extend(self.ended.take());
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
