//! System calls of a task.

use std::io;

use forebay_block::Errno;

use super::flying::CALL;
use super::state::{Machine, with};
use crate::world::{self, Reason};

/// Acts on the machine, unless the process was killed.
pub(crate) fn call<T>(act: impl FnOnce(&mut Machine) -> Result<T, Errno>) -> io::Result<T> {
    world::preempt();
    if world::is_dead() {
        return Err(error_of(Errno::IO));
    }
    with(act).map_err(error_of)
}

/// Waits for the end of a call that is at a device.
pub(crate) fn wait_for(ticket: u64) -> io::Result<u64> {
    loop {
        if let Some(result) = with(|machine| machine.end_call(ticket)) {
            return result.map_err(error_of);
        }
        if world::is_dead() {
            return Err(error_of(Errno::IO));
        }
        world::block(Reason { what: CALL, number: ticket }, None);
    }
}

pub(crate) fn error_of(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}
