//! Every bound of an engine's own, derived and checked at compile time. Those of the parts are in
//! their crates' `limits`.

use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_block::limits::{PLUG_BIOS, REQUEST_BYTES, TAGS};
use forebay_cache::limits::PAGE;

use crate::platform::{MIN_CACHE_PAGES, MIN_DIRTY_PAGES};

/// Messages a context takes before it looks at the device again.
pub(crate) const MESSAGES_PER_PASS: usize = 256;

/// Writeback contexts: as many as a large machine has use for. However many allocation groups a
/// file system has.
pub(crate) const CONTEXTS: usize = 64;

/// Bytes written of a file before it is looked again in which allocation group they are: one system
/// call for as many large requests as make it nothing.
pub(crate) const GROUP_LOOK_BYTES: u64 = 64 << 20;

/// How long the thread beside the contexts of a file system waits for its next job: long against
/// the pause between two closings, short against an idle engine.
pub(crate) const ASIDE_LINGERS: Duration = Duration::from_millis(500);

/// Bios of others' files that an idle context has at most: enough for a device to have work, and
/// little for one whose own files become dirty to wait for.
pub(crate) const LENT: usize = 16;

const _: () = assert!(LENT < PLUG_BIOS);

/// How long it is watched what a number of contexts brings: long against a handover, short against
/// a load.
pub(crate) const CONTEXTS_WINDOW: Duration = Duration::from_millis(100);

/// What an extent-size hint can be: the largest is XFS's own.
pub(crate) const EXTENT_HINTS: RangeInclusive<u64> = PAGE..=1 << 30;

const _: () = assert!(*EXTENT_HINTS.end() <= u32::MAX as u64, "the kernel takes 32 bits");

/// Files among which the one with most dirty pages is swept next.
pub(crate) const DIRTIEST_OF: usize = 64;

/// How long a device is kept busy by what is in flight, unless told: what a read beside it waits
/// for. Long against what a context takes to hear of an end and send the next.
pub(crate) const FLIGHT_TIME: Duration = Duration::from_millis(2);

/// What can be told.
pub(crate) const FLIGHT_TIMES: RangeInclusive<Duration> =
    Duration::from_micros(100)..=Duration::from_secs(1);

/// Requests of one class in flight, on all file systems together: small ones need depth to reach
/// the device's rate.
pub(crate) const FLIGHT: usize = 112;

/// Bios taken from one file before the next one has a turn, in one pass.
pub(crate) const RUN_PER_FILE: usize = 32;

/// Frames collected when none is free: a step's worth.
pub(crate) const RECLAIM_FRAMES: usize = forebay_cache::limits::STEP_PAGES;

/// Writes of this many bytes and more may go past the cache: what reaches the device's bandwidth
/// one at a time.
pub(crate) const BYPASS_BYTES: usize = REQUEST_BYTES as usize;

/// Bytes of one such write before it is looked again whether there is room.
pub(crate) const BYPASS_BYTES_AT_ONCE: usize = 8 * BYPASS_BYTES;

/// Pages a file has dirty or on their way when who writes what does not stay waits for some to end:
/// enough for the device to have work while more is gathered.
pub(crate) const UNCACHED_DIRTY_PAGES: u64 = 4 * forebay_cache::limits::UNCACHED_PAGES;

/// Clean pages asked about in one go when room is made.
pub(crate) const EVICT_BATCH: usize = 128;

/// Room is made ahead of who wants it when fewer frames are free than one in so many ...
pub(crate) const LOW_ONE_IN: u32 = 32;

/// ... until these are: the room is made in batches, and writers and readers find frames in runs.
pub(crate) const HIGH_ONE_IN: u32 = 16;

/// Of the frames below which room is made, the part that nothing is read ahead into: that is for
/// who waits.
pub(crate) const RESERVE_OF_LOW: u32 = 4;

/// Frames that may hold what was brought in and not read yet, before nothing more is read ahead:
/// one in so many.
pub(crate) const UNREAD_ONE_IN: u32 = 4;

/// Of a read that is larger than a request, requests that are on their way at a time.
pub(crate) const READ_REQUESTS: u64 = 4;

/// Frames with which a caller can go on: a page of which a part is written takes two.
pub(crate) const STARVED_BELOW: u32 = 2;

/// How often, in a `dirty_age`, it is looked whether something is too old.
pub(crate) const TICKS_PER_AGE: u32 = 4;

/// The smallest cache.
pub(crate) const MIN_CACHE_BYTES: u64 = MIN_CACHE_PAGES * PAGE;

/// The cache unless told: this, or a sixteenth of memory if that is less.
pub(crate) const DEFAULT_CACHE_BYTES: u64 = 256 << 20;

/// The part of memory the default cache may take.
pub(crate) const CACHE_OF_MEMORY: u64 = 16;

/// The largest cache: frames are numbered by 32 bits, and one number says "none".
pub(crate) const MAX_CACHE_BYTES: u64 = (u32::MAX as u64 / 64 * 64 - 64) * PAGE;

/// Files made here and closed without a sync, of which the engine remembers that their directory is
/// to be synced: 16 bytes each, a megabyte and a half with the table's own.
pub(crate) const UNSYNCED_ENTRIES: usize = 1 << 16;

/// How often an open looks again at a path that has named another file meanwhile.
pub(crate) const OPEN_ROUNDS: u32 = 100;

/// How often an open looks whether the engine is shut down while it waits for a context.
pub(crate) const RENEW_LOOKS: Duration = Duration::from_millis(50);

/// How often a lease is asked for, a millisecond apart, while somebody has the file open.
pub(crate) const LEASE_TRIES: u32 = 5;

/// The same where a crash has left space to be given back.
pub(crate) const LEASE_TRIES_AFTER_CRASH: u32 = 200;

/// How often a block device is asked for, a millisecond apart, while somebody holds it.
pub(crate) const DEVICE_TRIES: u32 = 20;

/// The part of the dirty limit that may be kept for flushes that nobody has asked for ...
pub(crate) const KEPT_OF_LIMIT: u64 = 4;

/// ... and while somebody waits for memory: not every page is worth a flush.
pub(crate) const KEPT_OF_LIMIT_WHEN_SHORT: u64 = 16;

/// How long `close` and a dropped engine wait for the device.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long others may wait for a lease of ours while we write out.
pub(crate) const LEASE_BREAK: Duration = Duration::from_millis(900);

/// For how long a lease is taken to be held since it was last looked. The kernel takes none away
/// before somebody has waited for it for a second (`lease-break-time` counts whole ones).
pub(crate) const LEASE_LOOK: Duration = Duration::from_millis(100);

const _: () = assert!(FLIGHT < PLUG_BIOS, "background writeback leaves places for syncs and reads");
const _: () = assert!(LEASE_LOOK.as_millis() < 1000, "a lease lost to a stop is missed");
const _: () = assert!(2 * FLIGHT < TAGS, "both classes fit the tags");

/// Entries of the ring: every tag, and the read by which it is woken.
pub(crate) const RING_ENTRIES: u32 = 2 * TAGS as u32;

/// Bios of direct files in the queue and at the device: half of the tags.
pub(crate) const DIRECT_FLIGHT: usize = TAGS / 2;

/// Places of the queue that direct bios leave to cached files.
pub(crate) const DIRECT_LEAVES: usize = PLUG_BIOS / 4;

/// Direct operations that have started and not ended. Each has memory lent to the device, in one
/// piece or two, of which a million can be told apart; and as many times the tags as find
/// neighbours to be merged with.
pub(crate) const DIRECT_OPERATIONS: usize = 16 * TAGS;

const _: () = assert!(2 * DIRECT_OPERATIONS < 1 << 20 && DIRECT_OPERATIONS > DIRECT_FLIGHT);

/// Bytes of one direct operation: below the 2 GiB at which the kernel cuts a request, and numbered
/// by 32 bits.
pub(crate) const DIRECT_BYTES: u64 = 1 << 30;

/// Operations of one direct file that are looked through for one that may start. Those behind wait
/// for their turn.
pub(crate) const GATE_WINDOW: usize = 128;

/// Bytes of the pool of buffers unless told: sixteen large requests. Taken page by page, when first
/// touched.
pub(crate) const DEFAULT_BUFFER_BYTES: u64 = 16 * REQUEST_BYTES;

/// The largest pool of buffers.
pub(crate) const MAX_BUFFER_BYTES: u64 = 1 << 40;

const _: () = assert!(DIRECT_LEAVES < PLUG_BIOS && DIRECT_FLIGHT < TAGS);

/// Pages of one file that cannot be written: this part of the dirty limit. Who would add to them
/// hears of it.
pub(crate) const FAILING_OF_FILE: u64 = 16;

/// The same of all files of one device, of which several may be bad before the device counts as
/// dead.
pub(crate) const FAILING_OF_DEVICE: u64 = 4;

const _: () = assert!(FAILING_OF_DEVICE < FAILING_OF_FILE, "one file does not stop its device");

/// What `dirty_age` can be: looking for what is old costs little at the one end, and is over some
/// day at the other.
pub(crate) const DIRTY_AGES: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60);

/// The least `dirty_bytes`.
pub(crate) const MIN_DIRTY_BYTES: u64 = MIN_DIRTY_PAGES * PAGE;

const _: () =
    assert!(MIN_DIRTY_BYTES <= MIN_CACHE_BYTES / 8 * 7, "the smallest cache may have some dirty");

/// Bytes of a request to a control socket, with what ends it: the longest there is has fewer than a
/// hundred.
pub(crate) const CONTROL_LINE_BYTES: usize = 256;

/// Bytes read from one client of a control socket before the next one has a turn.
pub(crate) const CONTROL_READ_BYTES: usize = 512;

/// Clients of a control socket at a time; one more takes the place of whoever was silent longest.
pub(crate) const CONTROL_CLIENTS: usize = 16;

/// Bytes of an answer: many times all there is to say.
pub(crate) const CONTROL_ANSWER_BYTES: u64 = 1 << 20;

/// How long a client waits for an answer.
pub(crate) const CONTROL_PATIENCE: Duration = Duration::from_secs(10);

/// How long an engine waits for an answer of its keeper, which has nothing else to do.
pub(crate) const KEEPER_ANSWER: Duration = Duration::from_secs(1);

/// How long a program may take to become a keeper ...
pub(crate) const KEEPER_START: Duration = Duration::from_secs(10);

/// ... and how long that waits for the first word of whoever talks to it.
pub(crate) const KEEPER_FIRST_WORD: Duration = Duration::from_secs(10);

/// A keeper that lived so long is started again at once ...
pub(crate) const KEEPER_STEADY: Duration = Duration::from_secs(5);

/// ... and one that did not, or could not be started, after this, twice this, and so on ...
pub(crate) const KEEPER_PAUSE: Duration = Duration::from_millis(250);

/// ... up to this.
pub(crate) const KEEPER_PAUSE_MOST: Duration = Duration::from_secs(60);

/// Files given to a new keeper before its answers are heard: a channel holds a few hundred
/// messages.
pub(crate) const KEEPER_BATCH: usize = 32;

/// Bytes of a path that a keeper is told.
pub(crate) const KEEPER_PATH_BYTES: usize = 1024;

/// How long a keeper waits, once all is written, for who takes over.
pub(crate) const KEEPER_LINGER: Duration = Duration::from_secs(30);

/// How long a program that takes over may say nothing, once it has everything: it starts a keeper
/// of its own between two messages.
pub(crate) const KEEPER_ADOPTION: Duration = Duration::from_secs(20);

const _: () = assert!(KEEPER_ADOPTION.as_secs() > KEEPER_START.as_secs() + KEEPER_ANSWER.as_secs());

/// How often it looks meanwhile whether somebody else wants to open a file it holds.
pub(crate) const KEEPER_LOOKS: Duration = Duration::from_millis(250);

/// How long who takes over waits for a keeper that is still writing.
pub(crate) const KEEPER_FINISHING: Duration = Duration::from_secs(600);

/// How long a keeper waits for the requests of a dead program.
pub(crate) const KEEPER_RINGS: Duration = Duration::from_secs(10);

/// Bytes it writes in one call: as much as a request.
pub(crate) const KEEPER_WRITE_BYTES: usize = REQUEST_BYTES as usize;

/// Files of one file system that it syncs one by one; more are synced together first.
pub(crate) const KEEPER_SYNCS_ONE_BY_ONE: usize = 16;

/// When it first tries again what failed.
pub(crate) const KEEPER_TRIES_AGAIN: Duration = Duration::from_millis(50);

/// How long after its patience it takes a call that does not come back for one that never will.
pub(crate) const KEEPER_WATCHDOG: Duration = Duration::from_secs(2);

/// Lines of a keeper's log that are kept for somebody who is slow to take them ...
pub(crate) const KEEPER_LOG_LINES: usize = 1024;

/// ... and how long it waits for him to take one, where it waits at all.
pub(crate) const KEEPER_LOG_PATIENCE: Duration = Duration::from_secs(1);

/// How long a saved arena is tried to be written.
pub(crate) const KEEPER_RECOVER_PATIENCE: Duration = Duration::from_secs(10);
