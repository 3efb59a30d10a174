//! Limits of a mount.

use std::time::Duration;

/// Threads that serve requests of the kernel. Each can wait for the device (`turns.rs`).
pub(crate) const THREADS: usize = 16;

/// Threads that wait for the next request, while requests come one after the other.
pub(crate) const WAITING: usize = 2;

/// Threads for the queues of all processors, in equal parts of at most [`THREADS`],
pub(crate) const RING_THREADS: usize = 64;

/// and of at least this many.
pub(crate) const QUEUE_THREADS: usize = 4;

/// Queues of a connection: one for each processor. With more, no rings are used.
pub(crate) const MOST_QUEUES: u64 = 256;

/// The least descriptors of a process for each of its queues.
pub(crate) const RINGS_OF_DESCRIPTORS: u64 = 32;

/// Time without two requests at once after which threads rest.
pub(crate) const OVERLAPS: Duration = Duration::from_millis(10);

/// Bytes of the largest read or write of one request: what the kernel allows by default.
pub(crate) const REQUEST_BYTES: u32 = 1 << 20;

/// Life of names and attributes in the kernel. The mount shows changes of the source by other
/// programs after it.
pub(crate) const ATTRIBUTES_KEPT: Duration = Duration::from_secs(1);

/// Reads of a file within this time after one that looked at its times do not look again.
pub(crate) const READS_LOOKED_AT: Duration = Duration::from_secs(1);

/// Time after the last close of a file until its data is written and its time set.
pub(crate) const SETTLE_AFTER: Duration = Duration::from_secs(1);

/// Shortest sleep of the thread that does so, so that it wakes once for many files.
pub(crate) const SETTLE_TOGETHER: Duration = Duration::from_millis(50);

/// Time from the last close of a file until its descriptor is closed and its pages are dropped.
pub(crate) const KEEP_OPEN: Duration = Duration::from_secs(30);

/// The same for a file that is open for writing. Nobody can run it as a program meanwhile. A second
/// try, if a request uses the file just then, has to come within five seconds.
pub(crate) const KEEP_WRITABLE: Duration = Duration::from_secs(2);

/// Time between looks for files that were removed in the source. Their space is free after one.
pub(crate) const LOOK_FOR_REMOVED: Duration = Duration::from_secs(20);

/// Files that stay open in the engine after their last close. Beyond it, the oldest is closed.
pub(crate) const KEPT_FILES: usize = 2048;

/// Bytes of the largest file that is not opened in the engine while it is new.
pub(crate) const SMALL_FILE_BYTES: u64 = 128 << 10;

/// Page cache for new small files until they are written, and for written ones: each is this share
/// of the cache of the engine,
pub(crate) const SMALL_OF_CACHE: u64 = 8;

/// and at most this many bytes.
pub(crate) const SMALL_ROOM: u64 = 128 << 20;

/// Bytes of the largest new file that the engine takes as a whole once the device refuses it.
pub(crate) const SMALL_BYTES: u64 = 64 << 20;

/// Bytes of the smallest part of a long write that is not the last: memory that is not aligned to
/// pages takes one more page.
pub(crate) const PART_BYTES: u64 = REQUEST_BYTES as u64 - 4096;

/// Time that a part of an append waits for the parts before it, which other threads serve.
pub(crate) const PARTS_APART: Duration = Duration::from_millis(100);

/// Bytes copied by one `copy_file_range` request.
pub(crate) const COPY_BYTES: u64 = 16 << 20;

/// Times of a file system have steps. Two changes of a file that are further apart have two times.
pub(crate) const TIME_STEP: Duration = Duration::from_millis(20);

/// Bytes of a directory that are read at once.
pub(crate) const DIRECTORY_BYTES: usize = 32 << 10;

/// Cache of the engine of a mount: a share of the memory, because file data has no other place.
pub(crate) const CACHE_OF_MEMORY: u64 = 4;

/// The cache has at most this many bytes, unless a knob says otherwise.
pub(crate) const CACHE_BYTES: u64 = 1 << 30;

/// With less memory than for this cache, the engine's own default holds: its smallest cache.
pub(crate) const CACHE_LEAST: u64 = 16 << 20;

/// Time for the end of a keeper that a mount cannot take over from. The keeper waits for 30 s once
/// everything is written.
pub(crate) const KEEPER_ENDS: Duration = Duration::from_secs(40);

/// Timeout of the engine's shutdown at the end of a mount.
pub(crate) const SHUTDOWN: Duration = Duration::from_secs(600);

/// Names that the kernel is asked to forget at once.
pub(crate) const FORGET_AT_ONCE: usize = 4096;

/// Time for the kernel to forget names before it is asked again.
pub(crate) const FORGET_PAUSE: Duration = Duration::from_millis(20);

/// Pauses of a call that finds no free descriptor, before it fails.
pub(crate) const FORGET_TRIES: usize = 50;

/// Length of a lookup while few descriptors are left.
pub(crate) const SLOW_LOOKUP: Duration = Duration::from_millis(1);

/// Descriptors of a mount: one for each name that the kernel remembers.
pub(crate) const DESCRIPTORS: u64 = 1 << 20;

/// Fewest descriptors of a mount. It needs about 60 for itself.
pub(crate) const LEAST_DESCRIPTORS: u64 = 256;

const _: () = assert!(REQUEST_BYTES >= 4096, "a request holds at least a page");
const _: () = assert!(KEEP_WRITABLE.as_secs() > SETTLE_AFTER.as_secs(), "written out before");
const _: () = assert!(KEPT_FILES < DESCRIPTORS as usize / 2, "kept files leave descriptors free");
