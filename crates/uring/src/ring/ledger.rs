//! Who has what in flight: the files under their numbers, the tags' slots, and the counts.
//!
//! Every request is entered once and crossed out once; what is crossed out twice, late, or never entered ends nothing.

use std::sync::Arc;

use forebay_block::{Bio, Completion, Errno, Operation, Tag, Target};

use crate::arena::Arena;
use crate::direct::Mode;
use crate::file::File;
use crate::fixed::Name;
use crate::lent::Lent;
use crate::slot::{Flight, Slot, Ticket};
use crate::vectors::IoVector;

/// A file under its target's number.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) file: Arc<File>,
    pub(super) name: Name,
    /// Requests in flight.
    in_flight: u32,
    /// Of them those that move bytes.
    moving: u32,
    /// Whether one of those is buffered; then it is the only one.
    buffered: bool,
}

/// The requests prepared and not yet ended.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    targets: Vec<Option<Attached>>,
    slots: Vec<Slot>,
    /// Frees what is not in flight when it goes, and leaks the rest.
    pub(super) lent: Lent,
    in_flight: u32,
}

impl Ledger {
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn attach(&mut self, target: Target, file: Arc<File>, name: Name) {
        let index = target.0 as usize;
        if self.targets.len() <= index {
            self.targets.resize_with(index + 1, || None);
        }
        self.targets[index] = Some(Attached { file, name, in_flight: 0, moving: 0, buffered: false });
    }

    pub(super) fn is_free(&self, target: Target) -> bool {
        self.targets.get(target.0 as usize).is_none_or(Option::is_none)
    }

    pub(super) fn detach(&mut self, target: Target) -> Attached {
        // Asked before it is taken out: what is in flight names its descriptor.
        assert_eq!(self.attached(target).in_flight, 0, "{target:?} has requests in flight");
        self.targets[target.0 as usize].take().expect("looked at above")
    }

    pub(super) fn attached(&self, target: Target) -> &Attached {
        let slot = self.targets.get(target.0 as usize).and_then(Option::as_ref);
        slot.unwrap_or_else(|| panic!("{target:?} is not attached"))
    }

    /// All that is attached, to be named anew.
    pub(super) fn names(&mut self) -> impl Iterator<Item = (Target, &File, &mut Name)> {
        let numbered = (0..).map(Target).zip(self.targets.iter_mut());
        numbered.filter_map(|(target, slot)| {
            let Attached { file, name, .. } = slot.as_mut()?;
            Some((target, &**file, name))
        })
    }

    /// Describes to the kernel where the bytes of the request entered under a tag are.
    pub(super) fn describe(&mut self, tag: Tag, arena: &Arena, request: &Bio) -> &[IoVector] {
        let shape = &mut self.slots[usize::from(tag.0)].shape;
        shape.describe(arena, &mut self.lent, request);
        shape.vectors()
    }

    /// Enters a request, and gives the word that names it.
    pub(super) fn enter(&mut self, tag: Tag, flight: Flight) -> Ticket {
        let Flight { target, operation } = flight;
        let attached = self.targets.get_mut(target.0 as usize).and_then(Option::as_mut);
        let attached = attached.unwrap_or_else(|| panic!("{target:?} is not attached"));
        if operation.moves_bytes() {
            let alone = operation != Operation::WriteBuffered || attached.moving == 0;
            assert!(alone && !attached.buffered, "a buffered write shares {target:?} with another request");
            attached.moving += 1;
            attached.buffered = operation == Operation::WriteBuffered;
        }
        attached.in_flight += 1;
        self.in_flight += 1;
        let index = usize::from(tag.0);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        self.slots[index].take(tag, flight)
    }

    /// Crosses a request out, if there is one of that name.
    pub(super) fn end(
        &mut self,
        tag: Tag,
        generation: u32,
        result: Result<u64, Errno>,
    ) -> Option<Completion> {
        let slot = self.slots.get_mut(usize::from(tag.0));
        let Some(Flight { target, operation }) = slot.and_then(|slot| slot.end(generation, &mut self.lent))
        else {
            tracing::error!(tag = tag.0, generation, ?result, "a completion that belongs to no request");
            return None;
        };
        self.in_flight -= 1;
        let attached =
            self.targets[target.0 as usize].as_mut().expect("a target with requests stays attached");
        attached.in_flight -= 1;
        attached.moving -= u32::from(operation.moves_bytes());
        if operation == Operation::WriteBuffered {
            attached.buffered = false;
            // Left buffered, later requests would be slower, not wrong.
            attached.file.set_direct(Mode::Direct).unwrap_or_else(|error| {
                tracing::error!(%error, "could not switch the file back to direct");
            });
        }
        Some(Completion { tag, result })
    }

    /// Keeps for ever what requests in flight may still use.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.slots));
        std::mem::forget(std::mem::take(&mut self.targets));
    }
}
