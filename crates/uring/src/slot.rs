//! A tag's slot in the ring: what is in flight under it, and the memory the kernel reads the request's shape from.
//!
//! The number the kernel carries with a request names the tag *and* the slot's generation, which grows with each
//! use. A completion of another generation belongs to nobody and ends nothing: no mistake elsewhere can make it
//! pass for the request that has the tag now.

use forebay_block::limits::REQUEST_SEGMENTS;
use forebay_block::{Buffer, Operation, Segment, Tag, Target};

use crate::arena::{Arena, ZERO_BYTES};
use crate::lent::Lent;

/// What the kernel carries with a request and hands back with its completion.
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
            Ticket::Request { tag, generation } => REQUEST | u64::from(generation) << 16 | u64::from(tag.0),
            Ticket::Wake => WAKE,
            Ticket::Unknown => 0,
        }
    }

    pub(crate) fn of(word: u64) -> Self {
        let field = |shift: u32, mask: u64| u32::try_from(word >> shift & mask).expect("masked to its width");
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

/// One entry of the vector a scattered request is described by.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoVector(libc::iovec);

// SAFETY: the address is into an arena or into lent memory, which belong to no thread; it is only ever handed to the
// kernel.
unsafe impl Send for IoVector {}

impl IoVector {
    pub(crate) fn start(&self) -> *mut u8 {
        self.0.iov_base.cast()
    }

    /// Bytes, as far as one request carries them: the kernel cuts at 2 GiB anyway.
    pub(crate) fn length(&self) -> u32 {
        u32::try_from(self.0.iov_len).unwrap_or(1 << 31)
    }

    fn end(&self) -> *const u8 {
        self.start().wrapping_add(self.0.iov_len).cast_const()
    }
}

/// What is in flight.
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
    /// Kept from use to use, so that a request in the steady state allocates nothing.
    vectors: Vec<IoVector>,
    /// Lent memory the request uses, once for each segment.
    lent: Vec<Buffer>,
}

impl Slot {
    /// Takes the slot for a request, and gives the word that names it.
    pub(crate) fn take(&mut self, tag: Tag, flight: Flight) -> Ticket {
        assert!(self.flight.is_none(), "{tag:?} is in flight already, as {:?}", self.flight);
        self.generation = self.generation.wrapping_add(1);
        self.flight = Some(flight);
        Ticket::Request { tag, generation: self.generation }
    }

    /// Ends what is in flight, if it is of this generation; the lent memory it used is counted back.
    pub(crate) fn end(&mut self, generation: u32, lent: &mut Lent) -> Option<Flight> {
        let ended = if generation == self.generation { self.flight.take() } else { None };
        if ended.is_some() {
            self.lent.drain(..).for_each(|buffer| lent.arrive(buffer));
        }
        ended
    }

    /// Describes the segments to the kernel. Neighbours in memory become one entry. What does not fit the kernel's
    /// bound of 1024 entries is left out, so the request ends short and its rest comes as another.
    pub(crate) fn describe(
        &mut self,
        (arena, lent): (&Arena, &mut Lent),
        operation: Operation,
        segments: &[Segment],
    ) -> &[IoVector] {
        self.vectors.clear();
        for &segment in segments {
            let fits = match segment {
                Segment::Frames { first, offset, length } => {
                    arena.assert_holds(first, offset + length);
                    // SAFETY: the bytes from the frame's start on are within the arena, as just asserted.
                    let address = unsafe { arena.address(first).add(offset as usize) };
                    self.append(address, length as usize)
                }
                Segment::Lent { buffer, offset, length } => {
                    let address = lent.depart(buffer, offset, length);
                    self.lent.push(buffer);
                    self.append(address, length as usize)
                }
                Segment::Zeroes { length } => {
                    assert!(operation != Operation::Read, "nothing can be read into zeroes");
                    self.append_zeroes(arena, length as usize)
                }
            };
            if !fits {
                break;
            }
        }
        &self.vectors
    }

    fn append_zeroes(&mut self, arena: &Arena, mut length: usize) -> bool {
        while length > 0 {
            let part = length.min(ZERO_BYTES);
            if !self.append(arena.zero_address(), part) {
                return false;
            }
            length -= part;
        }
        true
    }

    fn append(&mut self, address: *const u8, length: usize) -> bool {
        if let Some(last) = self.vectors.last_mut()
            && last.end() == address
        {
            last.0.iov_len += length;
            return true;
        }
        if self.vectors.len() == REQUEST_SEGMENTS {
            return false;
        }
        self.vectors.push(IoVector(libc::iovec { iov_base: address.cast_mut().cast(), iov_len: length }));
        true
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::Frame;
    use forebay_block::limits::PAGE;

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
        let Ticket::Request { generation: old, .. } = slot.take(Tag(1), FLIGHT) else { unreachable!() };
        assert!(slot.end(old, &mut lent).is_some());
        assert!(slot.end(old, &mut lent).is_none(), "twice");
        let Ticket::Request { generation: new, .. } = slot.take(Tag(1), FLIGHT) else { unreachable!() };
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

    #[test]
    fn neighbours_join_and_zeroes_repeat() {
        let arena = Arena::new(8).unwrap();
        let mut slot = Slot::default();
        let page = u32::try_from(PAGE).unwrap();
        let frames = |first: u32, count: u32| Segment::frames(Frame(first), count * page);
        let zeroes = Segment::Zeroes { length: 150 << 10 };
        let shape = slot.describe(
            (&arena, &mut Lent::new()),
            Operation::Write,
            &[frames(1, 2), frames(3, 1), zeroes, frames(0, 1)],
        );
        let lengths: Vec<usize> = shape.iter().map(|vector| vector.0.iov_len).collect();
        assert_eq!(lengths, [3 * PAGE, ZERO_BYTES, ZERO_BYTES, (150 << 10) - 2 * ZERO_BYTES, PAGE]);
    }

    #[test]
    fn contract_13_lent_memory_is_in_use_until_the_request_ends() {
        let arena = Arena::new(1).unwrap();
        let (mut slot, mut lent) = (Slot::default(), Lent::new());
        let buffer = lent.lend(vec![0; 100].into());
        let Ticket::Request { generation, .. } = slot.take(Tag(1), FLIGHT) else { unreachable!() };
        let part = |offset, length| Segment::Lent { buffer, offset, length };
        let shape =
            slot.describe((&arena, &mut lent), Operation::Write, &[part(0, 10), part(10, 10), part(50, 50)]);
        let lengths: Vec<usize> = shape.iter().map(|vector| vector.0.iov_len).collect();
        assert_eq!(lengths, [20, 50]);
        let early = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lent.take_back(buffer)));
        assert!(early.is_err());
        assert!(slot.end(generation, &mut lent).is_some());
        assert_eq!(lent.take_back(buffer).length(), 100);
    }

    #[test]
    fn too_many_pieces_end_short() {
        let arena = Arena::new(4000).unwrap();
        let mut slot = Slot::default();
        let segments: Vec<Segment> = (0..1500).map(|index| Segment::frames(Frame(index * 2), 4096)).collect();
        assert_eq!(
            slot.describe((&arena, &mut Lent::new()), Operation::Write, &segments).len(),
            REQUEST_SEGMENTS
        );
    }
}
