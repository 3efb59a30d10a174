//! Dispatch: one batch to the device. Tags in one sweep, each request prepared, one doorbell.
//!
//! Order: what somebody waits for goes before background writeback; within a class, oldest first. Two things
//! bend this, both for correctness. A background request that a waited one conflicts with is served with the
//! waited ones, ahead of it (it is waited for as well, then). And a request that conflicts with one in flight
//! stays back until that has ended, and all of the same target behind it stay too, so that nothing overtakes.
//!
//! What the device refuses comes back in its place, and goes first next time: nothing younger of its class can
//! get before it.

use alloc::vec::Vec;

use crate::bio::{Class, Errno, Target};
use crate::device::{Device, Tag, Wait};
use crate::flight::Flight;
use crate::request::Request;
use crate::walk::{Asked, Step, Walk};

/// What one dispatch did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatched {
    /// Requests the device took.
    pub requests: usize,
    /// Calls to the device.
    pub doorbells: usize,
}

/// Puts requests in the order they are to be served.
pub fn arrange(requests: &mut Vec<Request>) {
    requests.sort_by_key(Request::arrival);
    if requests.is_sorted_by_key(Request::class) {
        return;
    }
    let mut urgent: Vec<usize> = Vec::with_capacity(requests.len());
    for place in (0..requests.len()).rev() {
        let footprint = requests[place].footprint();
        let is_waited_for = requests[place].class() == Class::Waited
            || urgent.iter().any(|&later| requests[later].footprint().conflicts(footprint));
        if is_waited_for {
            urgent.push(place);
        }
    }
    let mut place = 0;
    let (first, rest): (Vec<_>, Vec<_>) = requests.drain(..).partition(|_| {
        let is_urgent = urgent.last() == Some(&place);
        if is_urgent {
            urgent.pop();
        }
        place += 1;
        is_urgent
    });
    requests.extend(first);
    requests.extend(rest);
}

/// Hands one batch over. What could not go stays in `requests`, in order.
///
/// # Errors
/// Only when the device itself is broken. What it had taken stays in flight.
pub fn dispatch(
    requests: &mut Vec<Request>,
    flight: &mut Flight,
    device: &mut impl Device,
    wait: Wait,
    walk: &mut impl Walk,
) -> Result<Dispatched, Errno> {
    if requests.is_empty() && wait == Wait::Not {
        return Ok(Dispatched { requests: 0, doorbells: 0 });
    }
    let taken = prepare(requests, flight, device, walk);
    walk.step(Step::Rung { requests: taken });
    device.doorbell(wait)?;
    Ok(Dispatched { requests: taken, doorbells: 1 })
}

/// Prepares what may go, in order; says how many the device took.
fn prepare(
    requests: &mut Vec<Request>,
    flight: &mut Flight,
    device: &mut impl Device,
    walk: &mut impl Walk,
) -> usize {
    let mut tags: Vec<Tag> = Vec::with_capacity(requests.len());
    flight.tags.take(requests.len(), &mut tags);
    tags.reverse();
    if !tags.is_empty() {
        walk.step(Step::Tagged { tags: tags.len() });
    }
    let mut held_targets: Vec<Target> = Vec::new();
    let mut back = Vec::new();
    let mut taken = 0;
    let mut waiting = core::mem::take(requests).into_iter();
    for request in waiting.by_ref() {
        let footprint = request.footprint();
        let target = footprint.target();
        if held_targets.contains(&target) || flight.holds_up(footprint) {
            held_targets.push(target);
            walk.step(Step::Waits { arrival: request.arrival() });
            back.push(request);
            continue;
        }
        let accepted = tags.last().is_some_and(|&tag| device.prepare(tag, request.asked()).is_ok());
        if !accepted {
            if !tags.is_empty() {
                walk.step(Step::Refused { arrival: request.arrival() });
            }
            back.push(request);
            break;
        }
        let tag = tags.pop().expect("the device took a request under it");
        let asked = Asked::of(request.arrival(), request.asked());
        walk.step(Step::Dispatched { asked, tag, bios: request.bios() });
        flight.insert(tag, request);
        taken += 1;
    }
    back.extend(waiting);
    *requests = back;
    for tag in tags {
        flight.tags.give(tag);
    }
    taken
}
