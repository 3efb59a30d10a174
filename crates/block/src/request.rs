//! Request: one or more adjacent bios, on their way to the device and back.
//!
//! ```text
//! Planned --prepare, doorbell--> Dispatched --completion--> Done   each bio with its own result
//!    ^                                     |--------------> Again  short or interrupted: the rest
//!    |                                     |--------------> Apart  failed: each bio by itself
//!    +-------------------------------------+
//! ```
//!
//! A completion consumes its request, so a bio that has ended cannot end again. Merging is not
//! visible from outside: if a merged request fails, each bio that was not served is submitted again
//! by itself. So each bio ends with the result that it would have got alone, and one bad block
//! fails one bio. The price is one more trip for its neighbours, paid only on failure.
//!
//! A short transfer is not a failure. The rest of a direct transfer starts at a whole page of the
//! file, because a device may accept nothing else: the bytes of a torn page are sent again.
//! A write of a direct file with smaller blocks goes on after any whole one.
//!
//! A read is at the end of the file if it transfers no byte or stops inside a sector: a device may
//! stop between any two sectors, but inside one only the file ends. A read that stops twice between
//! the same two sectors asks for the rest from there. If the device rejects that as invalid, its
//! blocks are larger, and inside such a block, too, only the file ends.
//!
//! If the device cannot make zeroes by itself, they are written, in pieces of at most the size of a
//! request.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::bio::{self, Bio, Class, Errno, Operation, Segment, Segments};
use crate::footprint::Footprint;
use crate::limits::{FRUITLESS_RESUBMISSIONS, PAGE, REQUEST_BYTES, REQUEST_SEGMENTS, SECTOR};

/// A bio that has ended, with its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The bio, as it was submitted.
    pub bio: Bio,
    /// Bytes transferred, or the error. A success has fewer bytes than the bio only for a read at
    /// the end of the file; it is 0 if the operation transfers none.
    pub result: Result<u64, Errno>,
}

/// A bio and its number of arrival.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Number in the order of arrival, never the same twice in one queue.
    pub arrival: u64,
    /// The bio, as it was submitted.
    pub bio: Bio,
}

/// One or more adjacent bios.
///
/// Small, because it moves from stage to stage. Data that only merged and resubmitted requests have
/// is in a separate allocation.
#[derive(Debug)]
pub struct Request {
    first: Held,
    /// Share that its source had used before it; see the module `fair`.
    start: u64,
    order: Bound,
    rest: Option<Box<Rest>>,
}

/// Whether a request may have to wait for an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bound {
    /// It conflicted with no bio on its way when it was submitted.
    Free,
    /// It may conflict with one; a search is needed.
    Perhaps,
}

/// Data of a request that was merged or submitted again.
#[derive(Debug)]
struct Rest {
    /// The other bios, in order of offset: each begins at the end of the one before.
    more: Vec<Held>,
    /// Number of arrival of the oldest bio.
    arrival: u64,
    /// Operation for the device: all of a merged request, or the rest of a request.
    asked: Bio,
    /// Bytes transferred so far, from the first bio's offset on.
    moved: u64,
    /// Consecutive completions that transferred no byte.
    fruitless: u32,
    /// Offset in the target at which a read has stopped.
    stopped: Option<u64>,
}

/// Next step of a request after a completion.
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// All bios have ended.
    Done,
    /// The rest of the request is dispatched again.
    Again(Request),
    /// The failed bios are dispatched again, each by itself.
    Apart(Vec<Request>),
}

impl Request {
    /// Creates a request of one bio.
    #[must_use]
    pub fn single(held: Held) -> Self {
        Self { first: held, start: 0, order: Bound::Perhaps, rest: None }
    }

    /// Creates a request of one bio, with the share that its source had used before it, and whether
    /// it may have to wait for another.
    #[inline]
    pub(crate) fn new(first: Held, start: u64, order: Bound) -> Self {
        Self { first, start, order, rest: None }
    }

    /// Merges other bios into a new request, in order of offset. Each begins at the end of the one
    /// before.
    pub(crate) fn absorb(&mut self, more: Vec<Held>, order: Bound) {
        debug_assert!(self.rest.is_none(), "a request that merges is new");
        let mut asked = self.first.bio.clone();
        let mut arrival = self.first.arrival;
        for held in &more {
            assert!(held.bio.offset == asked.end(), "bios that merge must touch");
            asked.length += held.bio.length;
            bio::append(&mut asked.segments, &held.bio.segments);
            arrival = arrival.min(held.arrival);
        }
        debug_assert!(
            asked.length <= REQUEST_BYTES && asked.segments.len() <= REQUEST_SEGMENTS,
            "a merged request is too large: {asked:?}"
        );
        debug_assert!(are_whole(&asked), "merged segments do not match the range: {asked:?}");
        if order == Bound::Perhaps {
            self.order = order;
        }
        self.rest =
            Some(Box::new(Rest { more, arrival, asked, moved: 0, fruitless: 0, stopped: None }));
    }

    /// Returns the operation for the device.
    #[must_use]
    #[inline]
    pub fn asked(&self) -> &Bio {
        match &self.rest {
            None => &self.first.bio,
            Some(rest) => &rest.asked,
        }
    }

    /// Returns the footprint of all that the request touches until it has ended.
    #[must_use]
    #[inline]
    pub fn footprint(&self) -> Footprint {
        let asked = self.asked();
        if asked.operation == self.first.bio.operation {
            return Footprint::of(asked);
        }
        // Zeroes written in pieces: no bio may overtake the pieces to come.
        Footprint::of(&self.first.bio)
    }

    /// Returns the class of its bios.
    #[must_use]
    #[inline]
    pub fn class(&self) -> Class {
        self.first.bio.class
    }

    /// Returns the number of arrival of its oldest bio.
    #[must_use]
    #[inline]
    pub fn arrival(&self) -> u64 {
        self.rest.as_ref().map_or(self.first.arrival, |rest| rest.arrival)
    }

    /// Returns the numbers of arrival of its bios, oldest first.
    pub(crate) fn arrivals(&self) -> Vec<u64> {
        let mut arrivals: Vec<u64> = self.held().map(|held| held.arrival).collect();
        arrivals.sort_unstable();
        arrivals
    }

    /// Returns the number of its bios.
    #[must_use]
    #[inline]
    pub fn bios(&self) -> usize {
        1 + self.rest.as_ref().map_or(0, |rest| rest.more.len())
    }

    /// Returns the share that its source had used before it.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn set_start(&mut self, start: u64) {
        self.start = start;
    }

    /// Returns whether the request may have to wait for an earlier one.
    #[inline]
    pub(crate) fn order(&self) -> Bound {
        self.order
    }

    /// Returns whether this result ends the request in the common case: a single bio, served whole
    /// the first time.
    #[inline]
    pub(crate) fn is_served_by(&self, result: Result<u64, Errno>) -> bool {
        self.rest.is_none() && result == Ok(self.first.bio.bytes())
    }

    /// Returns the bio of a request that was never merged.
    #[inline]
    pub(crate) fn into_held(self) -> Held {
        debug_assert!(self.rest.is_none(), "the request was merged or submitted again");
        self.first
    }

    /// Takes the result of the device, appends the bios that have ended to `ended` in order of
    /// arrival, and returns the next step. This is the only way for a request to end.
    pub fn complete(self, result: Result<u64, Errno>, ended: &mut Vec<Ended>) -> Next {
        let asked = self.asked();
        let (operation, offset, left) = (asked.operation, asked.offset, asked.bytes());
        match result {
            Err(errno) if errno.is_passing() => self.again(0, errno, ended),
            Err(Errno::UNSUPPORTED) if operation == Operation::WriteZeroes => {
                self.zeroes_instead(ended)
            }
            // A device that accepts no sector stops at none. So the first stop was the end of a
            // file that has grown since.
            Err(Errno::INVALID) if operation == Operation::Read && self.stopped_at(offset) => {
                self.end(0, Ok(()), ended)
            }
            Err(errno) => self.fail(errno, ended),
            Ok(_) if !operation.moves_bytes() => self.end(0, Ok(()), ended),
            Ok(bytes) if bytes > left => panic!("the device moved {bytes} of {left} bytes"),
            Ok(bytes) if bytes == left => self.whole(bytes, ended),
            Ok(bytes) if operation == Operation::Read && is_end_of_file(offset, bytes) => {
                self.end(bytes, Ok(()), ended)
            }
            Ok(0) => self.fail(Errno::IO, ended),
            Ok(bytes) if matches!(operation, Operation::Write | Operation::WriteFua) => {
                let written = written(&self.first.bio, offset, bytes);
                self.again(written, Errno::IO, ended)
            }
            Ok(bytes) if operation == Operation::Read => self.read_on(bytes, ended),
            Ok(bytes) => self.again(bytes, Errno::IO, ended),
        }
    }

    /// Continues a read that stopped between two sectors: from a whole page, as a device with
    /// larger blocks requires, or from the sector if the read has stopped there before.
    fn read_on(mut self, bytes: u64, ended: &mut Vec<Ended>) -> Next {
        let offset = self.asked().offset;
        let stopped = offset + bytes;
        if self.stopped_at(stopped) {
            return self.again(bytes, Errno::IO, ended);
        }
        self.rest_mut().stopped = Some(stopped);
        let whole = (stopped - stopped % PAGE as u64).max(offset) - offset;
        self.again(whole, Errno::IO, ended)
    }

    /// Returns whether a read has stopped at this offset before.
    fn stopped_at(&self, place: u64) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.stopped == Some(place))
    }

    /// Ends a request that was served whole, or writes the next piece of zeroes.
    fn whole(mut self, bytes: u64, ended: &mut Vec<Ended>) -> Next {
        let asked = self.asked();
        let next = asked.end();
        if asked.operation == self.first.bio.operation || next == self.first.bio.end() {
            return self.end(bytes, Ok(()), ended);
        }
        let rest = self.rest_mut();
        rest.moved += bytes;
        rest.fruitless = 0;
        self.ask_for_zeroes(next);
        Next::Again(self)
    }

    /// Starts to write zeroes in pieces, because the device cannot make them.
    fn zeroes_instead(mut self, ended: &mut Vec<Ended>) -> Next {
        if self.first.bio.length == 0 {
            return self.end(0, Ok(()), ended);
        }
        self.ask_for_zeroes(self.first.bio.offset);
        Next::Again(self)
    }

    fn ask_for_zeroes(&mut self, offset: u64) {
        let Bio { offset: start, .. } = self.first.bio;
        let end = self.first.bio.end();
        assert!(start <= offset && offset < end, "zeroes at {offset}, outside {start} to {end}");
        let length = (end - offset).min(REQUEST_BYTES);
        let segments = Segments::from_elem(Segment::Zeroes { length: length as u32 }, 1);
        let asked = Bio { operation: Operation::Write, offset, length, segments, ..self.first.bio };
        self.rest_mut().asked = asked;
    }

    fn rest_mut(&mut self) -> &mut Rest {
        let first = &self.first;
        self.rest.get_or_insert_with(|| {
            let (arrival, asked) = (first.arrival, first.bio.clone());
            Box::new(Rest {
                more: Vec::new(),
                arrival,
                asked,
                moved: 0,
                fruitless: 0,
                stopped: None,
            })
        })
    }

    /// Submits the rest again, after `bytes` more bytes. Fails with `reason` after too many
    /// completions without a byte.
    fn again(mut self, bytes: u64, reason: Errno, ended: &mut Vec<Ended>) -> Next {
        let rest = self.rest_mut();
        rest.fruitless = if bytes == 0 { rest.fruitless + 1 } else { 0 };
        if rest.fruitless > FRUITLESS_RESUBMISSIONS {
            return self.fail(reason, ended);
        }
        self.advance(bytes);
        Next::Again(self)
    }

    /// Removes `bytes` transferred bytes from the operation for the device.
    fn advance(&mut self, bytes: u64) {
        if bytes > 0 {
            let rest = self.rest_mut();
            let asked = rest.asked.length;
            assert!(bytes <= asked, "{bytes} of {asked} bytes were transferred");
            rest.asked.segments = bio::after(&rest.asked.segments, bytes);
            rest.asked.offset += bytes;
            rest.asked.length -= bytes;
            rest.moved += bytes;
            let asked = &rest.asked;
            debug_assert!(are_whole(asked), "segments do not match the rest: {asked:?}");
        }
    }

    /// Ends the bios that were served whole. If one bio is left, it ends with the error; otherwise
    /// each one left is submitted again by itself.
    fn fail(self, errno: Errno, ended: &mut Vec<Ended>) -> Next {
        let (first, moved) = (self.first.bio.offset, self.moved());
        let is_served = |held: &Held| held.bio.length > 0 && held.bio.end() - first <= moved;
        if self.held().filter(|held| !is_served(held)).count() <= 1 {
            return self.end(0, Err(errno), ended);
        }
        let (start, order) = (self.start, self.order);
        let mut alone = Vec::new();
        for held in self.into_order_of_arrival() {
            if is_served(&held) {
                ended.push(Ended { result: Ok(held.bio.length), bio: held.bio });
            } else {
                let own = moved.saturating_sub(held.bio.offset - first).min(held.bio.bytes());
                let mut request = Request { first: held, start, order, rest: None };
                // Bytes that were transferred may have been overwritten by a later bio since, so
                // they are not transferred again.
                request.advance(own);
                alone.push(request);
            }
        }
        Next::Apart(alone)
    }

    /// Ends every bio, after `bytes` more bytes, with its own bytes. If `outcome` is an error, a
    /// bio with missing bytes ends with that error.
    fn end(self, bytes: u64, outcome: Result<(), Errno>, ended: &mut Vec<Ended>) -> Next {
        let (first, moved) = (self.first.bio.offset, self.moved() + bytes);
        for Held { bio, .. } in self.into_order_of_arrival() {
            let own = moved.saturating_sub(bio.offset - first).min(bio.bytes());
            let is_served = bio.bytes() > 0 && own == bio.bytes();
            let result = match outcome {
                Err(errno) if !is_served => Err(errno),
                _ => Ok(own),
            };
            ended.push(Ended { bio, result });
        }
        Next::Done
    }

    fn moved(&self) -> u64 {
        self.rest.as_ref().map_or(0, |rest| rest.moved)
    }

    fn held(&self) -> impl Iterator<Item = &Held> {
        core::iter::once(&self.first).chain(self.rest.iter().flat_map(|rest| &rest.more))
    }

    fn into_order_of_arrival(self) -> impl Iterator<Item = Held> {
        let mut more = self.rest.map_or_else(Vec::new, |rest| rest.more);
        let mut before = None;
        if more.is_empty() {
            before = Some(self.first);
        } else {
            more.push(self.first);
            more.sort_unstable_by_key(|held| held.arrival);
        }
        before.into_iter().chain(more)
    }
}

/// Returns whether the segments hold as many bytes as the range, as a transfer needs.
fn are_whole(bio: &Bio) -> bool {
    let bytes = bio.segments.iter().map(|segment| u64::from(segment.length())).sum::<u64>();
    !bio.operation.moves_bytes() || bytes == bio.length
}

/// Returns how many bytes of a direct write that stopped need not be written again: up to a whole
/// page of the file. A direct file may have smaller blocks. Its bios are whole blocks, and a write
/// goes on after any number of them.
fn written(first: &Bio, offset: u64, bytes: u64) -> u64 {
    let is_lent = |segment: &Segment| matches!(segment, Segment::Lent { .. });
    let unit = match first.segments.first().is_some_and(is_lent) {
        true => 1u64 << (first.offset | first.length | PAGE as u64).trailing_zeros(),
        false => PAGE as u64,
    };
    let stopped = offset + bytes;
    (stopped - stopped % unit).saturating_sub(offset)
}

/// Returns whether a read from `offset` that ended short after `bytes` bytes has reached the end of
/// the file.
fn is_end_of_file(offset: u64, bytes: u64) -> bool {
    bytes == 0 || !(offset + bytes).is_multiple_of(SECTOR as u64)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use smallvec::smallvec;

    use super::*;
    use crate::bio::{Frame, Source, Target};

    const BLOCK: u64 = PAGE as u64;

    fn held(operation: Operation, arrival: u64, page: u64, pages: u64) -> Held {
        let length = pages * BLOCK;
        let segments = smallvec![Segment::frames(Frame(100 * arrival as u32), length as u32)];
        let (target, class, source, offset) = (Target(0), Class::Waited, Source(0), page * BLOCK);
        Held {
            arrival,
            bio: Bio { operation, target, offset, length, segments, class, source, owner: arrival },
        }
    }

    /// Pages 0, 1, and 2 to 3; the middle bio arrived first.
    fn merged(operation: Operation) -> Request {
        let mut request = Request::single(held(operation, 1, 0, 1));
        request.absorb(vec![held(operation, 0, 1, 1), held(operation, 2, 2, 2)], Bound::Free);
        request
    }

    fn results(ended: &[Ended]) -> Vec<(u64, Result<u64, Errno>)> {
        ended.iter().map(|end| (end.bio.owner, end.result)).collect()
    }

    fn again(next: Next) -> Request {
        match next {
            Next::Again(request) => request,
            other => panic!("{other:?} instead of a rest to submit again"),
        }
    }

    #[test]
    fn contract_16_a_merged_request_ends_each_bio_with_its_own_bytes() {
        let mut ended = Vec::new();
        assert!(matches!(merged(Operation::Write).complete(Ok(4 * BLOCK), &mut ended), Next::Done));
        assert_eq!(results(&ended), [(0, Ok(BLOCK)), (1, Ok(BLOCK)), (2, Ok(2 * BLOCK))]);
    }

    #[test]
    fn contract_13_a_short_read_goes_on_from_its_page_then_from_its_sector() {
        for (last, asked) in
            [(Ok(0), Ok(512)), (Err(Errno::INVALID), Ok(512)), (Err(Errno::IO), Err(Errno::IO))]
        {
            let mut ended = Vec::new();
            let request = again(merged(Operation::Read).complete(Ok(3 * BLOCK + 512), &mut ended));
            assert_eq!((request.asked().offset, request.asked().length), (3 * BLOCK, BLOCK));
            let request = again(request.complete(Ok(512), &mut ended));
            assert_eq!(
                (request.asked().offset, request.asked().length),
                (3 * BLOCK + 512, BLOCK - 512)
            );
            assert!(matches!(request.complete(last, &mut ended), Next::Done));
            let whole = asked.map(|bytes| BLOCK + bytes);
            assert_eq!(results(&ended), [(0, Ok(BLOCK)), (1, Ok(BLOCK)), (2, whole)]);
        }
    }

    #[test]
    fn contract_13_a_short_read_that_gets_further_goes_on() {
        let mut ended = Vec::new();
        let request = again(merged(Operation::Read).complete(Ok(BLOCK + 512), &mut ended));
        let request = again(request.complete(Ok(1024), &mut ended));
        assert_eq!((request.asked().offset, request.asked().length), (BLOCK, 3 * BLOCK));
        assert!(matches!(request.complete(Ok(3 * BLOCK), &mut ended), Next::Done));
        assert_eq!(results(&ended), [(0, Ok(BLOCK)), (1, Ok(BLOCK)), (2, Ok(2 * BLOCK))]);
    }

    #[test]
    fn contract_13_a_read_that_stops_inside_a_sector_is_at_the_end_of_the_file() {
        let mut ended = Vec::new();
        assert!(matches!(merged(Operation::Read).complete(Ok(BLOCK + 5), &mut ended), Next::Done));
        assert_eq!(results(&ended), [(0, Ok(5)), (1, Ok(BLOCK)), (2, Ok(0))]);
    }

    #[test]
    fn contract_13_a_short_write_goes_on_from_a_whole_page() {
        let mut ended = Vec::new();
        let request = again(merged(Operation::Write).complete(Ok(3 * BLOCK - 512), &mut ended));
        assert_eq!((request.asked().offset, request.asked().length), (2 * BLOCK, 2 * BLOCK));
        assert_eq!(request.asked().segments[..], [Segment::frames(Frame(200), 2 * PAGE as u32)]);
        assert!(matches!(request.complete(Ok(2 * BLOCK), &mut ended), Next::Done));
        assert_eq!(ended.len(), 3);
    }

    /// Bytes 3 to 19 times 512 of a direct file whose blocks have 512 bytes.
    #[test]
    fn contract_13_a_short_write_of_small_blocks_goes_on_after_any_of_them() {
        let mut ended = Vec::new();
        let mut first = held(Operation::Write, 0, 0, 2);
        let buffer = bio::BufferId(7);
        first.bio.offset = 3 * 512;
        first.bio.segments =
            smallvec![Segment::Lent { buffer, offset: 0, length: 2 * PAGE as u32 }];
        let mut request = Request::single(first);
        for (moved, next) in [(2 * 512, 5), (2 * 512 + 7, 7), (512, 8), (512, 9), (3, 9)] {
            request = again(request.complete(Ok(moved), &mut ended));
            let rest = 2 * BLOCK - (next - 3) * 512;
            assert_eq!((request.asked().offset, request.asked().length), (next * 512, rest));
            let offset = (next as u32 - 3) * 512;
            let segment = Segment::Lent { buffer, offset, length: rest as u32 };
            assert_eq!(request.asked().segments[..], [segment]);
        }
        assert!(matches!(request.complete(Ok(10 * 512), &mut ended), Next::Done));
        assert_eq!(results(&ended), [(0, Ok(2 * BLOCK))]);
    }

    /// The alignment of its memory may be larger than that of its offsets.
    #[test]
    fn contract_13_a_short_write_goes_on_from_a_block() {
        let mut ended = Vec::new();
        let mut first = held(Operation::Write, 0, 0, 1);
        let buffer = bio::BufferId(7);
        first.bio.offset = 2048;
        first.bio.segments = smallvec![Segment::Lent { buffer, offset: 0, length: PAGE as u32 }];
        let request = again(Request::single(first).complete(Ok(512), &mut ended));
        assert_eq!(request.asked().offset, 2048);
        let request = again(request.complete(Ok(2048 + 512), &mut ended));
        assert_eq!(request.asked().offset, 4096);
    }

    #[test]
    fn contract_13_interrupted_and_would_block_are_submitted_again() {
        let mut ended = Vec::new();
        let mut request = merged(Operation::Write);
        for errno in [Errno::INTERRUPTED, Errno::WOULD_BLOCK] {
            let asked = request.asked().clone();
            request = again(request.complete(Err(errno), &mut ended));
            assert_eq!(*request.asked(), asked);
        }
        assert!(ended.is_empty());
    }

    #[test]
    fn contract_13_a_request_without_progress_ends_after_a_bound() {
        let mut ended = Vec::new();
        let mut request = Request::single(held(Operation::Write, 0, 0, 1));
        for _ in 0..FRUITLESS_RESUBMISSIONS {
            request = again(request.complete(Ok(1), &mut ended));
        }
        assert!(matches!(request.complete(Err(Errno::WOULD_BLOCK), &mut ended), Next::Done));
        assert_eq!(results(&ended), [(0, Err(Errno::WOULD_BLOCK))]);
    }

    #[test]
    fn a_write_that_moves_nothing_is_an_error() {
        let mut ended = Vec::new();
        let request = Request::single(held(Operation::Write, 0, 0, 1));
        assert!(matches!(request.complete(Ok(0), &mut ended), Next::Done));
        assert_eq!(results(&ended), [(0, Err(Errno::IO))]);
    }

    #[test]
    fn contract_16_a_failed_merged_request_is_taken_apart() {
        let mut ended = Vec::new();
        let request = again(merged(Operation::Write).complete(Ok(BLOCK), &mut ended));
        let Next::Apart(alone) = request.complete(Err(Errno::IO), &mut ended) else {
            panic!("two bios were not served, and each must be submitted again")
        };
        assert_eq!(results(&ended), [(1, Ok(BLOCK))]);
        let asked: Vec<u64> = alone.iter().map(|request| request.asked().offset).collect();
        assert_eq!(asked, [BLOCK, 2 * BLOCK]);
    }

    #[test]
    fn an_error_of_the_only_bio_left_is_returned_at_once() {
        let mut ended = Vec::new();
        let request = again(merged(Operation::Write).complete(Ok(2 * BLOCK), &mut ended));
        assert!(matches!(request.complete(Err(Errno(28)), &mut ended), Next::Done));
        assert_eq!(results(&ended), [(0, Ok(BLOCK)), (1, Ok(BLOCK)), (2, Err(Errno(28)))]);
    }

    #[test]
    fn a_flush_moves_nothing_and_ends() {
        let mut ended = Vec::new();
        let mut flush = held(Operation::FlushData, 0, 0, 0);
        flush.bio.segments.clear();
        assert!(matches!(Request::single(flush).complete(Ok(7), &mut ended), Next::Done));
        assert_eq!(results(&ended), [(0, Ok(0))]);
    }

    #[test]
    fn zeroes_the_device_cannot_make_are_written_in_pieces() {
        let mut ended = Vec::new();
        let pages = REQUEST_BYTES / BLOCK + 3;
        let mut zeroes = held(Operation::WriteZeroes, 0, 5, pages);
        zeroes.bio.segments.clear();
        let whole = Footprint::of(&zeroes.bio);
        let request = again(Request::single(zeroes).complete(Err(Errno::UNSUPPORTED), &mut ended));
        let asked = |request: &Request| {
            let bio = request.asked();
            assert_eq!(bio.zero_bytes(), bio.length);
            (bio.operation, bio.offset, bio.length)
        };
        assert_eq!(asked(&request), (Operation::Write, 5 * BLOCK, REQUEST_BYTES));
        assert_eq!(request.footprint(), whole, "the footprint covers the pieces to come");
        let request = again(request.complete(Ok(BLOCK), &mut ended));
        assert_eq!(asked(&request), (Operation::Write, 6 * BLOCK, REQUEST_BYTES - BLOCK));
        let request = again(request.complete(Ok(REQUEST_BYTES - BLOCK), &mut ended));
        assert_eq!(asked(&request), (Operation::Write, 5 * BLOCK + REQUEST_BYTES, 3 * BLOCK));
        assert!(matches!(request.complete(Ok(3 * BLOCK), &mut ended), Next::Done));
        assert_eq!(results(&ended), [(0, Ok(0))]);
    }

    #[test]
    #[should_panic(expected = "the device moved")]
    fn a_device_cannot_move_more_than_it_was_asked() {
        let _ = Request::single(held(Operation::Read, 0, 0, 1))
            .complete(Ok(BLOCK + 1), &mut Vec::new());
    }
}
