//! Leases that other programs wait for. Each is released when the work before that is done, or soon
//! after its deadline.

use super::Writeback;
use super::agenda::Why;
use crate::core::inode::lease::GivingUp;
use crate::platform::clock;

impl Writeback {
    /// Releases leases as far as possible now, and sets the time of the next attempt.
    pub(super) fn give_leases_up(&mut self) {
        // A file that was closed or handed over has left the list, and its moment with it: a moment
        // that has passed would keep the context from ever sleeping.
        self.next_break = None;
        if self.agenda.is_empty(Why::Breaking) {
            return;
        }
        let now = clock::instant();
        let Self { agenda, next_break, .. } = self;
        agenda.retain(Why::Breaking, |inode| match inode.catch(|| inode.give_up_lease(now)) {
            // The context releases the lease of an interrupted file when it abandons that.
            None | Some(GivingUp::Done) => false,
            Some(GivingUp::NotBefore(moment)) => {
                *next_break = [*next_break, moment].into_iter().flatten().min();
                true
            }
        });
    }
}
