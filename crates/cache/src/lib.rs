//! Cache of one file's pages: from a write of a caller to the device, and what a sync may promise
//! about it.
//!
//! The crate is pure: no system call, clock, thread or `unsafe`, and no data: the bytes of a page
//! are in a frame that only the caller can reach. The same code runs in the engine and over the
//! simulated disk.
//!
//! ```text
//! write ---> Filling --> Dirty --chosen, with a reason--> Writeback --written--> Clean --> gone
//!                          ^                                 | touched meanwhile: a new frame, Dirty again
//!                          |                                 | failed: Dirty, with the error kept
//! ```
//!
//! [`CachedFile`] has the operations of a file, [`Frames`] allocates memory, [`Throttle`] limits
//! dirty pages, [`Evictor`] chooses clean pages to drop, and [`writeback`] chooses what is written
//! next.
#![forbid(unsafe_code)]

// Modules in order of a page's life: `frames` memory, `throttle` the dirty limit, `index` which
// page has which frame and state, `partial` pages with only some bytes in memory, `file` the
// operations of a file and their invariants, `write` and `read` the caller's side, `fill` requests
// that read pages, `bypass` writes past the cache, `append` appends past it, `holes` ranges known
// to be zero, `space` reserved space, `reserve` reserving it and `growth` how much, `lease` whether
// another program has the file open, `writeback` which page is written next, why, and the result,
// `kept` pages kept for a flush, `logged` pages in the intent log, `ticket` requests of callers,
// `ask` taking one, `epochs` which writes a sync covers, `discard` dropping dirty pages and
// discarding ranges, `exact` the bytes of a page that are ours on a shared file, `readahead`,
// `clean` and `uses` which clean pages may be dropped, `evict` their order, `price` of a disk,
// `samples` latencies, `account` records for a keeper, `adopt` taking them over, `settled` the
// results that the caller applies, `state` the state of a page, `rare` parts that most files never
// need, `bits` sets of pages.

pub mod account;
pub mod adopt;
pub mod append;
mod ask;
pub mod base;
mod bits;
pub mod bypass;
pub mod clean;
pub mod discard;
pub mod epochs;
pub mod evict;
mod exact;
pub mod file;
mod fill;
pub mod frames;
pub mod growth;
pub mod holes;
pub mod index;
pub mod kept;
pub mod lease;
pub mod limits;
pub mod logged;
pub mod meter;
pub mod partial;
pub mod price;
pub mod rare;
pub mod read;
pub mod readahead;
mod reserve;
pub mod samples;
mod settled;
pub mod space;
pub mod state;
pub mod throttle;
pub mod ticket;
pub mod uses;
pub mod write;
pub mod writeback;

pub use base::Base;
pub use bypass::Bypass;
pub use evict::{Candidate, Evictor, Verdict};
pub use file::{CachedFile, Gaps, Liberties, Origin};
pub use frames::{FrameRun, FrameRuns, Frames};
pub use logged::{Loggable, LoggedPage};
pub use partial::Patch;
pub use rare::Rare;
pub use read::{ReadStep, ReadStop, Reader};
pub use readahead::ReadaheadRoom;
pub use settled::{CleanRun, Lists, Settled};
pub use space::ReservedFor;
pub use state::PageState;
pub use throttle::{Admission, DevicePart, Dirty, Throttle};
pub use ticket::{Failure, TicketId, TicketKind};
pub use uses::Caching;
pub use write::{Copy, Prepare, WriteStop};
pub use writeback::reason::Reason;
