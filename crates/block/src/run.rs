//! A completion run: what has completed is ended in one go, in the order it was reaped.
//!
//! A completion list, not a callback per completion: the caller wakes once per run whom it has to wake. Nothing is
//! ended by recursion; what must be asked again waits for the next dispatch.

use alloc::vec::Vec;

use crate::device::Completion;
use crate::flight::Flight;
use crate::request::{Ended, Next, Request};

/// Ends what has completed; appends ended bios to `ended`, and what is to be asked again to `again`. Says how
/// many requests the latter are.
pub fn run(
    completions: &mut Vec<Completion>,
    flight: &mut Flight,
    again: &mut Vec<Request>,
    ended: &mut Vec<Ended>,
) -> usize {
    let before = again.len();
    for Completion { tag, result } in completions.drain(..) {
        match flight.remove(tag).complete(result, ended) {
            Next::Done => {}
            Next::Again(request) => again.push(request),
            Next::Apart(requests) => again.extend(requests),
        }
    }
    again.len() - before
}
