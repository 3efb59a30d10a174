//! Stream sockets over io_uring: many connections on one thread, served in passes.
//!
//! ```text
//! kernel ==arrivals, numbered==> queue per connection --pass: in order, a share each--> events
//! send --> outgoing, bounded --one gathered send per connection and pass--> kernel
//! Poster, any thread --> fifo, one wake per batch --> events
//! ```
//!
//! Why passes: otherwise a connection that floods is served until it stops. A pass returns arrivals
//! in their order, up to a share of bytes for each connection and a budget for all. The next passes
//! return the rest, first for the connections that had nothing yet. So the bytes of one connection
//! delay a message of another by at most its share of each pass.
//!
//! The guarantees:
//!
//! - The bytes of a connection are returned in order, under every knob.
//! - A connection that was accepted is reported as [`Closed`](What::Closed) exactly once, after all
//!   its other events. Its number never names another connection.
//! - Memory is bounded: for received bytes by the buffers made at the start, for outgoing bytes by
//!   [`Options::outgoing_bytes`]. A connection whose peer does not read is not read either.
//! - Memory that the kernel uses outlives its use. [`Sockets`] cancels its requests when dropped,
//!   waits for them, and leaks the memory of those that do not end.
//! - No signal is raised (`MSG_NOSIGNAL`).
//!
//! The price: sent bytes are copied once. The kernel must be Linux 6.0 or newer (multishot receive
//! into provided buffers).
//!
//! The order of arrival is the order of the kernel's completions. Linux 6.0 to 6.4 reverse the
//! completions of one call; newer kernels do not.
//!
//! Nothing here knows messages: a message may arrive in several pieces, and a piece may contain
//! several messages. There are no outgoing connections and no fallback without io_uring.
#![deny(unsafe_code)]

mod address;
mod counters;
mod event;
mod limits;
mod options;
mod outgoing;
#[allow(unsafe_code, reason = "received bytes are in memory that the kernel fills")]
mod pool;
mod poster;
#[allow(unsafe_code, reason = "the ring of buffers is shared with the kernel")]
mod provided;
#[allow(unsafe_code, reason = "requests point to memory")]
mod ring;
mod sockets;
mod table;
mod work;

pub use address::{Address, SocketError};
pub use counters::NetCounters;
pub use event::{Connection, EndReason, Event, Listener, What};
pub use options::{Options, OptionsError};
pub use outgoing::Room;
pub use pool::Received;
pub use poster::Poster;
pub use sockets::{Closing, SendError, Sockets, SocketsError};
