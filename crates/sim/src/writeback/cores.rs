//! Cores: whoever has something to do gets one for a step of work, first come first served.

use std::collections::VecDeque;
use std::time::Duration;

/// Who works.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Actor {
    /// A writeback context, by number.
    Context(usize),
    /// What converts the blocks of a file, by the file's number.
    Worker(usize),
}

/// The cores of the machine.
#[derive(Debug)]
pub(super) struct Cores {
    free: u64,
    waiting: VecDeque<(Actor, Duration)>,
    busy: Duration,
}

impl Cores {
    /// So many, all free.
    pub(super) fn new(cores: u64) -> Self {
        Self { free: cores, waiting: VecDeque::new(), busy: Duration::ZERO }
    }

    /// Somebody has work. Whether it is begun; else it waits its turn.
    pub(super) fn begin(&mut self, actor: Actor, work: Duration) -> bool {
        if self.free == 0 {
            self.waiting.push_back((actor, work));
            return false;
        }
        self.free -= 1;
        self.busy += work;
        true
    }

    /// A step of work is done. Whose begins now, on that core.
    pub(super) fn end(&mut self) -> Option<(Actor, Duration)> {
        let next = self.waiting.pop_front();
        match next {
            Some((_, work)) => self.busy += work,
            None => self.free += 1,
        }
        next
    }

    /// Time of all cores together that was worked, steps begun counted in full.
    pub(super) fn busy(&self) -> Duration {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_is_served_first() {
        let mut cores = Cores::new(2);
        let micros = Duration::from_micros;
        let begun: Vec<bool> = (0..4).map(|number| cores.begin(Actor::Context(number), micros(5))).collect();
        assert_eq!(begun, [true, true, false, false]);
        assert_eq!(cores.end(), Some((Actor::Context(2), micros(5))));
        assert_eq!(cores.end(), Some((Actor::Context(3), micros(5))));
        assert_eq!((cores.end(), cores.end()), (None, None));
        assert_eq!(cores.busy(), micros(20));
        assert!(cores.begin(Actor::Worker(0), micros(1)));
    }
}
