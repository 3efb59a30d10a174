//! Slab: storage of requests from submission to end. The stages pass on places, not requests, so a
//! request is written once and read in place, however many stages it goes through.

use alloc::vec::Vec;

use crate::footprint::Footprint;
use crate::limits::{PLUG_BIOS, TAGS};
use crate::request::Request;

/// Index of a request in the slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

/// Requests submitted and not ended.
#[derive(Debug)]
pub(crate) struct Slab {
    requests: Vec<Option<Request>>,
    free: Vec<Place>,
}

impl Slab {
    /// Creates a slab with room for all requests in flight and a full plug. It grows when failed
    /// merged requests are split.
    pub(crate) fn new() -> Self {
        const USUAL: usize = TAGS + PLUG_BIOS;
        let requests = (0..USUAL).map(|_| None).collect();
        Self { requests, free: (0..USUAL as u32).rev().map(Place).collect() }
    }

    /// Stores a request and returns its place.
    #[inline(always)]
    pub(crate) fn insert(&mut self, request: Request) -> Place {
        let place = self.free.pop().unwrap_or_else(|| self.grow());
        debug_assert!(self.requests[place.0 as usize].is_none(), "{place:?} is in use");
        self.requests[place.0 as usize] = Some(request);
        place
    }

    #[cold]
    fn grow(&mut self) -> Place {
        self.requests.push(None);
        Place(self.requests.len() as u32 - 1)
    }

    /// Removes a request and frees its place.
    #[inline]
    pub(crate) fn remove(&mut self, place: Place) -> Request {
        let request = self.requests[place.0 as usize].take();
        self.free.push(place);
        debug_assert!(self.free.len() <= self.requests.len(), "{place:?} was freed twice");
        request.expect("a request is in its place until it is removed")
    }

    /// Returns whether a stored request conflicts with `footprint`.
    pub(crate) fn has_conflict(&self, footprint: Footprint) -> bool {
        self.requests.iter().flatten().any(|request| request.footprint().conflicts(footprint))
    }

    #[inline]
    pub(crate) fn get(&self, place: Place) -> &Request {
        self.requests[place.0 as usize]
            .as_ref()
            .expect("a request is in its place until it is removed")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: Place) -> &mut Request {
        self.requests[place.0 as usize]
            .as_mut()
            .expect("a request is in its place until it is removed")
    }
}

impl Default for Slab {
    fn default() -> Self {
        Self::new()
    }
}
