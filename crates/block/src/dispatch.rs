//! Dispatch: one batch to the device. Tags in one sweep, each request prepared.
//!
//! Order: what somebody waits for goes before background writeback; within a class, by the share
//! its source has had (see [`fair`](crate::fair)), which for one source is the order of arrival.
//! Two things bend this, both for correctness. A background request that a waited one conflicts
//! with is served with the waited ones, ahead of it (it is waited for as well, then); and so is a
//! request of another source. And a request that conflicts with one in flight stays back until that
//! has ended, and so does all of the same target behind it that may be in conflict with anything,
//! so that nothing overtakes what it must not.
//!
//! After some batches that left all of the background behind, its oldest request goes first.
//!
//! What the device refuses comes back in its place, and goes first next time: nothing younger of
//! its class and source can get before it.

use alloc::vec::Vec;

use crate::bio::{Class, Target};
use crate::device::Device;
use crate::fair::Fair;
use crate::flight::{Flight, Flying};
use crate::footprint::Footprint;
use crate::knobs::{ClockReads, Tagging};
use crate::line::{Line, key};
use crate::request::{Bound, Request};
use crate::slab::{Place, Slab};
use crate::tags::Sweep;
use crate::time::Moment;
use crate::walk::{Asked, Step, Walk};

/// Requests merged and not at the device, in the order in which they are to be served.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    line: Line,
    /// Those that may have to wait for one that came before.
    bound: usize,
    // Kept for their memory.
    back: Vec<Place>,
    held_targets: Vec<Target>,
}

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

impl Waiting {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Puts a request behind the others.
    pub(crate) fn push(&mut self, slab: &Slab, place: Place) {
        let request = slab.get(place);
        self.bound += usize::from(request.order() == Bound::Perhaps);
        self.line.push(key(request), place);
    }

    /// The last so many.
    pub(crate) fn last(&self, count: usize) -> &[Place] {
        let places = self.line.as_slice();
        &places[places.len() - count..]
    }

    /// Puts all of a line behind the others, of which so many may have to wait.
    #[inline]
    pub(crate) fn append(&mut self, line: &mut Line, bound: usize) {
        self.bound += bound;
        self.line.append(line);
    }

    /// Puts requests in the order they are to be served.
    #[inline]
    pub(crate) fn arrange(&mut self, slab: &mut Slab) {
        if self.bound > 0 {
            self.arrange_bound(slab);
        } else if !self.line.is_arranged() {
            self.line.arrange(slab);
        }
    }

    /// As above, where some may not change places.
    fn arrange_bound(&mut self, slab: &mut Slab) {
        let places = self.line.as_mut_slice();
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
            let in_the_way = before
                .filter(|other| other.start() > start && other.footprint().conflicts(footprint));
            if let Some(after) = in_the_way.map(Request::start).max() {
                slab.get_mut(places[index]).set_start(after);
            }
        }
        if places.is_sorted_by_key(|&place| key(slab.get(place))) {
            return;
        }
        // What a waited one is in conflict with is waited for as well.
        let mut order: Vec<(bool, Place)> = places
            .iter()
            .map(|&place| (slab.get(place).class() == Class::Background, place))
            .collect();
        for index in (0..order.len()).rev() {
            let footprint = slab.get(order[index].1).footprint();
            let mut later = order[index + 1..].iter().filter(|(is_background, _)| !is_background);
            if order[index].0
                && later.any(|&(_, later)| slab.get(later).footprint().conflicts(footprint))
            {
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

    /// Puts the first background request that is bound to none in front of those that are waited
    /// for.
    pub(crate) fn lead_with_background(&mut self, slab: &Slab) {
        let places = self.line.as_mut_slice();
        let leads = places.iter().position(|&place| {
            let request = slab.get(place);
            request.class() == Class::Background && request.order() == Bound::Free
        });
        if let Some(leads) = leads {
            places[..=leads].rotate_right(1);
        }
    }

    /// Prepares what may go, in order. What could not go stays, in order.
    #[inline]
    pub(crate) fn prepare(
        &mut self,
        batch: Batch,
        slab: &Slab,
        flight: &mut Flight,
        fair: &mut [Fair; 2],
        device: &mut impl Device,
        walk: &mut impl Walk,
    ) -> Taken {
        let mut taken = Taken { requests: 0, bios: [0; 2], because: Because::Done };
        let mut bytes = 0;
        let mut now = batch.now;
        let mut sweep = match batch.tagging {
            Tagging::Sweep => flight.tags.sweep(self.line.len().min(batch.requests)),
            Tagging::Single => Sweep::default(),
        };
        tell_tagged(&sweep, self.line.len().min(batch.requests), walk);
        while let Some(place) = self.line.front() {
            let request = slab.get(place);
            if request.order() == Bound::Perhaps
                && self.stays_back(slab, flight, request.footprint())
            {
                walk.step(Step::Waits { arrival: request.arrival() });
                self.line.pop_front();
                self.back.push(place);
                continue;
            }
            if taken.requests == batch.requests || bytes >= batch.bytes {
                taken.because = Because::Full;
                break;
            }
            if batch.tagging == Tagging::Single {
                flight.tags.give_rest(sweep);
                sweep = flight.tags.sweep(1);
                tell_tagged(&sweep, 1, walk);
            }
            let Some(tag) =
                sweep.first().filter(|&tag| device.prepare(tag, request.asked()).is_ok())
            else {
                walk.step(Step::Refused { arrival: request.arrival() });
                taken.because = Because::Refused;
                break;
            };
            if batch.clock == ClockReads::Each {
                now = device.now();
            }
            self.line.pop_front();
            sweep.use_first();
            let (arrival, bios) = (request.arrival(), request.bios());
            walk.step(Step::Dispatched { asked: Asked::of(arrival, request.asked()), tag, bios });
            taken.requests += 1;
            let asked = request.asked();
            let flying = Flying { place, since: now, bytes: asked.bytes(), class: asked.class };
            taken.bios[asked.class as usize] += request.bios();
            bytes += flying.bytes;
            self.bound -= usize::from(request.order() == Bound::Perhaps);
            fair[asked.class as usize].served(request.start());
            flight.insert(tag, flying);
        }
        self.line.put_back(&mut self.back);
        self.held_targets.clear();
        flight.tags.give_rest(sweep);
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

/// Tells how many of the tags that are wanted a sweep has brought.
#[inline]
fn tell_tagged<W: Walk>(sweep: &Sweep, wanted: usize, walk: &mut W) {
    let tags = if W::WATCHED { sweep.len().min(wanted) } else { 0 };
    if tags > 0 {
        walk.step(Step::Tagged { tags });
    }
}
