//! Line: places of requests, taken from the front. It knows whether the order of arrival is also
//! the order of service. It nearly always is, and then nothing is sorted.

use alloc::vec::Vec;

use crate::bio::Class;
use crate::request::Request;
use crate::slab::{Place, Slab};

/// Order of service: waited before background, then the share that the source has used, then
/// arrival.
pub(crate) type Key = (bool, u64, u64);

#[inline]
pub(crate) fn key(request: &Request) -> Key {
    (request.class() == Class::Background, request.start(), request.arrival())
}

/// Places of requests in line; the front goes first.
#[derive(Debug)]
pub(crate) struct Line {
    places: Vec<Place>,
    /// Index of the front; places before it have been taken.
    head: usize,
    first: Key,
    last: Key,
    is_arranged: bool,
}

impl Line {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.head
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.places.len()
    }

    /// Appends a request.
    #[inline]
    pub(crate) fn push(&mut self, key: Key, place: Place) {
        if self.is_empty() {
            self.clear();
            self.first = key;
        } else {
            self.is_arranged &= self.last <= key;
        }
        self.last = key;
        self.places.push(place);
    }

    /// Appends all places of `other` and leaves it empty.
    #[inline]
    pub(crate) fn append(&mut self, other: &mut Line) {
        if self.is_empty() {
            self.clear();
            core::mem::swap(self, other);
            debug_assert!(other.is_empty(), "requests are in two lines");
            return;
        }
        self.is_arranged &= other.is_arranged && self.last <= other.first;
        self.last = other.last;
        self.places.extend_from_slice(other.as_slice());
        other.clear();
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<Place> {
        self.places.get(self.head).copied()
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) {
        debug_assert!(!self.is_empty(), "no request is left in line");
        self.head += 1;
    }

    /// Prepends places that were taken from the front, in the same order.
    pub(crate) fn put_back(&mut self, places: &mut Vec<Place>) {
        if !places.is_empty() {
            debug_assert!(places.len() <= self.head, "more requests come back than were taken");
            self.places.splice(..self.head, places.drain(..));
            self.head = 0;
        }
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.head = 0;
        self.is_arranged = true;
    }

    pub(crate) fn as_slice(&self) -> &[Place] {
        &self.places[self.head..]
    }

    /// Returns the places, to be reordered. The line then counts as not arranged until
    /// [`Line::arrange`].
    pub(crate) fn as_mut_slice(&mut self) -> &mut [Place] {
        self.is_arranged = false;
        &mut self.places[self.head..]
    }

    /// Returns whether the places are known to be in the order of service.
    #[inline]
    pub(crate) fn is_arranged(&self) -> bool {
        self.is_arranged
    }

    /// Sorts the places into the order of service.
    pub(crate) fn arrange(&mut self, slab: &Slab) {
        let places = self.as_mut_slice();
        places.sort_unstable_by_key(|&place| key(slab.get(place)));
        if let Some(&last) = places.last() {
            self.last = key(slab.get(last));
            self.is_arranged = true;
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            head: 0,
            first: Key::default(),
            last: Key::default(),
            is_arranged: true,
        }
    }
}
