//! Space: each group allocates its blocks one after the other.

/// Place of a page on the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Address(u64);

/// Pages in a group: more than any run writes.
const GROUP: u64 = 1 << 32;

impl Address {
    /// Returns the place `pages` pages further.
    pub(super) fn plus(self, pages: u32) -> Self {
        Self(self.0 + u64::from(pages))
    }

    /// Returns its group.
    pub(super) fn group(self) -> usize {
        (self.0 / GROUP) as usize
    }

    /// Returns its number, in pages from the start of the device.
    pub(super) fn page(self) -> u64 {
        self.0
    }
}

/// Free space of the groups.
#[derive(Debug)]
pub(super) struct Space {
    taken: Vec<u64>,
}

impl Space {
    /// Creates groups that are all free.
    pub(super) fn new(groups: u64) -> Self {
        Self { taken: vec![0; groups as usize] }
    }

    /// Allocates the next pages of a group.
    pub(super) fn allocate(&mut self, group: usize, pages: u32) -> Address {
        let address = Address(group as u64 * GROUP + self.taken[group]);
        self.taken[group] += u64::from(pages);
        assert!(self.taken[group] <= GROUP, "the run has filled a group");
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_allocated_together_are_adjacent_and_never_allocated_twice() {
        let mut space = Space::new(2);
        let first = space.allocate(1, 3);
        let other = space.allocate(0, 1);
        assert_eq!(space.allocate(1, 2), first.plus(3));
        assert_eq!((first.group(), other.group()), (1, 0));
        assert_ne!(first, other);
    }
}
