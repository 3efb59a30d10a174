//! The time of the last read, as `relatime` moves it.
//!
//! The engine reads a file of the source for other reasons than a program's read, and serves reads
//! from memory. So its descriptors leave the time of access as it is. This module sets it if it is
//! not after the times of writing and of change, or if it is a day old.
//!
//! ```text
//! read --looked at within a second, nothing changed since--> done
//!   +--> written, and the source does not show the time yet --> set together with that time
//!   +--> time of access is old --> the file system of the source moves it, by its own rules
//! ```
//!
//! New small files are outside the engine: the kernel's read of them moves the time.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use rustix::fs::{IFlags, StatVfsMountFlags, fstatvfs, ioctl_getflags};
use rustix::time::{ClockId, clock_gettime};

use crate::attributes;
use crate::limits::READS_LOOKED_AT;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::wire::Attributes;

/// Age at which the time of access moves although nothing has changed.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the milliseconds of a clock that needs no system call.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

/// Notes that a program has read a file that is in the engine.
fn note_read(file: &OpenFile) {
    let now = now();
    if file.node.next_look.load(Ordering::Relaxed) > now {
        return;
    }
    // Before the look: a change during it has the next read look again.
    file.node.next_look.store(now + READS_LOOKED_AT.as_millis() as u64, Ordering::Relaxed);
    // The time of access is less important than the read.
    let _ = look(file);
}

fn look(file: &OpenFile) -> io::Result<()> {
    let node = &file.node;
    if !is_old(&attributes::of(node)?) || !keeps_times(file)? {
        return Ok(());
    }
    {
        let mut state = node.state();
        if state.written.is_some() {
            state.accessed = Some(SystemTime::now());
            return Ok(());
        }
    }
    file.data.touch();
    Ok(())
}

fn is_old(attributes: &Attributes) -> bool {
    let Attributes { accessed, modified, changed, .. } = *attributes;
    let is_aged = || SystemTime::now().duration_since(accessed).is_ok_and(|age| age >= OLD);
    accessed <= modified || accessed <= changed || is_aged()
}

/// Returns whether a read moves the time of access in the source.
fn keeps_times(file: &OpenFile) -> io::Result<bool> {
    file.data.with(|held| {
        let is_kept = !fstatvfs(held)?.f_flag.contains(StatVfsMountFlags::NOATIME);
        // Not every file system has such flags.
        let flags = ioctl_getflags(held).unwrap_or(IFlags::empty());
        Ok(is_kept && !flags.contains(IFlags::NOATIME))
    })
}

impl OpenFile {
    /// Reads with the flags of the descriptor, and notes the time.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64, flags: i32) -> io::Result<usize> {
        let leaves_time = flags & libc::O_NOATIME != 0;
        if leaves_time && let Some(small) = self.data.small() {
            // The kernel's read of a small file moves the time, which matters less than the read.
            let _ = small.grow();
        }
        let read = self.data.read(buffer, offset)?;
        if !leaves_time && self.data.is_in_engine() {
            note_read(self);
        }
        Ok(read)
    }
}

impl Node {
    /// Has the next read look at the times: one of them has changed.
    pub(crate) fn note_changed(&self) {
        self.next_look.store(0, Ordering::Relaxed);
    }
}
