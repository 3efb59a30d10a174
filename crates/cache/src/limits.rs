//! Every bound of the cache, derived and checked at compile time.

use forebay_block::limits::{EXTENDING_REQUEST_BYTES, REQUEST_BYTES, REQUEST_SEGMENTS};

/// Bytes in a page, as the request path has it.
pub const PAGE: u64 = forebay_block::limits::PAGE as u64;

/// Pages one request gathers at most.
pub const GATHER_PAGES: u64 = REQUEST_BYTES / PAGE;

/// Pages the request that moves the end of a file gathers at most.
pub const EXTENDING_PAGES: u64 = EXTENDING_REQUEST_BYTES / PAGE;

/// Segments one gathered request has at most.
pub const GATHER_SEGMENTS: usize = REQUEST_SEGMENTS;

/// Longest run of known holes written along as zeroes between two dirty runs, on a device of which
/// the costs are not known. A page of zeroes costs one of 2 GB/s some 2 us, a request of its own 10
/// to 30 us (into unwritten space the latter).
pub const GAP_PAGES: u64 = 8;

/// The longest on any device: what is written for a page is bounded by it, and the room that has to
/// be free.
pub const MOST_GAP_PAGES: u64 = 16;

/// Pages one step of a write or a read handles under the lock.
pub const STEP_PAGES: usize = 64;

/// Pages one read from the device brings at most.
pub const FILL_PAGES: u64 = GATHER_PAGES;

/// Pages that do not stay are written out from so many on in a file: as many as one request takes
/// that moves its end. Until half of them are left: fewer would be smaller requests.
pub const UNCACHED_PAGES: u64 = EXTENDING_PAGES;

/// Pages of the first window that is read ahead, unless the reads are larger: 64 KiB.
pub const READAHEAD_FIRST_PAGES: u64 = 16;

/// Pages of the largest window that is read ahead: one request. A reader has two of them ahead at
/// most.
pub const READAHEAD_PAGES: u64 = GATHER_PAGES;

/// Streams of reads told apart in one file.
pub const STREAMS: usize = 8;

/// A file is becoming dense, and space is reserved for all of its dirty span, from this share of
/// dirty pages on: one in so many.
pub const DENSE_ONE_IN: u64 = 32;

/// Space is reserved for spans of this many pages and more; a shorter one is allocated by its one
/// write.
pub const RESERVE_PAGES: u64 = 64;

/// Space beyond the end: at most this part of the file ...
pub const AHEAD_OF_FILE: u64 = 16;

/// ... and this part of the file system's free space.
pub const AHEAD_OF_FREE: u64 = 100;

/// Of a stream whose rate is known, so many seconds of its growth are reserved beyond the end,
/// where that is less ...
pub const AHEAD_SECONDS: u64 = 8;

/// ... and not less than a few of the requests that move the end, so that a slow one does not
/// allocate for each.
pub const AHEAD_LEAST: u64 = 4 * EXTENDING_PAGES * PAGE;

/// Where free space is in pieces, one reservation asks for so many of them: each is found, logged
/// and locked for by itself, while the file takes no writes.
pub const RESERVE_PIECES: u64 = 64;

/// ... and for so much at least: the run it is for, from the start of its stretch of
/// [`GATHER_PAGES`].
pub const RESERVE_LEAST: u64 = 2 * GATHER_PAGES * PAGE;

/// Runs sent before space is asked for once more, where there was none.
pub const SCARCE_PAUSE: u64 = 64;

/// Entries of a file's table of holes (64 pages each) before it stops being kept: some 20 MiB.
pub const HOLE_ENTRIES: usize = 1 << 20;

/// The largest byte offset a file can have: the kernel's `loff_t`, less one page so that no sum
/// overflows.
pub const MAX_OFFSET: u64 = i64::MAX as u64 - PAGE;

/// The smallest cache: one largest request.
pub const MIN_CACHE_PAGES: u64 = EXTENDING_PAGES;

const _: () = assert!(GATHER_PAGES <= REQUEST_SEGMENTS as u64);
const _: () = assert!(READAHEAD_FIRST_PAGES <= READAHEAD_PAGES && READAHEAD_PAGES <= GATHER_PAGES);
const _: () = assert!(GAP_PAGES <= MOST_GAP_PAGES && MOST_GAP_PAGES < GATHER_PAGES);
const _: () = assert!(RESERVE_LEAST >= 2 * GATHER_PAGES * PAGE);
const _: () = assert!(STEP_PAGES as u64 <= GATHER_PAGES);
const _: () = assert!(MIN_CACHE_PAGES * PAGE == 8 << 20);
