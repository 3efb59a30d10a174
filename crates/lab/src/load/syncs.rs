//! Many syncs at once, through one ring.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{opcode, types};

use super::ring;
use crate::job::YesNo;

/// Calls fdatasync on all files through one ring, with at most `depth` in flight.
pub(crate) fn sync_data(files: &[File], depth: u32) -> io::Result<()> {
    let mut ring = ring::set_up(depth, YesNo::No)?;
    let (mut waiting, mut in_flight, mut result) = (files.iter(), 0, Ok(()));
    loop {
        for file in waiting.by_ref().take(depth as usize - in_flight) {
            let file = types::Fd(file.as_raw_fd());
            let entry = opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build();
            // SAFETY: the operation uses no memory. The descriptor is open until it is submitted,
            // and from then on the kernel holds the file.
            unsafe { ring.submission().push(&entry) }.expect("the ring has room for the depth");
            in_flight += 1;
        }
        if in_flight == 0 {
            return result;
        }
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for completion in ring.completion() {
            in_flight -= 1;
            if completion.result() < 0 {
                result = Err(io::Error::from_raw_os_error(-completion.result()));
            }
        }
    }
}
