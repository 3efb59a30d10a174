//! Leases that other programs wait for. Each is released when the work before that is done, or soon
//! after its deadline.

use super::Writeback;
use super::agenda::Why;
use crate::core::inode::lease::GivingUp;
use crate::platform::clock;

impl Writeback {
    /// Releases leases as far as possible now, and sets the time of the next attempt.
    pub(super) fn give_leases_up(&mut self) {
        // Set even if no file is left: a file that was closed or handed over has left the list, and
        // a time that has passed would keep the context from ever sleeping.
        self.next_break = self.agenda.look(Why::Breaking, |inode| {
            let given_up = inode.catch(|| inode.give_up_lease(clock::instant()));
            // The context releases the lease of an interrupted file when it abandons that.
            given_up.unwrap_or(GivingUp::Done)
        });
    }
}
