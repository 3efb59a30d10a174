//! Files that something is to be done for: each once, in the order they came. Who comes twice costs
//! nothing, however long the list is.

use std::sync::Arc;

use crate::core::inode::Inode;

/// The list.
#[derive(Debug, Default)]
pub(super) struct List {
    files: Vec<Arc<Inode>>,
    /// Whether it is in the list, by target's number.
    is_in: Vec<bool>,
}

impl List {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Puts a file at the end, unless it is in the list.
    pub(super) fn push(&mut self, inode: &Arc<Inode>) {
        let number = inode.target.0 as usize;
        if self.is_in.len() <= number {
            self.is_in.resize(number + 1, false);
        }
        if !std::mem::replace(&mut self.is_in[number], true) {
            self.files.push(Arc::clone(inode));
        }
    }

    /// Takes all out.
    pub(super) fn take(&mut self) -> Vec<Arc<Inode>> {
        self.files.iter().for_each(|inode| self.is_in[inode.target.0 as usize] = false);
        std::mem::take(&mut self.files)
    }

    /// Puts what was taken out, and is to stay, before what came meanwhile.
    pub(super) fn put_back(&mut self, files: Vec<Arc<Inode>>) {
        let new = self.take();
        files.iter().chain(&new).for_each(|inode| self.push(inode));
    }

    /// Keeps those only of which `stays` says so.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&Arc<Inode>) -> bool) {
        let Self { files, is_in } = self;
        files.retain(|inode| {
            let stays = stays(inode);
            is_in[inode.target.0 as usize] = stays;
            stays
        });
    }

    /// Takes one out, if it is in.
    pub(super) fn remove(&mut self, inode: &Arc<Inode>) {
        if self.is_in.get(inode.target.0 as usize) == Some(&true) {
            self.retain(|listed| !Arc::ptr_eq(listed, inode));
        }
    }
}
