//! Writes that are completed and held (`completion=delay`): the hold ends as soon as somebody waits
//! for one of them.
//!
//! Waiting for a held write are: a sync, a program that opens the file of a lease, a caller that
//! waits for a page or for the close, and a file that moves to another context. Writers that wait
//! for memory, for the dirty limit or for the pace of an uncached file wait for no page. They wait
//! for the hold, as the kernel's writers do.
//!
//! To remove the hold, remove this file, its two uses, `State::is_held` and `State::awaits_pages`.

use super::Writeback;

impl Writeback {
    /// Ends the hold if somebody waits for a held write. Marks the files of held writes, so that a
    /// caller that waits for their pages from now on wakes this context.
    pub(super) fn end_awaited_hold(&mut self) {
        let held = self.queue.held_bios();
        if held.is_empty() {
            return;
        }
        let mut is_awaited = self.stop || self.shared.is_left();
        for of_file in held.chunk_by(|one, next| one.bio.target == next.bio.target) {
            let file = self.files[of_file[0].bio.target.0 as usize].as_ref();
            let inode = &file.expect("a file in flight is attached").inode;
            let awaits = inode.catch(|| {
                let mut state = inode.lock();
                state.is_held = true;
                state.awaits_settling()
            });
            is_awaited |= awaits.unwrap_or(true) || self.is_leaving(inode);
        }
        if is_awaited {
            self.queue.end_hold();
        }
    }
}
