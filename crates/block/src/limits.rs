//! Every bound of the request path, derived and checked at compile time.

/// Bytes in a page of a cached file, and the alignment of every direct request.
pub const PAGE: usize = 4096;

/// Requests in flight per context: one ring's worth.
pub const TAGS: usize = 128;

/// Most bytes one request carries. The kernel's own `max_sectors_kb` default is 1280 KiB, and 1 MiB is where
/// direct writes reach the device's bandwidth at depth 4.
pub const REQUEST_BYTES: u64 = 1 << 20;

/// Most bytes of the one request that moves a file's end; fewer, larger ones, because the file system serves
/// them one at a time.
pub const EXTENDING_REQUEST_BYTES: u64 = 8 << 20;

/// Most segments one request carries: `IOV_MAX`.
pub const REQUEST_SEGMENTS: usize = 1024;

/// Most bios one plug holds before it is dispatched.
pub const PLUG_BIOS: usize = 64;

const _: () = assert!(PLUG_BIOS <= TAGS, "a plug must fit the tags");
const _: () = assert!(REQUEST_BYTES.is_multiple_of(PAGE as u64));
const _: () = assert!(REQUEST_BYTES / PAGE as u64 <= REQUEST_SEGMENTS as u64, "scattered pages must fit one request");
