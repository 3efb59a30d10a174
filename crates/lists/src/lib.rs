//! A lock-free list between threads, with many producers and one consumer.
//!
//! [`mod@fifo`] returns values in the order of their pushes. Forebay uses it wherever work crosses
//! threads. It never blocks. The caller does the waiting and waking, and [`WasEmpty`] says when a
//! wake is needed.
//!
//! ```
//! use forebay_lists::{Pop, WasEmpty, fifo};
//!
//! let (sender, mut receiver) = fifo();
//! assert_eq!(sender.push(1), WasEmpty::Yes);         // the consumer needs a wake
//! assert_eq!(sender.push(2), WasEmpty::No);
//! assert_eq!(receiver.pop(), Pop::Node(1));
//! assert_eq!(receiver.pop(), Pop::Node(2));
//! assert_eq!(receiver.pop(), Pop::Empty);
//! ```
//!
//! The waking protocol:
//!
//! ```text
//! producer:  push(value) -> Yes? then wake     a wake must be remembered until the consumer waits
//! consumer:  forget old wakes; pop until Empty; wait for a wake; repeat
//! ```
//!
//! [`Quiet`] is for messages that can wait until the consumer wakes by itself.
//!
//! The list is unbounded: the producers must bound the values that they push. All atomics and cells
//! come from the module `sync`, so that the model checker loom can replace them.

pub mod fifo;
pub mod quiet;

mod outcome;
mod sync;

pub use fifo::fifo;
pub use outcome::{Pop, Rest, WasEmpty};
pub use quiet::{Quiet, Until};
