//! Where blocks are: each group gives out its own one after the other.

/// Where pages are on the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Address(u64);

/// Pages of a group: more than any run writes.
const GROUP: u64 = 1 << 32;

impl Address {
    /// So many pages on.
    pub(super) fn plus(self, pages: u32) -> Self {
        Self(self.0 + u64::from(pages))
    }

    /// Whose it is.
    pub(super) fn group(self) -> usize {
        (self.0 / GROUP) as usize
    }

    /// In pages.
    pub(super) fn page(self) -> u64 {
        self.0
    }
}

/// The groups' free space.
#[derive(Debug)]
pub(super) struct Space {
    taken: Vec<u64>,
}

impl Space {
    /// All of it free.
    pub(super) fn new(groups: u64) -> Self {
        Self { taken: vec![0; groups as usize] }
    }

    /// The next pages of a group.
    pub(super) fn allocate(&mut self, group: usize, pages: u32) -> Address {
        let address = Address(group as u64 * GROUP + self.taken[group]);
        self.taken[group] += u64::from(pages);
        assert!(self.taken[group] <= GROUP, "a group is larger than any run");
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_together_lies_together_and_nothing_twice() {
        let mut space = Space::new(2);
        let first = space.allocate(1, 3);
        let other = space.allocate(0, 1);
        assert_eq!(space.allocate(1, 2), first.plus(3));
        assert_eq!((first.group(), other.group()), (1, 0));
        assert_ne!(first, other);
    }
}
