//! The device of a caller that makes requests and ends them by itself.

use std::sync::Arc;

use forebay_block::{Bio, Completion, Device, Errno, Moment, Refused, Tag, Target, Wait};
use forebay_uring::{Alive, Arena, Choice};

use super::Backend;
use crate::platform::file::OpenFile;
use crate::world::machine::{self, DOORBELL};
use crate::world::{self, Reason};

/// Writes of a caller that are made by a ring. A thread makes fewer.
const BURST: usize = 3;

/// The device for a caller that waits: its doorbell returns when all requests have ended.
#[derive(Debug)]
pub struct Inline(Backend);

impl Inline {
    /// Makes a device for `entries` requests before each doorbell.
    ///
    /// # Panics
    /// If the task is dead and holds a lock. Otherwise a dead task ends here.
    #[must_use]
    pub fn new(arena: Arc<Arena>, entries: u32) -> Self {
        Self(Backend::chosen(Choice::Threads, arena, entries).expect("a dead task has ended"))
    }

    /// Prepares for several writes at once. They go on after the death of the process, and hold the
    /// end of a pipe until the last one has ended.
    pub fn prepare_writes(&mut self, count: usize, alive: Option<&Alive>) {
        if count >= BURST {
            machine::with(|machine| machine.outlive(self.0.port()));
            if let Some(alive) = alive {
                let _ = self.0.set_alive(alive);
            }
        }
    }

    /// Returns whether the device may be used on this thread.
    #[must_use]
    pub fn is_for_this_thread(&self) -> bool {
        true
    }

    /// Attaches a file under the number of a target.
    ///
    /// # Panics
    /// If the number is taken.
    pub fn attach(&mut self, target: Target, file: Arc<OpenFile>) {
        self.0.attach(target, file);
    }

    /// Detaches and returns the file of a target.
    pub fn detach(&mut self, target: Target) -> Arc<OpenFile> {
        self.0.detach(target)
    }
}

impl Device for Inline {
    fn now(&mut self) -> Moment {
        self.0.now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.0.prepare(tag, request)
    }

    fn doorbell(&mut self, _: Wait) -> Result<(), Errno> {
        self.0.doorbell(Wait::Not)?;
        let port = self.0.port();
        while !world::is_dead() && machine::with(|machine| machine.flying_of(port) > 0) {
            world::block(Reason { what: DOORBELL, number: port }, None);
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.0.reap(completions);
    }
}
