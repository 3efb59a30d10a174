//! Devices that do not answer for a time, or never. Their requests stay in flight: nothing of them
//! happens, and a loss of power may find any part of them.

use std::path::Path;

use forebay_block::Moment;

use super::flying::Flying;
use super::state::{Last, Machine, with};
use crate::world;

/// The end of a request at a device that hangs.
const NEVER: Moment = Moment::from_nanoseconds(u64::MAX);

/// Stops the device of a file, from now on.
///
/// # Panics
/// If the path leads to no file.
pub fn hang(path: impl AsRef<Path>) {
    with(|machine| {
        let node = machine.existing(path.as_ref(), Last::Follow);
        let node = node.unwrap_or_else(|error| panic!("no file: {error}"));
        let device = machine.inode(node).identity.device;
        machine.hung.insert(device);
        machine.put_off(|machine, flying| machine.is_hung(flying).then_some(NEVER));
        world::trace(format_args!("device {device} hangs"));
    });
}

/// Has all devices answer again.
pub fn resume() {
    with(|machine| {
        if machine.hung.is_empty() {
            return;
        }
        let were_hung = std::mem::take(&mut machine.hung);
        machine.put_off(|machine, flying| {
            let device = machine.inode(flying.node).identity.device;
            let end = world::after(world::now(), machine.plan.latency.most);
            were_hung.contains(&device).then_some(end)
        });
        world::trace(format_args!("devices {were_hung:?} answer again"));
    });
}

/// Returns the number of requests at devices that hang.
#[must_use]
pub fn hung_requests() -> usize {
    with(|machine| machine.flying.values().filter(|flying| machine.is_hung(flying)).count())
}

impl Machine {
    fn is_hung(&self, flying: &Flying) -> bool {
        self.hung.contains(&self.inode(flying.node).identity.device)
    }

    /// Returns when a request ends that reaches its device now, and would end at this time.
    pub(super) fn end_of(&self, flying: &Flying, end: Moment) -> Moment {
        if self.is_hung(flying) { NEVER } else { end }
    }

    /// Returns when the next request ends.
    pub(super) fn next_end(&self) -> Option<Moment> {
        self.flying.first_key_value().map(|((end, _), _)| *end).filter(|end| *end != NEVER)
    }

    /// Changes the ends of requests.
    fn put_off(&mut self, end: impl Fn(&Self, &Flying) -> Option<Moment>) {
        let requests = self.flying.iter();
        let moved = requests.filter_map(|(key, flying)| Some((*key, end(self, flying)?)));
        let moved: Vec<_> = moved.collect();
        for (key, end) in moved {
            let flying = self.flying.remove(&key).expect("found above");
            self.flying.insert((end, key.1), flying);
        }
    }
}
