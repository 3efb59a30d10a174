//! The slab: where requests are from submission to end. The stages pass on places, not requests: a
//! request is written once and read where it is, however many stages it goes through.

use alloc::vec::Vec;

use crate::footprint::Footprint;
use crate::limits::{PLUG_BIOS, TAGS};
use crate::request::Request;

/// Where a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

/// Requests on their way.
#[derive(Debug)]
pub(crate) struct Slab {
    requests: Vec<Option<Request>>,
    free: Vec<Place>,
}

impl Slab {
    /// Room for what is in flight and plugged without merging; grows where merged requests come
    /// apart.
    pub(crate) fn new() -> Self {
        const USUAL: usize = TAGS + PLUG_BIOS;
        let requests = (0..USUAL).map(|_| None).collect();
        Self { requests, free: (0..USUAL as u32).rev().map(Place).collect() }
    }

    /// Puts a request into a place.
    #[inline(always)]
    pub(crate) fn insert(&mut self, request: Request) -> Place {
        let place = self.free.pop().unwrap_or_else(|| self.grow());
        self.requests[place.0 as usize] = Some(request);
        place
    }

    #[cold]
    fn grow(&mut self) -> Place {
        self.requests.push(None);
        Place(self.requests.len() as u32 - 1)
    }

    /// Takes a request out of its place.
    #[inline]
    pub(crate) fn remove(&mut self, place: Place) -> Request {
        let request = self.requests[place.0 as usize].take();
        self.free.push(place);
        request.expect("a request is in its place until it is removed")
    }

    /// Whether any of them is in conflict with what would touch this.
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
