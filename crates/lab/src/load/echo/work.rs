//! Work of a server for a message besides the answer: none, or spinning for a while.

use std::time::{Duration, Instant};

use forebay_block::random::Random;

/// Work that varies from message to message, evenly between none and twice its mean.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    mean: Duration,
    random: Random,
    message_bytes: usize,
}

impl Work {
    pub(crate) fn new(load: &crate::echo::EchoLoad, seed: u64) -> Self {
        Self {
            mean: Duration::from_micros(load.work_micros.into()),
            random: Random::stream(seed, 3),
            message_bytes: load.message_bytes as usize,
        }
    }

    pub(crate) fn is_some(&self) -> bool {
        !self.mean.is_zero()
    }

    /// Counts received bytes of a connection; `before` are the bytes of the unfinished message.
    /// Does the work for each message that is complete now.
    pub(crate) fn received(&mut self, before: &mut usize, bytes: usize) {
        if !self.is_some() {
            return;
        }
        *before += bytes;
        let whole = *before / self.message_bytes;
        *before %= self.message_bytes;
        for _ in 0..whole {
            let share = self.random.draw() >> 11;
            self.turn((self.mean * 2).mul_f64(share as f64 / (1_u64 << 53) as f64));
        }
    }

    fn turn(&self, long: Duration) {
        let began = Instant::now();
        while began.elapsed() < long {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::{EchoLoad, tests::SMALL};

    #[test]
    fn work_is_done_for_whole_messages_alone() {
        let mut work = Work::new(&EchoLoad { work_micros: 1, ..SMALL }, 1);
        let mut before = 0;
        let left = [5, 3, 1, 20].map(|bytes| {
            work.received(&mut before, bytes);
            before
        });
        assert_eq!(left, [5, 8, 0, 2]);
        let mut none = Work::new(&SMALL, 1);
        none.received(&mut before, 100);
        assert_eq!(before, 2, "nobody keeps count where there is none");
    }
}
