//! A tag's slot in the ring: the request in flight under it, and the memory that describes the
//! request to the kernel.
//!
//! The number the kernel carries with a request names the tag *and* the slot's generation, which
//! grows with each use. A completion of another generation belongs to nobody and ends nothing: no
//! mistake elsewhere can make it pass for the request that has the tag now.

use forebay_block::{Operation, Tag, Target};

use crate::lent::Lent;
use crate::vectors::Shape;

/// The number that the kernel carries with a request and returns with its completion.
///
/// ```text
/// bits 0..16 tag, bits 16..48 generation, bits 48..64 kind (1 a request, 2 the wake)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ticket {
    Request { tag: Tag, generation: u32 },
    Wake,
    Unknown,
}

const REQUEST: u64 = 1 << 48;
const WAKE: u64 = 2 << 48;

impl Ticket {
    pub(crate) fn word(self) -> u64 {
        match self {
            Ticket::Request { tag, generation } => {
                REQUEST | u64::from(generation) << 16 | u64::from(tag.0)
            }
            Ticket::Wake => WAKE,
            Ticket::Unknown => 0,
        }
    }

    pub(crate) fn of(word: u64) -> Self {
        let field = |shift: u32, mask: u64| {
            u32::try_from(word >> shift & mask).expect("masked to its width")
        };
        match word & !0xffff_ffff_ffff {
            REQUEST => {
                let tag = Tag(u16::try_from(field(0, 0xffff)).expect("masked to 16 bits"));
                Ticket::Request { tag, generation: field(16, 0xffff_ffff) }
            }
            WAKE => Ticket::Wake,
            _ => Ticket::Unknown,
        }
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) target: Target,
    pub(crate) operation: Operation,
}

/// A tag's slot.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    generation: u32,
    flight: Option<Flight>,
    /// Where its bytes are.
    pub(crate) shape: Shape,
}

impl Slot {
    /// Takes the slot for a request, and gives the word that names it.
    pub(crate) fn take(&mut self, tag: Tag, flight: Flight) -> Ticket {
        assert!(self.flight.is_none(), "{tag:?} is in flight already, as {:?}", self.flight);
        self.generation = self.generation.wrapping_add(1);
        self.flight = Some(flight);
        Ticket::Request { tag, generation: self.generation }
    }

    /// Ends what is in flight, if it is of this generation; the lent memory it used is counted
    /// back.
    pub(crate) fn end(&mut self, generation: u32, lent: &mut Lent) -> Option<Flight> {
        let ended = if generation == self.generation { self.flight.take() } else { None };
        if ended.is_some() {
            self.shape.arrive(lent);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLIGHT: Flight = Flight { target: Target(0), operation: Operation::Write };

    #[test]
    fn a_ticket_survives_the_journey() {
        for ticket in [
            Ticket::Request { tag: Tag(u16::MAX), generation: 0 },
            Ticket::Request { tag: Tag(0), generation: u32::MAX },
            Ticket::Wake,
            Ticket::Unknown,
        ] {
            assert_eq!(Ticket::of(ticket.word()), ticket);
        }
    }

    #[test]
    fn contract_13_a_stale_completion_ends_nothing() {
        let (mut slot, mut lent) = (Slot::default(), Lent::new());
        let Ticket::Request { generation: old, .. } = slot.take(Tag(1), FLIGHT) else {
            unreachable!()
        };
        assert!(slot.end(old, &mut lent).is_some());
        assert!(slot.end(old, &mut lent).is_none(), "twice");
        let Ticket::Request { generation: new, .. } = slot.take(Tag(1), FLIGHT) else {
            unreachable!()
        };
        assert!(slot.end(old, &mut lent).is_none(), "late");
        assert!(slot.end(new, &mut lent).is_some());
    }

    #[test]
    #[should_panic(expected = "in flight already")]
    fn contract_16_a_tag_is_in_one_place() {
        let mut slot = Slot::default();
        slot.take(Tag(1), FLIGHT);
        slot.take(Tag(1), FLIGHT);
    }
}
