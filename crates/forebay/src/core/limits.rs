//! Limits of the engine, derived and checked at compile time. Those of the other crates are in
//! their `limits`.

use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_block::limits::{PLUG_BIOS, REQUEST_BYTES, TAGS};
use forebay_cache::limits::PAGE;

use crate::platform::{MIN_CACHE_PAGES, MIN_DIRTY_PAGES};

/// Messages that a context takes before it polls the device again.
pub(crate) const MESSAGES_PER_PASS: usize = 256;

/// How long a writer may leave granted room unused while others wait: long against the time until
/// a task is polled, also on a machine with much to do, and short against a program that hangs.
pub(crate) const GRANT_PATIENCE: Duration = Duration::from_millis(100);

/// Maximum number of writeback contexts: enough for a large machine, however many allocation groups
/// a file system has.
pub(crate) const CONTEXTS: usize = 64;

/// Maximum number of contexts that is found by trials. Eight write two million small requests a
/// second, and each has a ring of a megabyte.
pub(crate) const ADAPTIVE_CONTEXTS: usize = 8;

const _: () = assert!(ADAPTIVE_CONTEXTS <= CONTEXTS);

/// Maximum number of open files that a search for the number of contexts moves. More take longer
/// than a window of the search.
pub(crate) const ADAPTIVE_FILES: usize = 4096;

/// Bytes written of a file before its allocation group is looked up again. The lookup is one system
/// call, which is negligible against this many bytes.
pub(crate) const GROUP_LOOK_BYTES: u64 = 64 << 20;

/// Maximum of stretches of data, and of allocated bytes, of a file whose holes are found when it is
/// opened. It takes two system calls per stretch, and memory per written page.
pub(crate) const SPARSE_RANGES: usize = 32;
pub(crate) const SPARSE_BYTES: u64 = 16 << 30;

/// Time that a thread beside the contexts waits for its next job: long against the pause between
/// two closings, short against an idle engine.
pub(crate) const WORKERS_LINGER: Duration = Duration::from_millis(500);

/// Maximum of threads for blocking calls of the program: more than file systems that hang at once,
/// and few enough that a burst of opens does not start hundreds.
pub(crate) const CALL_THREADS: usize = 16;

/// Maximum of threads that flush files of batches. Flushes that run at the same time share a flush
/// of the device. More threads gain nothing, and fewer flush the device more often.
pub(crate) const FLUSH_THREADS: usize = 64;

/// Maximum of files of a batch that are flushed together. Each window is a commit of the journal,
/// and each file in it a descriptor.
pub(crate) const BATCH_WINDOW: usize = 1024;

/// Maximum of directories that a batch keeps open, with two descriptors each.
pub(crate) const BATCH_DIRECTORIES: usize = 256;

/// Maximum of bytes that a batch has given to the kernel and that may not be at the device yet:
/// many large requests, so that the device is busy while a writer waits.
pub(crate) const BATCH_UNWRITTEN_BYTES: u64 = 32 << 20;

/// Bytes that a new file of a batch gathers in memory before they are written.
pub(crate) const BATCH_BUFFER: usize = 256 << 10;

/// Threads that write the last bytes of the files of a batch. The program itself is another writer.
pub(crate) const BATCH_WRITERS: usize = 2;

/// Bytes of such writes that wait for a thread; with more, the program writes.
pub(crate) const BATCH_QUEUED_BYTES: usize = 4 << 20;

/// Number of such writes that a thread is woken for, if they have fewer bytes than a buffer.
pub(crate) const BATCH_QUEUED_FILES: usize = 16;

/// Names of lock files that a batch tries. Each batch that starts in the same nanosecond takes one.
pub(crate) const BATCH_IDS: u64 = 1024;

const _: () = assert!(BATCH_BUFFER.is_multiple_of(PAGE as usize), "buffers end at whole pages");

/// Bytes that a cursor reads ahead of small sequential reads, at first and at most: one request.
pub(crate) const CURSOR_AHEAD: RangeInclusive<usize> = 64 << 10..=REQUEST_BYTES as usize;

/// Time that bytes read ahead by a cursor are used. Other programs may change the file meanwhile.
pub(crate) const CURSOR_AHEAD_FRESH: Duration = Duration::from_millis(100);

/// Bytes that a copy between files reads at once: one request.
pub(crate) const COPY_PIECE_BYTES: usize = REQUEST_BYTES as usize;

/// Pieces of a copy in memory: one is written while the others are read.
pub(crate) const COPY_PIECES: usize = 4;

/// Number of files among which the one with most dirty pages is written next.
pub(crate) const DIRTIEST_OF: usize = 64;

/// A file with fewer dirty pages than one in N of those of a file that waits for its space, or for
/// the end of a request, is not written instead of it. Its pages lie further apart, so each would
/// be a request, and without reserved space an extent.
pub(crate) const FEW_ONE_IN: u64 = 4;

/// Default time that requests in flight keep a device busy, which a read beside them waits for. It
/// is long against the time a context takes to see a completion and to send the next request.
pub(crate) const FLIGHT_TIME: Duration = Duration::from_millis(2);

/// Valid times of a flight.
pub(crate) const FLIGHT_TIMES: RangeInclusive<Duration> =
    Duration::from_micros(100)..=Duration::from_secs(1);

/// Maximum of requests of one class in flight, for all file systems together. Small requests need
/// this depth to reach the rate of the device.
pub(crate) const FLIGHT: usize = 112;

/// Maximum of dirty pages of a file whose sync is made by its caller. The context writes more of
/// them sooner, because it has many requests in flight.
pub(crate) const LEAD_PAGES: u64 = 64;

/// Maximum of bios that a caller makes between two looks at the file: all pages of its sync.
pub(crate) const LEAD_BIOS: usize = LEAD_PAGES as usize;

/// Maximum of queues kept for callers that make their requests themselves.
pub(crate) const CALLER_QUEUES: usize = 64;

/// Maximum of files that a context leaves to their callers until its next tick.
pub(crate) const YOUNG_FILES: usize = 64;

/// Bios taken from one file per pass before the next file's turn.
pub(crate) const RUN_PER_FILE: usize = 32;

/// Frames to free when none is free: those of one step.
pub(crate) const RECLAIM_FRAMES: usize = forebay_cache::limits::STEP_PAGES;

/// Minimum size of a write that may bypass the cache: a size that reaches the bandwidth of the
/// device with one request at a time.
pub(crate) const BYPASS_BYTES: usize = REQUEST_BYTES as usize;

/// Bytes of such a write before the state of the cache is checked again.
pub(crate) const BYPASS_BYTES_AT_ONCE: usize = 8 * BYPASS_BYTES;

/// Flushes before an append past the cache, if other callers write to the end all the time. Their
/// pages may hide its bytes then.
pub(crate) const APPEND_ROUNDS: u32 = 16;

/// Most bytes of one call that appends past the cache: what several slices are joined in.
pub(crate) const APPEND_BYTES: usize = 1 << 20;

/// Dirty and in-flight pages of a file at which an uncached writer waits: enough to keep the device
/// busy while more is gathered.
pub(crate) const UNCACHED_DIRTY_PAGES: u64 = 4 * forebay_cache::limits::UNCACHED_PAGES;

/// How long completed writes are held while writers wait for the dirty limit.
pub(crate) const HOLD: Duration = Duration::from_millis(1);

/// Pages that a device must write in that time, so that several requests end together, and at most
/// one in this many of the dirty limit, so that it still has enough to write.
pub(crate) const HELD_PAGES: u64 = 256;
pub(crate) const HELD_ONE_IN: u64 = 16;

/// Clean pages examined per batch of eviction.
pub(crate) const EVICT_BATCH: usize = 128;

/// Eviction starts below this share of free frames (one in N), before a caller needs them.
pub(crate) const LOW_ONE_IN: u32 = 32;

/// Eviction ends at this share of free frames (one in N). Evicting in batches leaves runs of frames
/// to readers and writers.
pub(crate) const HIGH_ONE_IN: u32 = 16;

/// Share of the frames of [`LOW_ONE_IN`] that readahead leaves to callers that wait (one in N).
pub(crate) const RESERVE_OF_LOW: u32 = 4;

/// Share of frames that may hold unread pages before readahead stops (one in N).
pub(crate) const UNREAD_ONE_IN: u32 = 4;

/// Requests in flight for one read that is larger than a request.
pub(crate) const READ_REQUESTS: u64 = 4;

/// Checks for pages that are too old, per `dirty_age`.
pub(crate) const TICKS_PER_AGE: u32 = 4;

/// Ticks that a context goes on with once no file of it is dirty.
pub(crate) const CLEAN_TICKS: u32 = 8;

/// Minimum size of the cache.
pub(crate) const MIN_CACHE_BYTES: u64 = MIN_CACHE_PAGES * PAGE;

/// Default size of the cache; less if [`CACHE_OF_MEMORY`] allows less.
pub(crate) const DEFAULT_CACHE_BYTES: u64 = 256 << 20;

/// Share of memory that the default cache may take (one in N).
pub(crate) const CACHE_OF_MEMORY: u64 = 16;

/// Maximum size of the cache: a frame has a 32-bit number, and one number means "no frame".
pub(crate) const MAX_CACHE_BYTES: u64 = (u32::MAX as u64 / 64 * 64 - 64) * PAGE;

/// Maximum of files created and closed without a sync, whose directories have to be synced. Each
/// takes 16 bytes; the table takes 1.5 MB in all.
pub(crate) const UNSYNCED_ENTRIES: usize = 1 << 16;

/// Attempts of an open whose path names another file each time.
pub(crate) const OPEN_ROUNDS: u32 = 100;

/// Interval at which an open that waits for a context checks for a shutdown.
pub(crate) const RENEW_LOOKS: Duration = Duration::from_millis(50);

/// Attempts to get a lease, a millisecond apart, while another process has the file open.
pub(crate) const LEASE_TRIES: u32 = 5;

/// Attempts to get a lease if a crash has left reserved space to give back.
pub(crate) const LEASE_TRIES_AFTER_CRASH: u32 = 200;

/// Attempts to open a busy block device, a millisecond apart.
pub(crate) const DEVICE_TRIES: u32 = 20;

/// Share of the dirty limit that may be kept for flushes that no caller has asked for (one in N).
pub(crate) const KEPT_OF_LIMIT: u64 = 4;

/// The same share while a caller waits for memory: not every page is worth a flush.
pub(crate) const KEPT_OF_LIMIT_WHEN_SHORT: u64 = 16;

/// Default time that `close` and the drop of an engine wait for the device.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Time that other programs may wait for our lease while we write out.
pub(crate) const LEASE_BREAK: Duration = Duration::from_millis(900);

/// Time that a lease is taken as held since the last check. The kernel takes a lease away only
/// after another program has waited for at least a second (`lease-break-time` counts whole
/// seconds).
pub(crate) const LEASE_LOOK: Duration = Duration::from_millis(100);

const _: () = assert!(FLIGHT < PLUG_BIOS, "background writeback leaves room for syncs and reads");
const _: () =
    assert!(LEASE_LOOK.as_millis() < 1000, "the loss of a lease while stopped is noticed");
const _: () = assert!(2 * FLIGHT < TAGS, "requests of both classes have tags");

/// Entries of the ring: one for each tag, and those of the read that wakes it.
pub(crate) const RING_ENTRIES: u32 = 2 * TAGS as u32;

/// Maximum of bios of direct files in the queue and at the device: half of the tags.
pub(crate) const DIRECT_FLIGHT: usize = TAGS / 2;

/// Places in the queue that direct bios leave to cached files.
pub(crate) const DIRECT_LEAVES: usize = PLUG_BIOS / 4;

/// Bios of direct files of one device that may be in the queue and at the device in any case. Those
/// of a device that hangs may use up [`DIRECT_FLIGHT`] and all places but [`DIRECT_LEAVES`].
pub(crate) const DIRECT_LEAST: usize = 4;

const _: () = assert!(DIRECT_LEAST < DIRECT_LEAVES, "some devices have places beside cached files");

/// Direct files that are searched in one step for a bio that may go.
pub(crate) const DIRECT_LOOKS: usize = 64;

/// Maximum of direct operations that have started and not ended. Each lends memory to the device in
/// one or two pieces, and a million pieces can be numbered. This multiple of the tags finds
/// neighbours to merge with.
pub(crate) const DIRECT_OPERATIONS: usize = 16 * TAGS;

const _: () = assert!(2 * DIRECT_OPERATIONS < 1 << 20 && DIRECT_OPERATIONS > DIRECT_FLIGHT);

/// Maximum size of a direct operation: below the 2 GiB at which the kernel cuts a request, and
/// within 32 bits.
pub(crate) const DIRECT_BYTES: u64 = 1 << 30;

/// Operations of one direct file that are searched for one that may start. Later ones wait for
/// their turn.
pub(crate) const GATE_WINDOW: usize = 128;

/// Default size of the pool of buffers: sixteen large requests. Memory is allocated page by page at
/// first use.
pub(crate) const DEFAULT_BUFFER_BYTES: u64 = 16 * REQUEST_BYTES;

/// Maximum size of the pool of buffers.
pub(crate) const MAX_BUFFER_BYTES: u64 = 1 << 40;

const _: () = assert!(DIRECT_LEAVES < PLUG_BIOS && DIRECT_FLIGHT < TAGS);

/// Share of the dirty limit that failing pages of one file may take (one in N). Writes beyond it
/// fail.
pub(crate) const FAILING_OF_FILE: u64 = 16;

/// The same share for all files of one device. Several files may fail before the device counts as
/// dead.
pub(crate) const FAILING_OF_DEVICE: u64 = 4;

const _: () = assert!(FAILING_OF_DEVICE < FAILING_OF_FILE, "one file does not stop its device");

/// Valid values of `dirty_age`. Checking for old pages costs little at the lower end, and the upper
/// end is finite.
pub(crate) const DIRTY_AGES: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60);

/// Minimum of `dirty_bytes`.
pub(crate) const MIN_DIRTY_BYTES: u64 = MIN_DIRTY_PAGES * PAGE;

const _: () =
    assert!(MIN_DIRTY_BYTES <= MIN_CACHE_BYTES / 8 * 7, "the smallest cache can have dirty pages");

/// Maximum length of a request to a control socket, with its newline; the longest valid one has
/// fewer than 100 bytes.
pub(crate) const CONTROL_LINE_BYTES: usize = 256;

/// Bytes read from one client of a control socket before the next client's turn.
pub(crate) const CONTROL_READ_BYTES: usize = 512;

/// Maximum of clients of a control socket. A new one replaces the one that has been silent for
/// longest.
pub(crate) const CONTROL_CLIENTS: usize = 16;

/// Maximum length of an answer: many times the longest.
pub(crate) const CONTROL_ANSWER_BYTES: u64 = 1 << 20;

/// Time that a client waits for an answer.
pub(crate) const CONTROL_PATIENCE: Duration = Duration::from_secs(10);

/// Time that an engine waits for an answer of its keeper, which has nothing else to do.
pub(crate) const KEEPER_ANSWER: Duration = Duration::from_secs(1);

/// Time that a started program may take to become a keeper.
pub(crate) const KEEPER_START: Duration = Duration::from_secs(10);

/// Time that a new keeper waits for the first message of a program.
pub(crate) const KEEPER_FIRST_WORD: Duration = Duration::from_secs(10);

/// Lifetime after which a lost keeper is replaced at once.
pub(crate) const KEEPER_STEADY: Duration = Duration::from_secs(5);

/// First pause before a keeper that was lost earlier, or could not be started, is started again.
/// The pause doubles each time.
pub(crate) const KEEPER_PAUSE: Duration = Duration::from_millis(250);

/// Longest pause before a keeper is started again.
pub(crate) const KEEPER_PAUSE_MOST: Duration = Duration::from_secs(60);

/// Files sent to a new keeper before its answers are read: a channel holds a few hundred messages.
pub(crate) const KEEPER_BATCH: usize = 32;

/// Time that a keeper may take to read an intent log, beside its patience.
pub(crate) const KEEPER_READS: Duration = Duration::from_secs(60);

/// Maximum length in bytes of a path sent to a keeper.
pub(crate) const KEEPER_PATH_BYTES: usize = 1024;

/// Time that a keeper waits for a program that takes over, once all is written.
pub(crate) const KEEPER_LINGER: Duration = Duration::from_secs(30);

/// Time that a program that takes over may be silent once it has everything: it starts its own
/// keeper between two messages.
pub(crate) const KEEPER_ADOPTION: Duration = Duration::from_secs(20);

const _: () = assert!(KEEPER_ADOPTION.as_secs() > KEEPER_START.as_secs() + KEEPER_ANSWER.as_secs());

/// Interval at which a waiting keeper checks whether another process wants to open a file it holds.
pub(crate) const KEEPER_LOOKS: Duration = Duration::from_millis(250);

/// Time that a program that takes over waits for a keeper that is still writing.
pub(crate) const KEEPER_FINISHING: Duration = Duration::from_secs(600);

/// Time that a keeper waits for the requests of a dead program.
pub(crate) const KEEPER_RINGS: Duration = Duration::from_secs(10);

/// Bytes that a keeper writes in one call: as many as a request.
pub(crate) const KEEPER_WRITE_BYTES: usize = REQUEST_BYTES as usize;

/// Maximum of files of one file system that a keeper syncs one by one; more are synced together
/// first.
pub(crate) const KEEPER_SYNCS_ONE_BY_ONE: usize = 16;

/// Pause of a keeper before its first retry of a failed call.
pub(crate) const KEEPER_TRIES_AGAIN: Duration = Duration::from_millis(50);

/// Time after its deadline at which a keeper gives up on a call that does not return.
pub(crate) const KEEPER_WATCHDOG: Duration = Duration::from_secs(2);

/// Lines of a keeper's log that are kept for a slow reader.
pub(crate) const KEEPER_LOG_LINES: usize = 1024;

/// Time that a keeper waits for the reader of its log to take a line, if it waits at all.
pub(crate) const KEEPER_LOG_PATIENCE: Duration = Duration::from_secs(1);

/// Time for attempts to write the data of a saved arena.
pub(crate) const KEEPER_RECOVER_PATIENCE: Duration = Duration::from_secs(10);

/// Frames whose memory is taken from the kernel before a caller needs them: two huge pages.
pub(crate) const TOUCHED_AHEAD: u32 = 1024;

/// Frames from whose use on memory is taken ahead. A small program keeps its small memory.
pub(crate) const TOUCHES_FROM: u32 = 256;
