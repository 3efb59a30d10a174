//! A completion run: what has completed is ended in one go, in the order it was reaped.
//!
//! A completion list, not a callback per completion: the caller wakes once per run whom it has to wake. Nothing is
//! ended by recursion; what must be asked again waits for the next dispatch.

use alloc::vec::Vec;

use crate::device::Completion;
use crate::flight::Flight;
use crate::request::{Ended, Next, Request};
use crate::walk::{Asked, Step, Walk};

/// Ends what has completed; appends ended bios to `ended`, and what is to be asked again to `again`. Says how
/// many requests the latter are.
pub fn run<W: Walk>(
    completions: &mut Vec<Completion>,
    flight: &mut Flight,
    again: &mut Vec<Request>,
    ended: &mut Vec<Ended>,
    walk: &mut W,
) -> usize {
    let before = again.len();
    for Completion { tag, result } in completions.drain(..) {
        let request = flight.remove(tag);
        walk.step(Step::Completed { arrival: request.arrival(), tag, result });
        let told = Told { arrivals: if W::WATCHED { request.arrivals().collect() } else { Vec::new() } };
        let (ended_before, again_before) = (ended.len(), again.len());
        let next = request.complete(result, ended);
        let is_apart = matches!(next, Next::Apart(_));
        match next {
            Next::Done => {}
            Next::Again(request) => again.push(request),
            Next::Apart(requests) => again.extend(requests),
        }
        if W::WATCHED {
            told.tell(&ended[ended_before..], &again[again_before..], is_apart, walk);
        }
    }
    again.len() - before
}

/// The bios of a request that completed, oldest first.
struct Told {
    arrivals: Vec<u64>,
}

impl Told {
    /// Tells what became of each. Bios end in the order they came, and those that did not are in `again`.
    fn tell(mut self, ended: &[Ended], again: &[Request], is_apart: bool, walk: &mut impl Walk) {
        if is_apart {
            self.arrivals.retain(|&arrival| again.iter().all(|request| request.arrival() != arrival));
        }
        for (end, arrival) in ended.iter().zip(self.arrivals) {
            walk.step(Step::Ended { arrival, result: end.result });
        }
        for request in again {
            let asked = Asked::of(request.arrival(), request.asked());
            walk.step(if is_apart { Step::Apart { asked } } else { Step::Again { asked } });
        }
    }
}
