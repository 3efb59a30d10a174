//! Inversions inside a server: items of a pass that are served after an item that arrived later.
//!
//! ```text
//! served 4 5 6 7: no inversion     served 7 6 5 4: three inversions in four items
//! ```
//!
//! They are counted from the numbers that the items have from their arrival. No clock is read, so
//! the count does not depend on the machine. Bytes of one connection are never reversed, so only a
//! pass with items of several connections can have inversions.

/// Counts of one pass, item by item in the order of service.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Pass {
    /// Largest arrival number of the items so far.
    latest: u64,
    pub(super) items: u64,
    pub(super) inversions: u64,
}

impl Pass {
    /// Adds the next item.
    pub(super) fn serve(&mut self, arrival: u64) {
        self.inversions += u64::from(self.items > 0 && arrival < self.latest);
        self.latest = self.latest.max(arrival);
        self.items += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inversions(arrivals: &[u64]) -> u64 {
        let mut pass = Pass::default();
        arrivals.iter().for_each(|&arrival| pass.serve(arrival));
        assert_eq!(pass.items, arrivals.len() as u64);
        pass.inversions
    }

    #[test]
    fn an_item_is_inverted_if_a_later_one_was_served_before_it() {
        assert_eq!(inversions(&[]), 0);
        assert_eq!(inversions(&[4, 5, 6, 9]), 0);
        assert_eq!(inversions(&[7, 6, 5, 4]), 3);
        // The second connection arrived last and goes first. Both keep their order.
        assert_eq!(inversions(&[3, 5, 0, 1, 2, 4]), 4);
        assert_eq!(inversions(&[0, 2, 1, 3]), 1);
    }
}
