//! Files by their targets' numbers, and their requests in flight: the same for the ring and for the
//! thread pool.

use std::sync::Arc;

use forebay_block::{Operation, Target};

use crate::file::OpenFile;

/// Files, each with the backend's name for it.
#[derive(Debug)]
pub(crate) struct Targets<Name>(Vec<Option<Attached<Name>>>);

/// A file under its target's number.
#[derive(Debug)]
pub(crate) struct Attached<Name> {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) name: Name,
    /// Requests in flight.
    in_flight: u32,
    /// Of them those that move bytes.
    moving: u32,
    /// Whether one of those is buffered; then it is the only one.
    buffered: bool,
}

impl<Name> Default for Targets<Name> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<Name> Targets<Name> {
    /// Refuses a number that a file has.
    pub(crate) fn assert_free(&self, target: Target) {
        let slot = self.0.get(target.0 as usize);
        assert!(slot.is_none_or(Option::is_none), "{target:?} is taken");
    }

    pub(crate) fn attach(&mut self, target: Target, file: Arc<OpenFile>, name: Name) {
        self.assert_free(target);
        let index = target.0 as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(Attached { file, name, in_flight: 0, moving: 0, buffered: false });
    }

    pub(crate) fn detach(&mut self, target: Target) -> Attached<Name> {
        // Checked before it is removed: requests in flight name its descriptor.
        assert_eq!(self.attached(target).in_flight, 0, "{target:?} has requests in flight");
        self.0[target.0 as usize].take().expect("looked at above")
    }

    pub(crate) fn attached(&self, target: Target) -> &Attached<Name> {
        let slot = self.0.get(target.0 as usize).and_then(Option::as_ref);
        slot.unwrap_or_else(|| panic!("{target:?} is not attached"))
    }

    /// A request begins. Nothing else may move bytes of the target while one is buffered, for the
    /// descriptor's mode is switched.
    pub(crate) fn begin(&mut self, target: Target, operation: Operation) -> &Arc<OpenFile> {
        let attached = self.attached_mut(target);
        if operation.moves_bytes() {
            let alone = operation != Operation::WriteBuffered || attached.moving == 0;
            assert!(
                alone && !attached.buffered,
                "a buffered write shares {target:?} with another request"
            );
            attached.moving += 1;
            attached.buffered = operation == Operation::WriteBuffered;
        }
        attached.in_flight += 1;
        &attached.file
    }

    /// A request has ended.
    pub(crate) fn end(&mut self, target: Target, operation: Operation) -> &Arc<OpenFile> {
        let attached = self.attached_mut(target);
        assert!(attached.in_flight > 0, "a request of {target:?} ends once");
        attached.in_flight -= 1;
        if operation.moves_bytes() {
            assert!(attached.moving > 0, "a request that moves bytes of {target:?} ends once");
            attached.moving -= 1;
            attached.buffered = false;
        }
        &attached.file
    }

    /// All that is attached, to be named anew.
    pub(crate) fn names(&mut self) -> impl Iterator<Item = (Target, &OpenFile, &mut Name)> {
        let numbered = (0..).map(Target).zip(self.0.iter_mut());
        numbered.filter_map(|(target, slot)| {
            let Attached { file, name, .. } = slot.as_mut()?;
            Some((target, &**file, name))
        })
    }

    pub(crate) fn attached_mut(&mut self, target: Target) -> &mut Attached<Name> {
        let slot = self.0.get_mut(target.0 as usize).and_then(Option::as_mut);
        slot.unwrap_or_else(|| panic!("{target:?} is not attached"))
    }
}
