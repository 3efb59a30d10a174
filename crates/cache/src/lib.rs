//! The way of a dirty page: from a caller's write to the device, and what a sync may promise about
//! it.
//!
//! Pure: no system call, no clock, no thread, no unsafe, and no data either: a page's bytes are in
//! a frame that only the caller can reach. The same code runs under the real engine and under the
//! simulated disk.
//!
//! ```text
//! write ---> Filling --> Dirty --chosen, with a reason--> Writeback --written--> Clean --> gone
//!                          ^                                 | touched meanwhile: a new frame, Dirty again
//!                          |                                 | failed: Dirty, with the error kept
//! ```
//!
//! In order of a page's life:
//! [`frames`] the memory, [`throttle`] who may have some, [`index`] which page has which frame and
//! is in which state, [`partial`] pages of which only some bytes are here, [`file`](mod@file) the
//! verbs of a file and their invariants, [`write`](mod@write) and [`read`] the caller's side,
//! [`bypass`] what goes past all this, [`holes`] what is known to be zero, [`space`] what is
//! reserved ahead and [`growth`] how far, [`lease`] whether anybody else has the file open,
//! [`writeback`] which page goes next, why, and what its end means, [`kept`] what is kept for a
//! flush, [`ticket`] what somebody waits for, [`epochs`] which writes a sync covers, [`discard`]
//! the way out when a device takes nothing any more, `fence` what is being discarded, [`readahead`]
//! what will be read next, [`clean`] and [`uses`] which clean pages may go, [`evict`] in which
//! order they do, [`samples`] how long all that takes, [`account`] what another process is told of
//! all this, [`adopt`] what that makes of it; and [`state`] the word for where a page is. Pages are
//! bits of words in most of these: `bits`.
#![forbid(unsafe_code)]

pub mod account;
pub mod adopt;
mod bits;
pub mod bypass;
pub mod clean;
pub mod discard;
pub mod epochs;
pub mod evict;
mod fence;
pub mod file;
pub mod frames;
pub mod growth;
pub mod holes;
pub mod index;
pub mod kept;
pub mod lease;
pub mod limits;
pub mod partial;
pub mod read;
pub mod readahead;
pub mod samples;
pub mod space;
pub mod state;
pub mod throttle;
pub mod ticket;
pub mod uses;
pub mod write;
pub mod writeback;

pub use bypass::Bypass;
pub use clean::CleanRun;
pub use evict::{Candidate, Evictor, Verdict};
pub use file::{CachedFile, Gaps, Liberties, Origin};
pub use frames::{FrameRun, FrameRuns, Frames};
pub use partial::Patch;
pub use read::{ReadStep, ReadStop, Reader};
pub use readahead::Room;
pub use space::ReservedFor;
pub use state::PageState;
pub use throttle::{Admission, Dirty, Part, Throttle};
pub use ticket::{Failure, Request, TicketId};
pub use uses::Caching;
pub use write::{Copy, Prepare, WriteStop};
pub use writeback::effort::Effort;
pub use writeback::reason::Reason;
pub use writeback::settle::Settled;
