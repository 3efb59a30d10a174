//! Direct files that a panic interrupted: one ends, and nothing else (contract 21).
//!
//! The state of a direct file is its lane and its started operations. Only the context changes
//! them, in [`Flow::change_lane`] and [`Flow::change_active`], where a panic ends. From then on
//! nothing of the file starts:
//!
//! ```text
//! panic -> the lane, with the operations that wait in it, and waiting bios are dropped
//!       -> bios in the queue or at the device end
//!       -> the memory of started operations is taken back, and they are dropped
//! ```
//!
//! An operation that is dropped fails with `Poisoned`, as does every later one. Absent here: what
//! all files share, such as the places of started operations. A panic there ends the engine.

use std::sync::Arc;

use forebay_block::Target;

use super::active::Active;
use super::flow::Flow;
use super::lane::Lane;
use super::operation::Operation;
use super::turns::Turns;
use crate::core::error::Result;
use crate::core::shared::Shared;
use crate::platform::Backend;

/// Each function returns `None` if a panic has interrupted the file, now or before.
impl Flow {
    /// Changes the lane of a file.
    pub(super) fn change_lane<T>(
        &mut self,
        target: Target,
        change: impl FnOnce(&mut Lane<Operation>) -> T,
    ) -> Option<T> {
        let file = self.file(target);
        file.inode.change_alone(|| change(&mut file.lane)).or_else(|| self.interrupt(target))
    }

    /// Creates the state of an operation that starts.
    pub(super) fn new_active(&mut self, operation: Operation, index: usize) -> Option<Active> {
        let target = operation.inode.target;
        let file = self.file(target);
        let size = file.lane.size();
        let new = || Active::new(operation, index as u64, size);
        file.inode.change_alone(new).or_else(|| self.interrupt(target))
    }

    /// Changes a started operation.
    pub(super) fn change_active<T>(
        &mut self,
        index: usize,
        change: impl FnOnce(&mut Active, &mut Turns) -> T,
    ) -> Option<T> {
        let Self { files, active, pending, .. } = self;
        let active = active[index].as_mut().expect("a bio's operation is active");
        let target = active.operation().inode.target;
        let file = files[target.0 as usize].as_ref().expect("a file with operations is attached");
        file.inode.change_alone(|| change(active, pending)).or_else(|| self.interrupt(target))
    }

    /// Ends a started operation that has no bios left.
    pub(super) fn end_active(
        &mut self,
        mut active: Active,
        backend: &mut Backend,
    ) -> Option<(Operation, Result<usize>)> {
        let target = active.operation().inode.target;
        let beside = active.take_back(backend);
        let inode = &self.file(target).inode;
        inode.change_alone(|| active.end(beside)).or_else(|| self.interrupt(target))
    }

    /// Takes a file out of service, once.
    #[cold]
    fn interrupt<T>(&mut self, target: Target) -> Option<T> {
        let file = self.file(target);
        if !std::mem::replace(&mut file.is_interrupted, true) {
            let lane = std::mem::replace(&mut file.lane, Lane::new(0));
            let flushing = std::mem::take(&mut file.flushing);
            self.pending.remove(target);
            self.interrupted.push(target);
            drop((lane, flushing));
        }
        None
    }

    /// Ends the started operations of interrupted files whose bios have ended, lets these files go,
    /// and starts operations of other files in their places.
    #[inline]
    pub(super) fn clear_interrupted(&mut self, backend: &mut Backend, shared: &Arc<Shared>) {
        if !self.interrupted.is_empty() {
            self.clear(backend, shared);
        }
    }

    #[cold]
    fn clear(&mut self, backend: &mut Backend, shared: &Arc<Shared>) {
        loop {
            let (waiting, over): (Vec<_>, Vec<_>) = std::mem::take(&mut self.interrupted)
                .into_iter()
                .partition(|target| self.pending.are_on_their_way(*target));
            self.interrupted = waiting;
            let still = self.interrupted.len();
            for target in over {
                self.drop_active(target, backend);
                self.release(target, backend, shared);
            }
            self.start_lined_up(backend, shared);
            if self.interrupted.len() == still {
                return;
            }
        }
    }

    fn drop_active(&mut self, target: Target, backend: &mut Backend) {
        for (index, place) in self.active.iter_mut().enumerate() {
            let active = place.take_if(|active| active.operation().inode.target == target);
            if let Some(mut active) = active {
                self.free.push(index);
                drop(active.take_back(backend));
            }
        }
    }
}
