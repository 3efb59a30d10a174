//! The flight: requests at the device, each under its tag.
//!
//! Footprints lie in an array of their own, so that the question asked of every request of a batch (is anything
//! in flight that it must not overtake?) is one walk over a few cache lines.

use alloc::vec::Vec;

use crate::bio::Class;
use crate::device::Tag;
use crate::footprint::Footprint;
use crate::limits::TAGS;
use crate::request::Request;
use crate::tags::Tags;

/// Requests at the device.
#[derive(Debug)]
pub struct Flight {
    /// Which tags are free.
    pub tags: Tags,
    requests: Vec<Option<Request>>,
    footprints: Vec<Footprint>,
    of_class: [Load; 2],
}

/// How much is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Requests.
    pub requests: usize,
    /// Bytes they move.
    pub bytes: u64,
}

impl Flight {
    /// Nothing in flight.
    #[must_use]
    pub fn new() -> Self {
        let requests = (0..TAGS).map(|_| None).collect();
        let footprints = (0..TAGS).map(|_| Footprint::NONE).collect();
        Self { tags: Tags::new(), requests, footprints, of_class: [Load::default(); 2] }
    }

    /// How much of one class is in flight.
    #[must_use]
    pub fn load(&self, class: Class) -> Load {
        self.of_class[class as usize]
    }

    /// Whether something is in flight that must end before this may begin.
    #[must_use]
    pub fn holds_up(&self, footprint: Footprint) -> bool {
        self.footprints.iter().any(|there| there.conflicts(footprint))
    }

    /// Puts a request that the device took under its tag, which was taken from the free ones.
    pub fn insert(&mut self, tag: Tag, request: Request) {
        let load = &mut self.of_class[request.class() as usize];
        load.requests += 1;
        load.bytes += request.asked().bytes();
        self.footprints[usize::from(tag.0)] = request.footprint();
        let before = self.requests[usize::from(tag.0)].replace(request);
        assert!(before.is_none(), "{tag:?} is in two places");
    }

    /// Takes out the request that completed, and frees its tag.
    pub fn remove(&mut self, tag: Tag) -> Request {
        let request = self.requests.get_mut(usize::from(tag.0)).and_then(Option::take);
        let Some(request) = request else { panic!("{tag:?} completed, and is not in flight") };
        let load = &mut self.of_class[request.class() as usize];
        load.requests -= 1;
        load.bytes -= request.asked().bytes();
        self.footprints[usize::from(tag.0)] = Footprint::NONE;
        self.tags.give(tag);
        request
    }
}

impl Default for Flight {
    fn default() -> Self {
        Self::new()
    }
}
