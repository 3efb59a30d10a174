//! Stream sockets, many on one thread: accepted, read and written over the ring, or over epoll
//! where the ring cannot.
//!
//! ```text
//!   kernel ==arrivals, numbered==> one queue per connection --pass: in order, a share each--> events
//!   send, send_owned --> outgoing, bounded --one gathered send per connection and pass--> kernel
//!   Poster, any thread --> fifo, one wake per batch --> events
//! ```
//!
//! Why passes: a connection that floods would otherwise be served until it stops. A pass hands out
//! what arrived in the order it arrived, up to a share of bytes for each connection and a budget
//! for all; what is left is handed out by the next passes, with the connections that had nothing
//! yet before those that had their share. So what one connection sends delays the message of
//! another by its share of each pass, and by nothing else.
//!
//! The guarantees. The bytes of a connection are handed out in order, whatever the knobs say. A
//! connection that was accepted or connected is told [`Closed`](What::Closed) exactly once, after
//! all else of it, and its number never names another. Memory is bounded: by the buffers made at
//! the start for what is received, by [`Options::outgoing_bytes`] for what is to be sent; a
//! connection whose peer does not read is not read either. Memory at the kernel outlives its use:
//! [`Sockets`] cancels when dropped and waits, and leaks what does not end. No signal is ever
//! raised (`MSG_NOSIGNAL`).
//!
//! The price: what is sent is copied once, unless it is given away with [`Sockets::send_owned`].
//! The ring's form needs Linux 6.0 (multishot receive into provided buffers); below it is epoll,
//! and [`Sockets::describe`] says so.
//!
//! The order of arrival is the order in which the kernel tells. Over the ring on Linux 6.0 to 6.4
//! the kernel reverses what it tells at once; from 6.5 on it does not.
//!
//! Nothing here knows messages: a message may come in any number of pieces, and several in one.

mod address;
mod counters;
mod epoll;
mod event;
mod limits;
mod options;
mod outgoing;
mod pool;
mod poster;
mod provided;
mod ring;
mod sockets;
mod table;
mod timers;
mod transport;
mod work;

pub use address::{Address, SocketError};
pub use counters::NetCounters;
pub use event::{Connection, EndReason, Event, Listener, What};
pub use options::{Choice, Options, OptionsError};
pub use outgoing::Room;
pub use pool::Received;
pub use poster::Poster;
pub(crate) use ring::ability::ability;
pub use sockets::{Closing, SendError, Sockets, SocketsError};
