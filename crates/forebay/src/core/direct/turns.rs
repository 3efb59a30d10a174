//! Bios of direct files that wait for room in the queue. Files take turns, by bytes.
//!
//! Bios of one file leave first in, first out, so overlapping ones keep their order. A turn has the
//! bytes of one large request. So a file with thousands of waiting bios delays no other file by
//! more than that. Flushes go first: they cover completed writes and wait for nothing.
//!
//! Bios of a device that hangs stay in the queue, at the device or behind one there, and may fill
//! it. So each device has a few places of its own. Pure: no time, no device.

use std::collections::VecDeque;

use forebay_block::limits::{PAGE, REQUEST_BYTES};
use forebay_block::{Bio, Target};

use crate::core::limits::{DIRECT_LEAST, DIRECT_LOOKS};

/// Waiting bios.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    flushes: VecDeque<Bio>,
    /// Lines by the number of their target.
    lines: Vec<Line>,
    /// Lines that are not empty, in the order of their turns.
    order: VecDeque<usize>,
    devices: Vec<Device>,
}

#[derive(Debug, Default)]
struct Line {
    bios: VecDeque<Bio>,
    /// Bytes left of its turn.
    left: u64,
    /// Bios of its file in the queue or at the device.
    on_their_way: usize,
    /// Index of the device of its file.
    device: usize,
}

/// Bios of one device.
#[derive(Debug)]
struct Device {
    /// Number of the device.
    number: u64,
    waiting: usize,
    /// Bios in the queue or at the device.
    on_their_way: usize,
}

/// Selection of the bios that may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// Bios of every device.
    ForAll,
    /// Bios of devices that have few on their way.
    ForFew,
}

impl Turns {
    /// Adds a file of a device, before its first bio.
    pub(crate) fn enter(&mut self, target: Target, device: u64) {
        let number = target.0 as usize;
        if self.lines.len() <= number {
            self.lines.resize_with(number + 1, Line::default);
        }
        let line = &self.lines[number];
        let is_idle = line.bios.is_empty() && line.on_their_way == 0;
        assert!(is_idle, "ends of its bios would count for another device");
        let known = self.devices.iter().position(|known| known.number == device);
        self.lines[number].device = known.unwrap_or_else(|| {
            self.devices.push(Device { number: device, waiting: 0, on_their_way: 0 });
            self.devices.len() - 1
        });
    }

    fn device(&mut self, target: Target) -> &mut Device {
        &mut self.devices[self.lines[target.0 as usize].device]
    }

    /// Appends a bio to the line of its file.
    pub(crate) fn push(&mut self, bio: Bio) {
        self.device(bio.target).waiting += 1;
        let number = bio.target.0 as usize;
        let line = &mut self.lines[number];
        if line.bios.is_empty() {
            line.left = REQUEST_BYTES;
            self.order.push_back(number);
        }
        line.bios.push_back(bio);
    }

    /// Appends a flush, which goes before all other bios.
    pub(crate) fn push_flush(&mut self, bio: Bio) {
        self.device(bio.target).waiting += 1;
        self.flushes.push_back(bio);
    }

    /// Removes and returns the next bio that may go. It is on its way until [`Turns::ended`].
    pub(crate) fn pop(&mut self, room: Room) -> Option<Bio> {
        if room == Room::ForFew && !self.devices.iter().any(Device::may_go) {
            return None;
        }
        let bio = self.next(room)?;
        let device = self.device(bio.target);
        assert!(device.waiting > 0, "a device without bios would be asked for one for ever");
        device.waiting -= 1;
        device.on_their_way += 1;
        self.lines[bio.target.0 as usize].on_their_way += 1;
        Some(bio)
    }

    /// Notes that a bio has ended.
    pub(crate) fn ended(&mut self, target: Target) {
        let device = self.device(target);
        assert!(device.on_their_way > 0, "a bio ends once");
        device.on_their_way -= 1;
        let line = &mut self.lines[target.0 as usize];
        assert!(line.on_their_way > 0, "a file would never count as idle again");
        line.on_their_way -= 1;
    }

    /// Removes the waiting bios of a file.
    pub(crate) fn remove(&mut self, target: Target) {
        let number = target.0 as usize;
        let flushes = self.flushes.len();
        self.flushes.retain(|bio| bio.target != target);
        let removed = flushes - self.flushes.len() + self.lines[number].bios.len();
        self.lines[number].bios.clear();
        self.order.retain(|line| *line != number);
        let device = self.device(target);
        assert!(device.waiting >= removed, "a bio of another file would wait for ever");
        device.waiting -= removed;
    }

    /// Returns whether bios of a file are in the queue or at the device.
    pub(crate) fn are_on_their_way(&self, target: Target) -> bool {
        self.lines[target.0 as usize].on_their_way > 0
    }

    fn next(&mut self, room: Room) -> Option<Bio> {
        let Self { flushes, lines, order, devices } = &*self;
        let goes = |number: usize| room == Room::ForAll || devices[lines[number].device].may_go();
        if let Some(at) = flushes.iter().position(|bio| goes(bio.target.0 as usize)) {
            return self.flushes.remove(at);
        }
        let looks = order.len().min(DIRECT_LOOKS);
        let at = order.iter().take(looks).position(|number| goes(*number));
        // The others are looked at next time.
        self.order.rotate_left(at.unwrap_or(looks));
        at?;
        let number = *self.order.front()?;
        let line = &mut self.lines[number];
        let bio = line.bios.pop_front().expect("a line in the order is not empty");
        // A bio without bytes uses up part of the turn, too.
        line.left = line.left.saturating_sub(bio.length.max(PAGE as u64));
        if line.bios.is_empty() || line.left == 0 {
            line.left = REQUEST_BYTES;
            self.order.pop_front();
            if !line.bios.is_empty() {
                self.order.push_back(number);
            }
        }
        Some(bio)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flushes.is_empty() && self.order.is_empty()
    }
}

impl Device {
    fn may_go(&self) -> bool {
        self.waiting > 0 && self.on_their_way < DIRECT_LEAST
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::{Class, Operation, Segments, Source, Target};

    use super::*;

    fn bio(operation: Operation, target: u32, length: u64, owner: u64) -> Bio {
        let (source, target) = (Source(target), Target(target));
        let (class, segments) = (Class::Waited, Segments::new());
        Bio { operation, target, offset: 0, length, segments, class, source, owner }
    }

    #[test]
    fn contract_15_files_take_turns_by_bytes_and_keep_their_order() {
        let mut turns = Turns::default();
        [7, 2, 3, 5].into_iter().for_each(|target| turns.enter(Target(target), 1));
        for owner in 0..4 {
            turns.push(bio(Operation::Write, 7, REQUEST_BYTES, owner));
        }
        for owner in 10..14 {
            turns.push(bio(Operation::Read, 2, REQUEST_BYTES / 2, owner));
        }
        turns.push(bio(Operation::Read, 3, 1, 20));
        turns.push_flush(bio(Operation::FlushData, 5, 0, 30));
        let next = |turns: &mut Turns| turns.pop(Room::ForAll).map(|bio| bio.owner);
        let order: Vec<u64> = std::iter::from_fn(|| next(&mut turns)).collect();
        assert_eq!(order, [30, 0, 10, 11, 20, 1, 12, 13, 2, 3]);
        assert!(turns.is_empty());
    }

    #[test]
    fn contract_15_each_device_has_places_that_a_hung_one_cannot_take() {
        let mut turns = Turns::default();
        let (hung, well) = (0, DIRECT_LOOKS as u32 + 1);
        (hung..well).for_each(|target| turns.enter(Target(target), 1));
        turns.enter(Target(well), 2);
        for target in hung..well {
            turns.push(bio(Operation::Write, target, 1, 0));
        }
        let next = |turns: &mut Turns, room| turns.pop(room).map(|bio| bio.target.0);
        for _ in 0..DIRECT_LEAST {
            assert!(next(&mut turns, Room::ForFew).is_some_and(|target| target < well));
        }
        assert_eq!(next(&mut turns, Room::ForFew), None);
        for _ in 0..=DIRECT_LEAST {
            turns.push(bio(Operation::Write, well, 1, 0));
        }
        // It is behind all others, which are looked at a part at a time.
        let mut gone = (0..100).filter_map(|_| next(&mut turns, Room::ForFew));
        assert!(gone.by_ref().take(DIRECT_LEAST).all(|target| target == well));
        assert_eq!(gone.next(), None, "it has all of its places");
        drop(gone);
        turns.ended(Target(well));
        turns.push_flush(bio(Operation::FlushData, well, 0, 0));
        turns.push_flush(bio(Operation::FlushData, hung, 0, 0));
        let flush = turns.pop(Room::ForFew).unwrap();
        assert_eq!((flush.operation, flush.target.0), (Operation::FlushData, well));
    }
}
