//! Plug: bios held for a moment with their neighbours, in order of arrival.
//!
//! One list, not one per class: the order of arrival across the classes decides whether two bios
//! may change places. Dispatch puts one class before the other, once per batch. Nothing here reads
//! a clock; the owner of the plug decides when to dispatch it.
//!
//! The plug is bounded by count and by bytes: see [`limits`](crate::limits).

use crate::bio::Bio;
use crate::dispatch::Waiting;
use crate::limits::{PLUG_BIOS, PLUG_BYTES};
use crate::line::{Key, Line};
use crate::merge::Merge;
use crate::request::Bound;
use crate::slab::{Place, Slab};
use crate::touch::Touch;

/// Plugged bios, each still a request of its own.
#[derive(Debug, Default)]
pub(crate) struct Plug {
    held: Line,
    /// Requests that may have to wait for an earlier one.
    bound: usize,
    bytes: u64,
    nested: u32,
    touch: Touch,
}

impl Plug {
    /// Counts a bio and looks for its neighbours, before [`Plug::hold`] adds it.
    #[inline]
    pub(crate) fn look_at(&mut self, slab: &Slab, bio: &Bio) {
        self.bytes += bio.bytes();
        self.touch
            .add(bio, || self.held.as_slice().iter().rev().map(|&place| slab.get(place).asked()));
    }

    /// Appends the request of the bio.
    #[inline]
    pub(crate) fn hold(&mut self, key: Key, order: Bound, place: Place) {
        self.bound += usize::from(order == Bound::Perhaps);
        self.held.push(key, place);
        debug_assert!(self.held.len() <= PLUG_BIOS, "the plug holds more bios than it may");
    }

    /// Returns whether two of the bios may be adjacent, so that merging is worth a try.
    #[inline]
    pub(crate) fn touches(&self) -> bool {
        self.touch.touches()
    }

    /// Starts an explicit hold. Holds nest.
    pub(crate) fn begin(&mut self) {
        self.nested += 1;
    }

    /// Ends an explicit hold.
    pub(crate) fn end(&mut self) {
        self.nested = self.nested.checked_sub(1).expect("unplug without a plug");
    }

    /// Returns whether an explicit hold is open.
    pub(crate) fn is_begun(&self) -> bool {
        self.nested > 0
    }

    /// Returns how many more bios fit.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        if self.bytes >= PLUG_BYTES { 0 } else { PLUG_BIOS - self.held.len() }
    }

    /// Returns the number of plugged bios.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the bytes that the plugged bios transfer.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves all requests behind those in `waiting`, in order of arrival, and merges neighbours
    /// first if `merge` is given. Returns the number of requests that this makes.
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
        debug_assert!(self.bound <= requests, "more requests are bound than plugged");
        waiting.append(&mut self.held, core::mem::take(&mut self.bound));
        debug_assert!(self.held.is_empty(), "requests stay in the plug");
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
