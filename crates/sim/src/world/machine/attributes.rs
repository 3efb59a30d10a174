//! Attributes of a file that an intent log looks at: its birth, the time of its last change, and
//! its mark.
//!
//! Marks and change times are metadata in the journal: they survive in order. A full flush makes
//! them durable. A flush of the data alone may do so, or not.

use forebay_block::Moment;
use forebay_log::{Mark, Wall};
use forebay_uring::Lasting;

use super::names::Node;
use super::state::Machine;
use crate::marks;
use crate::random::PerMille;
use crate::world;

/// The wall clock at the beginning of a world, in nanoseconds since 1970.
const BEGINNING: i64 = 1_700_000_000_000_000_000;

/// Mark and change time at one moment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Attributes {
    pub(crate) mark: Option<Vec<u8>>,
    pub(crate) changed: i64,
}

/// The attributes of a file.
#[derive(Clone, Default, Debug)]
pub(crate) struct Logged {
    born: i64,
    generation: u32,
    durable: Attributes,
    /// Later attributes, by the number of their change.
    later: Vec<(u64, Attributes)>,
}

impl Logged {
    /// Returns the attributes of a new file.
    pub(super) fn new(node: Node, now: i64) -> Self {
        let durable = Attributes { mark: None, changed: now };
        Self { born: now, generation: node.0 as u32, durable, later: Vec::new() }
    }

    pub(crate) fn current(&self) -> &Attributes {
        self.later.last().map_or(&self.durable, |(_, attributes)| attributes)
    }

    /// Records a change of the file.
    pub(super) fn touch(&mut self, sequence: u64, changed: i64) {
        let mark = self.current().mark.clone();
        let changed = changed.max(self.current().changed);
        let now = (sequence, Attributes { mark, changed });
        match &mut self.later[..] {
            // Between these two nothing but the time has changed.
            [.., (_, before), last] if before.mark == now.1.mark && last.1.mark == now.1.mark => {
                *last = now;
            }
            _ => self.later.push(now),
        }
    }

    fn set_mark(&mut self, sequence: u64, mark: Option<Vec<u8>>, changed: i64) {
        self.later.push((sequence, Attributes { mark, changed }));
    }

    /// Returns whether a mark is not durable yet.
    pub(super) fn has_new_mark(&self) -> bool {
        self.later.iter().any(|(_, attributes)| attributes.mark != self.durable.mark)
    }

    /// Makes the attributes of that time durable.
    pub(super) fn flush(&mut self, sequence: u64) {
        let covered = self.later.partition_point(|(at, _)| *at <= sequence);
        if let Some((_, last)) = self.later.drain(..covered).next_back() {
            self.durable = last;
        }
    }

    /// Returns the numbers of the changes that are not durable, of a file that has or had a mark.
    pub(super) fn times(&self) -> impl Iterator<Item = u64> {
        let is_marked = self.durable.mark.is_some() || self.has_new_mark();
        self.later.iter().filter(move |_| is_marked).map(|(at, _)| *at)
    }

    /// Returns the attributes that survive if metadata survives up to `time`.
    pub(super) fn survivor(&self, time: u64) -> Attributes {
        let kept = self.later.iter().rev().find(|(at, _)| *at <= time);
        kept.map_or(&self.durable, |(_, attributes)| attributes).clone()
    }

    /// The attributes after a loss of power.
    pub(super) fn restart(&mut self, durable: Attributes) {
        self.durable = durable;
        self.later.clear();
    }
}

impl Machine {
    /// Returns the wall clock in nanoseconds since 1970.
    pub(crate) fn wall(&self) -> i64 {
        self.wall_at(world::now())
    }

    pub(super) fn wall_at(&self, moment: Moment) -> i64 {
        BEGINNING + moment.nanoseconds().cast_signed() + self.clock_offset
    }

    /// Records a change of a file by the kernel, now.
    pub(super) fn touch(&mut self, node: Node, sequence: u64) {
        let now = self.wall();
        self.inode_mut(node).logged.touch(sequence, now);
    }

    /// Makes mark and change time of a file durable, by a flush of all of it or of its data.
    pub(super) fn flush_logged(&mut self, node: Node, covers: u64, is_of_all: bool) {
        let is_covered = is_of_all
            || !self.inode(node).logged.has_new_mark()
            || self.random.happens(PerMille(300));
        if is_covered {
            self.inode_mut(node).logged.flush(covers);
        } else {
            marks::hit("mark not covered by a flush of data");
        }
    }

    pub(crate) fn lasting(&self, node: Node) -> Lasting {
        let inode = self.inode(node);
        Lasting {
            inode: inode.identity.inode,
            generation: Some(inode.logged.generation),
            born: Some(inode.logged.born),
            changed: inode.logged.current().changed,
        }
    }

    pub(crate) fn set_log_mark(&mut self, node: Node, mark: Option<Vec<u8>>) {
        let (sequence, now) = (self.next_sequence(), self.wall());
        let decoded = mark.as_ref().and_then(|mark| Mark::decode(mark));
        if decoded.is_some_and(|mark| mark.promise != Wall::default()) {
            marks::hit("promise in a mark");
        }
        self.inode_mut(node).logged.set_mark(sequence, mark, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_in_order_and_by_a_flush() {
        let mut logged = Logged::new(Node(7), 10);
        logged.touch(1, 11);
        logged.set_mark(2, Some(vec![1]), 12);
        (3..9).for_each(|at| logged.touch(at, 10 + at.cast_signed()));
        logged.set_mark(9, None, 30);
        assert!(logged.has_new_mark());
        let mark = |time| logged.survivor(time).mark;
        assert_eq!(
            [mark(1), mark(2), mark(8), mark(9)],
            [None, Some(vec![1]), Some(vec![1]), None]
        );
        assert_eq!(logged.survivor(8).changed, 18);
        logged.flush(2);
        assert_eq!(logged.survivor(0), Attributes { mark: Some(vec![1]), changed: 12 });
        logged.flush(9);
        assert!(!logged.has_new_mark() && logged.times().next().is_none());
        assert_eq!(logged.current(), &Attributes { mark: None, changed: 30 });
    }
}
