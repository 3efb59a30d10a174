//! Flight: requests at the device, each under its tag.

use alloc::vec::Vec;

use crate::bio::Class;
use crate::device::Tag;
use crate::footprint::Footprint;
use crate::limits::TAGS;
use crate::request::Request;
use crate::slab::{Place, Slab};
use crate::tags::Tags;
use crate::time::Moment;

/// Requests at the device.
#[derive(Debug)]
pub(crate) struct Flight {
    /// The free tags.
    pub(crate) tags: Tags,
    flying: Vec<Option<Flying>>,
    of_class: [Load; 2],
}

/// A request at the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flying {
    /// Its place in the slab.
    pub(crate) place: Place,
    /// When the device took it.
    pub(crate) since: Moment,
    /// Bytes that it transfers.
    pub(crate) bytes: u64,
    /// Its class.
    pub(crate) class: Class,
}

/// Requests in flight and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Load {
    /// Requests.
    pub(crate) requests: usize,
    /// Bytes that they transfer.
    pub(crate) bytes: u64,
}

impl Flight {
    /// Creates an empty flight with all tags free.
    pub(crate) fn new() -> Self {
        let flying = (0..TAGS).map(|_| None).collect();
        Self { tags: Tags::new(), flying, of_class: [Load::default(); 2] }
    }

    /// Returns the load of one class.
    #[inline]
    pub(crate) fn load(&self, class: Class) -> Load {
        self.of_class[class as usize]
    }

    /// Returns the number of requests in flight.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.of_class[0].requests + self.of_class[1].requests
    }

    /// Returns whether a request in flight conflicts with `footprint`.
    pub(crate) fn holds_up(&self, slab: &Slab, footprint: Footprint) -> bool {
        self.flying
            .iter()
            .flatten()
            .any(|there| slab.get(there.place).footprint().conflicts(footprint))
    }

    /// Returns the request under a tag.
    pub(crate) fn get<'a>(&self, slab: &'a Slab, tag: Tag) -> Option<&'a Request> {
        let flying = self.flying.get(usize::from(tag.0))?.as_ref()?;
        Some(slab.get(flying.place))
    }

    /// Adds a request that the device took under `tag`. The tag must have been taken from `tags`.
    #[inline]
    pub(crate) fn insert(&mut self, tag: Tag, flying: Flying) {
        let load = &mut self.of_class[flying.class as usize];
        load.requests += 1;
        load.bytes += flying.bytes;
        debug_assert!(load.requests <= TAGS, "more requests are in flight than there are tags");
        let before = self.flying[usize::from(tag.0)].replace(flying);
        assert!(before.is_none(), "{tag:?} is in two places");
    }

    /// Removes the request that completed, and frees its tag.
    #[inline]
    pub(crate) fn remove(&mut self, tag: Tag) -> Flying {
        let flying = self.flying.get_mut(usize::from(tag.0)).and_then(Option::take);
        let Some(flying) = flying else { panic!("{tag:?} completed but is not in flight") };
        let load = &mut self.of_class[flying.class as usize];
        assert!(
            load.requests > 0 && load.bytes >= flying.bytes,
            "{tag:?} is not counted as in flight"
        );
        load.requests -= 1;
        load.bytes -= flying.bytes;
        debug_assert!(load.requests > 0 || load.bytes == 0, "bytes without a request in flight");
        self.tags.give(tag);
        flying
    }
}

impl Default for Flight {
    fn default() -> Self {
        Self::new()
    }
}
