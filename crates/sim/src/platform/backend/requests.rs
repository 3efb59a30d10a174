//! Files and requests of a backend, as its owner sees them.

use std::sync::Arc;

use forebay_block::{Operation, Tag, Target};

use crate::platform::file::OpenFile;
use crate::world::TaskId;

/// A file under the number of a target.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) file: Arc<OpenFile>,
    /// The open file that the ring has registered.
    pub(super) registered: Option<u64>,
    pub(super) in_flight: u32,
    /// Requests that move bytes.
    pub(super) moving: u32,
    /// Whether one of those is buffered; then it is the only one.
    pub(super) is_buffered: bool,
}

/// The requests of a backend.
#[derive(Debug)]
pub struct Requests {
    pub(super) port: u64,
    pub(super) entries: usize,
    pub(super) targets: Vec<Option<Attached>>,
    /// Operations in flight by tag.
    pub(super) flights: Vec<Option<(Target, Operation)>>,
    pub(super) staged: usize,
    /// The task that rang the doorbell first.
    pub(super) task: Option<TaskId>,
}

impl Requests {
    pub(super) fn attached(&self, target: Target) -> &Attached {
        let slot = self.targets.get(target.0 as usize).and_then(Option::as_ref);
        slot.unwrap_or_else(|| panic!("{target:?} is not attached"))
    }

    pub(super) fn attached_mut(&mut self, target: Target) -> &mut Attached {
        let slot = self.targets.get_mut(target.0 as usize).and_then(Option::as_mut);
        slot.unwrap_or_else(|| panic!("{target:?} is not attached"))
    }

    /// A request begins. A buffered one is the only one that moves bytes of its target.
    pub(super) fn begin(&mut self, tag: Tag, target: Target, operation: Operation) {
        let index = usize::from(tag.0);
        if self.flights.len() <= index {
            self.flights.resize(index + 1, None);
        }
        let before = self.flights[index].replace((target, operation));
        assert!(before.is_none(), "contract 16: {tag:?} is in flight already, as {before:?}");
        let attached = self.attached_mut(target);
        if operation.moves_bytes() {
            let is_alone = operation != Operation::WriteBuffered || attached.moving == 0;
            assert!(
                is_alone && !attached.is_buffered,
                "contract 8: a buffered write shares {target:?} with another request"
            );
            attached.moving += 1;
            attached.is_buffered = operation == Operation::WriteBuffered;
        }
        attached.in_flight += 1;
    }

    pub(super) fn end(&mut self, tag: Tag) {
        let flight = self.flights[usize::from(tag.0)].take();
        let (target, operation) = flight.expect("only what is in flight ends");
        let attached = self.attached_mut(target);
        attached.in_flight -= 1;
        if operation.moves_bytes() {
            attached.moving -= 1;
            attached.is_buffered = false;
        }
    }
}
