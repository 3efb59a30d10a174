//! Dispatch: one batch to the device. Tags in one sweep, each request prepared.
//!
//! Order: what somebody waits for goes before background writeback; within a class, by the share its source has
//! had (see [`fair`](crate::fair)), which for one source is the order of arrival. Two things bend this, both for
//! correctness. A background request that a waited one conflicts with is served with the waited ones, ahead of it
//! (it is waited for as well, then); and so is a request of another source. And a request that conflicts with one in
//! flight stays back until that has ended, and so does all of the same target behind it that may be in conflict with
//! anything, so that nothing overtakes what it must not.
//!
//! What the device refuses comes back in its place, and goes first next time: nothing younger of its class and
//! source can get before it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::bio::{Class, Target};
use crate::device::{Device, Tag};
use crate::fair::Fair;
use crate::flight::{Flight, Flying};
use crate::footprint::Footprint;
use crate::knobs::{ClockReads, Tagging};
use crate::request::{Bound, Request};
use crate::slab::{Place, Slab};
use crate::time::Moment;
use crate::walk::{Asked, Step, Walk};

/// Requests merged and not at the device, in the order in which they are to be served.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    places: VecDeque<Place>,
    /// The key of the last one.
    last: Key,
    /// Whether they are known to be in order.
    is_arranged: bool,
    /// Those that may have to wait for one that came before.
    bound: usize,
    // Kept for their memory.
    back: Vec<Place>,
    held_targets: Vec<Target>,
    tags: Vec<Tag>,
}

/// What the order is by: the class, the source's share, the arrival.
type Key = (bool, u64, u64);

/// How much one batch may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// Requests.
    pub(crate) requests: usize,
    /// Bytes, but for the last request.
    pub(crate) bytes: u64,
    /// How tags are taken.
    pub(crate) tagging: Tagging,
    /// How often the clock is read.
    pub(crate) clock: ClockReads,
    /// What it is, as far as known.
    pub(crate) now: Moment,
}

/// How the handing over of a batch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Requests the device took.
    pub(crate) requests: usize,
    /// Bios in them, by class.
    pub(crate) bios: [usize; 2],
    /// Why no more.
    pub(crate) because: Because,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Because {
    /// There is nothing more that may go.
    Done,
    /// The batch is full.
    Full,
    /// The device, or the tags.
    Refused,
}

#[inline]
fn key(request: &Request) -> Key {
    (request.class() == Class::Background, request.start(), request.arrival())
}

impl Waiting {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Puts a request behind the others.
    #[inline]
    pub(crate) fn push(&mut self, slab: &Slab, place: Place) {
        let request = slab.get(place);
        let key = key(request);
        self.is_arranged = self.places.is_empty() || self.is_arranged && self.last <= key;
        self.last = key;
        self.bound += usize::from(request.order() == Bound::Perhaps);
        self.places.push_back(place);
    }

    /// Puts requests in the order they are to be served.
    #[inline]
    pub(crate) fn arrange(&mut self, slab: &mut Slab) {
        if self.bound > 0 {
            self.arrange_bound(slab);
            self.is_arranged = false;
        } else if !self.is_arranged {
            self.places.make_contiguous().sort_unstable_by_key(|&place| key(slab.get(place)));
            self.is_arranged = true;
            self.last = self.places.back().map_or_else(Key::default, |&place| key(slab.get(place)));
        }
    }

    /// As above, where some may not change places.
    fn arrange_bound(&mut self, slab: &mut Slab) {
        let places = self.places.make_contiguous();
        places.sort_unstable_by_key(|&place| slab.get(place).arrival());
        // No request begins before one that came earlier and that it is in conflict with.
        let mut latest = 0;
        for index in 0..places.len() {
            let this = slab.get(places[index]);
            let (start, footprint) = (this.start(), this.footprint());
            if start >= latest || this.order() == Bound::Free {
                latest = latest.max(start);
                continue;
            }
            let before = places[..index].iter().map(|&place| slab.get(place));
            let in_the_way =
                before.filter(|other| other.start() > start && other.footprint().conflicts(footprint));
            if let Some(after) = in_the_way.map(Request::start).max() {
                slab.get_mut(places[index]).set_start(after);
            }
        }
        if places.is_sorted_by_key(|&place| key(slab.get(place))) {
            return;
        }
        // What a waited one is in conflict with is waited for as well.
        let mut order: Vec<(bool, Place)> =
            places.iter().map(|&place| (slab.get(place).class() == Class::Background, place)).collect();
        for index in (0..order.len()).rev() {
            let footprint = slab.get(order[index].1).footprint();
            let mut later = order[index + 1..].iter().filter(|(is_background, _)| !is_background);
            if order[index].0 && later.any(|&(_, later)| slab.get(later).footprint().conflicts(footprint)) {
                order[index].0 = false;
            }
        }
        order.sort_unstable_by_key(|&(is_background, place)| {
            let request = slab.get(place);
            (is_background, request.start(), request.arrival())
        });
        for (to, (_, place)) in places.iter_mut().zip(order) {
            *to = place;
        }
    }

    /// Prepares what may go, in order. What could not go stays, in order.
    #[inline]
    pub(crate) fn prepare(
        &mut self,
        batch: Batch,
        slab: &Slab,
        flight: &mut Flight,
        fair: &mut Fair,
        device: &mut impl Device,
        walk: &mut impl Walk,
    ) -> Taken {
        let mut taken = Taken { requests: 0, bios: [0; 2], because: Because::Done };
        let mut bytes = 0;
        let mut now = batch.now;
        if batch.tagging == Tagging::Sweep {
            flight.tags.take(self.places.len().min(batch.requests), &mut self.tags);
            self.tags.reverse();
            if !self.tags.is_empty() {
                walk.step(Step::Tagged { tags: self.tags.len() });
            }
        }
        while let Some(&place) = self.places.front() {
            let request = slab.get(place);
            if request.order() == Bound::Perhaps && self.stays_back(slab, flight, request.footprint()) {
                walk.step(Step::Waits { arrival: request.arrival() });
                self.places.pop_front();
                self.back.push(place);
                continue;
            }
            if taken.requests == batch.requests || bytes >= batch.bytes {
                taken.because = Because::Full;
                break;
            }
            if batch.tagging == Tagging::Single {
                flight.tags.take(1, &mut self.tags);
                if !self.tags.is_empty() {
                    walk.step(Step::Tagged { tags: 1 });
                }
            }
            let accepted = self.tags.last().is_some_and(|&tag| device.prepare(tag, request.asked()).is_ok());
            if !accepted {
                if !self.tags.is_empty() {
                    walk.step(Step::Refused { arrival: request.arrival() });
                }
                taken.because = Because::Refused;
                break;
            }
            if batch.clock == ClockReads::Each {
                now = device.now();
            }
            self.places.pop_front();
            let tag = self.tags.pop().expect("the device took a request under it");
            walk.step(Step::Dispatched {
                asked: Asked::of(request.arrival(), request.asked()),
                tag,
                bios: request.bios(),
            });
            taken.requests += 1;
            taken.bios[request.class() as usize] += request.bios();
            bytes += request.asked().bytes();
            self.bound -= usize::from(request.order() == Bound::Perhaps);
            fair.served(request.start());
            flight.insert(tag, request, Flying { place, since: now });
        }
        for place in self.back.drain(..).rev() {
            self.places.push_front(place);
        }
        self.held_targets.clear();
        for tag in self.tags.drain(..) {
            flight.tags.give(tag);
        }
        taken
    }

    /// Whether it must wait for one in flight, or for one before it that must.
    #[cold]
    fn stays_back(&mut self, slab: &Slab, flight: &Flight, footprint: Footprint) -> bool {
        let target = footprint.target();
        let stays = self.held_targets.contains(&target) || flight.holds_up(slab, footprint);
        if stays {
            self.held_targets.push(target);
        }
        stays
    }
}
