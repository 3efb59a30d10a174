//! Limits of the request path, derived and checked at compile time.

use core::time::Duration;

/// Bytes in a page of a cached file, and the alignment of every direct request.
pub const PAGE: usize = 4096;

/// Bytes of the smallest logical block of a device. A direct read starts at a multiple of it, and
/// ends at one unless at the end of the file.
pub const SECTOR: usize = 512;

/// Maximum of requests in flight per context.
pub const TAGS: usize = 256;

/// Maximum of bytes per request. The default `max_sectors_kb` of the kernel is 1280 KiB, and direct
/// writes of 1 MiB reach the bandwidth of a device at depth 4.
pub const REQUEST_BYTES: u64 = 1 << 20;

/// Maximum of bytes of a request that moves the end of a file. It is larger, because file systems
/// serve such requests one at a time.
pub const EXTENDING_REQUEST_BYTES: u64 = 8 << 20;

/// Maximum of segments per request (`IOV_MAX`).
pub const REQUEST_SEGMENTS: usize = 1024;

/// Maximum of bios in a plug.
pub const PLUG_BIOS: usize = 128;

/// Maximum of requests per doorbell call, as in the plug of the kernel (`BLK_MAX_REQUEST_COUNT`).
pub const BATCH_REQUESTS: usize = 32;

/// Maximum of bytes per doorbell call, unless one request is larger. The call pins their pages,
/// which takes about a millisecond for this many, and nothing else is served meanwhile.
pub const BATCH_BYTES: u64 = 4 * REQUEST_BYTES;

/// Maximum of consecutive batches that leave background writeback behind. The next batch then
/// starts with the oldest of it, so that it also ends.
pub const PASSED_OVER: u32 = 8;

/// Number of flows that sources are hashed into for fair sharing.
pub const FLOWS: usize = 64;

/// Fixed cost of a request in fair sharing, in bytes: about what a small request takes from a
/// device with 2 GB/s.
pub const REQUEST_COST_BYTES: u64 = 16 << 10;

/// Maximum time that bios are held in a plug.
pub const PLUG_HOLD: Duration = Duration::from_micros(50);

/// Maximum time for [`Holding::Delay`](crate::knobs::Holding::Delay).
pub const HOLD_MAX: Duration = Duration::from_millis(100);

/// Maximum time that the kernel holds completions back (`min_wait`). Such a hold cannot be
/// interrupted.
pub const DEVICE_HOLD: Duration = Duration::from_micros(50);

/// Bytes at which a plug is full: about 3 ms of work for a device with 10 GB/s. The last bio may
/// exceed it.
pub const PLUG_BYTES: u64 = 32 * REQUEST_BYTES;

/// Maximum of consecutive resubmissions that transfer no byte. The request then ends with the last
/// error, or `EIO`.
///
/// Interrupted and would-block results are no failures, so the number is large: it only stops a
/// device that makes no progress for a good part of a second.
pub const FRUITLESS_RESUBMISSIONS: u32 = 1 << 16;

const _: () = assert!(PLUG_BYTES >= EXTENDING_REQUEST_BYTES && PLUG_BYTES >= REQUEST_BYTES);
const _: () = assert!(PAGE.is_multiple_of(SECTOR));
const _: () = assert!(TAGS.is_multiple_of(64), "tags are kept in words of 64 bits");
const _: () = assert!(TAGS <= 1 << 16, "a tag is 16 bits");
const _: () = assert!(PLUG_BIOS <= TAGS, "a plug must fit the tags");
const _: () = assert!(BATCH_REQUESTS <= TAGS, "a batch must fit the tags");
const _: () = assert!(REQUEST_BYTES.is_multiple_of(PAGE as u64));
const _: () = assert!(
    REQUEST_BYTES / PAGE as u64 <= REQUEST_SEGMENTS as u64,
    "scattered pages must fit one request"
);
