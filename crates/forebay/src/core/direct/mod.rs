//! Direct files: reads and writes between the caller's own memory and the device, past the cache.
//!
//! ```text
//! caller --operation--> plug? --message--> context: lane --> bios --> queue --one doorbell--> ring
//!    ^                                       (operations wait here)                             |
//!    +---------- ticket: result and memory <------- end <------------ reap <--------------------+
//! ```
//!
//! The modules, in the order of an operation's life:
//!
//! - [`buffer`]: its memory.
//! - [`direct_file`]: the calls.
//! - [`operation`]: the operation, its ticket, and operations that are held back.
//! - [`plug`]: the holding back, to submit operations with their neighbours.
//! - [`flow`]: the part of the context.
//! - [`lane`]: the order of starts in one file.
//! - [`active`]: a started operation.
//! - `interrupted`: the end of a file that a panic interrupted.
//! - [`shape`]: the bytes that go straight, and those that need whole blocks.
//! - [`turns`]: bios that wait for room in the queue.
//! - [`transfer`]: the future.
//! - [`direct_inode`]: the state shared by all handles of a file, and the errors that a handle has
//!   to report.
//!
//! From its submission, the operation belongs to the context and its memory to the device. A future
//! only observes it, so dropping the future changes nothing. An operation of several steps (read a
//! block, change it, write it) runs to its end.

pub(crate) mod active;
pub(crate) mod buffer;
pub(crate) mod direct_file;
pub(crate) mod direct_inode;
pub(crate) mod flow;
mod interrupted;
pub(crate) mod lane;
pub(crate) mod operation;
pub(crate) mod plug;
pub(crate) mod shape;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;
pub(crate) mod turns;
