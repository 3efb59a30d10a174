//! Work of the threads of a log, and the files with live records.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::asked::Asked;
use super::bounds::{LOG_EMPTY_AFTER, LOG_EMPTY_FILES, LOG_EMPTY_GROWN_AFTER, LOG_RETRY};
use crate::core::inode::Inode;
use crate::platform::clock;

/// Work of the two threads.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Files with syncs that wait for a record, in order of arrival.
    pub(super) to_log: Vec<Arc<Inode>>,
    /// Atomic writes that wait for a batch, in order of arrival.
    pub(super) atomic: Vec<Arc<Asked>>,
    /// The last batch was one of syncs: an atomic write is next.
    pub(super) is_atomic_next: bool,
    /// Files to empty for a caller, in order of arrival.
    pub(super) to_empty: VecDeque<Arc<Inode>>,
    /// Files with live records, by the oldest one and their number.
    pub(super) live: BTreeMap<(u64, u32), LiveFile>,
    /// Oldest record that can only be saved.
    pub(super) first_saved: Option<u64>,
    /// Number of the next batch, or of the one that is being filled.
    pub(super) next: u64,
    /// Blocks of the ring in use.
    pub(super) used: u64,
    /// A write of the log has failed: nothing is logged before the log is empty.
    pub(super) has_failed: bool,
    /// Nothing is logged from now on.
    pub(super) is_closed: bool,
    /// The threads end once they have nothing to do.
    pub(super) is_ending: bool,
    /// The thread of the batches looks at the space of the ring.
    pub(super) is_look_due: bool,
}

#[derive(Debug)]
pub(super) struct LiveFile {
    pub(super) inode: Arc<Inode>,
    /// When its oldest live record was made.
    pub(super) since: Instant,
    /// Whether a record moves its end.
    pub(super) grows: bool,
    /// When it was last chosen to be emptied.
    pub(super) tried: Option<Instant>,
}

impl LiveFile {
    pub(super) fn new(inode: &Arc<Inode>, grows: bool) -> Self {
        Self { inode: Arc::clone(inode), since: clock::instant(), grows, tried: None }
    }

    /// Returns when it is emptied without being asked.
    pub(super) fn due_at(&self) -> Instant {
        self.since + if self.grows { LOG_EMPTY_GROWN_AFTER } else { LOG_EMPTY_AFTER }
    }
}

impl Queues {
    pub(super) fn is_half_full(&self, blocks: u64) -> bool {
        self.used * 2 >= blocks
    }

    pub(super) fn is_urgent(&self, blocks: u64) -> bool {
        self.has_failed || self.is_half_full(blocks)
    }

    /// Returns files to empty without being asked: all after a failed write, those of the older
    /// half if half of the ring is in use, and those whose records are old.
    pub(super) fn due(&mut self, now: Instant, blocks: u64) -> Vec<Arc<Inode>> {
        let Some(((oldest, _), _)) = self.live.first_key_value() else { return Vec::new() };
        let middle = oldest + self.next.saturating_sub(*oldest) / 2;
        let (is_half_full, has_failed) = (self.is_half_full(blocks), self.has_failed);
        let is_due = |(first, _): &(u64, u32), live: &LiveFile| {
            let is_old = now >= live.due_at();
            let was_tried = live.tried.is_some_and(|tried| now < tried + LOG_RETRY);
            !was_tried && (is_old || has_failed || is_half_full && *first <= middle)
        };
        let live = self.live.iter_mut().filter(|(key, live)| is_due(key, live));
        live.take(LOG_EMPTY_FILES)
            .map(|(_, live)| {
                live.tried = Some(now);
                Arc::clone(&live.inode)
            })
            .collect()
    }
}
