//! Limits of the intent log.

use std::time::Duration;

/// Blocks of the ring of a new log: 512 MiB. Pages that are written again before half of it is in
/// use are brought into place once.
pub(crate) const LOG_BLOCKS: u64 = 131_072;

/// A new log takes at most one of this number of parts of the free space, but no less than 4 MiB: a
/// small one is always half full.
pub(crate) const LOG_OF_FREE: u64 = 32;
pub(crate) const LOG_BLOCKS_LEAST: u64 = 1024;

/// Time of a flush of the disk from which on syncs are logged: below, a record gains nothing.
pub const LOG_FLUSH: Duration = Duration::from_micros(200);

/// Maximum of new pages of a sync that is logged: above, the writes in place are long against the
/// flush, and the record would be written twice for nothing.
pub(crate) const LOG_PAGES: u64 = 256;

/// Ordinary syncs of a file before it gets its mark, which costs as much as two.
pub(crate) const LOG_SYNCS: u32 = 2;

/// Blocks of a batch at which it is written: files that come later wait for the next one.
pub(crate) const LOG_BATCH_BLOCKS: u64 = 1024;

/// Files that are emptied together: they share commits of the journal.
pub(crate) const LOG_EMPTY_FILES: usize = 64;

/// Age of the oldest record at which a file is emptied: that of dirty pages of the page cache.
pub(crate) const LOG_EMPTY_AFTER: Duration = Duration::from_secs(30);

/// The same for a file that grows: until then, other programs see its old size.
pub(crate) const LOG_EMPTY_GROWN_AFTER: Duration = Duration::from_secs(5);

/// Time that the emptying of a file may take, with a request for each page. A file that another
/// program opens has to be in place before the kernel takes the lease.
pub(crate) const LOG_FILE_TIME: Duration = Duration::from_secs(10);

/// Pause after an emptying that failed while another program waits for the lease.
pub(crate) const LOG_PAUSE: Duration = Duration::from_millis(10);

/// Time after which a lease is released although the mark of the file could not be flushed.
pub(crate) const LOG_SAVE: Duration = Duration::from_millis(50);

/// Attempts of an atomic write whose files or log are busy, with such pauses.
pub(crate) const ATOMIC_TRIES: u32 = 2000;

/// Pause after an emptying that failed, or a log that cannot be written.
pub(crate) const LOG_RETRY: Duration = Duration::from_secs(1);

/// Attempts to write a promise to the mark of a file before the file is given up.
pub(crate) const LOG_TRIES: u32 = 5;

/// Length of the promise that the engine alone changes the files of a log, and its rest when it is
/// renewed.
pub(crate) const LOG_PROMISE: Duration = Duration::from_secs(30);
pub(crate) const LOG_PROMISE_LEFT: Duration = Duration::from_secs(15);

const _: () = assert!(
    LOG_PROMISE.as_nanos() <= forebay_log::MAX_PROMISE as u128
        && LOG_PROMISE_LEFT.as_nanos() < LOG_PROMISE.as_nanos()
);
