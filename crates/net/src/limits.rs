//! Every bound that is not an option, with its reason.

use std::time::Duration;

/// Cost of an event in a pass, added to its bytes, so that a pass of empty events ends too: about
/// the time of handling a small message, as bytes copied.
pub(crate) const EVENT_COST_BYTES: usize = 256;

/// Pieces of one gathered send. More would make the vector as large as the data it describes.
pub(crate) const SEND_PIECES: usize = 64;

/// Bytes of one gathered send after which no further piece is added: about as many as the buffer of
/// a socket takes at once.
pub(crate) const SEND_BYTES: usize = 256 << 10;

/// Requests staged for one call of the kernel. More requests take more calls.
pub(crate) const STAGED: u32 = 256;

/// Posted items that one pass takes over.
pub(crate) const POSTED: usize = 1024;

/// Rest of a listener after the kernel had no descriptor or no memory for it.
pub(crate) const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Longest time without a moved byte of a connection that is closed after sending.
pub(crate) const LINGER: Duration = Duration::from_secs(60);

/// Maximum of connections: 24 bits of the kernel's word name one.
pub(crate) const CONNECTIONS: u32 = 1 << 24;

/// Maximum of buffers: the kernel's bound for a ring of them.
pub(crate) const BUFFERS: u16 = 1 << 15;

const _: () = assert!(SEND_PIECES <= 1024, "the kernel takes no longer vector (IOV_MAX)");
const _: () = assert!(STAGED.is_power_of_two(), "as the submission queue");
const _: () = assert!(CONNECTIONS <= 1 << 24, "24 bits name a place");
const _: () = assert!(BUFFERS.is_power_of_two(), "as the ring of buffers");
