//! A plug: bios held a moment with their neighbours, in the order they arrived.
//!
//! One list, not one per class: whether two bios may change places is decided by their order of
//! arrival across the classes, and the classes are put one before the other at dispatch, once per
//! batch. Nothing here reads a clock; who holds the plug decides when to dispatch it.
//!
//! Bounded by count and by bytes: see [`limits`](crate::limits).

use crate::bio::Bio;
use crate::dispatch::Waiting;
use crate::limits::{PLUG_BIOS, PLUG_BYTES};
use crate::line::{Key, Line};
use crate::merge::Merge;
use crate::request::Bound;
use crate::slab::{Place, Slab};
use crate::touch::Touch;

/// Bios held with their neighbours, each a request of its own so far.
#[derive(Debug, Default)]
pub(crate) struct Plug {
    held: Line,
    /// Those that may have to wait for one that came before.
    bound: usize,
    bytes: u64,
    nested: u32,
    touch: Touch,
}

impl Plug {
    /// Takes note of a bio before it is put into its place.
    #[inline]
    pub(crate) fn look_at(&mut self, slab: &Slab, bio: &Bio) {
        self.bytes += bio.bytes();
        self.touch
            .add(bio, || self.held.as_slice().iter().rev().map(|&place| slab.get(place).asked()));
    }

    /// Takes it in, behind all that came before.
    #[inline]
    pub(crate) fn hold(&mut self, key: Key, order: Bound, place: Place) {
        self.bound += usize::from(order == Bound::Perhaps);
        self.held.push(key, place);
    }

    /// Whether two of the bios touch, so that merging is worth a try.
    #[inline]
    pub(crate) fn touches(&self) -> bool {
        self.touch.touches()
    }

    /// The caller begins to submit what belongs together. May be nested.
    pub(crate) fn begin(&mut self) {
        self.nested += 1;
    }

    /// The caller has submitted it.
    pub(crate) fn end(&mut self) {
        self.nested = self.nested.checked_sub(1).expect("a plug that ends has begun");
    }

    /// Whether a caller is in the middle of what belongs together.
    pub(crate) fn is_begun(&self) -> bool {
        self.nested > 0
    }

    /// Bios it can still take.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        if self.bytes >= PLUG_BYTES { 0 } else { PLUG_BIOS - self.held.len() }
    }

    /// Bios it holds.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether it holds none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Bytes its bios move.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves all it holds behind what waits already, in the order of arrival; with the neighbours
    /// merged, if told. Says how many requests that makes.
    #[inline]
    pub(crate) fn pour(
        &mut self,
        slab: &mut Slab,
        merge: Option<&mut Merge>,
        waiting: &mut Waiting,
    ) -> usize {
        if let Some(merge) = merge {
            merge.merge(slab, &mut self.held);
            let bound = |&&place: &&Place| slab.get(place).order() == Bound::Perhaps;
            self.bound = self.held.as_slice().iter().filter(bound).count();
        }
        let requests = self.held.len();
        waiting.append(&mut self.held, core::mem::take(&mut self.bound));
        self.bytes = 0;
        self.touch.clear();
        requests
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::bio::{Class, Frame, Operation, Segment, Source, Target};
    use crate::limits::EXTENDING_REQUEST_BYTES;
    use crate::line::key;
    use crate::request::{Held, Request};

    fn write(page: u64, length: u32) -> Request {
        let bio = Bio {
            operation: Operation::Write,
            target: Target(0),
            offset: page * 4096,
            length: u64::from(length),
            segments: smallvec![Segment::frames(Frame(0), length)],
            class: Class::Background,
            source: Source(0),
            owner: 0,
        };
        Request::single(Held { arrival: page, bio })
    }

    fn hold(plug: &mut Plug, slab: &mut Slab, request: Request) {
        plug.look_at(slab, request.asked());
        plug.hold(key(&request), request.order(), slab.insert(request));
    }

    #[test]
    fn holds_in_order_of_arrival_up_to_its_count() {
        let (mut plug, mut slab) = (Plug::default(), Slab::new());
        for page in 0..PLUG_BIOS as u64 {
            assert!(plug.room() > 0);
            hold(&mut plug, &mut slab, write(page, 4096));
        }
        assert_eq!((plug.len(), plug.room()), (PLUG_BIOS, 0));
        assert!(plug.touches());
        let held = plug.held.as_slice();
        assert!(held.iter().is_sorted_by_key(|&place| slab.get(place).arrival()));
        assert_eq!(plug.pour(&mut slab, None, &mut Waiting::default()), PLUG_BIOS);
        assert_eq!((plug.len(), plug.bytes(), plug.room()), (0, 0, PLUG_BIOS));
        assert!(!plug.touches());
    }

    #[test]
    fn is_full_when_its_bytes_are() {
        let (mut plug, mut slab) = (Plug::default(), Slab::new());
        for page in 0..PLUG_BYTES / EXTENDING_REQUEST_BYTES {
            assert!(plug.room() > 0);
            hold(&mut plug, &mut slab, write(page, EXTENDING_REQUEST_BYTES as u32));
        }
        assert_eq!(plug.room(), 0);
    }

    #[test]
    fn plugs_nest() {
        let mut plug = Plug::default();
        plug.begin();
        plug.begin();
        plug.end();
        assert!(plug.is_begun());
        plug.end();
        assert!(!plug.is_begun());
    }
}
