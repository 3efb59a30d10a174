//! Merge: bios of a plug that touch become one request.
//!
//! Neighbours are looked for over the whole plug, not only at its end: writers take turns, and their neighbours
//! are rarely next to each other in time. Sorted by place within epochs, so that the work is n log n and what may
//! not move does not.
//!
//! An *epoch* of a target is a stretch of arrivals within which no order matters: a new one begins with a
//! barrier (any operation that does not merge) and with a bio that conflicts with one of the epoch. Bios merge
//! only within an epoch, and a request takes the place of its oldest bio; so nothing crosses a barrier, and
//! overlapping ranges keep their order. Classes do not merge with each other: who waits would wait for what nobody waits for.
//!
//! The price: a bio that joins an older neighbour is ahead of unrelated bios that came between.

use alloc::vec::Vec;

use crate::bio::{Bio, Segment, Segments};
use crate::footprint::Footprint;
use crate::limits::{REQUEST_BYTES, REQUEST_SEGMENTS};
use crate::request::Request;

/// Makes requests of several bios where they touch; takes and leaves them in order of arrival (of their oldest bio).
pub fn merge(requests: &mut Vec<Request>) {
    debug_assert!(requests.is_sorted_by_key(Request::arrival));
    let epochs = epochs(requests);
    let mut places: Vec<usize> = (0..requests.len()).collect();
    places.sort_unstable_by_key(|&place| {
        let bio = requests[place].asked();
        (bio.target, epochs[place], bio.class, bio.operation as u8, bio.offset, place)
    });
    let mut bios: Vec<Option<Request>> = requests.drain(..).map(Some).collect();
    let mut sorted =
        places.into_iter().filter_map(|place| Some((epochs[place], bios[place].take()?))).peekable();
    while let Some((epoch, first)) = sorted.next() {
        let mut run = Run::new(first.asked());
        let mut more = Vec::new();
        while let Some((_, next)) = sorted.next_if(|(next, bio)| *next == epoch && run.takes(bio.asked())) {
            run.extend(next.asked());
            more.push(next);
        }
        requests.push(Request::merged(first, more));
    }
    requests.sort_unstable_by_key(Request::arrival);
}

/// The epoch of each bio, counted per target.
fn epochs(bios: &[Request]) -> Vec<u32> {
    let is_barrier = |place: usize| !bios[place].asked().operation.merges();
    let footprints: Vec<Footprint> = bios.iter().map(Request::footprint).collect();
    let mut epochs: Vec<u32> = Vec::with_capacity(bios.len());
    if !(0..bios.len()).any(is_barrier) && !footprints.iter().any(|footprint| footprint.changes()) {
        // Reads alone: no order matters.
        epochs.resize(bios.len(), 0);
        return epochs;
    }
    for place in 0..bios.len() {
        let target = footprints[place].target();
        let mut before = (0..place).rev().filter(|&before| footprints[before].target() == target).peekable();
        let Some(&last) = before.peek() else {
            epochs.push(0);
            continue;
        };
        let begins = is_barrier(place)
            || before
                .take_while(|&before| epochs[before] == epochs[last])
                .any(|before| footprints[before].conflicts(footprints[place]));
        epochs.push(epochs[last] + u32::from(begins));
    }
    epochs
}

/// A request while it grows at its end.
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

    fn takes(&self, bio: &Bio) -> bool {
        bio.operation.merges()
            && bio.operation == self.like.operation
            && bio.target == self.like.target
            && bio.class == self.like.class
            && bio.offset == self.end
            && self.bytes + bio.length <= REQUEST_BYTES
            && self.segments + bio.segments.len() - self.fuses(bio) <= REQUEST_SEGMENTS
    }

    fn extend(&mut self, bio: &Bio) {
        self.segments += bio.segments.len() - self.fuses(bio);
        self.end = bio.end();
        self.bytes += bio.length;
        self.last = bio.segments.last().copied();
    }

    /// One where the bio's first segment continues the last one, else none.
    fn fuses(&self, bio: &Bio) -> usize {
        match (self.last, bio.segments.first()) {
            (Some(last), Some(&first)) => usize::from(last.fused(first).is_some()),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::bio::Operation::{self, FlushData, Read, Write};
    use crate::bio::{Class, Frame, Source, Target};
    use crate::limits::PAGE;
    use crate::request::Held;

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

    /// Requests as (target, first page, pages), in order.
    fn merged(asked: &[Asked]) -> Vec<(u32, u64, u64)> {
        let mut requests = held(asked);
        merge(&mut requests);
        let asked = requests.iter().map(Request::asked);
        asked.map(|bio| (bio.target.0, bio.offset / PAGE as u64, bio.length / PAGE as u64)).collect()
    }

    #[test]
    fn neighbours_are_found_over_the_whole_plug() {
        let asked =
            [(Write, 1, 2, 1), (Write, 2, 7, 1), (Write, 1, 0, 1), (Write, 2, 8, 2), (Write, 1, 1, 1)];
        assert_eq!(merged(&asked), [(1, 0, 3), (2, 7, 3)]);
    }

    #[test]
    fn what_is_different_stays_apart() {
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
}
