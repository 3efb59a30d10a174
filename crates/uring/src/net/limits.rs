//! Every bound that is not an option, with its reason.

use std::time::Duration;

/// What an event costs of a pass beside its bytes, so that a pass of empty ones ends too: about
/// what handling a small message takes, as bytes copied.
pub(super) const EVENT_COST_BYTES: usize = 256;

/// Pieces of one gathered send: more would be a vector as large as what it describes.
pub(super) const SEND_PIECES: usize = 64;

/// Bytes of one gathered send at which no further piece is taken: what a socket's buffer takes at
/// once.
pub(super) const SEND_BYTES: usize = 256 << 10;

/// Requests staged for one call of the kernel; when there are more it is called more than once.
pub(super) const STAGED: u32 = 256;

/// How many that were posted are taken over for one pass.
pub(super) const POSTED: usize = 1024;

/// Receives in a row of one connection over epoll, before others have their turn: what the kernel
/// does for a multishot receive.
pub(super) const RECEIVES: usize = 32;

/// How long a listener rests after the kernel had no descriptor or no memory for it.
pub(super) const ACCEPT_REST: Duration = Duration::from_millis(100);

/// How long a connection that is closed after sending may move nothing, where it has no shorter
/// limit of its own.
pub(super) const LINGER: Duration = Duration::from_secs(60);

/// Connections at most: 24 bits of the kernel's word name one.
pub(super) const CONNECTIONS: u32 = 1 << 24;

/// Buffers at most: the kernel's bound for a ring of them.
pub(super) const BUFFERS: u16 = 1 << 15;

/// Timers kept for connections that are gone, beside one for each that is there, before they are
/// thrown away.
pub(super) const STALE_TIMERS: usize = 1024;

const _: () = assert!(SEND_PIECES <= 1024, "the kernel takes no longer vector (IOV_MAX)");
const _: () = assert!(STAGED.is_power_of_two(), "as the submission queue");
const _: () = assert!(CONNECTIONS <= 1 << 24, "24 bits name a place");
const _: () = assert!(BUFFERS.is_power_of_two(), "as the ring of buffers");
