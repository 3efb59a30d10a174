//! A caller that drops what is dirty: it holds the file until nothing is under way, and then the
//! file is as stored.

use forebay_block::Target;
use forebay_cache::Settled;

use crate::driver::Driver;
use crate::driver::caller::Activity;

impl Driver {
    pub(super) fn begin_discard(&mut self, path: usize) -> Activity {
        self.inode(path).cache.begin_discard();
        Activity::Discarding
    }

    pub(super) fn discard(&mut self, id: usize) -> Activity {
        let path = self.path_of(id);
        if !self.inode(path).cache.can_discard() {
            return self.sleep_on_pages(id, path, Activity::Discarding);
        }
        let mut settled = Settled::default();
        let stored = self.disk.file(Target(path as u32));
        let inode = self.paths[path].inode.as_mut().expect("an open file");
        let pages = inode.cache.discard_dirty(stored.size(), &mut settled);
        inode.cache.tell_settled(&mut settled, &mut self.accounts.tell(path));
        let mut lost = self.paths[path].ledger.reread(stored);
        // What another program's mapping has undone was written, and its frames were kept for that.
        let undone = self.disk.undone(Target(path as u32));
        lost.retain(|page| !undone.contains(page));
        assert!(
            lost.len() as u64 <= pages,
            "contract 2: {lost:?} of file {path} are lost by dropping {pages} pages"
        );
        if self.inode(path).cache.lacks_frames() {
            // From here on it could undo for good what is not kept, and nothing could be compared
            // any more.
            self.disk.set_others(Target(path as u32), false);
        }
        if self.inode(path).cache.poisoned().is_some() {
            // A flush that had failed, and was about to be got over.
            self.inode(path).flush_errors = self.inode(path).flush_errors.max(1);
        }
        self.note(path, "discarded", 0, pages, 0);
        if pages > 0 {
            // To every handle as an error that was got over.
            self.inode(path).write_errors += 1;
            self.inode(path).failed_pages.clear();
            self.marks.hit("discarded");
        }
        let mut handle = self.take_handle(id);
        // It knows.
        self.check_told(&mut handle, Ok(()));
        self.give_handle(id, handle);
        self.tell_tickets(path);
        self.inode(path).cache.end_discard();
        self.wake_page_waiters(path);
        self.kick(path);
        self.absorb(&mut settled);
        Activity::Idle
    }
}
