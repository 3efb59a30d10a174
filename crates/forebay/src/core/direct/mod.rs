//! Files past the cache: reads and writes that go from the caller's own memory straight to the
//! device.
//!
//! ```text
//! caller: verb --operation--> plug? --message--> context: gate --> bios --> queue --one doorbell--> ring
//!    ^                                              (who must wait)                                  |
//!    +---------- ticket: result and memory <------------ end <------------- reap <-------------------+
//! ```
//!
//! In order of an operation's life: [`buffer`] the memory it is for, [`file`] the verbs,
//! [`operation`] what was asked and whom to tell, [`plug`] and [`held`] held with its neighbours,
//! [`message`] the way to the context, [`flow`] the context's part, [`lane`] which operation of a
//! file may start, [`active`] one that has started, [`shape`] which bytes of it go straight and
//! which by way of whole blocks, [`turns`] bios that wait for room in the queue, [`transfer`] the
//! future; and [`inode`] what the handles of a file share, [`handle`] the errors that each has to
//! report.
//!
//! The operation belongs to the context from the moment it is submitted, and its memory to the
//! device: a future only looks on. So a dropped one changes nothing, and what takes several steps
//! (a block read, changed, written) goes on to its end.

pub(crate) mod active;
pub(crate) mod buffer;
mod closing;
pub(crate) mod file;
pub(crate) mod flow;
pub(crate) mod handle;
pub(crate) mod held;
pub(crate) mod inode;
pub(crate) mod lane;
pub(crate) mod message;
pub(crate) mod operation;
pub(crate) mod plug;
pub(crate) mod shape;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;
pub(crate) mod turns;
