//! Lists that cross threads: many push, one pops.
//!
//! [`mod@fifo`] is what Forebay uses wherever something crosses a thread: work runs in the order it
//! came. [`mod@stack`] is the same with the newest first, kept so that the worth of order can be
//! measured. Neither ever blocks or spins; waiting and waking are the caller's, and [`WasEmpty`]
//! says when to wake.
//!
//! The waking protocol, for either list:
//!
//! ```text
//! pusher:    push(value) -> Yes? then wake       the wake is remembered until the consumer has waited for it
//! consumer:  forget old wakes; pop until Empty; wait for a wake; again
//! ```
//!
//! Nothing here is bounded in memory: what may be pushed is bounded by whoever pushes (by its tags,
//! its budget). All atomics and cells come from one place, so that a model checker can take their
//! part.

pub mod fifo;
pub mod stack;

mod outcome;
mod sync;

pub use fifo::fifo;
pub use outcome::{Pop, Rest, WasEmpty};
pub use stack::stack;
