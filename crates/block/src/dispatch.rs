//! Dispatch: one batch of requests to the device. It takes tags in one sweep and prepares each
//! request.
//!
//! Requests that a caller waits for go before background writeback. Within a class the order is by
//! the share that the source has used (see [`fair`](crate::fair)); for one source that is the order
//! of arrival. Two rules bend this order for correctness:
//!
//! - A background request that conflicts with a later waited one is served with the waited ones,
//!   ahead of it: it is then waited for as well. Likewise, within a class, an earlier request of
//!   another source goes ahead of a later one that conflicts with it.
//! - A request that conflicts with one in flight stays back until that one has ended. So do all
//!   later requests of the same target that may conflict with any other, so that none overtakes it.
//!
//! After [`PASSED_OVER`](crate::limits::PASSED_OVER) consecutive batches that left all background
//! requests behind, the oldest of them goes first.
//!
//! A refused request keeps its place and goes first next time: no younger request of its class and
//! source can overtake it.

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

/// Merged requests that are not at the device, in the order of service.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    line: Line,
    /// Requests that may have to wait for an earlier one.
    bound: usize,
    // Empty between calls; they keep their allocations.
    back: Vec<Place>,
    held_targets: Vec<Target>,
}

/// Bounds and settings of one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// Maximum of requests.
    pub(crate) requests: usize,
    /// Maximum of bytes; the last request may exceed it.
    pub(crate) bytes: u64,
    /// How tags are taken.
    pub(crate) tagging: Tagging,
    /// How often the clock is read.
    pub(crate) clock: ClockReads,
    /// Time at which the batch is taken by the device.
    pub(crate) now: Moment,
}

/// Result of one batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Requests that the device took.
    pub(crate) requests: usize,
    /// Bios in them, by class.
    pub(crate) bios: [usize; 2],
    /// Why the batch ended.
    pub(crate) because: Because,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Because {
    /// No request is left that may go.
    Done,
    /// The batch is full.
    Full,
    /// The device refused a request, or no tag was free.
    Refused,
}

impl Waiting {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Appends a request.
    pub(crate) fn push(&mut self, slab: &Slab, place: Place) {
        let request = slab.get(place);
        self.bound += usize::from(request.order() == Bound::Perhaps);
        self.line.push(key(request), place);
    }

    /// Returns the last `count` requests.
    pub(crate) fn last(&self, count: usize) -> &[Place] {
        let places = self.line.as_slice();
        &places[places.len() - count..]
    }

    /// Appends all requests of `line`, `bound` of them with [`Bound::Perhaps`].
    #[inline]
    pub(crate) fn append(&mut self, line: &mut Line, bound: usize) {
        debug_assert!(bound <= line.len(), "{bound} of {} requests are bound", line.len());
        self.bound += bound;
        self.line.append(line);
    }

    /// Sorts the requests in the order of service.
    #[inline]
    pub(crate) fn arrange(&mut self, slab: &mut Slab) {
        if self.bound > 0 {
            self.arrange_bound(slab);
        } else if !self.line.is_arranged() {
            self.line.arrange(slab);
        }
        debug_assert!(
            self.bound > 0 || self.line.as_slice().is_sorted_by_key(|&place| key(slab.get(place))),
            "requests are not in the order of service"
        );
    }

    /// As `arrange`, if some requests must keep their order.
    fn arrange_bound(&mut self, slab: &mut Slab) {
        let places = self.line.as_mut_slice();
        places.sort_unstable_by_key(|&place| slab.get(place).arrival());
        // No request may begin before an earlier one that it conflicts with.
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
        // A background request that conflicts with a later waited one is waited for as well.
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
        debug_assert!(
            places.iter().enumerate().all(|(index, &place)| {
                let (this, mut before) = (slab.get(place), places[..index].iter());
                before.all(|&before| {
                    let before = slab.get(before);
                    before.arrival() < this.arrival()
                        || !before.footprint().conflicts(this.footprint())
                })
            }),
            "contract 15: a request is ahead of an earlier one that it conflicts with"
        );
    }

    /// Moves the first background request that conflicted with no earlier one to the front.
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

    /// Prepares requests in order, up to the bounds of the batch. The others stay, in order.
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
        report_tagged(&sweep, self.line.len().min(batch.requests), walk);
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
                report_tagged(&sweep, 1, walk);
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
            debug_assert!(
                !flight.holds_up(slab, request.footprint()),
                "contract 15: a request conflicts with one in flight: {request:?}"
            );
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
        debug_assert!(self.bound <= self.line.len(), "more requests are bound than wait");
        taken
    }

    /// Returns whether a request must wait for one in flight, or for an earlier one that waits.
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

/// Reports how many of the wanted tags a sweep has taken.
#[inline]
fn report_tagged<W: Walk>(sweep: &Sweep, wanted: usize, walk: &mut W) {
    let tags = if W::WATCHED { sweep.len().min(wanted) } else { 0 };
    if tags > 0 {
        walk.step(Step::Tagged { tags });
    }
}
