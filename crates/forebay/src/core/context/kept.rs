//! Pages that shared files keep for a flush. If no caller syncs them, the context does so when they
//! become many or memory is short.

use std::sync::Arc;

use forebay_cache::Reason;

use super::Writeback;
use super::agenda::Why;
use crate::core::inode::Inode;
use crate::core::inode::settle::Left;
use crate::core::limits::{KEPT_OF_LIMIT, KEPT_OF_LIMIT_WHEN_SHORT};

impl Writeback {
    /// Notes the work that completed bios have left: pages kept for a flush, and pages to write
    /// again after a failed flush.
    pub(super) fn note_left(&mut self, inode: &Arc<Inode>, left: Left) {
        if left.keeps {
            self.agenda.push(Why::Keeping, inode);
        }
        if left.is_dirty_again {
            self.flights[inode.volume.number()].dirty.push_back(Arc::clone(inode));
        }
    }

    /// Flushes files that keep many pages.
    pub(super) fn reclaim_kept(&mut self) {
        if self.agenda.is_empty(Why::Keeping) {
            return;
        }
        let mut kept: Vec<(u64, Arc<Inode>)> = Vec::new();
        self.agenda.retain(Why::Keeping, |inode| {
            let pages = inode.catch(|| inode.lock().cache.kept_pages()).unwrap_or(0);
            kept.push((pages, Arc::clone(inode)));
            pages > 0
        });
        let total: u64 = kept.iter().map(|(pages, _)| pages).sum();
        let is_short = self.shared.level.has_waiters() || self.shared.pool.has_waiting();
        let is_idle = self.queue.on_their_way() == 0;
        let part = if is_short { KEPT_OF_LIMIT_WHEN_SHORT } else { KEPT_OF_LIMIT };
        // Each context has an equal part.
        let most = self.shared.level.limit() / part / self.shared.contexts.active() as u64;
        // If callers wait and nothing is in flight, they wait for this flush, however little it
        // frees.
        if total < most && !(is_short && is_idle) {
            return;
        }
        kept.sort_by_key(|(pages, _)| std::cmp::Reverse(*pages));
        for (_, inode) in kept {
            if self.queue.room() == 0 {
                break;
            }
            self.step(&inode, (), |context| {
                let mut state = inode.lock();
                if let Some(bio) = context.next_bio(&inode, &mut state, Reason::Reclaim) {
                    context.send(&inode, &mut state, bio);
                }
            });
        }
    }
}
