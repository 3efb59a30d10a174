//! Files by their targets' numbers, and what is in flight on each.

use std::sync::Arc;

use forebay_block::{Operation, Target};

use crate::file::File;

/// A table of files.
#[derive(Debug, Default)]
pub(super) struct Targets(Vec<Option<Attached>>);

/// A file under its target's number.
#[derive(Debug)]
struct Attached {
    file: Arc<File>,
    /// Requests in flight.
    in_flight: u32,
    /// Of them those that move bytes.
    moving: u32,
    /// Whether one of those is buffered; then it is the only one.
    buffered: bool,
}

impl Targets {
    pub(super) fn attach(&mut self, target: Target, file: Arc<File>) {
        let index = target.0 as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        assert!(self.0[index].is_none(), "{target:?} is taken");
        self.0[index] = Some(Attached { file, in_flight: 0, moving: 0, buffered: false });
    }

    pub(super) fn detach(&mut self, target: Target) -> Arc<File> {
        let attached = self.0[target.0 as usize].take().expect("the target is attached");
        assert_eq!(attached.in_flight, 0, "{target:?} has requests in flight");
        attached.file
    }

    /// A request begins. Nothing else may move bytes of the target while one is buffered, for the descriptor's mode is
    /// switched.
    pub(super) fn begin(&mut self, target: Target, operation: Operation) -> &Arc<File> {
        let attached = self.attached(target);
        if operation.moves_bytes() {
            let alone = operation != Operation::WriteBuffered || attached.moving == 0;
            assert!(alone && !attached.buffered, "a buffered write shares {target:?} with another request");
            attached.moving += 1;
            attached.buffered = operation == Operation::WriteBuffered;
        }
        attached.in_flight += 1;
        &attached.file
    }

    /// A request has ended.
    pub(super) fn end(&mut self, target: Target, operation: Operation) {
        let attached = self.attached(target);
        attached.in_flight -= 1;
        if operation.moves_bytes() {
            attached.moving -= 1;
            attached.buffered = false;
        }
    }

    fn attached(&mut self, target: Target) -> &mut Attached {
        let slot = self.0.get_mut(target.0 as usize).and_then(Option::as_mut);
        slot.unwrap_or_else(|| panic!("{target:?} is not attached"))
    }
}
