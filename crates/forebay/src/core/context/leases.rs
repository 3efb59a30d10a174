//! Leases that other programs wait for: each goes when what has to be done before is done, or soon.

use super::Writeback;
use super::agenda::Why;
use crate::core::inode::lease::GivingUp;
use crate::platform::clock;

impl Writeback {
    /// Lets go of leases as far as that is possible by now, and sees to it that it is looked again
    /// in time.
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
