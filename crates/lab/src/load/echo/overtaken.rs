//! How many messages that were sent later were answered before one: what reordered work looks like
//! from outside.
//!
//! A window of bits, one for each message from the oldest that is not answered on. It is as long as
//! messages overtake each other, in words of 64.

use std::collections::VecDeque;

/// The set of answered messages, which are numbered from 0 in the order of sending.
#[derive(Debug, Default)]
pub(crate) struct Overtaken {
    /// The number of the first bit: a multiple of 64. All below it are answered.
    first: u64,
    answered: VecDeque<u64>,
}

impl Overtaken {
    /// A message is answered: how many with a greater number were before.
    pub(crate) fn answered(&mut self, number: u64) -> u64 {
        let place = number.checked_sub(self.first).expect("a message is answered once");
        let (word, bit) = ((place / 64) as usize, place % 64);
        if word >= self.answered.len() {
            self.answered.resize(word + 1, 0);
        }
        assert!(self.answered[word] >> bit & 1 == 0, "message {number} is answered twice");
        let greater_in_its_word = (self.answered[word] >> bit).count_ones();
        let later_words =
            self.answered.range(word + 1..).map(|word| word.count_ones()).sum::<u32>();
        self.answered[word] |= 1 << bit;
        while self.answered.front() == Some(&u64::MAX) {
            self.answered.pop_front();
            self.first += 64;
        }
        u64::from(greater_in_its_word + later_words)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn in_order_nobody_is_overtaken() {
        let mut overtaken = Overtaken::default();
        assert!((0..1000).all(|number| overtaken.answered(number) == 0));
        assert!(overtaken.answered.len() <= 1, "what is over is forgotten");
    }

    proptest! {
        #[test]
        fn it_counts_what_a_list_would(order in Just((0..300_u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut overtaken = Overtaken::default();
            for (turn, number) in order.iter().enumerate() {
                let before = order[..turn].iter().filter(|earlier| *earlier > number).count();
                prop_assert_eq!(overtaken.answered(*number), before as u64);
            }
        }
    }
}
