//! A completion run: what has completed is ended in one go, in the order it was reaped.
//!
//! A completion list, not a callback per completion: the caller wakes once per run whom it has to wake. Nothing is
//! ended by recursion; what must be asked again waits for the next dispatch.

use alloc::vec::Vec;

use crate::counters::Latency;
use crate::device::{Completion, Device};
use crate::flight::Flight;
use crate::knobs::{ClockReads, Order};
use crate::request::{Ended, Next, Request};
use crate::slab::Slab;
use crate::time::Moment;
use crate::walk::{Asked, Step, Walk};

/// A run about to be made.
#[derive(Debug)]
pub(crate) struct Run<'a, W> {
    pub(crate) order: Order,
    pub(crate) clock: ClockReads,
    pub(crate) now: Moment,
    pub(crate) latency: &'a mut [Latency; 2],
    pub(crate) walk: &'a mut W,
}

impl<W: Walk> Run<'_, W> {
    /// Ends what has completed; appends ended bios to `ended`, and hands what is to be asked again to `again`.
    #[inline]
    pub(crate) fn end(
        mut self,
        completions: &mut Vec<Completion>,
        slab: &mut Slab,
        flight: &mut Flight,
        device: &mut impl Device,
        ended: &mut Vec<Ended>,
        mut again: impl FnMut(&mut Slab, Request),
    ) {
        if self.order == Order::Lifo {
            completions.reverse();
        }
        for Completion { tag, result } in completions.drain(..) {
            if self.clock == ClockReads::Each {
                self.now = device.now();
            }
            let flying = flight.remove(slab, tag);
            let request = slab.remove(flying.place);
            self.latency[request.class() as usize].add(self.now.nanoseconds_since(flying.since));
            let before = ended.len();
            let arrivals = if W::WATCHED { request.arrivals() } else { Vec::new() };
            let next = request.complete(result, ended);
            if W::WATCHED {
                tell(arrivals, &ended[before..], &next, self.walk);
            }
            match next {
                Next::Done => {}
                Next::Again(request) => again(slab, request),
                Next::Apart(requests) => requests.into_iter().for_each(|request| again(slab, request)),
            }
        }
    }
}

/// Tells what became of the bios of a request, which came as these. They end in the order they came.
fn tell(mut arrivals: Vec<u64>, ended: &[Ended], next: &Next, walk: &mut impl Walk) {
    let asked = |request: &Request| Asked::of(request.arrival(), request.asked());
    if let Next::Apart(requests) = next {
        arrivals.retain(|&arrival| requests.iter().all(|request| request.arrival() != arrival));
    }
    for (end, arrival) in ended.iter().zip(arrivals) {
        walk.step(Step::Ended { arrival, result: end.result });
    }
    match next {
        Next::Done => {}
        Next::Again(request) => walk.step(Step::Again { asked: asked(request) }),
        Next::Apart(requests) => {
            requests.iter().for_each(|request| walk.step(Step::Apart { asked: asked(request) }));
        }
    }
}
