//! Every bound of the request path, derived and checked at compile time.

use core::time::Duration;

/// Bytes in a page of a cached file, and the alignment of every direct request.
pub const PAGE: usize = 4096;

/// Bytes of the smallest logical block a device has: no direct read begins or, but at a file's end,
/// ends inside one.
pub const SECTOR: usize = 512;

/// Requests in flight per context: one ring's worth.
pub const TAGS: usize = 256;

/// Most bytes one request carries. The kernel's own `max_sectors_kb` default is 1280 KiB, and 1 MiB
/// is where direct writes reach the device's bandwidth at depth 4.
pub const REQUEST_BYTES: u64 = 1 << 20;

/// Most bytes of the one request that moves a file's end; fewer, larger ones, because the file
/// system serves them one at a time.
pub const EXTENDING_REQUEST_BYTES: u64 = 8 << 20;

/// Most segments one request carries: `IOV_MAX`.
pub const REQUEST_SEGMENTS: usize = 1024;

/// Most bios one plug holds before it is dispatched.
pub const PLUG_BIOS: usize = 128;

/// Requests handed over with one doorbell: what the kernel's own plug takes
/// (`BLK_MAX_REQUEST_COUNT`), beyond which it hands them on anyway.
pub const BATCH_REQUESTS: usize = 32;

/// Bytes handed over with one doorbell, but for one larger request: the call that takes them also
/// pins their pages, about a millisecond of work for so many, and nothing else is served meanwhile.
pub const BATCH_BYTES: u64 = 4 * REQUEST_BYTES;

/// Batches in a row that may take what is waited for alone, and leave background writeback behind:
/// then the oldest of it goes first, so that what nobody waits for ends too.
pub const PASSED_OVER: u32 = 8;

/// Flows among which sources share: see `fair`.
pub const FLOWS: usize = 64;

/// What a request costs its source beside its bytes: about what a small one takes of a device that
/// moves 2 GB/s.
pub const REQUEST_COST_BYTES: u64 = 16 << 10;

/// How long bios are held in a plug at most.
pub const PLUG_HOLD: Duration = Duration::from_micros(50);

/// How long completions can be held at most, where a caller says so.
pub const HOLD_MAX: Duration = Duration::from_millis(100);

/// How long the device may hold completions back: a hold in the kernel (`min_wait`) cannot be
/// broken.
pub const DEVICE_HOLD: Duration = Duration::from_micros(50);

/// Bytes at which a plug counts as full: what a device of 10 GB/s moves in about 3 ms. The last bio
/// may go beyond it.
pub const PLUG_BYTES: u64 = 32 * REQUEST_BYTES;

/// Most resubmissions in a row that move no byte, after which the request ends with the last error
/// (or `EIO`). Interrupted and would-block results are no failures, so there is no small count of
/// tries: this bound only stops a device that never moves again. At a microsecond and more per
/// doorbell it is a good part of a second.
pub const FRUITLESS_RESUBMISSIONS: u32 = 1 << 16;

const _: () = assert!(PLUG_BYTES >= EXTENDING_REQUEST_BYTES && PLUG_BYTES >= REQUEST_BYTES);
const _: () = assert!(PAGE.is_multiple_of(SECTOR));
const _: () = assert!(TAGS.is_multiple_of(64), "tags are kept in words of 64 bits");
const _: () = assert!(TAGS <= 1 << 16, "a tag is 16 bits");
const _: () = assert!(PLUG_BIOS <= TAGS, "a plug must fit the tags");
const _: () = assert!(REQUEST_BYTES.is_multiple_of(PAGE as u64));
const _: () = assert!(
    REQUEST_BYTES / PAGE as u64 <= REQUEST_SEGMENTS as u64,
    "scattered pages must fit one request"
);
