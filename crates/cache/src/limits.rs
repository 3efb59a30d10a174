//! Limits of the cache, derived and checked at compile time.

use forebay_block::limits::{EXTENDING_REQUEST_BYTES, REQUEST_BYTES, REQUEST_SEGMENTS};

/// Bytes in a page.
pub const PAGE: u64 = forebay_block::limits::PAGE as u64;

/// Maximum of pages per request.
pub const GATHER_PAGES: u64 = REQUEST_BYTES / PAGE;

/// Maximum of pages of a request that moves the end of a file.
pub const EXTENDING_PAGES: u64 = EXTENDING_REQUEST_BYTES / PAGE;

/// Maximum of segments per request.
pub const GATHER_SEGMENTS: usize = REQUEST_SEGMENTS;

/// Maximum of hole pages filled with zeroes between two dirty runs. With 2 GB/s a page of zeroes
/// costs about 2 us, and a request of its own 10 to 30 us. It bounds the write amplification and
/// the free space needed.
pub const GAP_PAGES: u64 = 8;

/// Pages that one step of a write or a read handles under the lock.
pub const STEP_PAGES: usize = 64;

/// Maximum of pages per read from the device.
pub const FILL_PAGES: u64 = GATHER_PAGES;

/// Dirty uncached pages of a file at which their writeback starts: one request that moves the end.
/// It stops at half of this, because fewer pages would make smaller requests.
pub const UNCACHED_PAGES: u64 = EXTENDING_PAGES;

/// Pages of the first readahead window, unless the reads are larger: 64 KiB.
pub const READAHEAD_FIRST_PAGES: u64 = 16;

/// Pages of the largest readahead window: one request. At most two windows are ahead of a reader.
pub const READAHEAD_PAGES: u64 = GATHER_PAGES;

/// Number of sequential readers that are recognized per file.
pub const STREAMS: usize = 8;

/// A file counts as becoming dense if at least one in this many pages of its dirty span is dirty.
/// Space is then reserved for the whole span.
pub const DENSE_ONE_IN: u64 = 32;

/// Minimum of pages of a span to reserve space for. A shorter span is allocated by its one write.
pub const RESERVE_PAGES: u64 = 64;

/// Space in a sparse file is reserved by regions of this many pages, so that the file stays sparse
/// elsewhere.
pub const REGION_PAGES: u64 = 16 * GATHER_PAGES;

/// Maximum of bytes to reserve beyond the end of a file that grows by itself.
pub const AHEAD_MOST: u64 = 64 << 20;

/// Space beyond the end of a file that is written at scattered places is at most the size of the
/// file divided by this. Such a file rarely becomes much longer. For a stream it is the whole size.
pub const AHEAD_OF_SCATTERED: u64 = 16;

/// Space beyond the end is at most the free space of the file system divided by this.
pub const AHEAD_OF_FREE: u64 = 100;

/// Space beyond the end of a stream with a known rate is at most this many seconds of its growth.
pub const AHEAD_SECONDS: u64 = 8;

/// Minimum of bytes to reserve beyond the end of a stream, so that a slow stream does not allocate
/// for each request.
pub const AHEAD_LEAST: u64 = 4 * EXTENDING_PAGES * PAGE;

/// Maximum of free extents that one reservation takes if the free space is fragmented. Each is
/// found, logged and locked separately, while the file accepts no writes.
pub const RESERVE_PIECES: u64 = 64;

/// Minimum of bytes of one reservation if the free space is fragmented.
pub const RESERVE_LEAST: u64 = 2 * GATHER_PAGES * PAGE;

/// Runs written before a reservation is tried again after it failed for lack of space.
pub const SCARCE_PAUSE: u64 = 64;

/// Maximum of entries (64 pages each) in the hole table of a file, about 20 MiB. Larger tables are
/// dropped.
pub const HOLE_ENTRIES: usize = 1 << 20;

/// Largest end of a file in bytes: the maximum of `loff_t` less one page, so that no sum overflows.
pub const MAX_OFFSET: u64 = i64::MAX as u64 - PAGE;

/// Minimum of pages of a cache: one request of the largest size.
pub const MIN_CACHE_PAGES: u64 = EXTENDING_PAGES;

const _: () = assert!(GATHER_PAGES <= REQUEST_SEGMENTS as u64);
const _: () = assert!(READAHEAD_FIRST_PAGES <= READAHEAD_PAGES && READAHEAD_PAGES <= GATHER_PAGES);
const _: () = assert!(AHEAD_LEAST <= AHEAD_MOST, "a slow stream gets no more than a fast one");
const _: () = assert!(GAP_PAGES < GATHER_PAGES);
const _: () = assert!(RESERVE_LEAST >= 2 * GATHER_PAGES * PAGE);
const _: () = assert!(STEP_PAGES as u64 <= GATHER_PAGES);
const _: () = assert!(MIN_CACHE_PAGES * PAGE == 8 << 20);
