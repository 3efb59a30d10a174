//! The alarm of an open file: it informs the file's context of a panic under the file's lock
//! (contract 21).

use std::sync::Arc;

use crate::core::inode::Inode;
use crate::core::message::Message;
use crate::core::shared::Shared;

impl Inode {
    /// Has the context of the file look at it after a panic under its lock. Called once, when the
    /// file is opened.
    pub(crate) fn arm(self: &Arc<Self>, shared: &Arc<Shared>) {
        let (inode, shared) = (Arc::downgrade(self), Arc::downgrade(shared));
        self.set_alarm(move || {
            if let (Some(inode), Some(shared)) = (inode.upgrade(), shared.upgrade()) {
                shared.send(Message::Inode(inode));
            }
        });
    }
}
