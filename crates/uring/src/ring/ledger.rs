//! The requests in flight: the files under their numbers, the tags' slots, and the counts.
//!
//! Every request is entered once and crossed out once; an entry crossed out twice, late, or never
//! made ends nothing.

use forebay_block::{Bio, Completion, Errno, Operation, Tag};

use crate::arena::Arena;
use crate::direct::Mode;
use crate::fixed::Name;
use crate::lent::Lent;
use crate::slot::{Flight, Slot, Ticket};
use crate::targets::Targets;
use crate::vectors::IoVector;

/// The requests prepared and not yet ended.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) targets: Targets<Name>,
    slots: Vec<Slot>,
    /// Frees what is not in flight when it goes, and leaks the rest.
    pub(super) lent: Lent,
    in_flight: u32,
}

impl Ledger {
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Describes to the kernel where the bytes of the request entered under a tag are.
    pub(super) fn describe(&mut self, tag: Tag, arena: &Arena, request: &Bio) -> &[IoVector] {
        let shape = &mut self.slots[usize::from(tag.0)].shape;
        shape.describe(arena, &mut self.lent, request);
        if request.operation == Operation::Read {
            let file = &self.targets.attached(request.target).file;
            let readable = file.readable(request.offset, request.length);
            if readable < request.length {
                shape.cut(readable);
            }
        }
        shape.vectors()
    }

    /// Enters a request, and gives the word that names it.
    pub(super) fn enter(&mut self, tag: Tag, flight: Flight) -> Ticket {
        let Flight { target, operation } = flight;
        self.targets.begin(target, operation);
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
        mut result: Result<u64, Errno>,
    ) -> Option<Completion> {
        let slot = self.slots.get_mut(usize::from(tag.0));
        let Some(Flight { target, operation }) =
            slot.and_then(|slot| slot.end(generation, &mut self.lent))
        else {
            tracing::error!(
                tag = tag.0,
                generation,
                ?result,
                "a completion that belongs to no request"
            );
            return None;
        };
        self.in_flight -= 1;
        let file = self.targets.end(target, operation);
        if operation == Operation::Read && result == Err(Errno::IO) && file.ends_reads() {
            result = Err(Errno::WOULD_BLOCK);
        }
        if operation == Operation::WriteBuffered {
            // Left buffered, later requests would be slower, not wrong.
            file.set_direct(Mode::Direct).unwrap_or_else(|error| {
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
