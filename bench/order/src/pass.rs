//! A pass: the completions of one call of the kernel in the order of service, and their inversions.
//!
//! ```text
//! arrived  a0 b1 a2 c3     fifo: a0 b1 a2 c3     lifo: c3 b1 a0 a2
//! ```
//!
//! An inversion is an item that is served after an item of the same pass that arrived later. They
//! are counted from numbers, so the count does not depend on the machine.

use std::cmp::Reverse;

use crate::load::Order;

/// Received bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    /// Number in the order of arrival.
    pub(crate) number: u64,
    /// Number of the first item of the same connection in this pass.
    pub(crate) first: u64,
    pub(crate) connection: usize,
    pub(crate) buffer: u16,
    pub(crate) length: usize,
}

/// Puts the items of a pass into the order of service. Items of one connection keep theirs.
pub(crate) fn arrange(items: &mut [Item], order: Order) {
    if order == Order::Lifo {
        items.sort_unstable_by_key(|item| (Reverse(item.first), item.number));
    }
}

/// Counts of one pass, item by item in the order of service.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Pass {
    latest: u64,
    pub(crate) items: u64,
    pub(crate) inversions: u64,
}

impl Pass {
    /// Counts the next item.
    pub(crate) fn serve(&mut self, arrival: u64) {
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
        assert_eq!(inversions(&[3, 5, 0, 1, 2, 4]), 4);
        assert_eq!(inversions(&[0, 2, 1, 3]), 1);
    }

    #[test]
    fn a_reversed_pass_turns_connections_and_no_stream() {
        let item =
            |number, first, connection| Item { number, first, connection, buffer: 0, length: 1 };
        let arrived = [item(0, 0, 7), item(1, 1, 8), item(2, 0, 7), item(3, 3, 9)];
        let served = |order| {
            let mut items = arrived;
            arrange(&mut items, order);
            items.map(|item| item.number)
        };
        assert_eq!(served(Order::Fifo), [0, 1, 2, 3]);
        assert_eq!(served(Order::Lifo), [3, 1, 0, 2]);
    }
}
