//! A call at a time: `preadv2` or `pwritev2`, which is a depth of one whatever the cell asks for.

use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::time::Instant;

use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};

use super::open_direct;
use super::tally::Tally;
use crate::cell::CellResult;
use crate::load::CellError;
use crate::load::lane::Buffers;
use crate::load::request::offsets::Offsets;
use crate::request::{Operation, RequestSpec};

pub(super) fn run(spec: &RequestSpec, path: &Path) -> Result<CellResult, CellError> {
    let file = open_direct(spec, path)?;
    let mut buffers = Buffers::new(1, spec.block_bytes as usize);
    let mut offsets = Offsets::new(spec);
    let mut tally = Tally::new(spec);
    if spec.depth > 1 {
        tally.notes.push("one call at a time; the depth has no effect".into());
    }
    let mut now = Instant::now();
    while tally.goes_on(&mut now) {
        let offset = offsets.next();
        let block = &mut buffers.slot(0)[..spec.block_bytes as usize];
        transfer(&file, spec.operation, offset, block)
            .map_err(|error| CellError::io(format!("block at {offset}"), path, &error))?;
        let ended = Instant::now();
        tally.doorbell();
        tally.ended(ended - now);
        now = ended;
    }
    Ok(tally.result(spec, now))
}

/// All of it, however many calls that takes.
fn transfer(
    file: &std::fs::File,
    operation: Operation,
    offset: u64,
    block: &mut [u8],
) -> io::Result<()> {
    let mut done = 0;
    while done < block.len() {
        let (at, part) = (offset + done as u64, &mut block[done..]);
        let moved = match operation {
            Operation::Read => {
                preadv2(file, &mut [IoSliceMut::new(part)], at, ReadWriteFlags::empty())
            }
            Operation::Write => pwritev2(file, &[IoSlice::new(part)], at, ReadWriteFlags::empty()),
        };
        match moved {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(moved) => done += moved,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
