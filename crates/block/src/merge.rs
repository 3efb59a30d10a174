//! Merge: adjacent bios of a plug become one request.
//!
//! The whole plug is searched for neighbours, not only its end: writers take turns, so their
//! neighbours rarely arrive next to each other. Bios are sorted by place within epochs. So the work
//! is n log n, and bios that must keep their order keep it.
//!
//! An *epoch* of a target is a stretch of arrivals within which no order matters. A barrier (any
//! operation that does not merge) begins a new epoch, and so does a bio that conflicts with one of
//! the epoch. Bios merge only within an epoch, and a request takes the place of its oldest bio. So
//! no bio crosses a barrier, and overlapping ranges keep their order. Classes do not merge with
//! each other: a caller would wait for bytes that no caller waits for.
//!
//! The price: a bio that joins an older neighbour overtakes unrelated bios that came between them.

use alloc::vec::Vec;

use crate::bio::{Bio, Class, Segment, Segments, Target};
use crate::footprint::Footprint;
use crate::limits::{REQUEST_BYTES, REQUEST_SEGMENTS};
use crate::line::{Line, key};
use crate::request::{Bound, Held};
use crate::slab::{Place, Slab};

/// Merges requests whose bios touch.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    // Empty between calls; they keep their allocations.
    sorted: Vec<(Like, Place)>,
    merged: Vec<Place>,
    footprints: Vec<(Footprint, u32)>,
}

/// Sort key: target, epoch, class and operation, which are equal for bios that merge; then offset
/// and arrival.
type Like = (Target, u32, Class, u8, u64, u64);

impl Merge {
    /// Merges the requests of `line`, each of a single bio. They are in order of arrival (of their
    /// oldest bio) before and after.
    pub(crate) fn merge(&mut self, slab: &mut Slab, line: &mut Line) {
        let requests = line.as_slice();
        debug_assert!(requests.iter().is_sorted_by_key(|&place| slab.get(place).arrival()));
        debug_assert!(
            requests.iter().all(|&place| slab.get(place).bios() == 1),
            "a plugged request is of one bio"
        );
        let bios = requests.len();
        self.find_epochs(slab, requests);
        self.sorted.clear();
        for (&place, &(_, epoch)) in requests.iter().zip(&self.footprints) {
            let (bio, arrival) = (slab.get(place).asked(), slab.get(place).arrival());
            let key = (bio.target, epoch, bio.class, bio.operation as u8, bio.offset, arrival);
            self.sorted.push((key, place));
        }
        if !self.sorted.is_sorted_by_key(|&(key, _)| key) {
            self.sorted.sort_unstable_by_key(|&(key, _)| key);
        }
        self.merged.clear();
        let mut rest = self.sorted.as_slice();
        while let Some((&((_, epoch, ..), first), after)) = rest.split_first() {
            let mut run = Run::new(slab.get(first).asked());
            let joins = |&&((_, next, ..), place): &&(Like, Place)| {
                next == epoch && run.takes(slab.get(place).asked())
            };
            let count = after.iter().take_while(joins).count();
            let (more, after) = after.split_at(count);
            rest = after;
            if !more.is_empty() {
                let mut held: Vec<Held> = Vec::with_capacity(more.len());
                let (mut start, mut order) = (slab.get(first).start(), Bound::Free);
                for &(_, place) in more {
                    let request = slab.remove(place);
                    if request.order() == Bound::Perhaps {
                        order = Bound::Perhaps;
                    }
                    start = start.min(request.start());
                    held.push(request.into_held());
                }
                let request = slab.get_mut(first);
                request.absorb(held, order);
                request.set_start(start);
            }
            self.merged.push(first);
        }
        let merged = &mut self.merged;
        debug_assert_eq!(
            merged.iter().map(|&place| slab.get(place).bios()).sum::<usize>(),
            bios,
            "contract 16: a merge lost or doubled a bio"
        );
        if !merged.is_sorted_by_key(|&place| slab.get(place).arrival()) {
            merged.sort_unstable_by_key(|&place| slab.get(place).arrival());
        }
        line.clear();
        for &place in merged.iter() {
            line.push(key(slab.get(place)), place);
        }
    }

    /// Finds the epoch of each bio, counted per target.
    fn find_epochs(&mut self, slab: &Slab, requests: &[Place]) {
        let bio = |place: Place| slab.get(place).asked();
        let found = &mut self.footprints;
        found.clear();
        found.extend(requests.iter().map(|&place| (Footprint::of(bio(place)), 0)));
        let is_barrier = |place: Place| !bio(place).operation.merges();
        if !requests.iter().any(|&place| is_barrier(place) || bio(place).operation.changes()) {
            // Only reads: no order matters.
            return;
        }
        for (index, &place) in requests.iter().enumerate() {
            let (before, this) = found.split_at_mut(index);
            let (footprint, epoch) = &mut this[0];
            let mut before = before
                .iter()
                .rev()
                .filter(|(other, _)| other.target() == footprint.target())
                .peekable();
            let Some(&&(_, last)) = before.peek() else { continue };
            let begins = is_barrier(place)
                || before
                    .take_while(|(_, epoch)| *epoch == last)
                    .any(|(other, _)| other.conflicts(*footprint));
            *epoch = last + u32::from(begins);
        }
    }
}

/// A request that grows at its end.
struct Run {
    like: Bio,
    end: u64,
    bytes: u64,
    segments: usize,
    last: Option<Segment>,
}

impl Run {
    fn new(bio: &Bio) -> Self {
        let like = Bio { segments: Segments::new(), ..*bio };
        let (segments, last) = (bio.segments.len(), bio.segments.last().copied());
        Self { like, end: bio.end(), bytes: bio.length, segments, last }
    }

    /// Adds the bio if it continues the request and fits. Returns whether it did.
    fn takes(&mut self, bio: &Bio) -> bool {
        let fits = bio.operation.merges()
            && bio.operation == self.like.operation
            && bio.target == self.like.target
            && bio.class == self.like.class
            && bio.offset == self.end
            && self.bytes + bio.length <= REQUEST_BYTES
            && self.segments + bio.segments.len() - self.fuses(bio) <= REQUEST_SEGMENTS;
        if fits {
            self.extend(bio);
        }
        fits
    }

    fn extend(&mut self, bio: &Bio) {
        self.segments += bio.segments.len() - self.fuses(bio);
        self.end = bio.end();
        self.bytes += bio.length;
        self.last = bio.segments.last().copied();
        debug_assert_eq!(self.bytes, self.end - self.like.offset, "bios that merge must touch");
    }

    /// Returns 1 if the bio's first segment continues the last one, otherwise 0.
    fn fuses(&self, bio: &Bio) -> usize {
        match (self.last, bio.segments.first()) {
            (Some(last), Some(&first)) => usize::from(last.fused(first).is_some()),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;
    use smallvec::smallvec;

    use super::*;
    use crate::bio::Operation::{self, FlushData, Read, Write};
    use crate::bio::{Class, Frame, Source};
    use crate::limits::PAGE;
    use crate::request::Request;

    /// (operation, target, first page, pages), in order of arrival.
    type Asked = (Operation, u32, u64, u64);

    fn held(asked: &[Asked]) -> Vec<Request> {
        let hold = |(arrival, &(operation, target, page, pages)): (usize, &Asked)| {
            let length = pages * PAGE as u64;
            let segments = match operation.moves_bytes() {
                true => smallvec![Segment::frames(Frame(page as u32), length as u32)],
                false => Segments::new(),
            };
            let (target, offset, class) = (Target(target), page * PAGE as u64, Class::Background);
            let (source, owner) = (Source(0), arrival as u64);
            let bio = Bio { operation, target, offset, length, segments, class, source, owner };
            Request::single(Held { arrival: arrival as u64, bio })
        };
        asked.iter().enumerate().map(hold).collect()
    }

    fn merge(requests: &mut Vec<Request>) {
        let mut slab = Slab::new();
        let mut line = Line::default();
        for request in requests.drain(..) {
            line.push(key(&request), slab.insert(request));
        }
        Merge::default().merge(&mut slab, &mut line);
        requests.extend(line.as_slice().iter().map(|&place| slab.remove(place)));
    }

    /// Requests as (target, first page, pages), in order.
    fn merged(asked: &[Asked]) -> Vec<(u32, u64, u64)> {
        let mut requests = held(asked);
        merge(&mut requests);
        let asked = requests.iter().map(Request::asked);
        asked
            .map(|bio| (bio.target.0, bio.offset / PAGE as u64, bio.length / PAGE as u64))
            .collect()
    }

    #[test]
    fn neighbours_are_found_over_the_whole_plug() {
        let asked = [
            (Write, 1, 2, 1),
            (Write, 2, 7, 1),
            (Write, 1, 0, 1),
            (Write, 2, 8, 2),
            (Write, 1, 1, 1),
        ];
        assert_eq!(merged(&asked), [(1, 0, 3), (2, 7, 3)]);
    }

    #[test]
    fn bios_of_different_kinds_do_not_merge() {
        assert_eq!(merged(&[(Write, 1, 0, 1), (Read, 1, 1, 1), (Write, 2, 1, 1)]).len(), 3);
        let mut waited = held(&[(Write, 1, 1, 1)])[0].asked().clone();
        waited.class = Class::Waited;
        let mut requests = held(&[(Write, 1, 0, 1)]);
        requests.push(Request::single(Held { arrival: 1, bio: waited }));
        merge(&mut requests);
        assert_eq!(requests.len(), 2);
    }

    #[test]
    fn contract_15_nothing_merges_across_a_barrier() {
        let asked = [(Write, 1, 0, 1), (FlushData, 1, 0, 0), (Write, 1, 1, 1), (Write, 1, 2, 1)];
        assert_eq!(merged(&asked), [(1, 0, 1), (1, 0, 0), (1, 1, 2)]);
        let elsewhere = [(Write, 1, 0, 1), (FlushData, 2, 0, 0), (Write, 1, 1, 1)];
        assert_eq!(merged(&elsewhere), [(1, 0, 2), (2, 0, 0)]);
    }

    #[test]
    fn contract_15_overlapping_ranges_keep_their_order() {
        let asked = [(Write, 1, 1, 1), (Read, 1, 0, 3), (Write, 1, 2, 1), (Write, 1, 2, 1)];
        assert_eq!(merged(&asked), [(1, 1, 1), (1, 0, 3), (1, 2, 1), (1, 2, 1)]);
    }

    #[test]
    fn a_request_is_no_larger_than_one_may_be() {
        let pages = REQUEST_BYTES / PAGE as u64;
        assert_eq!(merged(&[(Write, 1, 0, pages - 1), (Write, 1, pages - 1, 2)]).len(), 2);
        assert_eq!(merged(&[(Write, 1, 0, 4 * pages), (Write, 1, 4 * pages, 1)]).len(), 2);
    }

    #[test]
    fn consecutive_frames_become_one_segment() {
        let mut requests = held(&[(Write, 1, 4, 2), (Write, 1, 6, 1)]);
        merge(&mut requests);
        assert_eq!(requests[0].asked().segments[..], [Segment::frames(Frame(4), 3 * PAGE as u32)]);
    }

    /// Whether the bios must keep their order: one is a barrier, or they overlap and one changes
    /// the target.
    fn is_bound(one: &Bio, other: &Bio) -> bool {
        let is_barrier = !one.operation.merges() || !other.operation.merges();
        let is_change = one.operation != Read || other.operation != Read;
        let overlaps = one.offset < other.end() && other.offset < one.end();
        one.target == other.target && (is_barrier || is_change && overlaps)
    }

    fn any_asked() -> impl Strategy<Value = (Asked, Class)> {
        let operation = prop_oneof![
            4 => Just(Write), 2 => Just(Read), 1 => Just(Operation::Punch), 1 => Just(FlushData),
            1 => Just(Operation::WriteFua), 1 => Just(Operation::Discard), 1 => Just(Operation::WriteZeroes),
        ];
        let class = prop_oneof![Just(Class::Waited), Just(Class::Background)];
        ((operation, 0..2u32, 0..40u64, 1..4u64), class)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn contract_15_merging_loses_nothing_and_keeps_what_is_bound(
            asked in prop::collection::vec(any_asked(), 0..64),
        ) {
            let (asked, classes): (Vec<Asked>, Vec<Class>) = asked.into_iter().unzip();
            let mut bios: Vec<Bio> = held(&asked).iter().map(|request| request.asked().clone()).collect();
            for (bio, class) in bios.iter_mut().zip(classes) {
                bio.class = class;
            }
            let single = |(arrival, bio): (usize, &Bio)| {
                Request::single(Held { arrival: arrival as u64, bio: bio.clone() })
            };
            let mut requests: Vec<Request> = bios.iter().enumerate().map(single).collect();
            merge(&mut requests);
            prop_assert_eq!(requests.iter().map(Request::bios).sum::<usize>(), bios.len());
            let mut place_of = vec![None; bios.len()];
            for (place, request) in requests.into_iter().enumerate() {
                let asked = request.asked().clone();
                prop_assert!(request.bios() == 1 || asked.length <= REQUEST_BYTES);
                let mut ended = Vec::new();
                let _ = request.complete(Ok(asked.bytes()), &mut ended);
                prop_assert_eq!(ended.iter().map(|end| end.bio.length).sum::<u64>(), asked.length);
                for end in ended {
                    prop_assert_eq!(&end.bio, &bios[end.bio.owner as usize]);
                    prop_assert_eq!((end.bio.operation, end.bio.class), (asked.operation, asked.class));
                    prop_assert!(place_of[end.bio.owner as usize].replace(place).is_none());
                }
            }
            for later in 0..bios.len() {
                for earlier in (0..later).filter(|&earlier| is_bound(&bios[earlier], &bios[later])) {
                    prop_assert!(place_of[earlier] < place_of[later], "{earlier} and {later} changed places");
                }
            }
        }
    }
}
